//! What a GPU does for us, or the emulation that stands in for one: memory, copies and launches, in order.

use std::ffi::c_void;
use std::sync::Arc;

use crate::error::{Error, Result};

/// What is known of a chip.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chip {
    pub name: String,
    /// Compute capability: (9, 0) for Hopper.
    pub capability: (u32, u32),
    pub multiprocessors: u32,
    pub memory_bytes: u64,
}

/// Everything that is put to a runtime happens in the order in which it was put.
pub trait Runtime: Send + Sync {
    fn chip(&self) -> &Chip;
    /// Addresses are multiples of 256. Out of memory is an error of class [`crate::error::Class::OutOfMemory`].
    fn allocate(&self, bytes: usize) -> Result<u64>;
    /// # Safety
    /// `address` came from [`Runtime::allocate`] and is not used again.
    unsafe fn release(&self, address: u64);
    /// # Safety
    /// `to` has `bytes.len()` bytes of one allocation.
    unsafe fn upload(&self, to: u64, bytes: &[u8]) -> Result<()>;
    /// Waits for all launches before it.
    ///
    /// # Safety
    /// `from` has `bytes.len()` bytes of one allocation.
    unsafe fn download(&self, from: u64, bytes: &mut [u8]) -> Result<()>;
    /// Copies within the device, in order with the launches.
    ///
    /// # Safety
    /// `to` and `from` have `bytes` bytes of two allocations.
    unsafe fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<()>;
    /// # Safety
    /// The arguments are the kernel's, and every address has the memory that the kernel touches.
    unsafe fn launch(&self, launch: &Launch, args: &mut Args) -> Result<()>;
    /// The version of the vendor's library for matrix products, where it is on the machine.
    fn library(&self) -> Option<String> {
        None
    }
    /// A product by that library.
    ///
    /// # Safety
    /// Every address has the memory that the product's shape says.
    unsafe fn library_product(&self, _: &Product) -> Result<()> {
        Err(Error::device("there is no cublasLt here"))
    }
    /// How the copy engine of Hopper sees a matrix of bf16.
    fn tensor_map(&self, matrix: &Tiled) -> Result<TensorMap>;
    /// Memory of the host that [`Runtime::start_upload`] reads and [`Runtime::start_download`] writes.
    fn pin(&self, bytes: usize) -> Result<*mut u8>;
    /// # Safety
    /// `memory` came from [`Runtime::pin`] and is not used again.
    unsafe fn unpin(&self, memory: *mut u8, bytes: usize);
    /// Copies beside the launches that are under way; those that are put after it wait for it.
    ///
    /// # Safety
    /// `to` has `bytes` bytes of one allocation, `from` as many of pinned memory. No launch under way uses the former, and
    /// the latter stay as they are until a launch that was put after this has been waited for.
    unsafe fn start_upload(&self, to: u64, from: *const u8, bytes: usize) -> Result<()>;
    /// Copies when everything that was put before is done.
    ///
    /// # Safety
    /// `from` has `bytes` bytes of one allocation, `to` as many of pinned memory; they are not read before the mark was
    /// waited for.
    unsafe fn start_download(&self, from: u64, to: *mut u8, bytes: usize) -> Result<Mark>;
    /// Waits until what the mark stands for is done. What is put later may still be under way.
    fn wait(&self, mark: Mark) -> Result<()>;
    /// Waits until everything is done.
    fn finish(&self) -> Result<()>;
}

/// A place in the order of what was put to a runtime.
#[derive(Debug, PartialEq, Eq)]
pub struct Mark(pub u64);

/// A kernel and its geometry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// The file under `kernels/`, without its ending.
    pub module: &'static str,
    pub kernel: String,
    pub grid: [u32; 2],
    /// Threads of a block.
    pub block: u32,
    /// Dynamic shared memory of a block.
    pub shared_bytes: u32,
}

/// `c[rows, columns] = a[rows, depth] w[columns, depth]^T + bias + residual`, all of bf16, sums in f32. Addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Product {
    pub c: u64,
    pub a: u64,
    pub w: u64,
    pub bias: u64,
    /// 0: none.
    pub residual: u64,
    pub rows: usize,
    pub columns: usize,
    pub depth: usize,
}

/// A matrix in memory, read in boxes of `box_rows` rows by 64 columns. Rows begin `stride` values apart, a multiple of 8.
#[derive(Debug, Clone, Copy)]
pub struct Tiled {
    pub address: u64,
    pub rows: usize,
    pub columns: usize,
    pub stride: usize,
    pub box_rows: u32,
}

/// A descriptor as the driver writes it.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(128))]
pub struct TensorMap(pub [u8; 128]);

/// A launch's arguments: each in a place of its own, as the driver wants them.
#[derive(Clone, Default)]
pub struct Args {
    places: Vec<TensorMap>,
}

impl Args {
    fn push(mut self, bytes: &[u8]) -> Self {
        let mut place = TensorMap([0; 128]);
        place.0[..bytes.len()].copy_from_slice(bytes);
        self.places.push(place);
        self
    }
    pub fn address(self, address: u64) -> Self {
        self.push(&address.to_ne_bytes())
    }
    /// A count; kernels take them as `int`.
    pub fn count(self, value: usize) -> Self {
        self.push(&i32::try_from(value).expect("no dimension comes near 2^31").to_ne_bytes())
    }
    pub fn float(self, value: f32) -> Self {
        self.push(&value.to_ne_bytes())
    }
    pub fn map(self, map: &TensorMap) -> Self {
        self.push(&map.0)
    }
    /// Where each argument lies; valid while `self` is.
    pub fn pointers(&mut self) -> Vec<*mut c_void> {
        self.places.iter_mut().map(|p| p.0.as_mut_ptr().cast()).collect()
    }
}

