//! A real GPU, through the driver that is opened at run time.

use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::mem::MaybeUninit;
use std::sync::{Arc, Mutex};

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::{CudaContext, sys};

use super::images::Image;
use super::lt::{self, Lt};
use super::runtime::{Args, Chip, Launch, Mark, Product, Runtime, TensorMap, Tiled};
use crate::error::{Error, Result};

/// Dynamic shared memory that a kernel may use without asking.
const FREE_SHARED_BYTES: u32 = 48 << 10;
/// Pinned memory through which copies to the GPU go.
const STAGING_BYTES: usize = 8 << 20;
/// Columns of a box of the copy engine: 128 bytes of bf16.
const BOX_COLUMNS: u32 = 64;

pub struct Driver {
    context: Arc<CudaContext>,
    chip: Chip,
    state: Mutex<State>,
}

/// Handles that only this struct's methods use, one at a time.
struct State {
    /// Launches, and copies that launches before them must have written.
    stream: sys::CUstream,
    /// Copies of the next batch, beside the launches of this one.
    copies: sys::CUstream,
    /// The last copy on `copies`.
    copied: sys::CUevent,
    /// Events that nobody waits for, to be used again.
    events: Vec<sys::CUevent>,
    staging: *mut c_void,
    /// The vendor's library, from its first use on, and the memory that it works in.
    library: Option<(Lt, u64)>,
    modules: HashMap<&'static str, sys::CUmodule>,
    functions: HashMap<String, sys::CUfunction>,
}

// SAFETY: handles of the driver may be used from any thread to which the context is bound, which every method does first.
unsafe impl Send for State {}

impl Driver {
    /// Binds to a GPU that the driver has.
    pub fn new(ordinal: usize) -> Result<Self> {
        let context = CudaContext::new(ordinal).map_err(|e| failed("the GPU cannot be opened", e))?;
        let chip = chip(&context)?;
        let make = || -> std::result::Result<State, DriverError> {
            let stream = result::stream::create(result::stream::StreamKind::NonBlocking)?;
            // SAFETY: it is freed when the runtime is dropped.
            let staging = unsafe { result::malloc_host(STAGING_BYTES, 0)? };
            let copies = result::stream::create(result::stream::StreamKind::NonBlocking)?;
            let copied = event()?;
            let (modules, functions) = (HashMap::new(), HashMap::new());
            Ok(State { stream, copies, copied, events: Vec::new(), staging, library: None, modules, functions })
        };
        let state = make().map_err(|e| failed("the GPU cannot be set up", e))?;
        Ok(Driver { context, chip, state: Mutex::new(state) })
    }

    /// Locks the handles on a thread to which the context is bound.
    fn state(&self) -> Result<std::sync::MutexGuard<'_, State>> {
        self.context.bind_to_thread().map_err(|e| failed("the GPU cannot be used on this thread", e))?;
        Ok(self.state.lock().expect("no holder panics"))
    }

    fn function(&self, state: &mut State, launch: &Launch) -> Result<sys::CUfunction> {
        if let Some(function) = state.functions.get(&launch.kernel) {
            return Ok(*function);
        }
        let module = match state.modules.get(launch.module) {
            Some(module) => *module,
            None => {
                let image = Image::of(launch.module, self.chip.capability)?;
                // SAFETY: the image is whole, and ends with a NUL where it is text.
                let module = unsafe { result::module::load_data(image.bytes().as_ptr().cast()) }
                    .map_err(|e| not_loaded(launch.module, &image, e))?;
                state.modules.insert(launch.module, module);
                module
            }
        };
        let name = CString::new(launch.kernel.as_str()).expect("kernels' names have no NUL");
        let missing = |e| failed(&format!("kernels/{} has no kernel {}", launch.module, launch.kernel), e);
        // SAFETY: the module was loaded above and is never unloaded.
        let function = unsafe { result::module::get_function(module, name) }.map_err(missing)?;
        if launch.shared_bytes > FREE_SHARED_BYTES {
            let attribute = sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: the function is there.
            unsafe { result::function::set_function_attribute(function, attribute, launch.shared_bytes as i32) }
                .map_err(|e| failed(&format!("{} needs {} bytes a block", launch.kernel, launch.shared_bytes), e))?;
        }
        state.functions.insert(launch.kernel.clone(), function);
        Ok(function)
    }
}

/// Code that the driver takes not.
fn not_loaded(module: &str, image: &Image, e: DriverError) -> Error {
    if !image.is_text() {
        return failed(&format!("kernels/{module} does not load"), e);
    }
    let mut version = 0;
    // SAFETY: the driver writes a number, and leaves it alone where it fails.
    unsafe { sys::cuDriverGetVersion(&mut version) };
    let (major, minor) = (version / 1000, version % 1000 / 10);
    Error::device(format!("no machine code of kernels/{module} is for this chip, and the driver (CUDA {major}.{minor}) compiles it not"))
        .next("install a newer driver, or NVRTC of CUDA 12 or 13 (libnvrtc.so; MEMSLATE_NVRTC names one); --device cpu needs no GPU")
        .source(e)
}

