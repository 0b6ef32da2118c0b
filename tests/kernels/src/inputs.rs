//! Seeded inputs. The same seed gives the same numbers on every machine.

use half::bf16;

/// Normal numbers from SplitMix64 and the Box-Muller transform.
pub struct Inputs {
    state: u64,
}

impl Inputs {
    pub fn seeded(seed: u64) -> Self {
        Inputs { state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) }
    }

    fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// In (0, 1], so that its logarithm is finite.
    fn uniform(&mut self) -> f64 {
        ((self.bits() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.uniform().ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.bits() % bound as u64) as usize
    }

    /// Normal numbers with this mean and standard deviation.
    pub fn floats(&mut self, count: usize, mean: f64, deviation: f64) -> Vec<f32> {
        (0..count).map(|_| (mean + deviation * self.normal()) as f32).collect()
    }

    pub fn bf16s(&mut self, count: usize, mean: f64, deviation: f64) -> Vec<bf16> {
        (0..count).map(|_| bf16::from_f64(mean + deviation * self.normal())).collect()
    }

    pub fn indices(&mut self, count: usize, bound: usize) -> Vec<u32> {
        (0..count).map(|_| self.below(bound) as u32).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_numbers_have_the_moments_of_the_normal_distribution() {
        let mut inputs = Inputs::seeded(5);
        let values: Vec<f64> = (0..100_000).map(|_| inputs.normal()).collect();
        let moment = |power| values.iter().map(|v| v.powi(power)).sum::<f64>() / values.len() as f64;
        assert!(moment(1).abs() < 0.02 && (moment(2) - 1.0).abs() < 0.03 && (moment(4) - 3.0).abs() < 0.15);
    }
}
