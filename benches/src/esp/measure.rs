//! Ticks of sealing and opening, ESP and the bare cipher in turns.

use std::hint::black_box;
use std::time::{Duration, Instant};

use esp::Buffer;

use super::{BATCH, Bare, Suite, Tunnel, packet};
use crate::counter::ticks;

/// What one suite and size took.
#[derive(Debug, Clone)]
pub struct Row {
    /// The suite's name.
    pub suite: &'static str,
    /// Octets of the IP packet, and of the bare cipher's data.
    pub size: usize,
    /// Batches measured of each of the four.
    pub runs: usize,
    /// ESP.
    pub esp: Ticks,
    /// The cipher alone.
    pub bare: Ticks,
}

/// Ticks of the counter for one packet.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ticks {
    /// Sealing it.
    pub seal: f64,
    /// Opening it.
    pub open: f64,
}

impl Ticks {
    /// Both.
    pub fn sum(self) -> f64 {
        self.seal + self.open
    }
}

impl Row {
    /// How much of ESP's time is the cipher's: 1 if ESP around it costs nothing.
    pub fn ratio(&self) -> f64 {
        self.bare.sum() / self.esp.sum()
    }
}

/// Runs batches of ESP and of the bare cipher in turns for about `time`, so that whatever disturbs one
/// disturbs the other, and takes the median of each. `overhead` is what reading the counter takes.
pub fn measure(suite: Suite, size: usize, time: Duration, overhead: u64) -> Result<Row, String> {
    let mut esp = Esp::new(suite, size)?;
    let mut bare = Raw::new(suite, size)?;
    for _ in 0..WARM_UP {
        esp.batch();
        bare.batch();
    }
    let (mut of_esp, mut of_bare) = (Samples::default(), Samples::default());
    let start = Instant::now();
    while start.elapsed() < time || of_esp.seal.len() < WARM_UP {
        of_esp.push(esp.batch(), overhead);
        of_bare.push(bare.batch(), overhead);
    }
    let runs = of_esp.seal.len();
    Ok(Row { suite: suite.name, size, runs, esp: of_esp.median(), bare: of_bare.median() })
}

/// A batch of packets through two planes.
struct Esp {
    tunnel: Tunnel,
    sender: esp::Outbound,
    receiver: esp::Inbound,
    packets: Vec<Vec<u8>>,
    sealed: Buffer,
    opened: Vec<Buffer>,
}

impl Esp {
    fn new(Suite { suite, .. }: Suite, size: usize) -> Result<Self, String> {
        let tunnel = Tunnel::new(suite)?;
        let (sender, receiver) = (tunnel.sender(), tunnel.receiver());
        // Four flows, as a few connections at once would have.
        let packets = (0..BATCH).map(|i| packet(size, i as u16 % 4)).collect();
        let opened = (0..BATCH).map(|_| Buffer::new()).collect();
        Ok(Self { tunnel, sender, receiver, packets, sealed: Buffer::new(), opened })
    }

    fn batch(&mut self) -> (u64, u64) {
        let Self { tunnel, sender, receiver, packets, sealed, opened } = self;
        sealed.clear();
        let before = ticks();
        let len = tunnel.seal_batch(sender, black_box(packets), sealed);
        let between = ticks();
        opened.iter_mut().for_each(Buffer::clear);
        tunnel.open_batch(receiver, sealed, len, black_box(opened));
        (between.saturating_sub(before), ticks().saturating_sub(between))
    }
}

/// A batch of buffers through the cipher.
struct Raw {
    cipher: Bare,
    buffers: Vec<Vec<u8>>,
}

impl Raw {
    fn new(Suite { suite, .. }: Suite, size: usize) -> Result<Self, String> {
        let cipher = Bare::new(suite)?;
        let buffers = vec![vec![0x5a; cipher.len(size)]; BATCH];
        Ok(Self { cipher, buffers })
    }

    fn batch(&mut self) -> (u64, u64) {
        let Self { cipher, buffers } = self;
        let before = ticks();
        for buffer in &mut *buffers {
            cipher.seal(black_box(buffer));
        }
        let between = ticks();
        let count = buffers.len();
        for (nth, buffer) in buffers.iter_mut().enumerate() {
            cipher.open(black_box(buffer), nth, count);
        }
        (between.saturating_sub(before), ticks().saturating_sub(between))
    }
}

#[derive(Default)]
struct Samples {
    seal: Vec<u64>,
    open: Vec<u64>,
}

impl Samples {
    fn push(&mut self, (seal, open): (u64, u64), overhead: u64) {
        self.seal.push(seal.saturating_sub(overhead));
        self.open.push(open.saturating_sub(overhead));
    }

    fn median(self) -> Ticks {
        let of = |mut samples: Vec<u64>| {
            samples.sort_unstable();
            samples.get(samples.len() / 2).map_or(0.0, |&ticks| ticks as f64 / BATCH as f64)
        };
        Ticks { seal: of(self.seal), open: of(self.open) }
    }
}

const WARM_UP: usize = 100;

#[cfg(test)]
mod tests {
    use super::super::{SIZES, SUITES};
    use super::*;

    /// What is measured is the work: packets that come out as they went in.
    #[test]
    fn every_suite_and_size_goes_through() {
        for suite in SUITES {
            for size in SIZES {
                let mut esp = Esp::new(suite, size).unwrap();
                esp.batch();
                esp.batch();
                for (opened, packet) in esp.opened.iter().zip(&esp.packets) {
                    assert_eq!(**opened, **packet, "{} {size}", suite.name);
                }
                let mut bare = Raw::new(suite, size).unwrap();
                bare.batch();
                bare.batch();
            }
        }
    }

    #[test]
    fn a_row_has_what_was_measured() {
        let row = measure(SUITES[2], 64, Duration::ZERO, 0).unwrap();
        assert_eq!((row.suite, row.size, row.runs), ("aes256gcm16", 64, WARM_UP));
        let of = |esp, bare| Row { esp, bare, ..row.clone() }.ratio();
        let (one, three) = (Ticks { seal: 1.0, open: 1.0 }, Ticks { seal: 2.0, open: 4.0 });
        assert_eq!((of(one, one), of(three, one)), (1.0, 1.0 / 3.0));
    }
}
