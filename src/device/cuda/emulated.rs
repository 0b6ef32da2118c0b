//! The kernels on a CPU: the same launches, run by a shared library that emulates CUDA blocks (`kernels/emulation`).
//!
//! A feature of the build, for tests: it is slow and right. `make emulation` builds the library.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::{HashMap, VecDeque};
use std::ffi::{CString, c_char, c_int, c_void};
use std::path::Path;
use std::sync::{Arc, Mutex};

use half::bf16;
use libloading::{Library, Symbol};

use super::device::CudaDevice;
use super::runtime::{Args, Chip, Launch, Mark, Product, Runtime, TensorMap, Tiled};
use crate::error::{Error, Result};

/// Names the library for `--device emulated`.
pub const LIBRARY: &str = "MEMSLATE_EMULATION";
const ALIGNMENT: usize = 256;

type LaunchFn =
    unsafe extern "C" fn(*const c_char, *const u32, *const u32, usize, *mut *mut c_void, u64, c_int, c_int) -> c_int;
type MapFn = unsafe extern "C" fn(*mut c_void, *const c_void, u64, u64, u64, u32, u32);

/// How blocks are scheduled.
#[derive(Debug, Clone, Copy, Default)]
pub struct Schedule {
    /// 0 takes warps in turn, any other number at random.
    pub seed: u64,
    /// Whatever may happen later happens as late as it may: asynchronous copies and products in a kernel, and a batch's copies
    /// and launches, which wait until somebody waits for them.
    pub late: bool,
}

/// What was put to the emulation and is not done yet.
enum Step {
    Copy { to: u64, from: u64, bytes: usize },
    Launch { launch: Launch, args: Args },
    Product(Product),
    Download { from: u64, to: u64, bytes: usize, mark: u64 },
}

/// In order.
#[derive(Default)]
struct Steps {
    waiting: VecDeque<Step>,
    marks: u64,
}

pub struct Emulation {
    library: Library,
    chip: Chip,
    schedule: Schedule,
    /// Bytes by address.
    memory: Mutex<HashMap<u64, usize>>,
    /// Bytes that may be held at once.
    limit: usize,
    steps: Mutex<Steps>,
    /// Whether it stands in for the vendor's library too.
    library_too: bool,
}

/// The emulation that [`LIBRARY`] names, as a device.
pub fn open() -> Result<Arc<CudaDevice>> {
    Ok(Arc::new(CudaDevice::new("emulated", runtime()?)))
}

/// The emulation that [`LIBRARY`] names, as a chip of compute capability 8.0.
pub fn runtime() -> Result<Arc<dyn Runtime>> {
    let path = std::env::var_os(LIBRARY).ok_or_else(|| {
        Error::device(format!("{LIBRARY} is not set")).next("build the library with `make emulation` and name it")
    })?;
    Ok(Arc::new(Emulation::new(Path::new(&path), (8, 0))?))
}

impl Emulation {
    pub fn new(library: &Path, capability: (u32, u32)) -> Result<Self> {
        // SAFETY: the library is ours; its initialisers register the kernels.
        let library = unsafe { Library::new(library) }.map_err(|e| {
            Error::device("the emulation's library cannot be opened").at(library.display().to_string()).source(e)
        })?;
        let chip = Chip { name: "emulation".into(), capability, multiprocessors: 3, memory_bytes: 1 << 30 };
        Ok(Emulation {
            library,
            chip,
            schedule: Schedule::default(),
            memory: Mutex::default(),
            limit: 1 << 30,
            steps: Mutex::default(),
            library_too: false,
        })
    }

    pub fn scheduled(mut self, schedule: Schedule) -> Self {
        self.schedule = schedule;
        self
    }

    /// With so much memory.
    pub fn limited(mut self, bytes: usize) -> Self {
        self.limit = bytes;
        self
    }

    /// With a stand-in for the vendor's library: plain loops.
    pub fn with_library(mut self) -> Self {
        self.library_too = true;
        self
    }

