//! A pass on a GPU, stage by stage: each launch is repeated and timed by itself, so the sum is somewhat more than a pass takes.

use std::sync::Arc;

use super::super::cuda::device::CudaDevice;
use super::super::cuda::runtime::Runtime;
use super::super::{Device, Head, PackedBatch};
use super::passes::sequences;
use super::report::{Ceilings, Stage};
use super::timed::{Timed, Timing};
use super::work::{self, Batch};
use crate::error::{Error, Result};
use crate::model::registry::Pooling;
use crate::model::weights::{ModelConfig, Weights};

/// What one launch does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    pub stage: &'static str,
    /// The module under `kernels/` begins so.
    module: &'static str,
    pub operations: f64,
    /// Read and written at least; of products, where operations bind, not counted.
    pub bytes: f64,
}

/// The stages of the first set of lengths.
pub fn stages(
    runtime: &Arc<dyn Runtime>,
    weights: &Weights,
    lengths: &[(String, Vec<usize>)],
    ceilings: &Ceilings,
    seconds: f64,
) -> Result<Vec<Stage>> {
    let (_, lengths) = &lengths[0];
    let head = if weights.pooling == Pooling::Mean { Head::Embed } else { Head::Score };
    let batch = packed(lengths, weights.config.vocab);
    let steps = steps(&weights.config, Batch::of(lengths), head, weights.pooling);
    let once = launches(runtime, weights, head, &batch, 1)?;
    let repetitions = (seconds / once.iter().map(|t| t.seconds).sum::<f64>().max(1e-9)).clamp(1.0, 50.0) as u32;
    let timings = launches(runtime, weights, head, &batch, repetitions)?;
    summed(&steps, &timings, ceilings)
}

/// The launches of a pass, each repeated so often.
fn launches(
    runtime: &Arc<dyn Runtime>,
    weights: &Weights,
    head: Head,
    batch: &PackedBatch,
    repetitions: u32,
) -> Result<Vec<Timing>> {
    let timed = Arc::new(Timed::new(Arc::clone(runtime), repetitions));
    let device = CudaDevice::new("timed", Arc::clone(&timed) as Arc<dyn Runtime>);
    let model = device.load(weights, head)?;
    device.forward(model, batch)?;
    timed.take();
    device.forward(model, batch)?;
    Ok(timed.take())
}

fn packed(lengths: &[usize], vocab: usize) -> PackedBatch {
    let mut batch = PackedBatch { starts: vec![0], ..PackedBatch::default() };
    for sequence in sequences(lengths, vocab) {
        batch.tokens.extend(sequence.tokens);
        batch.types.extend(sequence.types);
        batch.starts.push(batch.tokens.len());
    }
    batch
}

/// The steps of a pass in the order of its launches.
fn steps(config: &ModelConfig, batch: Batch, head: Head, pooling: Pooling) -> Vec<Step> {
    let Batch { tokens, sequences, pairs } = batch;
    let (h, wide) = (config.hidden as f64, config.intermediate as f64);
    let product = |stage, rows, columns, depth| Step {
        stage,
        module: "gemm",
        operations: work::product(rows, columns, depth),
        bytes: 0.0,
    };
    let moved = |stage, module, bytes| Step { stage, module, operations: 0.0, bytes };
    let norm = |rows: f64| moved("layer norm", "layer_norm", 4.0 * rows * h);
    let attention = |pairs: f64| Step {
        stage: "attention",
        module: "attention",
        operations: work::attention(pairs, h),
        bytes: 0.0,
    };
    let rest = |rows: f64| {
        [
            product("attention out + residual", rows, h, h),
            norm(rows),
            product("up + GELU", rows, wide, h),
            product("down + residual", rows, h, wide),
            norm(rows),
        ]
    };
    let first_only = work::first_rows_only(head, pooling, true);
    let mut all = vec![moved("embedding", "embed", 8.0 * tokens * h)];
    for _ in 0..config.layers - usize::from(first_only) {
        all.push(product("queries, keys, values", tokens, 3.0 * h, h));
        all.push(attention(pairs));
        all.extend(rest(tokens));
    }
    if first_only {
        all.push(product("last layer: keys, values", tokens, 2.0 * h, h));
        let mut last = vec![moved("", "gather", 4.0 * sequences * h), product("", sequences, h, h), attention(tokens)];
        last.extend(rest(sequences));
        all.extend(last.into_iter().map(|step| Step { stage: "last layer: first rows", ..step }));
    }
    all.push(match (head, pooling) {
        (Head::Score, _) => {
            Step { stage: "score head", module: "score_head", operations: work::product(sequences, h, h), bytes: 0.0 }
        }
        (Head::Embed, Pooling::Mean) => moved("pool", "pool", 2.0 * tokens * h + 4.0 * sequences * h),
        (Head::Embed, Pooling::Cls) => moved("pool", "pool", 6.0 * sequences * h),
    });
    all
}

