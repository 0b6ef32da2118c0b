//! What a device can do at best: one large matrix product and one large copy.

use std::sync::Arc;
use std::time::Instant;

use super::super::cpu;
use super::super::cuda::kernels::{Epilogue, HALF, Linear};
use super::super::cuda::runtime::{Buffer, Runtime};
use super::super::cuda::tiles::TILES;
use super::report::Ceilings;
use super::timed::median_seconds;
use super::work;
use crate::error::Result;

/// Rows, columns and depth of the product on a GPU; a copy of as many bytes.
const SIDE: usize = 8192;
const COPY_BYTES: usize = 1 << 30;
/// On one with little memory, and on the emulation, smaller: both matrices and the result take this part of it at most.
const PART_OF_MEMORY: u64 = 16;
const CPU_SIDE: usize = 1024;
const CPU_COPY_BYTES: usize = 256 << 20;

/// The product with the best of our kernels; the copy with the driver's.
pub fn gpu(runtime: &Arc<dyn Runtime>, seconds: f64) -> Result<Ceilings> {
    let room = runtime.chip().memory_bytes / PART_OF_MEMORY;
    let small = super::is_small(runtime.chip());
    let side = if small { 128 } else { SIDE.min(((room / 6) as f64).sqrt() as usize / 128 * 128) };
    let bytes = if small { 1 << 16 } else { COPY_BYTES.min(room as usize / 2) };
    let (mut product_tflops, mut product) = (0.0, String::new());
    let halves = noise(side * side);
    let (a, c) = (Buffer::filled(runtime, &halves)?, Buffer::new(runtime, side * side * HALF)?);
    for tile in TILES.iter().filter(|t| t.runs_on(runtime.chip())) {
        let linear = Linear::with_tile(runtime, &halves, &vec![0.0; side], side, *tile)?;
        let took = median_seconds(seconds / 4.0, || {
            linear.apply(&**runtime, c.view(), a.view(), side, Epilogue::Bias)?;
            runtime.finish()
        })?;
        let tflops = work::product(side as f64, side as f64, side as f64) / took / 1e12;
        if tflops > product_tflops {
            (product_tflops, product) = (tflops, format!("{side} x {side} x {side} in bf16, {}", tile.name));
        }
    }
    let (from, to) = (Buffer::new(runtime, bytes)?, Buffer::new(runtime, bytes)?);
    let took = median_seconds(seconds / 4.0, || {
        // SAFETY: both buffers have this length.
        unsafe { runtime.copy(to.view().address, from.view().address, bytes)? };
        runtime.finish()
    })?;
    Ok(Ceilings { product_tflops, product, copy_tbs: 2.0 * bytes as f64 / took / 1e12, copy_bytes: bytes })
}

/// The product in f32 on all cores with the device's own kernel; the copy by one thread.
pub fn cpu(seconds: f64) -> Ceilings {
    let side = CPU_SIDE;
    let took = timed(seconds / 4.0, cpu::large_product(side));
    let product_tflops = work::product(side as f64, side as f64, side as f64) / took / 1e12;
    let (from, mut to) = (vec![1u8; CPU_COPY_BYTES], vec![0u8; CPU_COPY_BYTES]);
    let took = timed(seconds / 4.0, || to.copy_from_slice(&from));
    let copy_tbs = 2.0 * CPU_COPY_BYTES as f64 / took / 1e12;
    let product = format!("{side} x {side} x {side} in f32 on all cores");
    Ceilings { product_tflops, product, copy_tbs, copy_bytes: CPU_COPY_BYTES }
}

fn timed(seconds: f64, mut once: impl FnMut()) -> f64 {
    let began = Instant::now();
    let took = median_seconds(seconds, || {
        once();
        Ok(())
    });
    // Nothing in it fails; what it took is then as good a figure as any.
    took.unwrap_or_else(|_| began.elapsed().as_secs_f64())
}

/// bf16 from -1 to 1, as bytes: a chip that multiplies zeros runs faster than it will.
fn noise(values: usize) -> Vec<u8> {
    let mut state = 3u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        half::bf16::from_f32((state >> 40) as f32 / (1u32 << 23) as f32 - 1.0)
    };
    (0..values).flat_map(|_| next().to_ne_bytes()).collect()
}
