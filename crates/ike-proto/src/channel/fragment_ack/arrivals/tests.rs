use std::net::{IpAddr, SocketAddr};

use super::*;
use crate::event::Transport;

const MS: Duration = Duration::from_millis(1);

fn start() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "tests need one instant to count from")]
    Instant::now()
}

fn path() -> Path {
    let at = SocketAddr::new(IpAddr::from([10, 0, 0, 1]), 500);
    Path { local: at, remote: at, transport: Transport::Udp }
}

fn known(rtt: Duration) -> Known {
    Known { round_trip: Some(rtt), second: Some(rtt * 3 / 2) }
}

/// Fragments of a message, and what is told of them when the timer fires.
struct Receiver {
    t0: Instant,
    arrivals: Option<Arrivals>,
    known: Known,
    total: u16,
    told: Vec<(Duration, Report)>,
}

impl Receiver {
    fn new(total: u16, rtt: Duration) -> Self {
        Self { t0: start(), arrivals: None, known: known(rtt), total, told: Vec::new() }
    }

    /// Lets the timer fire until `at`.
    fn until(&mut self, at: Duration) {
        while let Some(arrivals) = &mut self.arrivals
            && let Some(due) = arrivals.due(self.known)
            && due <= self.t0 + at
        {
            if let Some(report) = arrivals.report(due, self.known) {
                self.told.push((due - self.t0, report));
                let last = match report {
                    Report::Gaps(_, below) => below - 1,
                    Report::All | Report::Whole => self.total,
                };
                arrivals.on_told(due, last, u16::from(last < arrivals.highest));
            }
        }
    }

    fn new_at(&mut self, at: Duration, number: u16) {
        self.until(at);
        let now = self.t0 + at;
        match &mut self.arrivals {
            Some(arrivals) => arrivals.on_new(now, path(), number),
            None => self.arrivals = Some(Arrivals::new(now, path(), 1, (number, self.total))),
        }
    }

    fn again_at(&mut self, at: Duration) -> Option<Report> {
        self.until(at);
        let (now, known) = (self.t0 + at, self.known);
        let arrivals = self.arrivals.as_mut()?;
        arrivals.on_again();
        arrivals.report(now, known)
    }

    fn reports(&self) -> Vec<Report> {
        self.told.iter().map(|(_, report)| *report).collect()
    }
}

/// Down to 9.6 kbit/s, where fragments are 1.1 s apart, and up to round trips of 600 ms, a message that
/// loses nothing is acknowledged by nothing.
#[test]
fn a_loss_free_message_is_not_acknowledged_at_any_pace() {
    for (spacing, rtt) in [
        (Duration::from_micros(1), Duration::from_micros(100)),
        (MS / 8, 10 * MS),
        (MS, 10 * MS),
        (10 * MS, 20 * MS),
        (30 * MS, 600 * MS),
        (160 * MS, 110 * MS),
        (1100 * MS, 750 * MS),
        (1100 * MS, 1300 * MS),
    ] {
        let mut receiver = Receiver::new(13, rtt);
        for number in 1..=13_u16 {
            // A burst of ten, the rest paced, as a sender does.
            receiver.new_at(spacing * u32::from(number), number);
        }
        receiver.arrivals.as_mut().unwrap().on_whole();
        receiver.until(Duration::from_secs(100));
        assert_eq!(receiver.told, [], "{spacing:?} {rtt:?}");
    }
}

#[test]
fn an_initial_burst_and_a_paced_rest_are_no_stall() {
    for rtt in [10 * MS, 40 * MS, 100 * MS, 600 * MS] {
        let mut receiver = Receiver::new(40, rtt);
        let pace = (rtt / 20).clamp(MS, 30 * MS);
        for number in 1..=40_u16 {
            receiver.new_at(pace * u32::from(number.saturating_sub(10)), number);
        }
        receiver.arrivals.as_mut().unwrap().on_whole();
        receiver.until(Duration::from_secs(100));
        assert_eq!(receiver.told, [], "{rtt:?}");
    }
}

#[test]
fn reordering_within_a_quarter_of_the_round_trip_is_no_gap() {
    let mut receiver = Receiver::new(6, 100 * MS);
    for (at, number) in [(0, 2), (1, 1), (2, 5), (3, 3), (20, 6), (24, 4)] {
        receiver.new_at(at * MS, number);
    }
    receiver.arrivals.as_mut().unwrap().on_whole();
    receiver.until(Duration::from_secs(10));
    assert_eq!(receiver.told, []);
}

