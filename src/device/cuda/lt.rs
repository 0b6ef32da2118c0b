//! cublasLt as a second backend of matrix products, where its library is on the machine. **It has not run yet.**
//!
//! Rows of ours are columns of its: `c = a w^T` is, column by column, `c^T = w a^T`. The bias is rounded to bf16, since the
//! library takes none in f32 for an output in bf16; GELU stays ours, since the library's is the tanh form.
//!
//! A layer's algorithm is asked for once, at [`ASKED_ROWS`] rows, and used whatever the number of rows, without partial sums
//! over the depth. So a row's bits depend on its batch only as far as the library's own kernel lets them; a table should name
//! this backend only where the check of equal bits has passed on the chip.

use std::collections::HashMap;
use std::ffi::c_void;

use cudarc::cublaslt::result::{self, CublasError};
use cudarc::cublaslt::sys;

use super::runtime::Product;
use crate::error::{Error, Result};

/// The rows for which an algorithm is chosen: those of a batch.
const ASKED_ROWS: usize = 8_192;
/// What an algorithm may use beside its operands; NVIDIA's advice for Hopper.
pub const WORKSPACE_BYTES: usize = 32 << 20;
/// CUBLAS_OP_T, as cublas_api.h has it.
const TRANSPOSED: i32 = 1;
const HALVES: sys::cudaDataType = sys::cudaDataType::CUDA_R_16BF;

/// The library's version, such as 13.0.2; none where there is no library.
pub fn version() -> Option<String> {
    // A missing library makes cudarc panic, so its presence is asked first.
    // SAFETY: loads NVIDIA's library, whose initialisers touch nothing of ours; the version is a number.
    let number = unsafe { sys::is_culib_present().then(|| sys::cublasLtGetVersion()) }?;
    Some(shown(number))
}

/// 130002 is 13.0.2, and older libraries counted 12.9.1 as 120901.
fn shown(number: usize) -> String {
    format!("{}.{}.{}", number / 10_000, number / 100 % 100, number % 100)
}

/// What a layer's descriptors are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Shape {
    columns: usize,
    depth: usize,
    residual: bool,
}

/// Descriptors of one layer, and the algorithm.
struct Plan {
    product: sys::cublasLtMatmulDesc_t,
    w: sys::cublasLtMatrixLayout_t,
    a: sys::cublasLtMatrixLayout_t,
    c: sys::cublasLtMatrixLayout_t,
    algorithm: sys::cublasLtMatmulAlgo_t,
}

/// The library on one GPU.
pub struct Lt {
    handle: sys::cublasLtHandle_t,
    /// Memory of [`WORKSPACE_BYTES`], owned by the driver's runtime.
    workspace: u64,
    plans: HashMap<Shape, Plan>,
}

// SAFETY: handles and descriptors may be used from any thread, one at a time, which the owner's lock sees to.
unsafe impl Send for Lt {}

fn failed(what: &str, e: CublasError) -> Error {
    Error::device(format!("cublasLt: {what}"))
        .next("name another tile for this chip in kernels/tiles.toml, or use --device cpu")
        .source(e.to_string())
}

impl Lt {
    /// # Safety
    /// The context is bound to this thread; `workspace` has [`WORKSPACE_BYTES`] bytes that stay.
    pub unsafe fn new(workspace: u64) -> Result<Lt> {
        let handle = result::create_handle().map_err(|e| failed("it cannot be opened", e))?;
        Ok(Lt { handle, workspace, plans: HashMap::new() })
    }

    /// # Safety
    /// The product's addresses have the memory that its shape says; the stream is of the context.
    pub unsafe fn run(&mut self, product: &Product, stream: *mut c_void) -> Result<()> {
        let Product { rows, columns, depth, .. } = *product;
        let shape = Shape { columns, depth, residual: product.residual != 0 };
        let plan = match self.plans.entry(shape) {
            std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::hash_map::Entry::Vacant(free) => {
                free.insert(plan(self.handle, shape).map_err(|e| failed(&format!("no algorithm for {shape:?}"), e))?)
            }
        };
        let beta: f32 = if shape.residual { 1.0 } else { 0.0 };
        let addend = if shape.residual { product.residual } else { product.c };
        // SAFETY: the caller's; descriptors are the plan's own, and are read before the calls return.
        let put = || unsafe {
            for layout in [plan.a, plan.c] {
                set_columns(layout, rows)?;
            }
            set(plan.product, sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_BIAS_POINTER, &product.bias)?;
            result::matmul(
                self.handle,
                plan.product,
                (&raw const ONE).cast(),
                (&raw const beta).cast(),
                product.w as *const c_void,
                plan.w,
                product.a as *const c_void,
                plan.a,
                addend as *const c_void,
                plan.c,
                product.c as *mut c_void,
                plan.c,
                &plan.algorithm,
                self.workspace as *mut c_void,
                WORKSPACE_BYTES,
                stream.cast(),
            )
        };
        put().map_err(|e| failed(&format!("{rows} rows of {columns} x {depth} do not start"), e))
    }
}

