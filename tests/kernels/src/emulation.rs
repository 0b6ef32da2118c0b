//! The kernels as a shared library: what it exports, and how a kernel is launched.

use crate::memory::{Buffer, Plain};
use half::bf16;
use libloading::{Library, Symbol};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fmt::{self, Display, Formatter};
use std::path::Path;

type Launch = unsafe extern "C" fn(
    kernel: *const c_char,
    grid: *const u32,
    block: *const u32,
    shared_bytes: usize,
    arguments: *const *mut c_void,
    seed: u64,
    late_copies: c_int,
    late_mma: c_int,
) -> c_int;
type EncodeTensorMap = unsafe extern "C" fn(
    map: *mut c_void,
    base: *const c_void,
    rows: u64,
    columns: u64,
    row_bytes: u64,
    box_rows: u32,
    box_columns: u32,
);
type Kernels = unsafe extern "C" fn() -> *const c_char;

/// In which order the threads run, and how late what is asynchronous happens. A right kernel writes the same bits in all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Schedule {
    /// 0 is round robin; others are random orders of warps, lanes and blocks.
    pub seed: u64,
    /// `cp.async` and TMA write at the last moment, not at the first.
    pub late_copies: bool,
    /// `wgmma` reads its operands when it is waited for.
    pub late_mma: bool,
}

impl Display for Schedule {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let late = |late: bool, what| if late { what } else { "" };
        write!(f, "seed {}{}{}", self.seed, late(self.late_copies, ", late copies"), late(self.late_mma, ", late mma"))
    }
}

/// Blocks, threads in a block, and bytes of dynamic shared memory.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub grid: [u32; 2],
    pub block: u32,
    pub shared_bytes: usize,
}

pub struct Emulation {
    library: Library,
    kernels: Vec<String>,
}

impl Emulation {
    pub fn open(path: &Path) -> Result<Self, String> {
        // SAFETY: the library's initialisers only fill its table of kernels.
        let library = unsafe { Library::new(path) }.map_err(|e| format!("{}: {e}", path.display()))?;
        // SAFETY: the function returns a string that lives as long as the library.
        let names = unsafe {
            let kernels: Symbol<Kernels> = library.get(b"kt_kernel_names\0").map_err(|e| e.to_string())?;
            CStr::from_ptr(kernels())
        };
        let names = names.to_str().map_err(|e| e.to_string())?;
        let mut kernels: Vec<String> = names.lines().filter(|n| !n.is_empty()).map(str::to_owned).collect();
        kernels.sort();
        Ok(Emulation { library, kernels })
    }

    /// Names of all kernels, sorted.
    pub fn kernels(&self) -> &[String] {
        &self.kernels
    }

    /// Runs a kernel to its end. A program that is wrong in itself (a deadlock, a misaligned access) ends the process.
    pub fn launch(&self, kernel: &str, shape: Shape, arguments: &Arguments, schedule: Schedule) {
        if shape.grid.contains(&0) {
            return;
        }
        let name = CString::new(kernel).expect("a kernel's name has no NUL");
        let grid = [shape.grid[0], shape.grid[1], 1];
        let block = [shape.block, 1, 1];
        let pointers: Vec<*mut c_void> = arguments.slots.iter().map(|s| s.0.as_ptr().cast_mut().cast()).collect();
        // SAFETY: the arguments match the kernel's parameters, as the checks and the kernels' headers both state them.
        let status = unsafe {
            let launch: Symbol<Launch> = self.library.get(b"kt_launch\0").expect("the library has no kt_launch");
            launch(
                name.as_ptr(),
                grid.as_ptr(),
                block.as_ptr(),
                shape.shared_bytes,
                pointers.as_ptr(),
                schedule.seed,
                schedule.late_copies.into(),
                schedule.late_mma.into(),
            )
        };
        assert_eq!(status, 0, "the library has no kernel {kernel}");
    }

    /// Describes a row-major bf16 matrix to TMA, which loads it in boxes of `box_rows` rows and 64 columns.
    pub fn tensor_map(&self, matrix: &Matrix, box_rows: u32) -> TensorMap {
        let mut slot = Slot([0; 128]);
        // SAFETY: the slot has the size and the alignment of a tensor map.
        unsafe {
            let encode: Symbol<EncodeTensorMap> =
                self.library.get(b"kt_tensor_map\0").expect("the library has no kt_tensor_map");
            encode(
                slot.0.as_mut_ptr().cast(),
                matrix.values.pointer().wrapping_add(matrix.first).cast(),
                matrix.rows as u64,
                matrix.columns as u64,
                (matrix.stride * size_of::<bf16>()) as u64,
                box_rows,
                64,
            );
        }
        TensorMap(slot)
    }
}

/// A matrix in a buffer: where it begins, and how many values lie between its rows.
pub struct Matrix<'a> {
    pub values: &'a Buffer<bf16>,
    pub first: usize,
    pub rows: usize,
    pub columns: usize,
    pub stride: usize,
}

/// 128 opaque bytes, as of a `CUtensorMap`.
#[derive(Clone)]
pub struct TensorMap(Slot);

/// Room for any argument.
#[derive(Clone)]
#[repr(align(64))]
struct Slot([u8; 128]);

/// A kernel's arguments, in order.
#[derive(Default)]
pub struct Arguments {
    slots: Vec<Slot>,
}

impl Arguments {
    pub fn buffer<T: Plain>(self, buffer: &Buffer<T>) -> Self {
        self.buffer_from(buffer, 0)
    }

    /// A pointer to an element of a buffer.
    pub fn buffer_from<T: Plain>(self, buffer: &Buffer<T>, first: usize) -> Self {
        self.bytes(&(buffer.pointer().wrapping_add(first) as usize).to_ne_bytes())
    }

    pub fn optional<T: Plain>(self, buffer: Option<&Buffer<T>>) -> Self {
        match buffer {
            Some(buffer) => self.buffer(buffer),
            None => self.bytes(&0usize.to_ne_bytes()),
        }
    }

    pub fn int(self, value: usize) -> Self {
        self.bytes(&i32::try_from(value).expect("an argument exceeds i32").to_ne_bytes())
    }

    pub fn float(self, value: f32) -> Self {
        self.bytes(&value.to_ne_bytes())
    }

    pub fn tensor_map(mut self, map: &TensorMap) -> Self {
        self.slots.push(map.0.clone());
        self
    }

    fn bytes(mut self, bytes: &[u8]) -> Self {
        let mut slot = Slot([0; 128]);
        slot.0[..bytes.len()].copy_from_slice(bytes);
        self.slots.push(slot);
        self
    }
}
