//! How far a run is, on standard error.

use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Counts handshakes and tells of them: on a terminal in one line that changes, elsewhere in a line
/// every few seconds.
#[derive(Debug)]
pub struct Progress {
    total: usize,
    done: AtomicUsize,
    start: Instant,
    terminal: bool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    what: String,
    told: Instant,
}

impl Progress {
    /// Of so many handshakes.
    pub fn new(total: usize) -> Self {
        let start = Instant::now();
        Self {
            total,
            done: AtomicUsize::new(0),
            start,
            terminal: std::io::stderr().is_terminal(),
            state: Mutex::new(State { what: String::new(), told: start }),
        }
    }

    /// What comes now.
    pub fn begin(&self, what: &str) {
        if let Ok(mut state) = self.state.lock() {
            what.clone_into(&mut state.what);
        }
    }

    /// One more.
    pub fn count(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }

    /// Says how far it is, if it is time to.
    pub fn tell(&self) {
        let every = if self.terminal { TERMINAL } else { ELSEWHERE };
        let Ok(mut state) = self.state.lock() else { return };
        if state.told.elapsed() < every {
            return;
        }
        state.told = Instant::now();
        let line = line(self.done.load(Ordering::Relaxed), self.total, self.start.elapsed());
        let mut err = std::io::stderr().lock();
        // Nobody to tell is no reason to stop.
        let _ = if self.terminal {
            write!(err, "\r\x1b[K{line}  {}", state.what).and_then(|()| err.flush())
        } else {
            writeln!(err, "{line}  {}", state.what)
        };
    }

    /// Leaves the terminal as it was.
    pub fn end(&self) {
        if self.terminal {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
        let line = line(self.done.load(Ordering::Relaxed), self.total, self.start.elapsed());
        let _ = writeln!(std::io::stderr(), "{line}");
    }
}

fn line(done: usize, total: usize, elapsed: Duration) -> String {
    let rate = done as f64 / elapsed.as_secs_f64().max(1e-3);
    let left = (total.saturating_sub(done)) as f64 / rate.max(1e-3);
    format!("{done} of {total} handshakes, {rate:.0}/s, {left:.0} s to go")
}

const TERMINAL: Duration = Duration::from_millis(200);
const ELSEWHERE: Duration = Duration::from_secs(5);