/// For order, not for time.
fn event() -> std::result::Result<sys::CUevent, DriverError> {
    result::event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)
}

fn chip(context: &Arc<CudaContext>) -> Result<Chip> {
    use sys::CUdevice_attribute_enum::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT as MULTIPROCESSORS;
    let ask = || -> std::result::Result<Chip, DriverError> {
        let (major, minor) = context.compute_capability()?;
        Ok(Chip {
            name: context.name()?,
            capability: (major as u32, minor as u32),
            multiprocessors: context.attribute(MULTIPROCESSORS)? as u32,
            memory_bytes: context.total_mem()? as u64,
        })
    };
    ask().map_err(|e| failed("the GPU does not say what it is", e))
}

fn failed(what: &str, error: DriverError) -> Error {
    let next = "look at `nvidia-smi`; --device cpu needs no GPU";
    Error::device(what).next(next).source(error)
}

impl Runtime for Driver {
    fn chip(&self) -> &Chip {
        &self.chip
    }

    fn allocate(&self, bytes: usize) -> Result<u64> {
        let _state = self.state()?;
        // SAFETY: the memory is written before it is read, or its rows are not used.
        match unsafe { result::malloc_sync(bytes) } {
            Ok(address) => Ok(address),
            Err(DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY)) => {
                let (free, total) = result::mem_get_info().unwrap_or_default();
                let what = format!(
                    "{} MiB do not fit into {}: {} of {} MiB are free",
                    bytes >> 20,
                    self.chip.name,
                    free >> 20,
                    total >> 20
                );
                Err(Error::out_of_memory(what).next("free the GPU of other programs, or use --device cpu"))
            }
            Err(e) => Err(failed("the GPU gives no memory", e)),
        }
    }

    unsafe fn release(&self, address: u64) {
        if let Ok(state) = self.state() {
            // SAFETY: the caller's. What still runs may use the memory, so it is waited for. A GPU that has failed keeps its
            // memory until the program ends; there is nobody to tell.
            unsafe {
                let _ = result::stream::synchronize(state.stream);
                let _ = result::free_sync(address);
            }
        }
    }

    unsafe fn upload(&self, to: u64, bytes: &[u8]) -> Result<()> {
        let state = self.state()?;
        let copy = || -> std::result::Result<(), DriverError> {
            for (i, part) in bytes.chunks(STAGING_BYTES).enumerate() {
                // SAFETY: the staging memory is as large as a part, and nothing reads it any more after the wait; the target
                // is the caller's.
                unsafe {
                    result::stream::synchronize(state.stream)?;
                    std::ptr::copy_nonoverlapping(part.as_ptr(), state.staging.cast(), part.len());
                    let staged = std::slice::from_raw_parts(state.staging.cast::<u8>(), part.len());
                    result::memcpy_htod_async(to + (i * STAGING_BYTES) as u64, staged, state.stream)?;
                }
            }
            Ok(())
        };
        copy().map_err(|e| failed("a copy to the GPU failed", e))
    }

    unsafe fn download(&self, from: u64, bytes: &mut [u8]) -> Result<()> {
        let state = self.state()?;
        let mut copy = || -> std::result::Result<(), DriverError> {
            for (i, part) in bytes.chunks_mut(STAGING_BYTES).enumerate() {
                // SAFETY: as in `upload`; the wait comes before the staging memory is read.
                unsafe {
                    let staged = std::slice::from_raw_parts_mut(state.staging.cast::<u8>(), part.len());
                    result::memcpy_dtoh_async(staged, from + (i * STAGING_BYTES) as u64, state.stream)?;
                    result::stream::synchronize(state.stream)?;
                    part.copy_from_slice(staged);
                }
            }
            Ok(())
        };
        copy().map_err(|e| failed("the GPU failed while it computed", e))
    }

    unsafe fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<()> {
        let state = self.state()?;
        // SAFETY: the caller's.
        unsafe { result::memcpy_dtod_async(to, from, bytes, state.stream) }
            .map_err(|e| failed("a copy within the GPU failed", e))
    }

    unsafe fn launch(&self, launch: &Launch, args: &mut Args) -> Result<()> {
        let mut state = self.state()?;
        let function = self.function(&mut state, launch)?;
        let grid = (launch.grid[0], launch.grid[1], 1);
        let block = (launch.block, 1, 1);
        // SAFETY: the caller's.
        unsafe { result::launch_kernel(function, grid, block, launch.shared_bytes, state.stream, &mut args.pointers()) }
            .map_err(|e| failed(&format!("{} does not start", launch.kernel), e))
    }

    fn library(&self) -> Option<String> {
        lt::version()
    }

    unsafe fn library_product(&self, product: &Product) -> Result<()> {
        if self.state()?.library.is_none() {
            let workspace = self.allocate(lt::WORKSPACE_BYTES)?;
            // SAFETY: the memory stays until the runtime is dropped; the context is bound by `state` before.
            let opened = unsafe { Lt::new(workspace)? };
            self.state()?.library = Some((opened, workspace));
        }
        let mut state = self.state()?;
        let stream = state.stream;
        match &mut state.library {
            // SAFETY: the caller's.
            Some((library, _)) => unsafe { library.run(product, stream.cast()) },
            None => Err(Error::internal("cublasLt was opened just now")),
        }
    }

    fn tensor_map(&self, matrix: &Tiled) -> Result<TensorMap> {
        let mut map = MaybeUninit::<sys::CUtensorMap>::uninit();
        let sizes = [matrix.columns as u64, matrix.rows as u64];
        let (strides, boxes, steps) = ([matrix.stride as u64 * 2], [BOX_COLUMNS, matrix.box_rows], [1, 1]);
        // SAFETY: the arrays have the lengths that two dimensions need; the address is of device memory.
        let status = unsafe {
            sys::cuTensorMapEncodeTiled(
                map.as_mut_ptr(),
                sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                2,
                matrix.address as *mut c_void,
                sizes.as_ptr(),
                strides.as_ptr(),
                boxes.as_ptr(),
                steps.as_ptr(),
                sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
                sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
                sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
            )
        };
        status.result().map_err(|e| failed("the driver describes no matrix to the copy engine", e))?;
        // SAFETY: the driver has filled it: 128 bytes.
        Ok(TensorMap(unsafe { std::mem::transmute::<sys::CUtensorMap, [u8; 128]>(map.assume_init()) }))
    }

    fn pin(&self, bytes: usize) -> Result<*mut u8> {
        let _state = self.state()?;
        // SAFETY: it is filled below, and freed by `unpin`.
        let memory = unsafe { result::malloc_host(bytes, 0) }
            .map_err(|e| failed(&format!("the driver pins no {} MiB of this machine's memory", bytes >> 20), e))?;
        // SAFETY: the memory has this length.
        unsafe { memory.cast::<u8>().write_bytes(0, bytes) };
        Ok(memory.cast())
    }

    unsafe fn unpin(&self, memory: *mut u8, _: usize) {
        if let Ok(state) = self.state() {
            // SAFETY: the caller's; copies under way are waited for. As in `release`, there is nobody to tell of a failure.
            unsafe {
                let _ = result::stream::synchronize(state.copies);
                let _ = result::stream::synchronize(state.stream);
                let _ = result::free_host(memory.cast());
            }
        }
    }

    unsafe fn start_upload(&self, to: u64, from: *const u8, bytes: usize) -> Result<()> {
        let state = self.state()?;
        // SAFETY: the caller's; the event is the state's own. The stream waits for it as it was recorded here.
        let start = || unsafe {
            result::memcpy_htod_async(to, std::slice::from_raw_parts(from, bytes), state.copies)?;
            result::event::record(state.copied, state.copies)?;
            let wait = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
            result::stream::wait_event(state.stream, state.copied, wait)
        };
        start().map_err(|e| failed("a copy to the GPU failed", e))
    }

    unsafe fn start_download(&self, from: u64, to: *mut u8, bytes: usize) -> Result<Mark> {
        let mut state = self.state()?;
        let mut start = || {
            let done = state.events.pop().map_or_else(event, Ok)?;
            // SAFETY: the caller's; the event is waited for before it is used again. On the launches' own stream: a copy of
            // results is short, and on the other one the next batch's would wait behind it.
            unsafe {
                result::memcpy_dtoh_async(std::slice::from_raw_parts_mut(to, bytes), from, state.stream)?;
                result::event::record(done, state.stream)?;
            }
            Ok(Mark(done as u64))
        };
        start().map_err(|e| failed("a copy from the GPU failed", e))
    }

    fn wait(&self, mark: Mark) -> Result<()> {
        let event = mark.0 as sys::CUevent;
        // The handles are free for the next batch's launches while this one is waited for.
        drop(self.state()?);
        // SAFETY: a mark is an event that was recorded, and is given away once.
        unsafe { result::event::synchronize(event) }.map_err(|e| failed("the GPU failed while it computed", e))?;
        self.state()?.events.push(event);
        Ok(())
    }

    fn finish(&self) -> Result<()> {
        let state = self.state()?;
        // SAFETY: the stream is there.
        unsafe { result::stream::synchronize(state.stream) }.map_err(|e| failed("the GPU failed while it computed", e))
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if let Ok(mut state) = self.state() {
            // SAFETY: nothing uses them after this; modules go with the context.
            unsafe {
                let _ = result::stream::synchronize(state.copies);
                let _ = result::stream::synchronize(state.stream);
                if let Some((library, workspace)) = state.library.take() {
                    drop(library);
                    let _ = result::free_sync(workspace);
                }
                let _ = result::free_host(state.staging);
                for event in state.events.iter().chain([&state.copied]) {
                    let _ = result::event::destroy(*event);
                }
                let _ = result::stream::destroy(state.copies);
                let _ = result::stream::destroy(state.stream);
            }
        }
    }
}
