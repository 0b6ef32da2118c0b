//! One panel of 16 columns times quantised rows: exact sums in 32 bits, then f32. Three kernels, one result.
//!
//! AVX2 multiplies bytes and adds two products to 16 bits, then two of those to 32 bits: three instructions for four
//! products a lane. The dot-product instructions of newer processors (VNNI) do all of it in one. The portable loop says
//! what both compute.

use super::int8::{GROUP, PANEL};
use super::math::Quantum;

/// Which instructions sum the products.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernel {
    Portable,
    Avx2,
    /// AVX-512 VNNI: a panel in one register.
    Vnni512,
    /// AVX-VNNI: a panel in two registers.
    Vnni256,
}

/// Whether this processor has a kernel's instructions.
pub fn has(kernel: Kernel) -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::is_x86_feature_detected as detected;
        match kernel {
            Kernel::Portable => true,
            Kernel::Avx2 => detected!("avx2"),
            Kernel::Vnni512 => detected!("avx512f") && detected!("avx512vnni"),
            Kernel::Vnni256 => detected!("avx2") && detected!("avxvnni"),
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        kernel == Kernel::Portable
    }
}

/// The fastest kernel that this processor has.
pub fn best() -> Kernel {
    let order = [Kernel::Vnni512, Kernel::Vnni256, Kernel::Avx2];
    order.into_iter().find(|k| has(*k)).unwrap_or(Kernel::Portable)
}

/// A panel of a layer: weights, and by column the sum of the weights, their scale and the bias.
pub struct Tile<'a> {
    pub depth: usize,
    pub panel: &'a [i8],
    pub sums: &'a [i32],
    pub scales: &'a [f32],
    pub bias: &'a [f32],
}

