//! One operation of the GPU on a case's operands, through the launches that models use.

use std::sync::Arc;

use safetensors::Dtype;
use serde_json::Value;

use super::super::cuda::kernels::{
    Attention, Blocks, Embedding, Epilogue, HALF, Linear, Norm, ScoreHead, WORD, gather, pool, query_blocks,
};
use super::super::cuda::runtime::{Buffer, Runtime, View};
use super::super::cuda::tiles::{ChipTiles, available};
use super::super::cuda::top_k;
use super::super::{Groups, Matrix};
use super::file::{Operands, Results};
use crate::error::{Error, Result};

pub struct Case<'a> {
    pub runtime: &'a Arc<dyn Runtime>,
    pub operands: &'a Operands,
    pub settings: &'a Value,
    pub place: usize,
}

impl Case<'_> {
    pub fn run(&self, op: &str, results: &mut Results) -> Result<()> {
        match op {
            "gemm" => self.gemm(results),
            "layer_norm" => self.layer_norm(results),
            "embed" => self.embed(results),
            "attention" => self.attention(results),
            "gather" => self.gather(results),
            "pool" => self.pool(results),
            "score_head" => self.score_head(results),
            "top_k" => self.top_k(results),
            _ => Err(Error::data("there is no such operation")),
        }
    }

    fn name(&self, name: &str) -> String {
        format!("{}.{name}", self.place)
    }

    fn halves(&self, name: &str) -> Result<(Buffer, [usize; 2])> {
        let (bytes, shape) = self.operands.halves(&self.name(name))?;
        Ok((Buffer::filled(self.runtime, bytes)?, shape))
    }

    fn floats(&self, name: &str, length: usize) -> Result<Vec<f32>> {
        let values = self.operands.floats(&self.name(name))?;
        if values.len() != length {
            return Err(Error::data(format!("{name} has {} values, not {length}", values.len())));
        }
        Ok(values)
    }

    fn float_buffer(&self, name: &str, length: usize) -> Result<Buffer> {
        Buffer::filled(
            self.runtime,
            &self.floats(name, length)?.iter().flat_map(|v| v.to_ne_bytes()).collect::<Vec<u8>>(),
        )
    }

    fn counts(&self, name: &str, below: usize) -> Result<Vec<u32>> {
        let values = self.operands.counts(&self.name(name))?;
        match values.iter().find(|v| **v as usize >= below) {
            Some(v) => Err(Error::data(format!("{name} holds {v}, which is not below {below}"))),
            None => Ok(values),
        }
    }

    fn words(&self, values: &[u32]) -> Result<Buffer> {
        Buffer::filled(self.runtime, &values.iter().flat_map(|v| v.to_ne_bytes()).collect::<Vec<u8>>())
    }

    fn number(&self, key: &str) -> Result<f64> {
        self.settings.get(key).and_then(Value::as_f64).ok_or_else(|| Error::data(format!("{key} is missing")))
    }

    /// A result of bf16, filled with NaN until a kernel writes it.
    fn out(&self, values: usize, bytes_each: usize) -> Result<Buffer> {
        Buffer::filled(self.runtime, &vec![0xff; values * bytes_each])
    }

    fn keep(&self, results: &mut Results, name: &str, dtype: Dtype, shape: &[usize], from: &Buffer) -> Result<()> {
        let each = if dtype == Dtype::BF16 { HALF } else { WORD };
        let mut bytes = vec![0; shape.iter().product::<usize>() * each];
        from.download(&mut bytes)?;
        results.put(self.name(name), dtype, shape, bytes);
        Ok(())
    }

    fn norm(&self, hidden: usize) -> Result<Norm> {
        let (gain, shift) = (self.float_buffer("gain", hidden)?, self.float_buffer("shift", hidden)?);
        Ok(Norm { gain, shift, epsilon: self.number("epsilon")? as f32 })
    }

    fn gemm(&self, results: &mut Results) -> Result<()> {
        let (a, [rows, depth]) = self.halves("a")?;
        let (weight, [columns, own_depth]) = self.operands.halves(&self.name("w"))?;
        if depth != own_depth {
            return Err(Error::data(format!("a has {depth} columns, w {own_depth}")));
        }
        let bias = self.floats("bias", columns)?;
        let residual = match self.settings.get("epilogue").and_then(Value::as_str) {
            Some("residual") => Some(self.halves("residual")?.0),
            _ => None,
        };
        let epilogue = match (self.settings.get("epilogue").and_then(Value::as_str), &residual) {
            (_, Some(rows)) => Epilogue::Residual(rows.view()),
            (Some("gelu"), None) => Epilogue::Gelu,
            _ => Epilogue::Bias,
        };
        let gelu = epilogue == Epilogue::Gelu;
        for tile in available(&**self.runtime, depth).filter(|t| !(gelu && t.is_library())) {
            let linear = Linear::with_tile(self.runtime, weight, &bias, depth, tile)?;
            let out = self.out(rows * columns, HALF)?;
            linear.apply(&**self.runtime, out.view(), a.view(), rows, epilogue)?;
            self.keep(results, &format!("out.{}", tile.name), Dtype::BF16, &[rows, columns], &out)?;
        }
        Ok(())
    }

    fn layer_norm(&self, results: &mut Results) -> Result<()> {
        let (x, [rows, hidden]) = self.halves("x")?;
        let out = self.out(rows * hidden, HALF)?;
        self.norm(hidden)?.apply(&**self.runtime, out.view(), x.view(), rows, hidden)?;
        self.keep(results, "out", Dtype::BF16, &[rows, hidden], &out)
    }

    fn embed(&self, results: &mut Results) -> Result<()> {
        let (words, [vocab, hidden]) = self.halves("words")?;
        let ((positions, [places, _]), (types, [segments, _])) = (self.halves("positions")?, self.halves("types")?);
        let ids = [self.counts("ids", vocab)?, self.counts("segments", segments)?, self.counts("places", places)?];
        let rows = ids[0].len();
        let [ids, segments, places] = ids.map(|values| self.words(&values));
        let (ids, segments, places) = (ids?, segments?, places?);
        let out = self.out(rows * hidden, HALF)?;
        let embedding = Embedding { words, positions, types, norm: self.norm(hidden)? };
        let views = [ids.view(), segments.view(), places.view()];
        embedding.apply(&**self.runtime, out.view(), views, rows, hidden)?;
        self.keep(results, "out", Dtype::BF16, &[rows, hidden], &out)
    }

    fn attention(&self, results: &mut Results) -> Result<()> {
        let (qkv, [tokens, width]) = self.halves("qkv")?;
        let (hidden, heads) = (width / 3, self.number("heads")? as usize);
        let lengths = self.settings.get("lengths").and_then(Value::as_array).cloned().unwrap_or_default();
        let lengths: Vec<usize> = lengths.iter().filter_map(Value::as_u64).map(|n| n as usize).collect();
        if heads == 0 || !hidden.is_multiple_of(heads) || lengths.iter().sum::<usize>() != tokens {
            return Err(Error::data(format!("{heads} heads and lengths {lengths:?} for qkv of {tokens} x {width}")));
        }
        let starts: Vec<u32> = [0]
            .into_iter()
            .chain(lengths.iter().scan(0, |at, n| {
                *at += *n as u32;
                Some(*at)
            }))
            .collect();
        let long_from = ChipTiles::of(self.runtime.chip()).long_from(hidden / heads);
        let [short, long] = query_blocks(lengths.iter().copied(), long_from);
        let (starts, short, long) = (self.words(&starts)?, self.words(&short)?, self.words(&long)?);
        let blocks = |list: &Buffer| Blocks { list: list.view(), count: list.view().bytes / (2 * WORD) };
        let out = self.out(tokens * hidden, HALF)?;
        let part = |i: usize| -> View { qkv.view().from(i * hidden * HALF) };
        let attention = Attention {
            out: out.view(),
            q: part(0),
            k: part(1),
            v: part(2),
            q_stride: width,
            kv_stride: width,
            out_stride: hidden,
            q_starts: starts.view(),
            starts: starts.view(),
            short: blocks(&short),
            long: blocks(&long),
            heads,
            dim: hidden / heads,
            queries: tokens,
            keys: tokens,
            sequences: lengths.len(),
        };
        attention.apply(&**self.runtime)?;
        self.keep(results, "out", Dtype::BF16, &[tokens, hidden], &out)
    }

    fn gather(&self, results: &mut Results) -> Result<()> {
        let (x, [all, hidden]) = self.halves("x")?;
        let rows = self.counts("rows", all)?;
        let (count, rows) = (rows.len(), self.words(&rows)?);
        let out = self.out(count * hidden, HALF)?;
        gather(&**self.runtime, out.view(), x.view(), rows.view(), count, hidden)?;
        self.keep(results, "out", Dtype::BF16, &[count, hidden], &out)
    }

    fn pool(&self, results: &mut Results) -> Result<()> {
        let (x, [rows, hidden]) = self.halves("x")?;
        let starts = self.counts("starts", rows + 1)?;
        let (sequences, starts) = (starts.len() - 1, self.words(&starts)?);
        let mean = self.settings.get("mean").and_then(Value::as_bool).unwrap_or(false);
        let out = self.out(sequences * hidden, WORD)?;
        pool(&**self.runtime, out.view(), x.view(), starts.view(), [sequences, hidden], mean)?;
        self.keep(results, "out", Dtype::F32, &[sequences, hidden], &out)
    }

    fn score_head(&self, results: &mut Results) -> Result<()> {
        let (x, [rows, hidden]) = self.halves("x")?;
        let head = ScoreHead {
            dense_weight: self.halves("dense_weight")?.0,
            dense_bias: self.float_buffer("dense_bias", hidden)?,
            projection_weight: self.halves("projection_weight")?.0,
            projection_bias: self.float_buffer("projection_bias", 1)?,
        };
        let out = self.out(rows, WORD)?;
        head.apply(&**self.runtime, out.view(), x.view(), rows, hidden)?;
        self.keep(results, "out", Dtype::F32, &[rows], &out)
    }

    fn top_k(&self, results: &mut Results) -> Result<()> {
        let matrix = |name: &str| -> Result<Matrix> {
            let operand = self.operands.get(&self.name(name))?;
            let [rows, columns] = operand.shape[..] else { return Err(Error::data(format!("{name} is no matrix"))) };
            Ok(Matrix { rows, columns, values: self.operands.floats(&self.name(name))? })
        };
        let k = self.number("k")? as usize;
        let mut groups = Groups::default();
        for group in self.settings.get("groups").and_then(Value::as_array).into_iter().flatten() {
            let bounds: Vec<usize> =
                group.as_array().into_iter().flatten().filter_map(Value::as_u64).map(|n| n as usize).collect();
            let [q0, q1, i0, i1] = bounds[..] else { return Err(Error::data("a group is four whole numbers")) };
            groups.queries.push(q0..q1);
            groups.items.push(i0..i1);
        }
        let found = top_k::top_k(self.runtime, &matrix("queries")?, &matrix("items")?, &groups, k)?;
        // Rows of k hits; where there are fewer, the largest u32 and NaN.
        let rows = found.hits.len();
        let place = |hits: &Vec<(u32, f32)>, i: usize| hits.get(i).copied().unwrap_or((u32::MAX, f32::NAN));
        let all: Vec<(u32, f32)> = found.hits.iter().flat_map(|h| (0..k).map(move |i| place(h, i))).collect();
        results.put_floats(self.name("out"), &[rows, k], &all.iter().map(|(_, s)| *s).collect::<Vec<_>>());
        let indices = all.iter().flat_map(|(i, _)| i.to_le_bytes()).collect();
        results.put(self.name("indices"), Dtype::U32, &[rows, k], indices);
        Ok(())
    }
}
