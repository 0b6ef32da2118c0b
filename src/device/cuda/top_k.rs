//! The k largest dot products of each query with the items of its group, all groups in one launch.

use std::ops::Range;
use std::sync::Arc;

use super::super::{Groups, Matrix, TopK};
use super::kernels::WORD;
use super::runtime::{Args, Buffer, Launch, Runtime};
use crate::error::{Error, Result};

/// The most that the kernel keeps.
const MOST: usize = 1024;
/// What the kernel gives where a group has fewer items.
const NONE: u32 = u32::MAX;

/// A product that is not a number is no hit.
pub fn top_k(runtime: &Arc<dyn Runtime>, queries: &Matrix, items: &Matrix, groups: &Groups, k: usize) -> Result<TopK> {
    groups.check(queries, items)?;
    if k > MOST {
        let what = format!("the {k} best of a group were asked for; the GPU keeps {MOST}");
        return Err(Error::device(what).next("use --device cpu"));
    }
    let dim = queries.columns;
    // The kernel's queries stand one after another, each with the number of its group.
    let of_queries = groups.queries.iter().enumerate().flat_map(|(g, range)| range.clone().map(move |q| (g, q)));
    let (group_of, rows): (Vec<u32>, Vec<usize>) = of_queries.map(|(g, q)| (g as u32, q)).unzip();
    let none = || TopK { hits: vec![Vec::new(); rows.len()] };
    if rows.is_empty() || k == 0 || dim == 0 || items.rows == 0 {
        return Ok(none());
    }
    let chosen: Vec<u8> = rows.iter().flat_map(|q| bytes(&queries.values[q * dim..][..dim])).collect();
    let bounds: Vec<u32> = groups.items.iter().flat_map(|r: &Range<usize>| [r.start as u32, r.end as u32]).collect();
    let queries = Buffer::filled(runtime, &chosen)?;
    let items = Buffer::filled(runtime, &bytes(&items.values))?;
    let groups = Buffer::filled(runtime, &words(&bounds))?;
    let group_of = Buffer::filled(runtime, &words(&group_of))?;
    let indices = Buffer::new(runtime, rows.len() * k * WORD)?;
    let scores = Buffer::new(runtime, rows.len() * k * WORD)?;
    let launch =
        Launch { module: "top_k", kernel: "top_k".into(), grid: [rows.len() as u32, 1], block: 256, shared_bytes: 0 };
    let all = [&indices, &scores, &queries, &items, &groups, &group_of];
    let args = all.iter().fold(Args::default(), |args, buffer| args.address(buffer.view().address));
    // SAFETY: the ranges were checked against the matrices, and each result has a place.
    unsafe { runtime.launch(&launch, &mut args.count(dim).count(k))? };
    let (mut index_bytes, mut score_bytes) = (vec![0; rows.len() * k * WORD], vec![0; rows.len() * k * WORD]);
    indices.download(&mut index_bytes)?;
    scores.download(&mut score_bytes)?;
    let word = |b: &[u8]| [b[0], b[1], b[2], b[3]];
    let found = index_bytes.chunks_exact(WORD).zip(score_bytes.chunks_exact(WORD));
    let pairs: Vec<(u32, f32)> =
        found.map(|(i, s)| (u32::from_ne_bytes(word(i)), f32::from_ne_bytes(word(s)))).collect();
    let hits =
        pairs.chunks_exact(k).map(|row| row.iter().copied().filter(|(i, s)| *i != NONE && !s.is_nan()).collect());
    Ok(TopK { hits: hits.collect() })
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_ne_bytes()).collect()
}

fn words(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_ne_bytes()).collect()
}
