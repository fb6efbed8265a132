//! Whether published figures could be a sample of ours.
//!
//! Setup times have heavy tails and few values, so that no formula gives the error of a mean or a
//! percentile of them: samples are drawn from our handshakes, and the published figure has to lie where 95
//! of a hundred of these have theirs. Their size is the published one, less what makes up for ours being
//! a sample, too.

use ike_tests::Seeded;

use super::outcome::quantile;

/// Samples drawn.
const SAMPLES: usize = 1000;

/// What a machine may be late with a retransmission, in seconds. The published times after one timer of
/// 4.0 s are 4.02 to 4.10 s with suites that take 0.02 to 0.04 s without loss.
pub const SLACK: f64 = 0.1;

/// A published figure and the interval of ours.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cell {
    /// Ours, of all handshakes.
    pub ours: f64,
    /// Where samples of ours have it, from the 2.5th to the 97.5th percentile.
    pub interval: [f64; 2],
    /// Theirs.
    pub theirs: f64,
    /// Theirs less ours in standard deviations of our samples; 0 if these do not differ.
    pub z: f64,
    /// Theirs may be so much outside.
    slack: f64,
}

impl Cell {
    fn new(ours: f64, mut samples: Vec<f64>, theirs: f64, slack: f64) -> Self {
        samples.sort_by(f64::total_cmp);
        let interval = [0.025, 0.975].map(|part| quantile(&samples, part));
        let mean = samples.iter().sum::<f64>() / samples.len().max(1) as f64;
        let squares = samples.iter().map(|sample| (sample - mean).powi(2)).sum::<f64>();
        let deviation = (squares / samples.len().max(1) as f64).sqrt();
        let z = if deviation > 1e-4 { (theirs - ours) / deviation } else { 0.0 };
        Self { ours, interval, theirs, z, slack }
    }

    /// True if theirs is where ours may be.
    pub fn inside(&self) -> bool {
        let [low, high] = self.interval;
        (low - self.slack..=high + self.slack).contains(&self.theirs)
    }
}

/// The three figures of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Check {
    /// Mean setup time in seconds.
    pub mean: Cell,
    /// 95th percentile of the setup time in seconds.
    pub p95: Cell,
    /// Share of setups of more than four seconds.
    pub stalled: Cell,
}

impl Check {
    /// The cells.
    pub fn cells(&self) -> [&Cell; 3] {
        [&self.mean, &self.p95, &self.stalled]
    }
}

/// Compares `times`, the setup times of all our handshakes in seconds, with the figures of `n` published
/// handshakes: mean, 95th percentile and share of more than four seconds.
pub fn check(times: &[f64], n: usize, theirs: [f64; 3], seed: u64) -> Check {
    let mut rng = Seeded::new(seed);
    // Ours is a sample as well. Two samples of n and m differ as one of nm / (n + m) differs from the
    // truth.
    let size = n * times.len() / (n + times.len()).max(1);
    let figures = |sample: &mut Vec<f64>| {
        sample.sort_by(f64::total_cmp);
        let mean = sample.iter().sum::<f64>() / sample.len().max(1) as f64;
        let stalled = sample.iter().filter(|time| **time > 4.0).count();
        [mean, quantile(sample, 0.95), stalled as f64 / sample.len().max(1) as f64]
    };
    let mut samples: [Vec<f64>; 3] = Default::default();
    if !times.is_empty() {
        for _ in 0..SAMPLES {
            let draw = |_| times[rng.below(times.len() as u64) as usize];
            let mut sample: Vec<f64> = (0..size).map(draw).collect();
            for (list, figure) in samples.iter_mut().zip(figures(&mut sample)) {
                list.push(figure);
            }
        }
    }
    let ours = figures(&mut times.to_vec());
    let [mean, p95, stalled] = samples;
    // A mean is late by the share of handshakes that are; a percentile is late altogether.
    Check {
        mean: Cell::new(ours[0], mean, theirs[0], SLACK * ours[2].max(theirs[2]) + MEAN_SLACK),
        p95: Cell::new(ours[1], p95, theirs[1], SLACK),
        stalled: Cell::new(ours[2], stalled, theirs[2], 1e-9),
    }
}

/// What the published means vary by among suites without loss, in seconds.
const MEAN_SLACK: f64 = 0.01;

#[cfg(test)]
mod tests {
    use super::*;

    /// A tenth of the handshakes needs a retransmission.
    fn times() -> Vec<f64> {
        (0..1000).map(|n| if n % 10 == 0 { 4.02 } else { 0.02 }).collect()
    }

    #[test]
    fn a_sample_of_ours_is_inside() {
        let check = check(&times(), 500, [0.45, 4.04, 0.106], 1);
        assert!(check.cells().iter().all(|cell| cell.inside()), "{check:?}");
        assert!((check.stalled.ours - 0.1).abs() < 1e-9);
        assert!(check.stalled.z.abs() < 1.0, "{check:?}");
    }

    #[test]
    fn what_is_no_sample_of_ours_is_outside() {
        let check = check(&times(), 500, [0.9, 11.2, 0.2], 1);
        assert!(check.cells().iter().all(|cell| !cell.inside()), "{check:?}");
        assert!(check.stalled.z > 5.0, "{check:?}");
    }
}
