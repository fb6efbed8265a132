//! Links as they are: slow, long, and lossy in bursts.
//!
//! A [`LinkModel`] says what a link does, one direction of it; a [`Link`] is a direction under way. The
//! words are those of tc-netem(8) where it has them.

use std::collections::VecDeque;
use std::time::Duration;

use crate::random::Seeded;

/// How much the time under way varies.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Jitter {
    /// Not at all.
    #[default]
    None,
    /// Up to this in both directions, all values alike.
    Uniform(Duration),
    /// This is the standard deviation of a normal distribution, cut at four of them.
    Normal(Duration),
}

/// Which datagrams are lost.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Loss {
    /// None.
    #[default]
    None,
    /// Each with this probability, independent of the others.
    Random(f64),
    /// Those that meet the bad state of a chain of two states (simplified Gilbert-Elliott). The first
    /// datagram meets the chain in its steady state.
    Gilbert {
        /// Probability of a step from good to bad.
        p: f64,
        /// Probability of a step from bad to good.
        r: f64,
        /// When the chain makes a step.
        clock: Clock,
    },
}

impl Loss {
    /// The share of datagrams lost in the long run.
    pub fn rate(&self) -> f64 {
        match *self {
            Self::None => 0.0,
            Self::Random(rate) => rate,
            Self::Gilbert { p, .. } if p <= 0.0 => 0.0,
            Self::Gilbert { p, r, .. } => p / (p + r),
        }
    }
}

/// What moves a chain of states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// Each datagram, as with netem's `loss gemodel`: a burst ends only by sending into it.
    Packet,
    /// Time, in slots of this length: a burst ends by itself.
    Time(Duration),
}

/// What a link does to the datagrams of one direction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinkModel {
    /// Bits per second, those of IP and UDP headers included; `None` for a link that takes no time.
    pub rate: Option<u64>,
    /// Datagrams that wait or are being sent, at most; what comes on top of them is dropped.
    pub queue: usize,
    /// Time under way after the last bit was sent.
    pub delay: Duration,
    /// Variation of `delay`, which may reorder.
    pub jitter: Jitter,
    /// What is lost, after it took its time on the link.
    pub loss: Loss,
}

impl Default for LinkModel {
    /// Takes no time and loses nothing; the queue is netem's.
    fn default() -> Self {
        Self {
            rate: None,
            queue: 1000,
            delay: Duration::ZERO,
            jitter: Jitter::None,
            loss: Loss::None,
        }
    }
}

impl LinkModel {
    /// A link of this round-trip time, half of it in each direction.
    pub fn rtt(rtt: Duration) -> Self {
        Self { delay: rtt / 2, ..Self::default() }
    }

    /// The time in which `octets` are sent.
    pub fn serialization(&self, octets: usize) -> Duration {
        match self.rate {
            Some(rate) if rate > 0 => Duration::from_secs_f64(octets as f64 * 8.0 / rate as f64),
            _ => Duration::ZERO,
        }
    }
}

/// One direction of a link, with what it remembers.
#[derive(Debug, Clone)]
pub struct Link {
    model: LinkModel,
    /// When each datagram of the queue has been sent.
    queue: VecDeque<Duration>,
    /// The state of the chain and when, in slots, it had it; `None` before the first datagram.
    chain: Option<(bool, u128)>,
    /// Datagrams lost on the way.
    pub lost: u64,
    /// Datagrams that found the queue full.
    pub overflowed: u64,
}

impl Link {
    /// A link on which nothing is yet.
    pub fn new(model: LinkModel) -> Self {
        Self { model, queue: VecDeque::new(), chain: None, lost: 0, overflowed: 0 }
    }

    /// What it does.
    pub fn model(&self) -> &LinkModel {
        &self.model
    }

    /// Takes a datagram of so many octets, its IP and UDP headers counted, at `now`, which must not go
    /// back. When it arrives; `None` if it never does.
    pub fn carry(&mut self, now: Duration, octets: usize, rng: &mut Seeded) -> Option<Duration> {
        while self.queue.front().is_some_and(|sent| *sent <= now) {
            self.queue.pop_front();
        }
        let mut sent = now;
        if self.model.rate.is_some() {
            if self.queue.len() >= self.model.queue {
                self.overflowed += 1;
                return None;
            }
            let start = self.queue.back().copied().unwrap_or(now);
            sent = start + self.model.serialization(octets);
            self.queue.push_back(sent);
        }
        if self.loses(sent, rng) {
            self.lost += 1;
            return None;
        }
        Some(sent + self.delay(rng))
    }

    fn loses(&mut self, at: Duration, rng: &mut Seeded) -> bool {
        match self.model.loss {
            Loss::None => false,
            Loss::Random(rate) => rng.with_probability(rate),
            Loss::Gilbert { p, r, clock } => {
                let steady = self.model.loss.rate();
                let slot = match clock {
                    Clock::Time(slot) => at.as_nanos() / slot.as_nanos().max(1),
                    Clock::Packet => self.chain.map_or(0, |(_, packets)| packets + 1),
                };
                let bad = match self.chain {
                    None => rng.with_probability(steady),
                    Some((bad, before)) => {
                        let steps = i32::try_from(slot.saturating_sub(before)).unwrap_or(i32::MAX);
                        let memory = (1.0 - p - r).powi(steps);
                        let was = if bad { 1.0 } else { 0.0 };
                        rng.with_probability(steady + (was - steady) * memory)
                    }
                };
                self.chain = Some((bad, slot));
                bad
            }
        }
    }