impl Tile<'_> {
    /// `out[r][n] = bias[n] + (scale of r * scale of n) * sum over k of (a[r][k] - zero of r) * w[k][n]`, rows of `out`
    /// `stride` apart.
    pub fn sweep(&self, kernel: Kernel, a: &[u8], rows: &[Quantum], out: &mut [f32], stride: usize) {
        assert!(self.depth.is_multiple_of(GROUP) && self.panel.len() == self.depth * PANEL);
        assert!([self.sums.len(), self.scales.len(), self.bias.len()] == [PANEL; 3]);
        assert!(a.len() >= rows.len() * self.depth && has(kernel));
        assert!(rows.is_empty() || out.len() >= (rows.len() - 1) * stride + PANEL);
        match kernel {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the processor has the instructions, and the lengths were checked above.
            Kernel::Avx2 => unsafe { x86::avx2(self, a, rows, out, stride) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Kernel::Vnni512 => unsafe { x86::vnni512(self, a, rows, out, stride) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Kernel::Vnni256 => unsafe { x86::vnni256(self, a, rows, out, stride) },
            _ => self.portable(a, rows, out, stride),
        }
    }

    fn portable(&self, a: &[u8], rows: &[Quantum], out: &mut [f32], stride: usize) {
        for (r, quantum) in rows.iter().enumerate() {
            let mut sums = [0i32; PANEL];
            let a = a[r * self.depth..][..self.depth].chunks_exact(GROUP);
            for (a, w) in a.zip(self.panel.chunks_exact(PANEL * GROUP)) {
                for (sum, w) in sums.iter_mut().zip(w.chunks_exact(GROUP)) {
                    *sum += a.iter().zip(w).map(|(a, w)| i32::from(*a) * i32::from(*w)).sum::<i32>();
                }
            }
            for (n, x) in out[r * stride..][..PANEL].iter_mut().enumerate() {
                let sum = sums[n] - quantum.zero * self.sums[n];
                *x = sum as f32 * (quantum.scale * self.scales[n]) + self.bias[n];
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{GROUP, PANEL, Quantum, Tile};

    /// A kernel's loop over its rows, in tiles of at most `$most`.
    macro_rules! sweep {
        ($(#[$doc:meta])* $name:ident, $features:literal, $tile:ident, $most:literal, [$($less:literal),*]) => {
            $(#[$doc])*
            #[target_feature(enable = $features)]
            pub unsafe fn $name(t: &Tile, a: &[u8], rows: &[Quantum], out: &mut [f32], stride: usize) {
                let mut r = 0;
                while r < rows.len() {
                    // SAFETY: the caller's, for the rows from `r` on.
                    unsafe {
                        let (a, out) = (a.as_ptr().add(r * t.depth), out.as_mut_ptr().add(r * stride));
                        match rows.len() - r {
                            $($less => $tile::<$less>(t, a, &rows[r..], out, stride),)*
                            _ => $tile::<$most>(t, a, &rows[r..], out, stride),
                        }
                    }
                    r += $most;
                }
            }
        };
    }
    sweep!(
        /// # Safety
        /// AVX2 is there; the lengths are those that [`Tile::sweep`] checks.
        avx2, "avx2", avx2_tile, 4, [1, 2, 3]
    );
    sweep!(
        /// # Safety
        /// AVX-512 VNNI is there; the lengths are those that [`Tile::sweep`] checks.
        vnni512, "avx512f,avx512vnni", vnni512_tile, 8, [1, 2, 3, 4, 5, 6, 7]
    );
    sweep!(
        /// # Safety
        /// AVX2 and AVX-VNNI are there; the lengths are those that [`Tile::sweep`] checks.
        vnni256, "avx2,avxvnni", vnni256_tile, 6, [1, 2, 3, 4, 5]
    );

    /// Four values of a row, in every lane.
    #[inline]
    unsafe fn group(a: *const u8) -> i32 {
        // SAFETY: the caller's: four bytes are there.
        unsafe { a.cast::<i32>().read_unaligned() }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn avx2_tile<const R: usize>(t: &Tile, a: *const u8, rows: &[Quantum], out: *mut f32, stride: usize) {
        // SAFETY: the caller's.
        unsafe {
            let ones = _mm256_set1_epi16(1);
            let mut sums = [[_mm256_setzero_si256(); 2]; R];
            let mut step = |k: usize| {
                let w = t.panel.as_ptr().add(k * PANEL);
                let w = [_mm256_loadu_si256(w.cast()), _mm256_loadu_si256(w.add(32).cast())];
                for (r, sum) in sums.iter_mut().enumerate() {
                    let x = _mm256_set1_epi32(group(a.add(r * t.depth + k)));
                    sum[0] = _mm256_add_epi32(sum[0], _mm256_madd_epi16(_mm256_maddubs_epi16(x, w[0]), ones));
                    sum[1] = _mm256_add_epi32(sum[1], _mm256_madd_epi16(_mm256_maddubs_epi16(x, w[1]), ones));
                }
            };
            let even = t.depth / (2 * GROUP) * (2 * GROUP);
            for k in (0..even).step_by(2 * GROUP) {
                step(k);
                step(k + GROUP);
            }
            if even < t.depth {
                step(even);
            }
            finish::<R>(t, &sums, rows, out, stride);
        }
    }

    #[inline]
    #[target_feature(enable = "avx2,avxvnni")]
    unsafe fn vnni256_tile<const R: usize>(t: &Tile, a: *const u8, rows: &[Quantum], out: *mut f32, stride: usize) {
        // SAFETY: the caller's.
        unsafe {
            let mut sums = [[_mm256_setzero_si256(); 2]; R];
            for k in (0..t.depth).step_by(GROUP) {
                let w = t.panel.as_ptr().add(k * PANEL);
                let w = [_mm256_loadu_si256(w.cast()), _mm256_loadu_si256(w.add(32).cast())];
                for (r, sum) in sums.iter_mut().enumerate() {
                    let x = _mm256_set1_epi32(group(a.add(r * t.depth + k)));
                    sum[0] = _mm256_dpbusd_avx_epi32(sum[0], x, w[0]);
                    sum[1] = _mm256_dpbusd_avx_epi32(sum[1], x, w[1]);
                }
            }
            finish::<R>(t, &sums, rows, out, stride);
        }
    }

    /// From sums to f32, eight columns at a time.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn finish<const R: usize>(
        t: &Tile,
        sums: &[[__m256i; 2]; R],
        rows: &[Quantum],
        out: *mut f32,
        stride: usize,
    ) {
        for (r, sums) in sums.iter().enumerate() {
            for (half, sum) in sums.iter().enumerate() {
                // SAFETY: the caller's.
                unsafe {
                    let column_sums = _mm256_loadu_si256(t.sums.as_ptr().add(half * 8).cast());
                    let scales = _mm256_loadu_ps(t.scales.as_ptr().add(half * 8));
                    let bias = _mm256_loadu_ps(t.bias.as_ptr().add(half * 8));
                    let shift = _mm256_mullo_epi32(_mm256_set1_epi32(rows[r].zero), column_sums);
                    let whole = _mm256_cvtepi32_ps(_mm256_sub_epi32(*sum, shift));
                    let scaled = _mm256_mul_ps(whole, _mm256_mul_ps(_mm256_set1_ps(rows[r].scale), scales));
                    _mm256_storeu_ps(out.add(r * stride + half * 8), _mm256_add_ps(scaled, bias));
                }
            }
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512vnni")]
    unsafe fn vnni512_tile<const R: usize>(t: &Tile, a: *const u8, rows: &[Quantum], out: *mut f32, stride: usize) {
        // SAFETY: the caller's.
        unsafe {
            let mut sums = [_mm512_setzero_si512(); R];
            for k in (0..t.depth).step_by(GROUP) {
                let w = _mm512_loadu_si512(t.panel.as_ptr().add(k * PANEL).cast());
                for (r, sum) in sums.iter_mut().enumerate() {
                    *sum = _mm512_dpbusd_epi32(*sum, _mm512_set1_epi32(group(a.add(r * t.depth + k))), w);
                }
            }
            let column_sums = _mm512_loadu_si512(t.sums.as_ptr().cast());
            let (scales, bias) = (_mm512_loadu_ps(t.scales.as_ptr()), _mm512_loadu_ps(t.bias.as_ptr()));
            for (r, sum) in sums.iter().enumerate() {
                let shift = _mm512_mullo_epi32(_mm512_set1_epi32(rows[r].zero), column_sums);
                let whole = _mm512_cvtepi32_ps(_mm512_sub_epi32(*sum, shift));
                let scaled = _mm512_mul_ps(whole, _mm512_mul_ps(_mm512_set1_ps(rows[r].scale), scales));
                _mm512_storeu_ps(out.add(r * stride), _mm512_add_ps(scaled, bias));
            }
        }
    }
}