    fn symbol<T>(&self, name: &str) -> Result<Symbol<'_, T>> {
        // SAFETY: the library's functions have these types.
        unsafe { self.library.get(name.as_bytes()) }
            .map_err(|e| Error::device(format!("the emulation's library has no {name}")).source(e))
    }

    /// Does a step, or keeps it for later.
    ///
    /// # Safety
    /// As for the runtime's function of this step.
    unsafe fn put(&self, step: Step) -> Result<()> {
        if self.schedule.late {
            self.steps.lock().expect("no holder panics").waiting.push_back(step);
            return Ok(());
        }
        // SAFETY: the caller's.
        unsafe { self.perform(step) }
    }

    /// Does the steps that wait: all, or those up to a mark.
    fn catch_up(&self, mark: Option<Mark>) -> Result<()> {
        let mut steps = self.steps.lock().expect("no holder panics");
        let last = mark
            .map(|Mark(m)| steps.waiting.iter().position(|s| matches!(s, Step::Download { mark, .. } if *mark == m)));
        let count = match last {
            None => steps.waiting.len(),
            // Done already, by a wait for something later.
            Some(None) => 0,
            Some(Some(at)) => at + 1,
        };
        // The lock is held meanwhile: steps are done in the order in which they were put.
        for step in steps.waiting.drain(..count) {
            // SAFETY: who put it answered for it.
            unsafe { self.perform(step)? };
        }
        Ok(())
    }

    /// # Safety
    /// As for the runtime's function of this step.
    unsafe fn perform(&self, step: Step) -> Result<()> {
        match step {
            Step::Launch { launch, mut args } => return self.run(&launch, &mut args),
            // SAFETY: the caller's.
            Step::Product(product) => unsafe { multiply(&product) },
            // SAFETY: the caller's.
            Step::Copy { to, from, bytes } | Step::Download { from, to, bytes, .. } => unsafe {
                std::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, bytes);
            },
        }
        Ok(())
    }

    fn run(&self, launch: &Launch, args: &mut Args) -> Result<()> {
        let run: Symbol<LaunchFn> = self.symbol("kt_launch")?;
        let name = CString::new(launch.kernel.as_str()).expect("kernels' names have no NUL");
        let (grid, block) = ([launch.grid[0], launch.grid[1], 1], [launch.block, 1, 1]);
        let late = c_int::from(self.schedule.late);
        let (shared, seed) = (launch.shared_bytes as usize, self.schedule.seed);
        let mut pointers = args.pointers();
        // SAFETY: the caller's; the arrays outlive the call.
        let missing = unsafe {
            run(name.as_ptr(), grid.as_ptr(), block.as_ptr(), shared, pointers.as_mut_ptr(), seed, late, late)
        };
        if missing != 0 {
            return Err(Error::internal(format!("the emulation has no kernel {}", launch.kernel)));
        }
        Ok(())
    }
}

/// # Safety
/// As for [`Runtime::library_product`].
unsafe fn multiply(product: &Product) {
    let Product { rows, columns, depth, .. } = *product;
    // SAFETY: the caller's; a value has two bytes.
    let at = |base: u64, i: usize| unsafe { (base as *const bf16).add(i).read().to_f32() };
    for row in 0..rows {
        for column in 0..columns {
            let sum: f32 = (0..depth).map(|k| at(product.a, row * depth + k) * at(product.w, column * depth + k)).sum();
            let place = row * columns + column;
            let addend = if product.residual == 0 { 0.0 } else { at(product.residual, place) };
            // SAFETY: the caller's.
            unsafe {
                (product.c as *mut bf16).add(place).write(bf16::from_f32(sum + at(product.bias, column) + addend))
            };
        }
    }
}

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, ALIGNMENT).expect("no allocation comes near the address space")
}

impl Runtime for Emulation {
    fn chip(&self) -> &Chip {
        &self.chip
    }