#[test]
fn a_gap_is_told_once_while_others_arrive() {
    let mut receiver = Receiver::new(13, 750 * MS);
    let spacing = 1100 * MS;
    for number in (1..=13_u16).filter(|number| *number != 4) {
        receiver.new_at(spacing * u32::from(number), number);
    }
    // Told while fragments above it were on their way.
    assert_eq!(receiver.reports(), [Report::Gaps(0, 7)]);
    // It comes, behind what was in the queue.
    receiver.new_at(spacing * 14, 4);
    receiver.arrivals.as_mut().unwrap().on_whole();
    receiver.until(Duration::from_secs(100));
    assert_eq!(receiver.told.len(), 1);
}

#[test]
fn a_lost_end_is_told_when_nothing_comes() {
    let mut receiver = Receiver::new(10, 10 * MS);
    for number in 1..=8 {
        receiver.new_at(MS / 10 * u32::from(number), number);
    }
    receiver.until(9 * MS);
    assert_eq!(receiver.reports(), [Report::All]);
    assert!(receiver.told[0].0 < 10 * MS, "{:?}", receiver.told);
}

#[test]
fn unanswered_acknowledgements_back_off_and_end() {
    let mut receiver = Receiver::new(10, 10 * MS);
    receiver.new_at(Duration::ZERO, 3);
    receiver.until(Duration::from_secs(1000));
    assert_eq!(receiver.reports(), [Report::All; 5], "1 fragment and 4 more");
    let times: Vec<_> = receiver.told.iter().map(|(at, _)| *at).collect();
    for pair in times.windows(3) {
        assert!(pair[2] - pair[1] >= (pair[1] - pair[0]) * 2, "{times:?}");
    }
    // A fragment that comes starts them again, up to their number.
    receiver.new_at(Duration::from_secs(1001), 4);
    receiver.until(Duration::from_secs(2000));
    assert_eq!(receiver.told.len(), 6, "2 fragments and 4 more");
}

#[test]
fn a_duplicate_asks_and_is_answered_twice_in_a_round_trip_at_the_most() {
    let mut receiver = Receiver::new(10, 100 * MS);
    receiver.new_at(Duration::ZERO, 1);
    receiver.new_at(MS, 2);
    // What is missing may be on its way.
    assert_eq!(receiver.again_at(2 * MS), None);
    receiver.until(40 * MS);
    assert_eq!(receiver.reports(), [Report::All]);
    let at = receiver.told[0].0;
    assert_eq!(receiver.again_at(at + 49 * MS), None);
    assert!(!receiver.arrivals.unwrap().may(receiver.t0 + at + 49 * MS, receiver.known));
    // Put off, not forgotten.
    receiver.until(at + 51 * MS);
    assert_eq!(receiver.reports(), [Report::All; 2]);
    assert_eq!(receiver.told[1].0, at + 50 * MS);
    assert_eq!(receiver.again_at(at + 120 * MS), Some(Report::All));
}

#[test]
fn duplicates_get_no_more_acknowledgements_than_they_are() {
    let mut receiver = Receiver::new(10, 10 * MS);
    receiver.new_at(Duration::ZERO, 1);
    receiver.until(Duration::from_secs(10));
    let mut told = receiver.told.len();
    for n in 0..100 {
        told += usize::from(receiver.again_at(Duration::from_secs(11 + n)).is_some());
        assert!(told <= 1 + (usize::try_from(n).unwrap() + 1) + 4);
    }
}

#[test]
fn a_whole_message_tells_so_when_asked_and_never_by_itself() {
    let mut receiver = Receiver::new(2, 10 * MS);
    receiver.new_at(Duration::ZERO, 1);
    receiver.new_at(MS, 2);
    receiver.arrivals.as_mut().unwrap().on_whole();
    receiver.until(Duration::from_secs(100));
    assert_eq!(receiver.told, []);
    assert_eq!(receiver.again_at(Duration::from_secs(101)), Some(Report::Whole));
    assert_eq!(receiver.again_at(Duration::from_secs(101) + MS), None);
}

#[test]
fn an_unknown_round_trip_waits_longer() {
    let mut receiver = Receiver::new(5, MS);
    receiver.known = Known::default();
    receiver.new_at(Duration::ZERO, 1);
    receiver.until(250 * MS);
    assert_eq!(receiver.told, []);
    receiver.until(350 * MS);
    assert_eq!(receiver.reports(), [Report::All]);
}
