//! IP address blocks of certificates (RFC 3779 §2): the addresses that their holders may use.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use der::asn1::ObjectIdentifier;
use ike_proto::wire::der::{BIT_STRING, Der, NULL, OCTET_STRING, SEQUENCE};

use crate::error::PkiError;
use crate::path::Path;

/// The extension of one certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct AddressBlocks {
    v4: Family,
    v6: Family,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Family {
    /// The issuer's addresses.
    Inherited,
    /// Ranges, each with its first and last address.
    Ranges(Vec<(u128, u128)>),
}

impl Default for Family {
    fn default() -> Self {
        Self::Ranges(Vec::new())
    }
}

/// The addresses that a certificate authorizes its holder to use (RFC 3779): ranges of both families, each with its
/// first and last address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Addresses {
    ranges: Vec<(IpAddr, IpAddr)>,
}

impl Addresses {
    /// The ranges, each with its first and last address.
    pub fn ranges(&self) -> &[(IpAddr, IpAddr)] {
        &self.ranges
    }
}

impl AddressBlocks {
    /// id-pe-ipAddrBlocks.
    pub const OID: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.1.7");

    /// Reads the value of the extension; `None` if it is malformed.
    ///
    /// Blocks of other address families, and those for multicast alone, allow no unicast address.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let mut outer = Der::new(value);
        let mut families = outer.nested(SEQUENCE)?;
        outer.end()?;
        let (mut blocks, mut seen) = (Self::default(), Vec::new());
        while !families.is_empty() {
            let mut one = families.nested(SEQUENCE)?;
            let family = one.content(OCTET_STRING)?;
            if !matches!(family.len(), 2 | 3)
                || seen.contains(&family)
                || seen.len() == MAX_FAMILIES
            {
                return None;
            }
            seen.push(family);
            match family {
                [0, 1] | [0, 1, UNICAST] => blocks.v4.add(Family::parse(&mut one, 32)?)?,
                [0, 2] | [0, 2, UNICAST] => blocks.v6.add(Family::parse(&mut one, 128)?)?,
                _ => continue,
            }
            one.end()?;
        }
        Some(blocks)
    }

    /// The part of the blocks that the issuer's `above` contains; `None` if the blocks go beyond them.
    fn within(&self, above: &Self) -> Option<Self> {
        Some(Self { v4: self.v4.within(&above.v4)?, v6: self.v6.within(&above.v6)? })
    }

    fn addresses(&self) -> Addresses {
        let v4 = self.v4.ranges().iter().map(|(first, last)| (ipv4(*first), ipv4(*last)));
        let v6 = self
            .v6
            .ranges()
            .iter()
            .map(|(first, last)| (Ipv6Addr::from(*first).into(), Ipv6Addr::from(*last).into()));
        Addresses { ranges: v4.chain(v6).collect() }
    }

    /// The addresses of a certificate that is itself trusted.
    pub fn of_trusted(&self) -> Addresses {
        self.addresses()
    }
}

impl Family {
    /// One element of IPAddressChoice.
    fn parse(reader: &mut Der<'_>, bits: u32) -> Option<Self> {
        if reader.peek()? == NULL {
            return reader.content(NULL)?.is_empty().then_some(Self::Inherited);
        }
        let mut list = reader.nested(SEQUENCE)?;
        let mut ranges = Vec::new();
        while !list.is_empty() {
            let (first, last) = if list.peek()? == BIT_STRING {
                let prefix = list.content(BIT_STRING)?;
                (address(prefix, bits, false)?, address(prefix, bits, true)?)
            } else {
                let mut pair = list.nested(SEQUENCE)?;
                let first = address(pair.content(BIT_STRING)?, bits, false)?;
                let last = address(pair.content(BIT_STRING)?, bits, true)?;
                pair.end()?;
                (first, last)
            };
            if first > last || ranges.len() == MAX_RANGES {
                return None;
            }
            ranges.push((first, last));
        }
        Some(Self::Ranges(merged(ranges)))
    }

    /// Adds another entry of the same family.
    fn add(&mut self, other: Self) -> Option<()> {
        match (&mut *self, other) {
            (Self::Ranges(own), Self::Ranges(more)) => {
                own.extend(more);
                *own = merged(std::mem::take(own));
            }
            (Self::Ranges(own), Self::Inherited) if own.is_empty() => *self = Self::Inherited,
            _ => return None,
        }
        Some(())
    }

