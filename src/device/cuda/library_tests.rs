//! Products by the vendor's library, with a stand-in for it.

use std::sync::Arc;

use super::emulated::{Emulation, Schedule};
use super::emulated_tests::emulation;
use super::kernels::{Epilogue, HALF, Linear};
use super::model::halves;
use super::runtime::{Buffer, Runtime, View};
use super::tiles::{ChipTiles, LIBRARY, Tile};
use crate::error::{Class, Result};

/// The library's products, and those that stay ours: GELU, and all of them where the library is not.
#[test]
fn the_vendors_library_multiplies_where_a_table_names_it() {
    let (rows, columns, depth) = (5, 24, 64);
    let values =
        |n: usize, seed: usize| (0..n).map(|i| ((i * 31 + seed) % 17) as f32 / 8.0 - 1.0).collect::<Vec<f32>>();
    let (a, w, bias, residual) =
        (values(rows * depth, 1), values(columns * depth, 2), values(columns, 3), values(rows * columns, 4));
    let run = |emulation: Emulation, tile: Tile, epilogue: fn(View) -> Epilogue| -> Result<Vec<f32>> {
        let runtime: Arc<dyn Runtime> = Arc::new(emulation);
        let linear = Linear::with_tile(&runtime, &halves(&w), &bias, depth, tile)?;
        let (a, residual) = (Buffer::filled(&runtime, &halves(&a))?, Buffer::filled(&runtime, &halves(&residual))?);
        let c = Buffer::new(&runtime, rows * columns * HALF)?;
        linear.apply(&*runtime, c.view(), a.view(), rows, epilogue(residual.view()))?;
        let mut bytes = vec![0; rows * columns * HALF];
        c.download(&mut bytes)?;
        Ok(bytes.chunks_exact(2).map(|b| half::bf16::from_le_bytes([b[0], b[1]]).to_f32()).collect())
    };
    let late = Schedule { seed: 3, late: true };
    let expected = |row: usize, column: usize, with_residual: bool| {
        let dot: f32 = (0..depth).map(|k| a[row * depth + k] * w[column * depth + k]).sum();
        let sum = dot + bias[column] + if with_residual { residual[row * columns + column] } else { 0.0 };
        half::bf16::from_f32(sum).to_f32()
    };
    for (with_residual, epilogue) in [(false, (|_| Epilogue::Bias) as fn(View) -> Epilogue), (true, Epilogue::Residual)]
    {
        let got = run(emulation((8, 0)).with_library().scheduled(late), LIBRARY, epilogue).unwrap();
        // Multiples of 1/64 below 2^10: every sum is exact, in any order.
        let all = (0..rows * columns).map(|i| expected(i / columns, i % columns, with_residual));
        assert_eq!(got, all.collect::<Vec<f32>>());
    }
    let own = run(emulation((8, 0)), ChipTiles::own_tile(emulation((8, 0)).chip(), depth), |_| Epilogue::Gelu).unwrap();
    assert_eq!(run(emulation((8, 0)).with_library(), LIBRARY, |_| Epilogue::Gelu).unwrap(), own);
    let e = run(emulation((8, 0)), LIBRARY, |_| Epilogue::Bias).unwrap_err();
    assert!(
        e.class == Class::Device && e.to_string().contains("cublasLt") && e.to_string().contains("tiles.toml"),
        "{e}"
    );
}
