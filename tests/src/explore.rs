//! Every order in which the datagrams under way can arrive.

use std::time::Duration;

use crate::pair::Pair;

/// Runs that no set of crossing exchanges should need; more means that something goes in circles.
const TOO_MANY: usize = 200_000;

/// Longer than a ladder of retransmissions and the retries after TEMPORARY_FAILURE.
const CALM: Duration = Duration::from_secs(400);

/// What becomes of a datagram in the mailbox, counted from the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// It arrives.
    Deliver(usize),
    /// It is lost.
    Lose(usize),
}

/// Makes a pair by `make`, whose network waits for deliveries by hand, and goes through every order of
/// deliveries with up to `losses` losses. When nothing is under way any more, time passes until all
/// retries are done, and `check` sees the result. Returns the number of runs.
pub fn interleavings(
    make: impl Fn() -> Pair,
    losses: usize,
    check: impl Fn(&Pair, &[Choice]),
) -> usize {
    interleavings_in_time(make, Duration::ZERO, losses, check)
}

/// As [`interleavings`], with `tick` between two deliveries.
pub fn interleavings_in_time(
    make: impl Fn() -> Pair,
    tick: Duration,
    losses: usize,
    check: impl Fn(&Pair, &[Choice]),
) -> usize {
    let mut runs = 0;
    // Choices made so far, each with the number of choices there were.
    let mut path: Vec<(usize, usize)> = Vec::new();
    loop {
        let mut pair = make();
        let mut choices = Vec::new();
        let mut left = losses;
        let mut depth = 0;
        while !pair.net.mailbox.is_empty() {
            let waiting = pair.net.mailbox.len();
            let width = if left > 0 { 2 * waiting } else { waiting };
            if path.len() == depth {
                path.push((0, width));
            }
            let (index, _) = path[depth];
            depth += 1;
            if index < waiting {
                choices.push(Choice::Deliver(index));
                let packet = pair.net.mailbox.remove(index);
                if !tick.is_zero() {
                    pair.run_for(tick);
                }
                pair.inject(packet);
            } else {
                choices.push(Choice::Lose(index - waiting));
                pair.net.mailbox.remove(index - waiting);
                left -= 1;
            }
        }
        pair.net.manual = false;
        pair.run_for(CALM);
        check(&pair, &choices);
        runs += 1;
        assert!(runs < TOO_MANY, "no end of interleavings");
        while path.last().is_some_and(|(index, width)| index + 1 == *width) {
            path.pop();
        }
        match path.last_mut() {
            Some((index, _)) => *index += 1,
            None => return runs,
        }
    }
}