/// Launches put together by stage, in the order of their first. Attention may take two launches, by the lengths of its
/// sequences.
fn summed(steps: &[Step], timings: &[Timing], ceilings: &Ceilings) -> Result<Vec<Stage>> {
    let mut launches = timings.iter().peekable();
    let mut stages: Vec<Stage> = Vec::new();
    for step in steps {
        let mut seconds = 0.0;
        let mut count = 0;
        while let Some(timing) =
            launches.next_if(|t| t.module.starts_with(step.module) && (count == 0 || step.module == "attention"))
        {
            seconds += timing.seconds;
            count += 1;
        }
        if count == 0 {
            let got = launches.peek().map_or("nothing", |t| t.module);
            return Err(Error::internal(format!("{} is launched where {} was expected", got, step.module)));
        }
        match stages.iter_mut().find(|s| s.stage == step.stage) {
            Some(stage) => stage.add(*step, count, seconds),
            None => stages.push(Stage::new(*step, count, seconds)),
        }
    }
    let whole = stages.iter().map(|s| s.milliseconds).sum();
    stages.iter_mut().for_each(|s| s.close(whole, ceilings));
    Ok(stages)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::bench::Shape;

    fn ceilings() -> Ceilings {
        Ceilings { product_tflops: 100.0, product: String::new(), copy_tbs: 2.0, copy_bytes: 0 }
    }

    fn timing(module: &'static str, seconds: f64) -> Timing {
        Timing { module, kernel: module.into(), seconds }
    }

    #[test]
    fn the_steps_of_a_pass_add_up_to_its_operations() {
        for (shape, head) in [("xlmr-large", Head::Score), ("xlmr-large", Head::Embed), ("minilm", Head::Embed)] {
            let Shape { config, pooling, .. } = shape.parse().unwrap();
            let batch = Batch::of(&[300, 41, 7]);
            let steps = steps(&config, batch, head, pooling);
            let score_head = if head == Head::Score { work::product(3.0, 1024.0, 1024.0) } else { 0.0 };
            let sum: f64 = steps.iter().map(|s| s.operations).sum();
            let pass = work::pass(&config, batch, work::first_rows_only(head, pooling, true));
            assert!((sum - score_head - pass).abs() < 1.0, "{shape}: {sum} {pass}");
        }
    }

    #[test]
    fn launches_go_to_their_stages_with_rates_and_shares() {
        let mut config = "minilm".parse::<Shape>().unwrap().config;
        config.layers = 1;
        let batch = Batch::of(&[100; 10]);
        let steps = steps(&config, batch, Head::Embed, Pooling::Mean);
        let modules = [
            "embed",
            "gemm_sm90",
            "attention",
            "attention_sm90",
            "gemm",
            "layer_norm",
            "gemm",
            "gemm",
            "layer_norm",
            "pool",
        ];
        let timings: Vec<Timing> = modules.iter().map(|m| timing(m, 1e-3)).collect();
        let stages = summed(&steps, &timings, &ceilings()).unwrap();
        let named = |name: &str| stages.iter().find(|s| s.stage == name).unwrap();
        assert_eq!((named("attention").launches, named("layer norm").launches), (2, 2));
        // 1,000 tokens x 1,152 x 384 x 2 operations in a millisecond are 0.885 TFLOP/s, of 100.
        let qkv = named("queries, keys, values");
        assert!((qkv.tflops.unwrap() - 0.884_736).abs() < 1e-9 && (qkv.percent_of_ceiling - 0.884_736).abs() < 1e-9);
        // 2 norms x 1,000 x 384 x 4 bytes in 2 ms are 0.001536 TB/s, of 2.
        let norm = named("layer norm");
        assert!((norm.tbs.unwrap() - 0.001_536).abs() < 1e-12 && (norm.percent_of_ceiling - 0.0768).abs() < 1e-9);
        assert!((norm.percent_of_pass - 20.0).abs() < 1e-9);
        assert!((stages.iter().map(|s| s.percent_of_pass).sum::<f64>() - 100.0).abs() < 1e-9);
        let e = summed(&steps, &timings[1..], &ceilings()).unwrap_err();
        assert!(e.to_string().contains("embed"), "{e}");
    }
}
