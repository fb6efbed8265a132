//! Several endpoints of one host, each on a core of its own, and the steering of datagrams to them.

/// One of several endpoints. The index is the top octet of every SPI that it chooses, so that a datagram can be
/// steered by its SPI alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    /// The index of this shard, below `count`.
    pub index: u8,
    /// The number of shards, at least 1.
    pub count: u8,
}

impl Default for Shard {
    fn default() -> Self {
        Self { index: 0, count: 1 }
    }
}

/// Flags of the IKE header (RFC 7296 §3.1): the sender is the original initiator.
const INITIATOR: u8 = 0x08;

impl Shard {
    /// The factor by which the two halves of an initiator's SPI, XORed, are multiplied (modulo 2^32) to hash it:
    /// odd, and close to 2^32 divided by the golden ratio. The shard is the upper 16 bits modulo the number of
    /// shards. A kernel's packet filter can compute this.
    pub const HASH_FACTOR: u32 = 0x9e37_79b1;

    /// All shards of `count`, at least one.
    pub fn all(count: u8) -> impl Iterator<Item = Self> {
        let count = count.max(1);
        (0..count).map(move |index| Self { index, count })
    }

    /// The shard, of `count`, for an IKE message; `None` if any will do, because the SPIs belong to none. The top
    /// octet of the receiver's SPI is the shard. The first request has no receiver's SPI and goes by the
    /// initiator's. So its retransmissions, and the request with a cookie, go to the same shard, from whatever
    /// port. The octets need not be a message.
    pub fn steer(count: u8, octets: &[u8]) -> Option<u8> {
        let (spi_i, rest) = octets.split_first_chunk::<8>()?;
        let (spi_r, rest) = rest.split_first_chunk::<8>()?;
        let [_, _, _, flags, ..] = rest else { return None };
        let index = match (flags & INITIATOR != 0, *spi_r == [0; 8]) {
            (true, true) => return Some(Self::of_initiator(count, u64::from_be_bytes(*spi_i))),
            (true, false) => spi_r[0],
            (false, _) => spi_i[0],
        };
        (index < count).then_some(index)
    }

    /// The shard, of `count`, for IKE_SA_INIT requests with this initiator's SPI.
    pub fn of_initiator(count: u8, spi: u64) -> u8 {
        let halves = (spi >> 32) as u32 ^ spi as u32;
        let hash = halves.wrapping_mul(Self::HASH_FACTOR) >> 16;
        (hash % u32::from(count.max(1))) as u8
    }

    /// True if another shard of this host may have chosen this SPI for a request: it has the form that the other
    /// shard would draw. Fewer than one in 256 foreign SPIs have it.
    pub(crate) fn may_be_of_another(self, spi: u64) -> bool {
        let [index, ..] = spi.to_be_bytes();
        index != self.index && index == Self::of_initiator(self.count, spi)
    }

    /// True if another shard of this host has chosen this SPI, unless an earlier run or an unknown peer has.
    pub(crate) fn is_of_another(self, spi: u64) -> bool {
        let [index, ..] = spi.to_be_bytes();
        index != self.index && index < self.count
    }

    /// True if an SA, a child or an attempt with this number belongs to this shard: numbers are counted in steps
    /// of `count`.
    pub(crate) fn has(self, number: u64) -> bool {
        Self::of_number(self.count, number) == self.index
    }

    /// The shard, of `count`, that has the IKE SA, the attempt or the Child SA with this number.
    pub fn of_number(count: u8, number: u64) -> u8 {
        (number % u64::from(count.max(1))) as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(spi_i: u64, spi_r: u64, flags: u8) -> Vec<u8> {
        let mut octets = [spi_i.to_be_bytes(), spi_r.to_be_bytes()].concat();
        octets.extend([33, 0x20, 34, flags, 0, 0, 0, 0, 0, 0, 0, 28]);
        octets
    }

    #[test]
    fn the_receivers_spi_says_it() {
        let (ours, theirs) = (0x0200_0000_0000_0007, 0xfe00_0000_0000_0009);
        for flags in [0x08, 0x28] {
            assert_eq!(Shard::steer(4, &header(theirs, ours, flags)), Some(2), "as responder");
        }
        for flags in [0, 0x20] {
            assert_eq!(Shard::steer(4, &header(ours, theirs, flags)), Some(2), "as initiator");
            assert_eq!(Shard::steer(4, &header(ours, 0, flags)), Some(2), "an error to the first");
        }
        assert_eq!(Shard::steer(2, &header(ours, theirs, 0)), None, "of no shard");
        for cut in 0..20 {
            assert_eq!(Shard::steer(4, &header(ours, ours, 0)[..cut]), None, "{cut} octets");
        }
    }

    #[test]
    fn first_requests_are_spread() {
        for count in [1, 2, 3, 8, 255] {
            let mut met = vec![0_u32; count.into()];
            for n in 0..u64::from(count) * 1000 {
                let spi = n.wrapping_mul(0x5851_f42d_4c95_7f2d);
                let index = Shard::steer(count, &header(spi, 0, 8)).expect("any will do");
                assert_eq!(index, Shard::of_initiator(count, spi));
                met[usize::from(index)] += 1;
            }
            assert!(met.iter().all(|met| (700..1300).contains(met)), "{count}: {met:?}");
        }
    }
}
