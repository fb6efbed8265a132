//! How often something is put back on the host that another program takes away.
//!
//! The first five times within a minute it is put back at once, after that once in ten seconds: two programs that do not
//! want the same do not keep a processor busy.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::time::{Duration, Instant};

/// What is put back more often than [`MOST`] times in this time is put back once in [`PAUSE`].
const SPAN: Duration = Duration::from_secs(60);
const MOST: usize = 5;
const PAUSE: Duration = Duration::from_secs(10);

/// What has been put back, and when.
#[derive(Debug)]
pub struct Patience<K>(HashMap<K, Past>);

#[derive(Debug, Default)]
struct Past {
    /// The last [`MOST`] times at most, the latest at the end.
    times: VecDeque<Instant>,
    /// The log has said that it is put back less often.
    told: bool,
}

/// Whether something is put back.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// At once.
    Now,
    /// Not before a moment.
    Later {
        /// The moment.
        due: Instant,
        /// The log has to say so: until now it was put back at once.
        news: bool,
    },
}

impl<K> Default for Patience<K> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Hash + Eq> Patience<K> {
    /// Whether `what`, which is missing, is put back. If so, it counts as put back.
    pub fn ask(&mut self, what: K, now: Instant) -> Verdict {
        let past = self.0.entry(what).or_default();
        let since = |time: &Instant| now.saturating_duration_since(*time);
        let often =
            past.times.len() == MOST && past.times.front().is_some_and(|first| since(first) < SPAN);
        match past.times.back() {
            Some(last) if often && since(last) < PAUSE => {
                let due = *last + PAUSE;
                Verdict::Later { due, news: !std::mem::replace(&mut past.told, true) }
            }
            _ => {
                past.told &= often;
                if past.times.len() == MOST {
                    past.times.pop_front();
                }
                past.times.push_back(now);
                Verdict::Now
            }
        }
    }

    /// Forgets what has not been put back for long.
    pub fn forget(&mut self, now: Instant) {
        let recent = |time: &Instant| now.saturating_duration_since(*time) < SPAN;
        self.0.retain(|_, past| past.times.back().is_some_and(recent));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::disallowed_methods, reason = "tests need one instant to count from")]
    fn any() -> Instant {
        Instant::now()
    }

    /// Fault: in `Patience::ask`, answer `Now` always.
    #[test]
    fn what_is_taken_away_all_the_time_is_put_back_once_in_ten_seconds() {
        let start = any();
        let at = |tenths: u64| start + Duration::from_millis(100 * tenths);
        let mut patience = Patience::default();
        let (mut back, mut news) = (Vec::new(), Vec::new());
        // Taken away all the time for two minutes, looked at ten times a second.
        for tenth in 0..1200 {
            match patience.ask("rule", at(tenth)) {
                Verdict::Now => back.push(tenth),
                Verdict::Later { due, news: tell } => {
                    assert!(due > at(tenth) && due <= at(tenth + 100));
                    news.extend(tell.then_some(tenth));
                }
            }
        }
        assert_eq!(back, [0, 1, 2, 3, 4, 104, 204, 304, 404, 504, 604, 704, 804, 904, 1004, 1104]);
        assert_eq!(news, [5], "one line");
        assert_eq!(patience.ask("route", at(1199)), Verdict::Now, "each for itself");
        // After a time of peace, at once again.
        patience.forget(at(1900));
        assert_eq!(patience.0.len(), 0);
        assert_eq!(patience.ask("rule", at(1900)), Verdict::Now);
    }

    /// Fault: in `Patience::ask`, leave `SPAN` out.
    #[test]
    fn what_is_taken_away_now_and_then_is_put_back_at_once() {
        let start = any();
        let mut patience = Patience::default();
        for turn in 0..100 {
            for second in [40 * turn, 40 * turn + 1] {
                assert_eq!(patience.ask("rule", start + Duration::from_secs(second)), Verdict::Now);
            }
        }
    }
}
