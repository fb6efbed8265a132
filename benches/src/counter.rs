//! The processor's own clock, and how fast it and the core run: all `unsafe` code of this crate.
//!
//! On x86-64 this is the time-stamp counter, which ticks at a rate of its own and not with the core's
//! clock; on AArch64 it is the virtual count of the generic timer. Both can be read in user mode without
//! side effects. (Crates that offer a safe reading exist; the one kept for both architectures does not
//! tell the compiler of a register it overwrites.)

use std::hint::black_box;
use std::time::{Duration, Instant};

/// What [`ticks`] counts, as a heading.
#[cfg(target_arch = "x86_64")]
pub const NAME: &str = "TSC ticks";
/// What [`ticks`] counts, as a heading.
#[cfg(target_arch = "aarch64")]
pub const NAME: &str = "CNTVCT ticks";
/// What [`ticks`] counts, as a heading.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub const NAME: &str = "ns";

/// The counter now. Instructions in front of the call are done, and those behind it not begun, when
/// it is read.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
#[expect(unsafe_code, reason = "there is no safe intrinsic for the counter")]
pub fn ticks() -> u64 {
    use std::arch::x86_64::{_mm_lfence, _rdtsc};
    // SAFETY: SSE2 and the counter are part of every x86-64 processor; neither instruction touches
    // memory.
    unsafe {
        _mm_lfence();
        let now = _rdtsc();
        _mm_lfence();
        now
    }
}

/// The counter now. Instructions in front of the call are done, and those behind it not begun, when
/// it is read.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
#[expect(unsafe_code, reason = "there is no intrinsic for the counter")]
pub fn ticks() -> u64 {
    let now: u64;
    // SAFETY: Linux lets user mode read the virtual count; the instructions touch neither memory, nor
    // flags, nor the stack.
    unsafe {
        std::arch::asm!("isb", "mrs {now}, cntvct_el0", "isb", now = out(reg) now, options(nostack, preserves_flags));
    }
    now
}

/// Nanoseconds, where the processor's counter is not known.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub fn ticks() -> u64 {
    use std::sync::OnceLock;
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// Rates of the counter and of the core, measured.
#[derive(Debug, Clone, Copy)]
pub struct Rates {
    /// Ticks of the counter per second.
    pub ticks: f64,
    /// Cycles of the core per second, estimated.
    pub core: f64,
    /// Ticks that reading the counter twice takes; part of every sample.
    pub overhead: u64,
}

impl Rates {
    /// Measures for about half a second. The core must be at the clock it keeps under load, so the
    /// estimate runs a while before it counts.
    pub fn measure() -> Self {
        let overhead = (0..1000).map(|_| ticks().abs_diff(ticks())).min().unwrap_or(0);
        let warm_up = Instant::now();
        while warm_up.elapsed() < WARM_UP {
            black_box(chain(black_box(1), black_box(3), black_box(5)));
        }
        // The fastest chain is one that nothing interrupted.
        let (start, start_ticks, mut fastest) = (Instant::now(), ticks(), u64::MAX);
        while start.elapsed() < MEASURED {
            let before = ticks();
            black_box(chain(black_box(1), black_box(3), black_box(5)));
            fastest = fastest.min(ticks() - before);
        }
        let rate = (ticks() - start_ticks) as f64 / start.elapsed().as_secs_f64();
        let net = fastest.saturating_sub(overhead).max(1);
        Self { ticks: rate, core: CHAIN as f64 * rate / net as f64, overhead }
    }

    /// Nanoseconds of `ticks`.
    pub fn nanoseconds(&self, ticks: u64) -> f64 {
        ticks as f64 * 1e9 / self.ticks
    }

    /// Estimated core cycles of `ticks`.
    pub fn cycles(&self, ticks: u64) -> f64 {
        ticks as f64 * self.core / self.ticks
    }
}

/// `CHAIN` instructions, each of which needs the result of the one before and takes one cycle on every
/// processor in question; what goes on beside them does not delay them.
#[inline(never)]
fn chain(mut x: u64, a: u64, b: u64) -> u64 {
    for _ in 0..CHAIN / 16 {
        for _ in 0..8 {
            x = (x ^ a).wrapping_add(b);
        }
    }
    x
}

const CHAIN: u64 = 16_000;
const WARM_UP: Duration = Duration::from_millis(200);
const MEASURED: Duration = Duration::from_millis(300);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_goes_forward_at_its_rate() {
        let rates = Rates::measure();
        assert!(rates.ticks > 1e6, "{rates:?}");
        // From a slow Arm core to a fast desktop. Without optimisation the chain goes through memory.
        let slowest = if cfg!(debug_assertions) { 1e6 } else { 3e8 };
        assert!((slowest..8e9).contains(&rates.core), "{rates:?}");
        let (start, clock) = (ticks(), Instant::now());
        std::thread::sleep(Duration::from_millis(50));
        let (counted, slept) = (ticks() - start, clock.elapsed());
        let ratio = rates.nanoseconds(counted) / slept.as_nanos() as f64;
        assert!((0.9..1.1).contains(&ratio), "{ratio}");
    }
}
