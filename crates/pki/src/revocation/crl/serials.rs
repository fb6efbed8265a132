//! The serial numbers of a list, by the issuer of their certificates, in little memory.

use std::fmt;

use aws_lc_rs::digest::{SHA256, digest};

use crate::dn;

/// One serial number: its length and its octets; of a longer one than RFC 5280 §4.1.2.2 allows, a mark and a hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SerialKey([u8; KEY]);

impl SerialKey {
    /// That of a serial number, the content octets of its INTEGER.
    pub fn of(serial: &[u8]) -> Self {
        let mut key = [0; KEY];
        let hash;
        let (first, octets) = if serial.len() > MAX_SERIAL {
            hash = digest(&SHA256, serial);
            (HASHED, hash.as_ref())
        } else {
            (serial.len() as u8, serial)
        };
        for (to, from) in key.iter_mut().zip([first].iter().chain(octets)) {
            *to = *from;
        }
        Self(key)
    }

    /// The serial number, or a mark and a hash: 21 octets at most.
    pub fn octets(&self) -> &[u8] {
        match &self.0 {
            whole @ [HASHED, ..] => whole,
            [length, serial @ ..] => serial.get(..usize::from(*length)).unwrap_or_default(),
        }
    }

    /// The serial number; `None` if it is too long to be kept.
    pub fn number(&self) -> Option<&[u8]> {
        (!self.0.starts_with(&[HASHED])).then(|| self.octets())
    }

    /// The inverse of [`octets`](Self::octets); `None` if there is none.
    pub fn from_octets(octets: &[u8]) -> Option<Self> {
        match <[u8; KEY]>::try_from(octets) {
            Ok(whole) => whole.starts_with(&[HASHED]).then_some(Self(whole)),
            Err(_) => (octets.len() <= MAX_SERIAL).then(|| Self::of(octets)),
        }
    }
}

impl fmt::Display for SerialKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.octets().iter().try_for_each(|octet| write!(f, "{octet:02x}"))
    }
}

const KEY: usize = 1 + MAX_SERIAL;
/// Most octets of a serial number that is kept as such (RFC 5280 §4.1.2.2).
const MAX_SERIAL: usize = 20;
/// First octet of the key of a longer serial number.
const HASHED: u8 = 0xff;

/// What a list says about one certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entry {
    /// It is revoked.
    Revoked,
    /// It is on the list with the reason removeFromCRL (RFC 5280 §5.3.1).
    Removed,
}

/// The entries of a list.
#[derive(Default, PartialEq, Eq)]
pub(crate) struct Serials {
    /// In the order of the list: names of issuers, with their entries.
    groups: Vec<Group>,
    count: usize,
}

#[derive(PartialEq, Eq)]
struct Group {
    /// DER Name; empty for an issuer that cannot be read, which is nobody's name.
    issuer: Vec<u8>,
    revoked: Vec<SerialKey>,
    removed: Vec<SerialKey>,
}

impl Serials {
    /// Adds an entry about a certificate of `issuer`. False if there are too many issuers.
    pub fn add(&mut self, issuer: &[u8], serial: &[u8], entry: Entry) -> bool {
        let place = self.groups.iter().rposition(|group| group.issuer == issuer);
        let place = place.unwrap_or(self.groups.len());
        if place == self.groups.len() {
            if place == MAX_ISSUERS {
                return false;
            }
            let issuer = issuer.to_vec();
            self.groups.push(Group { issuer, revoked: Vec::new(), removed: Vec::new() });
        }
        if let Some(group) = self.groups.get_mut(place) {
            match entry {
                Entry::Revoked => group.revoked.push(SerialKey::of(serial)),
                Entry::Removed => group.removed.push(SerialKey::of(serial)),
            }
            self.count += 1;
        }
        true
    }