    fn delay(&self, rng: &mut Seeded) -> Duration {
        let (spread, factor) = match self.model.jitter {
            Jitter::None => return self.model.delay,
            Jitter::Uniform(most) => (most, 2.0 * rng.fraction() - 1.0),
            Jitter::Normal(deviation) => (deviation, rng.normal().clamp(-4.0, 4.0)),
        };
        let seconds = self.model.delay.as_secs_f64() + spread.as_secs_f64() * factor;
        Duration::from_secs_f64(seconds.max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn rng() -> Seeded {
        Seeded::new(7)
    }

    #[test]
    fn a_slow_link_sends_one_datagram_after_another() {
        let model = LinkModel { rate: Some(9600), delay: 50 * MS, ..LinkModel::default() };
        let (mut link, mut rng) = (Link::new(model), rng());
        // 1200 octets are a second at 9600 bits per second.
        assert_eq!(link.carry(Duration::ZERO, 1200, &mut rng), Some(1050 * MS));
        assert_eq!(link.carry(100 * MS, 600, &mut rng), Some(1550 * MS));
        assert_eq!(link.carry(5000 * MS, 600, &mut rng), Some(5550 * MS));
    }

    #[test]
    fn a_full_queue_drops_what_comes_last() {
        let model = LinkModel { rate: Some(9600), queue: 2, ..LinkModel::default() };
        let (mut link, mut rng) = (Link::new(model), rng());
        assert!(link.carry(Duration::ZERO, 1200, &mut rng).is_some());
        assert!(link.carry(Duration::ZERO, 1200, &mut rng).is_some());
        assert!(link.carry(999 * MS, 1200, &mut rng).is_none());
        assert!(link.carry(1000 * MS, 1200, &mut rng).is_some());
        assert_eq!((link.overflowed, link.lost), (1, 0));
    }

    /// Loss and the mean length of a burst of a link that is asked every `gap`.
    fn measure(loss: Loss, gap: Duration) -> (f64, f64) {
        let (mut link, mut rng) = (Link::new(LinkModel { loss, ..LinkModel::default() }), rng());
        let (mut bursts, mut before, asked) = (0_u32, false, 200_000_u32);
        for n in 0..asked {
            let lost = link.carry(gap * n, 100, &mut rng).is_none();
            bursts += u32::from(lost && !before);
            before = lost;
        }
        let lost = link.lost as f64;
        (lost / f64::from(asked), lost / f64::from(bursts.max(1)))
    }

    #[track_caller]
    fn near(is: f64, should: f64, part: f64) {
        assert!((is - should).abs() <= part * should, "{is}, not {should}");
    }

    #[test]
    fn random_loss_has_its_rate_and_no_memory() {
        let (rate, burst) = measure(Loss::Random(0.05), MS);
        near(rate, 0.05, 0.05);
        near(burst, 1.0 / 0.95, 0.05);
    }

    #[test]
    fn bursts_are_as_long_as_p_and_r_say() {
        let (p, r) = (0.009, 0.082);
        let by_packet = Loss::Gilbert { p, r, clock: Clock::Packet };
        let by_time = Loss::Gilbert { p, r, clock: Clock::Time(MS) };
        near(by_packet.rate(), 0.0989, 0.001);
        for (loss, gap) in [(by_packet, Duration::from_secs(1)), (by_time, MS)] {
            let (rate, burst) = measure(loss, gap);
            near(rate, 0.0989, 0.1);
            near(burst, 1.0 / r, 0.1);
        }
        // Whoever asks rarely meets other bursts; whoever asks often stays in one.
        let (rate, burst) = measure(by_time, Duration::from_secs(1));
        near(rate, 0.0989, 0.1);
        near(burst, 1.0 / (1.0 - 0.0989), 0.1);
        let (_, burst) = measure(by_time, MS / 10);
        near(burst, 10.0 / r, 0.15);
    }

    #[test]
    fn jitter_keeps_the_mean() {
        for (jitter, deviation) in
            [(Jitter::Uniform(20 * MS), 0.020 / 3_f64.sqrt()), (Jitter::Normal(20 * MS), 0.020)]
        {
            let model = LinkModel { delay: 100 * MS, jitter, ..LinkModel::default() };
            let (mut link, mut rng) = (Link::new(model), rng());
            let times: Vec<f64> = (0..20_000)
                .filter_map(|_| link.carry(Duration::ZERO, 100, &mut rng))
                .map(|at| at.as_secs_f64())
                .collect();
            let mean = times.iter().sum::<f64>() / 20_000.0;
            let squares = times.iter().map(|time| (time - mean).powi(2)).sum::<f64>();
            near(mean, 0.1, 0.01);
            near((squares / 20_000.0).sqrt(), deviation, 0.05);
        }
    }
}