    fn allocate(&self, bytes: usize) -> Result<u64> {
        let mut memory = self.memory.lock().expect("no holder panics");
        if memory.values().sum::<usize>() + bytes > self.limit {
            return Err(Error::out_of_memory(format!("{bytes} bytes do not fit into the emulated device")));
        }
        // SAFETY: callers ask for a byte at least.
        let address = unsafe { alloc_zeroed(layout(bytes)) } as u64;
        memory.insert(address, bytes);
        Ok(address)
    }

    unsafe fn release(&self, address: u64) {
        let _ = self.finish();
        if let Some(bytes) = self.memory.lock().expect("no holder panics").remove(&address) {
            // SAFETY: it was allocated with this layout.
            unsafe { dealloc(address as *mut u8, layout(bytes)) };
        }
    }

    unsafe fn upload(&self, to: u64, bytes: &[u8]) -> Result<()> {
        self.finish()?;
        // SAFETY: the caller's.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to as *mut u8, bytes.len()) };
        Ok(())
    }

    unsafe fn download(&self, from: u64, bytes: &mut [u8]) -> Result<()> {
        self.finish()?;
        // SAFETY: the caller's.
        unsafe { std::ptr::copy_nonoverlapping(from as *const u8, bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }

    unsafe fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<()> {
        // SAFETY: the caller's.
        unsafe { self.put(Step::Copy { to, from, bytes }) }
    }

    unsafe fn launch(&self, launch: &Launch, args: &mut Args) -> Result<()> {
        // SAFETY: the caller's.
        unsafe { self.put(Step::Launch { launch: launch.clone(), args: std::mem::take(args) }) }
    }

    fn library(&self) -> Option<String> {
        self.library_too.then(|| "emulated".into())
    }

    unsafe fn library_product(&self, product: &Product) -> Result<()> {
        // SAFETY: the caller's.
        unsafe { self.put(Step::Product(*product)) }
    }

    fn tensor_map(&self, matrix: &Tiled) -> Result<TensorMap> {
        let make: Symbol<MapFn> = self.symbol("kt_tensor_map")?;
        let mut map = TensorMap([0; 128]);
        let Tiled { address, rows, columns, stride, box_rows } = *matrix;
        let (base, row_bytes) = (address as *const c_void, stride as u64 * 2);
        // SAFETY: the map has the size and alignment that the function writes.
        unsafe { make(map.0.as_mut_ptr().cast(), base, rows as u64, columns as u64, row_bytes, box_rows, 64) };
        Ok(map)
    }

    fn pin(&self, bytes: usize) -> Result<*mut u8> {
        // SAFETY: callers ask for a byte at least.
        Ok(unsafe { alloc_zeroed(layout(bytes)) })
    }

    unsafe fn unpin(&self, memory: *mut u8, bytes: usize) {
        let _ = self.finish();
        // SAFETY: it was allocated with this layout.
        unsafe { dealloc(memory, layout(bytes)) };
    }

    unsafe fn start_upload(&self, to: u64, from: *const u8, bytes: usize) -> Result<()> {
        // SAFETY: the caller's.
        unsafe { self.put(Step::Copy { to, from: from as u64, bytes }) }
    }

    unsafe fn start_download(&self, from: u64, to: *mut u8, bytes: usize) -> Result<Mark> {
        let mut steps = self.steps.lock().expect("no holder panics");
        steps.marks += 1;
        let mark = steps.marks;
        drop(steps);
        // What is read before the copy is no result.
        // SAFETY: the caller's.
        unsafe { to.write_bytes(0xff, bytes) };
        // SAFETY: the caller's.
        unsafe { self.put(Step::Download { from, to: to as u64, bytes, mark })? };
        Ok(Mark(mark))
    }

    fn wait(&self, mark: Mark) -> Result<()> {
        self.catch_up(Some(mark))
    }

    fn finish(&self) -> Result<()> {
        self.catch_up(None)
    }
}
