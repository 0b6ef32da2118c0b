//! Rows of little-endian 16-bit floats, as vectors are stored, to f32: exact, and eight at a time where the processor
//! can (the `half` crate, as it is built here, converts value by value).

use half::f16;

/// Appends the values of the bytes; an odd last byte is left out.
pub fn decode(bytes: &[u8], values: &mut Vec<f32>) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("f16c") {
        let start = values.len();
        values.resize(start + bytes.len() / 2, 0.0);
        let (eights, rest) = bytes.as_chunks::<16>();
        let (to, last) = values[start..].as_chunks_mut::<8>();
        // SAFETY: the processor has the instruction.
        unsafe { f16c::decode(eights, to) };
        last.iter_mut().zip(singles(rest)).for_each(|(to, value)| *to = value);
        return;
    }
    values.extend(singles(bytes));
}

fn singles(bytes: &[u8]) -> impl Iterator<Item = f32> {
    bytes.as_chunks().0.iter().map(|&b| f16::from_le_bytes(b).to_f32())
}

#[cfg(target_arch = "x86_64")]
mod f16c {
    use std::arch::x86_64::*;

    #[target_feature(enable = "avx,f16c")]
    pub fn decode(bytes: &[[u8; 16]], values: &mut [[f32; 8]]) {
        for (bytes, values) in bytes.iter().zip(values) {
            // SAFETY: 16 bytes are read and 8 floats written, at any alignment.
            unsafe {
                let halves = _mm_loadu_si128(bytes.as_ptr().cast());
                _mm256_storeu_ps(values.as_mut_ptr(), _mm256_cvtph_ps(halves));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_is_its_value() {
        let all: Vec<u16> = (0..=u16::MAX).collect();
        let bytes: Vec<u8> = all.iter().flat_map(|h| h.to_le_bytes()).collect();
        let mut values = vec![7.0];
        decode(&bytes, &mut values);
        assert_eq!((values.len(), values[0]), (1 + all.len(), 7.0));
        for (&half, &value) in all.iter().zip(&values[1..]) {
            let expected = f16::from_bits(half).to_f32();
            assert!(value == expected || value.is_nan() && expected.is_nan(), "{half:#x}: {value} {expected}");
        }
        // 0x3555 is the half nearest to 1/3: 1365/4096.
        assert_eq!(values[1 + 0x3555], 1365.0 / 4096.0);
    }

    #[test]
    fn rows_of_any_length_are_decoded() {
        for length in 0..40 {
            let bytes: Vec<u8> = (0..length).flat_map(|i| f16::from_f32(i as f32).to_le_bytes()).collect();
            let mut values = Vec::new();
            decode(&bytes, &mut values);
            assert_eq!(values, (0..length).map(|i| i as f32).collect::<Vec<_>>());
        }
    }
}
