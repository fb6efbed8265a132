//! How far a run is, on standard error.

use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::phase::Phase;

/// On a terminal one line that changes, elsewhere a line every few seconds.
#[derive(Debug)]
pub struct Progress {
    what: String,
    total: Option<u64>,
    terminal: bool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    begin: Instant,
    told: Instant,
    /// Of phases that are over: established and failed.
    passed: [u64; 2],
}

impl Progress {
    /// Of `total` handshakes, if that is known.
    pub fn new(what: String, total: Option<u64>) -> Self {
        let now = Instant::now();
        let state = State { begin: now, told: now, passed: [0; 2] };
        let terminal = std::io::stderr().is_terminal();
        Self { what, total, terminal, state: Mutex::new(state) }
    }

    /// Says how far it is, if it is time to.
    pub fn tell(&self, phase: &Phase) {
        let every = if self.terminal { TERMINAL } else { ELSEWHERE };
        let Ok(mut state) = self.state.lock() else { return };
        if state.told.elapsed() < every {
            return;
        }
        state.told = Instant::now();
        let [established, failed] = counts(&state, phase);
        let line = line(&self.what, established, failed, self.total, state.begin.elapsed());
        let mut err = std::io::stderr().lock();
        // Nobody to tell is no reason to stop.
        let _ = if self.terminal {
            write!(err, "\r\x1b[K{line}").and_then(|()| err.flush())
        } else {
            writeln!(err, "{line}")
        };
    }

    /// A phase is over.
    pub fn passed(&self, phase: &Phase) {
        if let Ok(mut state) = self.state.lock() {
            state.passed = counts(&state, phase);
        }
    }

    /// Leaves the terminal as it was.
    pub fn end(&self) {
        if self.terminal {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

fn counts(state: &State, phase: &Phase) -> [u64; 2] {
    let [established, failed] = state.passed;
    [
        established + phase.established.load(Ordering::Relaxed),
        failed + phase.failed.load(Ordering::Relaxed),
    ]
}

fn line(what: &str, established: u64, failed: u64, total: Option<u64>, time: Duration) -> String {
    let rate = established as f64 / time.as_secs_f64().max(1e-3);
    let mut line = format!("{what}: {established} established");
    if let Some(total) = total {
        line.push_str(&format!(" of {total}"));
    }
    if failed > 0 {
        line.push_str(&format!(", {failed} failed"));
    }
    line.push_str(&format!(", {rate:.0}/s"));
    if let Some(left) = total.map(|total| total.saturating_sub(established + failed)) {
        line.push_str(&format!(", {:.0} s to go", left as f64 / rate.max(1e-3)));
    }
    line
}

const TERMINAL: Duration = Duration::from_millis(200);
const ELSEWHERE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let time = Duration::from_secs(2);
        assert_eq!(line("psk", 200, 0, None, time), "psk: 200 established, 100/s");
        assert_eq!(
            line("psk", 200, 100, Some(1000), time),
            "psk: 200 established of 1000, 100 failed, 100/s, 7 s to go"
        );
    }
}