    fn ranges(&self) -> &[(u128, u128)] {
        match self {
            // A trust anchor has no issuer to inherit from.
            Self::Inherited => &[],
            Self::Ranges(ranges) => ranges,
        }
    }

    fn within(&self, above: &Self) -> Option<Self> {
        let Self::Ranges(own) = self else { return Some(above.clone()) };
        let covered = |(first, last): &(u128, u128)| {
            above.ranges().iter().any(|(from, to)| from <= first && last <= to)
        };
        own.iter().all(covered).then(|| self.clone())
    }
}

/// An address of `bits` bits that begins with the BIT STRING `content`; the remaining bits are zeros, or ones.
fn address(content: &[u8], bits: u32, ones: bool) -> Option<u128> {
    let (unused, octets) = content.split_first()?;
    let given =
        u32::try_from(octets.len()).ok()?.checked_mul(8)?.checked_sub(u32::from(*unused))?;
    if *unused > 7 || given > bits {
        return None;
    }
    let value = octets.iter().fold(0u128, |value, octet| value << 8 | u128::from(*octet));
    // `content` has at most 16 octets: 128 bits, less the unused ones.
    let prefix = value >> unused;
    let rest = bits - given;
    let filled = if rest == 128 { 0 } else { prefix << rest };
    let fill = if rest == 128 { u128::MAX } else { (1u128 << rest) - 1 };
    Some(if ones { filled | fill } else { filled })
}

/// The same addresses in order, with adjacent ranges merged.
fn merged(mut ranges: Vec<(u128, u128)>) -> Vec<(u128, u128)> {
    ranges.sort_unstable();
    let mut all: Vec<(u128, u128)> = Vec::with_capacity(ranges.len());
    for (first, last) in ranges {
        match all.last_mut() {
            Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
            _ => all.push((first, last)),
        }
    }
    all
}

fn ipv4(address: u128) -> IpAddr {
    Ipv4Addr::from(u32::try_from(address).unwrap_or(u32::MAX)).into()
}

/// The addresses that the end entity of `path` may use; `None` if no certificate has address blocks.
///
/// As in strongSwan, a certificate without blocks is refused if a CA above it has blocks.
// RFC 3779 §2.3:
// the IP addresses in the IP address delegation extension of that
// certificate MUST be subsumed by IP addresses in the IP address
// delegation extension in the issuer's certificate.
pub(crate) fn of_path(path: &Path) -> Result<Option<Addresses>, PkiError> {
    let mut above = path.anchor.address_blocks().cloned();
    for certificate in path.certificates.iter().rev() {
        let beyond = || PkiError::AddressBlocks { subject: certificate.subject_text() };
        above = match (certificate.address_blocks(), above) {
            (None, None) => None,
            (Some(own), Some(above)) => Some(own.within(&above).ok_or_else(beyond)?),
            (Some(_), None) | (None, Some(_)) => return Err(beyond()),
        };
    }
    Ok(above.map(|blocks| blocks.addresses()))
}

const UNICAST: u8 = 1;
/// Most entries for address families.
const MAX_FAMILIES: usize = 16;
/// Most ranges of a family.
const MAX_RANGES: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_prefixes() {
        // 10.0.0.0/8, 10.5.0.4/23, 0/0, 2001:0:2::/48 (RFC 3779 §2.1.1 and appendix B).
        assert_eq!(address(&[0, 10], 32, false), Some(0x0a00_0000));
        assert_eq!(address(&[0, 10], 32, true), Some(0x0aff_ffff));
        assert_eq!(address(&[1, 10, 5, 4], 32, true), Some(0x0a05_05ff));
        assert_eq!(address(&[0], 32, true), Some(0xffff_ffff));
        assert_eq!(address(&[0], 128, true), Some(u128::MAX));
        assert_eq!(address(&[0], 128, false), Some(0));
        let v6 = [0, 0x20, 1, 0, 0, 0, 2];
        assert_eq!(address(&v6, 128, false), Some(0x2001_0000_0002 << 80));
        for malformed in [&[][..], &[8, 1], &[1], &[0, 1, 2, 3, 4, 5]] {
            assert_eq!(address(malformed, 32, false), None, "{malformed:?}");
        }
    }

    #[test]
    fn ranges_that_touch_are_one() {
        assert_eq!(merged(vec![(5, 9), (0, 3), (4, 4), (11, 12)]), [(0, 9), (11, 12)]);
        assert_eq!(merged(vec![(0, u128::MAX), (1, 2)]), [(0, u128::MAX)]);
    }
}