/// Memory of a runtime, given back when dropped.
pub struct Buffer {
    runtime: Arc<dyn Runtime>,
    address: u64,
    bytes: usize,
}

impl Buffer {
    pub fn new(runtime: &Arc<dyn Runtime>, bytes: usize) -> Result<Self> {
        Ok(Buffer { address: runtime.allocate(bytes.max(1))?, runtime: Arc::clone(runtime), bytes })
    }

    pub fn filled(runtime: &Arc<dyn Runtime>, bytes: &[u8]) -> Result<Self> {
        let buffer = Self::new(runtime, bytes.len())?;
        // SAFETY: the buffer has this length.
        unsafe { runtime.upload(buffer.address, bytes)? };
        Ok(buffer)
    }

    /// The whole buffer.
    pub fn view(&self) -> View {
        View { address: self.address, bytes: self.bytes }
    }

    /// # Panics
    /// Where the buffer is shorter.
    pub fn upload(&self, bytes: &[u8]) -> Result<()> {
        assert!(bytes.len() <= self.bytes);
        // SAFETY: the length was checked.
        unsafe { self.runtime.upload(self.address, bytes) }
    }

    /// # Panics
    /// Where the buffer is shorter.
    pub fn download(&self, bytes: &mut [u8]) -> Result<()> {
        assert!(bytes.len() <= self.bytes);
        // SAFETY: the length was checked.
        unsafe { self.runtime.download(self.address, bytes) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: this is the buffer's own memory; views do not outlive the buffers of a workspace.
        unsafe { self.runtime.release(self.address) };
    }
}

/// Pinned memory of the host, given back when dropped.
pub struct Pinned {
    runtime: Arc<dyn Runtime>,
    memory: *mut u8,
    bytes: usize,
}

// SAFETY: it is plain memory with one owner.
unsafe impl Send for Pinned {}

impl Pinned {
    pub fn new(runtime: &Arc<dyn Runtime>, bytes: usize) -> Result<Self> {
        let bytes = bytes.max(1);
        Ok(Pinned { memory: runtime.pin(bytes)?, runtime: Arc::clone(runtime), bytes })
    }

    /// Its first bytes. Nothing that was started may be using them.
    pub fn first(&mut self, bytes: usize) -> &mut [u8] {
        assert!(bytes <= self.bytes);
        // SAFETY: the memory is there, filled with zeros when it was pinned, and borrowed from its owner.
        unsafe { std::slice::from_raw_parts_mut(self.memory, bytes) }
    }

    /// Starts a copy of the first bytes; see [`Runtime::start_upload`].
    pub fn upload(&self, to: View, bytes: usize) -> Result<()> {
        assert!(bytes <= self.bytes);
        // SAFETY: both lengths were checked; the slot's order of use keeps the rest.
        unsafe { self.runtime.start_upload(to.holds(bytes, 1), self.memory, bytes) }
    }

    /// Starts a copy into the first bytes; see [`Runtime::start_download`].
    pub fn download(&mut self, from: View, bytes: usize) -> Result<Mark> {
        assert!(bytes <= self.bytes);
        // SAFETY: as above.
        unsafe { self.runtime.start_download(from.holds(bytes, 1), self.memory, bytes) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: this is its own memory; the runtime waits for copies that are under way.
        unsafe { self.runtime.unpin(self.memory, self.bytes) };
    }
}

/// A part of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    pub address: u64,
    pub bytes: usize,
}

impl View {
    /// # Panics
    /// Where the view has no such part.
    pub fn part(self, from: usize, bytes: usize) -> View {
        assert!(from + bytes <= self.bytes, "{from} + {bytes} of {}", self.bytes);
        View { address: self.address + from as u64, bytes }
    }

    /// The view from this byte on.
    pub fn from(self, from: usize) -> View {
        self.part(from, self.bytes - from)
    }

    /// # Panics
    /// Where the view is shorter.
    pub fn holds(self, values: usize, bytes_each: usize) -> u64 {
        assert!(values * bytes_each <= self.bytes, "{values} values of {bytes_each} bytes in {}", self.bytes);
        self.address
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_lie_where_their_pointers_say() {
        let map = TensorMap(std::array::from_fn(|i| i as u8));
        let mut args = Args::default().address(0x1234_5678_9abc_def0).count(7).float(1.5).map(&map);
        let at = args.pointers();
        assert!(at.iter().all(|p| p.cast::<TensorMap>().is_aligned()));
        // SAFETY: the arguments were put there just now.
        unsafe {
            assert_eq!(at[0].cast::<u64>().read(), 0x1234_5678_9abc_def0);
            assert_eq!(at[1].cast::<i32>().read(), 7);
            assert_eq!(at[2].cast::<f32>().read(), 1.5);
            assert_eq!(at[3].cast::<[u8; 128]>().read(), map.0);
        }
    }

    #[test]
    #[should_panic(expected = "8 + 9 of 16")]
    fn a_part_outside_its_view_is_refused() {
        View { address: 256, bytes: 16 }.part(8, 9);
    }
}