    /// Sorts the entries. [`find`](Self::find) needs it.
    pub fn finish(&mut self) {
        for group in &mut self.groups {
            for keys in [&mut group.revoked, &mut group.removed] {
                keys.sort_unstable();
                keys.dedup();
                keys.shrink_to_fit();
            }
        }
    }

    /// What the list says about the certificate of `issuer` with this serial number. An entry that revokes outweighs
    /// one that removes.
    pub fn find(&self, issuer: &[u8], key: SerialKey) -> Option<Entry> {
        let has = |keys: &[SerialKey]| keys.binary_search(&key).is_ok();
        // A list may write one name in several ways.
        let groups = self.groups.iter().filter(|group| dn::same(&group.issuer, issuer));
        let (revoked, removed) = groups.fold((false, false), |(revoked, removed), group| {
            (revoked || has(&group.revoked), removed || has(&group.removed))
        });
        match (revoked, removed) {
            (true, _) => Some(Entry::Revoked),
            (false, true) => Some(Entry::Removed),
            (false, false) => None,
        }
    }

    /// How many entries there were.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Octets of memory.
    pub fn octets(&self) -> usize {
        let of = |group: &Group| {
            (group.revoked.capacity() + group.removed.capacity()) * KEY + group.issuer.len()
        };
        self.groups.iter().map(of).sum()
    }
}

/// Most issuers with entries in one list. A CA has a handful of them.
const MAX_ISSUERS: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    /// Fault: in `SerialKey::of`, leave the length out.
    #[test]
    fn serial_numbers_are_found_by_issuer_length_and_octets() {
        let mut serials = Serials::default();
        let long = [7; 40];
        for serial in [&[1, 0][..], &[9], &long] {
            assert!(serials.add(b"a", serial, Entry::Revoked));
        }
        assert!(serials.add(b"b", &[5], Entry::Removed));
        assert!(serials.add(b"b", &[6], Entry::Removed));
        assert!(serials.add(b"b", &[6], Entry::Revoked));
        serials.finish();
        for (issuer, serial, found) in [
            (b"a", &[1, 0][..], Some(Entry::Revoked)),
            (b"a", &[1], None),
            (b"a", &[1, 0, 0], None),
            (b"a", &long, Some(Entry::Revoked)),
            (b"a", &[7; 41], None),
            (b"b", &[9], None),
            (b"b", &[5], Some(Entry::Removed)),
            (b"b", &[6], Some(Entry::Revoked)),
        ] {
            assert_eq!(serials.find(issuer, SerialKey::of(serial)), found, "{issuer:?} {serial:?}");
        }
        assert_eq!(serials.count(), 6);
    }

    /// Fault: in `find`, look into the first group of the name alone.
    #[test]
    fn an_issuer_may_be_written_in_several_ways() {
        // CN=A as a UTF8String and as a PrintableString.
        let name =
            |tag| [&[0x30, 12, 0x31, 10, 0x30, 8, 6, 3, 0x55, 4, 3][..], &[tag, 1, b'A']].concat();
        let mut serials = Serials::default();
        assert!(serials.add(&name(0x0c), &[1], Entry::Revoked));
        assert!(serials.add(&name(0x13), &[2], Entry::Revoked));
        serials.finish();
        for (tag, serial) in [(0x0c, 1), (0x0c, 2), (0x13, 1), (0x13, 2)] {
            let found = serials.find(&name(tag), SerialKey::of(&[serial]));
            assert_eq!(found, Some(Entry::Revoked), "{tag} {serial}");
        }
        assert_eq!(serials.find(&name(0x0c), SerialKey::of(&[3])), None);
    }

    /// Fault: in `add`, take away the limit.
    #[test]
    fn issuers_of_a_list_have_a_limit() {
        let mut serials = Serials::default();
        let all = (0..=MAX_ISSUERS).map(|n| serials.add(&n.to_be_bytes(), &[1], Entry::Revoked));
        assert_eq!(all.filter(|added| *added).count(), MAX_ISSUERS);
    }
}