static ONE: f32 = 1.0;

impl Drop for Lt {
    fn drop(&mut self) {
        // SAFETY: all were made by this library and are given back once. Nothing can be done about a failure here.
        unsafe {
            for plan in self.plans.values() {
                let _ = result::destroy_matmul_desc(plan.product);
                for layout in [plan.w, plan.a, plan.c] {
                    let _ = result::destroy_matrix_layout(layout);
                }
            }
            let _ = result::destroy_handle(self.handle);
        }
    }
}

/// Descriptors of a layer, and the algorithm that the library thinks best at [`ASKED_ROWS`].
fn plan(handle: sys::cublasLtHandle_t, shape: Shape) -> std::result::Result<Plan, CublasError> {
    use sys::cublasLtMatmulDescAttributes_t as Of;
    let Shape { columns, depth, .. } = shape;
    let layout =
        |rows: usize, columns: usize| result::create_matrix_layout(HALVES, rows as u64, columns as u64, rows as i64);
    let product =
        result::create_matmul_desc(sys::cublasComputeType_t::CUBLAS_COMPUTE_32F, sys::cudaDataType::CUDA_R_32F)?;
    // Column by column, the weight (columns, depth) is a matrix of `depth` rows: it is transposed, the others are not.
    let (w, a, c) = (layout(depth, columns)?, layout(depth, ASKED_ROWS)?, layout(columns, ASKED_ROWS)?);
    // SAFETY: the descriptors were made above; each attribute has the type that the library names.
    unsafe {
        set(product, Of::CUBLASLT_MATMUL_DESC_TRANSA, &TRANSPOSED)?;
        set(product, Of::CUBLASLT_MATMUL_DESC_EPILOGUE, &sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS)?;
        set(product, Of::CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &HALVES)?;
        let wishes = result::create_matmul_pref()?;
        let ask = || {
            let wish = |attribute, bytes: *const c_void, size| {
                result::set_matmul_pref_attribute(wishes, attribute, bytes, size)
            };
            use sys::cublasLtMatmulPreferenceAttributes_t as Wish;
            let (most, no_partial_sums) = (WORKSPACE_BYTES, 0u32);
            wish(Wish::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, (&raw const most).cast(), size_of_val(&most))?;
            wish(
                Wish::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                (&raw const no_partial_sums).cast(),
                size_of_val(&no_partial_sums),
            )?;
            result::get_matmul_algo_heuristic(handle, product, w, a, c, c, wishes)
        };
        let found = ask();
        result::destroy_matmul_pref(wishes)?;
        Ok(Plan { product, w, a, c, algorithm: found?.algo })
    }
}

/// # Safety
/// The descriptor is there, and `T` is the attribute's type.
unsafe fn set<T>(
    product: sys::cublasLtMatmulDesc_t,
    attribute: sys::cublasLtMatmulDescAttributes_t,
    value: &T,
) -> std::result::Result<(), CublasError> {
    // SAFETY: the caller's.
    unsafe { result::set_matmul_desc_attribute(product, attribute, (&raw const *value).cast(), size_of::<T>()) }
}

/// # Safety
/// The layout is there.
unsafe fn set_columns(layout: sys::cublasLtMatrixLayout_t, columns: usize) -> std::result::Result<(), CublasError> {
    let (columns, attribute) = (columns as u64, sys::cublasLtMatrixLayoutAttribute_t::CUBLASLT_MATRIX_LAYOUT_COLS);
    // SAFETY: the caller's; the attribute is a u64.
    unsafe { result::set_matrix_layout_attribute(layout, attribute, (&raw const columns).cast(), size_of::<u64>()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_shown_as_they_are_written() {
        assert_eq!([shown(130_002), shown(120_901)], ["13.0.2", "12.9.1"]);
    }

    /// No machine that tests has the library; where one has, its version begins with a number.
    #[test]
    fn a_missing_library_is_no_panic() {
        assert!(version().is_none_or(|v| v.starts_with(|c: char| c.is_ascii_digit())));
    }
}
