//! Asking for memory before it is read.

/// Bytes of a line of the cache.
#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;

/// Asks for the part of `values` that falls to the steps `from..to` of `steps`. What lies past the end of a layer's panels
/// is an empty slice.
#[inline]
pub fn fetch<T>(values: &[T], from: usize, to: usize, steps: usize) {
    #[cfg(target_arch = "x86_64")]
    for item in (values.len() * from / steps..values.len() * to / steps).step_by(LINE / size_of::<T>()) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing that the program sees.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(values.as_ptr().add(item).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (values, from, to, steps);
}

/// At most `length` values from `at` on, or none where that lies past the end.
pub fn part<T>(values: &[T], at: usize, length: usize) -> &[T] {
    let rest = values.get(at..).unwrap_or_default();
    &rest[..rest.len().min(length)]
}
