//! A runtime that times each launch of the one inside it: launched several times in a row, then waited for.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::super::cuda::runtime::{Args, Chip, Launch, Mark, Runtime, TensorMap, Tiled};
use crate::error::Result;

pub struct Timed {
    inner: Arc<dyn Runtime>,
    repetitions: u32,
    launches: Mutex<Vec<Timing>>,
}

/// One launch of a pass.
#[derive(Debug, Clone, PartialEq)]
pub struct Timing {
    pub module: &'static str,
    pub kernel: String,
    /// Of one repetition.
    pub seconds: f64,
}

impl Timed {
    /// Launches may be repeated: each writes the same again, or, where it reads what it wrote (a norm in place), as much.
    pub fn new(inner: Arc<dyn Runtime>, repetitions: u32) -> Self {
        Timed { inner, repetitions, launches: Mutex::default() }
    }

    /// What was launched since the last call.
    pub fn take(&self) -> Vec<Timing> {
        std::mem::take(&mut self.launches.lock().expect("no holder panics"))
    }
}

impl Runtime for Timed {
    fn chip(&self) -> &Chip {
        self.inner.chip()
    }
    fn allocate(&self, bytes: usize) -> Result<u64> {
        self.inner.allocate(bytes)
    }
    unsafe fn release(&self, address: u64) {
        // SAFETY: the caller's, here and below.
        unsafe { self.inner.release(address) }
    }
    unsafe fn upload(&self, to: u64, bytes: &[u8]) -> Result<()> {
        // SAFETY: the caller's.
        unsafe { self.inner.upload(to, bytes) }
    }
    unsafe fn download(&self, from: u64, bytes: &mut [u8]) -> Result<()> {
        // SAFETY: the caller's.
        unsafe { self.inner.download(from, bytes) }
    }
    unsafe fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<()> {
        // SAFETY: the caller's.
        unsafe { self.inner.copy(to, from, bytes) }
    }
    unsafe fn launch(&self, launch: &Launch, args: &mut Args) -> Result<()> {
        self.inner.finish()?;
        let began = Instant::now();
        for _ in 0..self.repetitions {
            // SAFETY: the caller's; the arguments are the same each time.
            unsafe { self.inner.launch(launch, &mut args.clone())? };
        }
        self.inner.finish()?;
        let seconds = began.elapsed().as_secs_f64() / f64::from(self.repetitions);
        let timing = Timing { module: launch.module, kernel: launch.kernel.clone(), seconds };
        self.launches.lock().expect("no holder panics").push(timing);
        Ok(())
    }
    fn tensor_map(&self, matrix: &Tiled) -> Result<TensorMap> {
        self.inner.tensor_map(matrix)
    }
    fn pin(&self, bytes: usize) -> Result<*mut u8> {
        self.inner.pin(bytes)
    }
    unsafe fn unpin(&self, memory: *mut u8, bytes: usize) {
        // SAFETY: the caller's.
        unsafe { self.inner.unpin(memory, bytes) }
    }
    unsafe fn start_upload(&self, to: u64, from: *const u8, bytes: usize) -> Result<()> {
        // SAFETY: the caller's.
        unsafe { self.inner.start_upload(to, from, bytes) }
    }
    unsafe fn start_download(&self, from: u64, to: *mut u8, bytes: usize) -> Result<Mark> {
        // SAFETY: the caller's.
        unsafe { self.inner.start_download(from, to, bytes) }
    }
    fn wait(&self, mark: Mark) -> Result<()> {
        self.inner.wait(mark)
    }
    fn finish(&self) -> Result<()> {
        self.inner.finish()
    }
}

/// The median of what `once` takes, repeated for so many seconds, three times at least and after one for warmth.
pub fn median_seconds(seconds: f64, mut once: impl FnMut() -> Result<()>) -> Result<f64> {
    once()?;
    let (began, mut times) = (Instant::now(), Vec::new());
    while times.len() < 3 || began.elapsed().as_secs_f64() < seconds {
        let start = Instant::now();
        once()?;
        times.push(start.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}
