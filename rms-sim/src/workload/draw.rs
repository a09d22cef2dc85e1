//! Draws from the distributions that workload models use; the same seed gives the same values.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// One random stream.
#[derive(Clone, Debug)]
pub struct Draw {
    rng: ChaCha8Rng,
}

impl Draw {
    pub fn new(seed: u64) -> Draw {
        Draw { rng: ChaCha8Rng::seed_from_u64(seed) }
    }

    /// Draws from 0 up to, not including, 1.
    pub fn uniform(&mut self) -> f64 {
        self.rng.random()
    }

    pub fn between(&mut self, least: f64, most: f64) -> f64 {
        least + (most - least) * self.uniform()
    }

    pub fn chance(&mut self, probability: f64) -> bool {
        self.uniform() < probability
    }

    /// Draws from the normal distribution with mean 0 and variance 1, by the polar method.
    pub fn normal(&mut self) -> f64 {
        loop {
            let (x, y) = (self.between(-1.0, 1.0), self.between(-1.0, 1.0));
            let square = x * x + y * y;
            if square > 0.0 && square < 1.0 {
                return x * (-2.0 * square.ln() / square).sqrt();
            }
        }
    }

    /// Draws with the mean `shape * scale` (Marsaglia and Tsang 2000: a cubed normal, accepted or drawn again).
    pub fn gamma(&mut self, shape: f64, scale: f64) -> f64 {
        if shape < 1.0 {
            // A variate of shape + 1, shrunk.
            let shrink = (1.0 - self.uniform()).powf(1.0 / shape);
            return self.gamma(shape + 1.0, scale) * shrink;
        }
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let x = self.normal();
            let v = (1.0 + c * x).powi(3);
            let u = 1.0 - self.uniform();
            if v > 0.0 && u.ln() < 0.5 * x * x + d - d * v + d * v.ln() {
                return d * v * scale;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(n_values: usize, mut draw: impl FnMut() -> f64) -> (f64, f64) {
        let values: Vec<f64> = (0..n_values).map(|_| draw()).collect();
        let mean = values.iter().sum::<f64>() / n_values as f64;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / n_values as f64;
        (mean, variance)
    }

    #[test]
    fn means_and_variances_are_those_of_the_distributions() {
        let mut draw = Draw::new(3);
        let (mean, variance) = moments(40_000, || draw.normal());
        assert!(mean.abs() < 0.03 && (variance - 1.0).abs() < 0.04, "{mean} {variance}");
        for (shape, scale) in [(0.6, 0.6), (1.0, 2.0), (10.5, 0.49), (312.0, 0.03)] {
            let (mean, variance) = moments(40_000, || draw.gamma(shape, scale));
            assert!((mean / (shape * scale) - 1.0).abs() < 0.04, "{shape} {scale}: mean {mean}");
            assert!((variance / (shape * scale * scale) - 1.0).abs() < 0.08, "{shape} {scale}: variance {variance}");
        }
    }
}
