//! Memory that a kernel reads or writes: aligned as device memory is, between two zones that must stay as they are.

use half::bf16;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::marker::PhantomData;

/// What guard zones and unwritten outputs hold: not a number in bf16 and in f32, and as an index far out of bounds.
const POISON: [u8; 2] = [0xb7, 0xff];
/// cudaMalloc aligns to 256 bytes.
const ALIGNMENT: usize = 256;
/// A row of 8,192 values fits, so a kernel that is one row off hits the zone and not unrelated memory.
const GUARD_BYTES: usize = 16 * 1024;

/// Types whose every bit pattern is a value.
pub trait Plain: Copy {}
impl Plain for bf16 {}
impl Plain for f32 {}
impl Plain for u32 {}

/// A sanitizer sees the first byte outside an allocation, which a guard zone would hide from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bounds {
    Guarded,
    Exact,
}

/// Elements in memory that stays where it is.
pub struct Buffer<T: Plain> {
    base: *mut u8,
    layout: Layout,
    guard_bytes: usize,
    len: usize,
    element: PhantomData<T>,
}

impl<T: Plain> Buffer<T> {
    /// An output: every byte is poison.
    pub fn poisoned(len: usize, bounds: Bounds) -> Self {
        let guard_bytes = if bounds == Bounds::Guarded { GUARD_BYTES } else { 0 };
        let bytes = (len * size_of::<T>() + 2 * guard_bytes).max(1);
        let layout = Layout::from_size_align(bytes, ALIGNMENT).expect("a buffer's size overflows");
        // SAFETY: the layout has at least one byte.
        let base = unsafe { alloc(layout) };
        if base.is_null() {
            handle_alloc_error(layout);
        }
        for byte in 0..bytes {
            // SAFETY: within the allocation above.
            unsafe { base.add(byte).write(POISON[byte % 2]) };
        }
        Buffer { base, layout, guard_bytes, len, element: PhantomData }
    }

    /// An input, or an output that begins with values.
    pub fn of(values: &[T], bounds: Bounds) -> Self {
        let buffer = Self::poisoned(values.len(), bounds);
        // SAFETY: the buffer holds as many elements, and is new.
        unsafe { buffer.pointer().copy_from_nonoverlapping(values.as_ptr(), values.len()) };
        buffer
    }

    pub fn pointer(&self) -> *mut T {
        // SAFETY: the guard zone lies within the allocation.
        unsafe { self.base.add(self.guard_bytes) }.cast()
    }

    pub fn values(&self) -> Vec<T> {
        // SAFETY: every byte was written at the start, and any bytes are a `T`.
        (0..self.len).map(|i| unsafe { self.pointer().add(i).read_volatile() }).collect()
    }

    /// Something wrote before or behind the buffer.
    pub fn overrun(&self) -> bool {
        let end = self.layout.size() - self.guard_bytes;
        let zones = (0..self.guard_bytes).chain(end..end + self.guard_bytes);
        // SAFETY: both zones lie within the allocation.
        zones.into_iter().any(|byte| unsafe { self.base.add(byte).read_volatile() } != POISON[byte % 2])
    }
}

impl<T: Plain> Drop for Buffer<T> {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.base, self.layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_outside_is_seen_and_one_inside_is_not() {
        for (at, outside) in [(-1, true), (0, false), (2, false), (3, true)] {
            let buffer = Buffer::<f32>::poisoned(3, Bounds::Guarded);
            unsafe { buffer.pointer().offset(at).write(1.0) };
            assert_eq!(buffer.overrun(), outside, "element {at}");
        }
    }

    #[test]
    fn what_was_not_written_is_no_number() {
        assert!(Buffer::<f32>::poisoned(5, Bounds::Exact).values().iter().all(|v| v.is_nan()));
        assert!(Buffer::<bf16>::poisoned(5, Bounds::Exact).values().iter().all(|v| v.is_nan()));
    }

    #[test]
    fn inputs_come_back_as_they_were() {
        assert_eq!(Buffer::of(&[3u32, 1, 2], Bounds::Guarded).values(), [3, 1, 2]);
        assert_eq!(Buffer::<u32>::of(&[], Bounds::Exact).values(), [0u32; 0]);
    }
}
