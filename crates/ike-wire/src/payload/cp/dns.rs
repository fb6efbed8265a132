//! Split DNS (RFC 8598) and encrypted DNS (RFC 9464) in configuration attributes.

use std::net::IpAddr;

use crate::codec::Reader;

/// Octets of a domain name in presentation format at most.
const LONGEST_NAME: usize = 253;
/// Octets of one of its labels.
const LONGEST_LABEL: usize = 63;
/// `ipv4hint` and `ipv6hint` (RFC 9460 §14.3.2), which RFC 9464 §3.1 does not let in.
const HINTS: [u16; 2] = [4, 6];
/// The most hash algorithm identifiers that are read from one attribute.
const MOST_HASHES: usize = 32;

/// A DNSSEC trust anchor: the fields of a DS record (RFC 8598 §4.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DnssecTa {
    /// DNSKEY Key Tag.
    pub key_tag: u16,
    /// DNSKEY Algorithm.
    pub algorithm: u8,
    /// Digest Type.
    pub digest_type: u8,
    /// Digest Data, at least one octet.
    pub digest: Vec<u8>,
}

/// An encrypted DNS resolver (RFC 9464 §3.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncDns {
    /// Service Priority, the lower the better; never 0.
    pub priority: u16,
    /// Addresses, all of the attribute's family; at least one in a reply.
    pub addresses: Vec<IpAddr>,
    /// Authentication Domain Name; empty if there is none.
    pub name: String,
    /// SvcParams in their wire format (RFC 9460 §2.2).
    pub params: Vec<u8>,
}

/// Digests of the certificates of encrypted resolvers (RFC 9464 §3.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncDigest {
    /// Authentication Domain Name; empty if it is that of ENCDNS_IP*.
    pub name: String,
    /// Hash algorithms: those known, in a request; the one used, in a reply.
    pub hashes: Vec<u16>,
    /// Digest of the SubjectPublicKeyInfo; empty in a request.
    pub digest: Vec<u8>,
}

impl DnssecTa {
    pub(super) fn decode(value: &[u8]) -> Option<Self> {
        let (&[a, b, algorithm, digest_type], digest) = value.split_first_chunk::<4>()?;
        let key_tag = u16::from_be_bytes([a, b]);
        (!digest.is_empty()).then(|| Self {
            key_tag,
            algorithm,
            digest_type,
            digest: digest.to_vec(),
        })
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = self.key_tag.to_be_bytes().to_vec();
        out.extend([self.algorithm, self.digest_type]);
        out.extend(&self.digest);
        out
    }
}

impl EncDns {
    pub(super) fn decode(v6: bool, value: &[u8]) -> Option<Self> {
        let mut r = Reader::new(value);
        let what = "encrypted DNS";
        let priority = r.u16(what).ok()?;
        let (count, length) = (r.u8(what).ok()?, r.u8(what).ok()?);
        let mut addresses = Vec::new();
        for _ in 0..count {
            addresses.push(match v6 {
                true => r.array::<16>(what).ok()?.into(),
                false => r.array::<4>(what).ok()?.into(),
            });
        }
        let name = optional_name(r.take(length.into(), what).ok()?)?;
        let params = value.get(4 + addresses.len() * if v6 { 16 } else { 4 } + name.len()..)?;
        //= https://www.rfc-editor.org/rfc/rfc9464#section-3.1
        //# As AliasMode (Section 2.4.2 of [RFC9460]) is not
        //# supported, this field MUST NOT be set to 0.
        (priority != 0 && are_params(params)).then(|| Self {
            priority,
            addresses,
            name,
            params: params.to_vec(),
        })
    }

    /// Contents that exceed the counts of the format are cut off.
    pub(super) fn encode(&self) -> Vec<u8> {
        let addresses = self.addresses.get(..255).unwrap_or(&self.addresses);
        let name = self.name.as_bytes();
        let name = name.get(..255).unwrap_or(name);
        let mut out = self.priority.to_be_bytes().to_vec();
        out.extend([addresses.len() as u8, name.len() as u8]);
        for address in addresses {
            match address {
                IpAddr::V4(address) => out.extend(address.octets()),
                IpAddr::V6(address) => out.extend(address.octets()),
            }
        }
        out.extend(name);
        out.extend(&self.params);
        out
    }
}

impl EncDigest {
    pub(super) fn decode(value: &[u8]) -> Option<Self> {
        let (&[count, length], rest) = value.split_first_chunk::<2>()?;
        let (name, rest) = rest.split_at_checked(length.into())?;
        let (hashes, digest) = rest.split_at_checked(usize::from(count) * 2)?;
        let (hashes, _) = hashes.as_chunks::<2>();
        if hashes.is_empty()
            || hashes.len() > MOST_HASHES
            || (hashes.len() > 1 && !digest.is_empty())
        {
            return None;
        }
        Some(Self {
            name: optional_name(name)?,
            hashes: hashes.iter().map(|octets| u16::from_be_bytes(*octets)).collect(),
            digest: digest.to_vec(),
        })
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let hashes = self.hashes.get(..MOST_HASHES).unwrap_or(&self.hashes);
        let name = self.name.as_bytes();
        let name = name.get(..255).unwrap_or(name);
        let mut out = vec![hashes.len() as u8, name.len() as u8];
        out.extend(name);
        out.extend(hashes.iter().flat_map(|hash| hash.to_be_bytes()));
        out.extend(&self.digest);
        out
    }
}

/// A domain name in presentation format (RFC 8598 §4.1): letters, digits, hyphens and underscores in labels
/// of 63 octets at most, so that it is harmless wherever it is written. The root is "."; a dot at the end
/// falls away.
pub fn domain(octets: &[u8]) -> Option<String> {
    if octets == b"." {
        return Some(".".to_owned());
    }
    let octets = octets.strip_suffix(b".").unwrap_or(octets);
    let is_good = |label: &[u8]| {
        (1..=LONGEST_LABEL).contains(&label.len())
            && label.first() != Some(&b'-')
            && label.iter().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_'))
    };
    let good = octets.len() <= LONGEST_NAME && octets.split(|c| *c == b'.').all(is_good);
    good.then(|| String::from_utf8(octets.to_vec()).ok()).flatten()
}

fn optional_name(octets: &[u8]) -> Option<String> {
    if octets.is_empty() {
        return Some(String::new());
    }
    // Not without its last dot: the octets that follow are counted by it.
    domain(octets).filter(|name| name.len() == octets.len())
}

/// True for SvcParams as RFC 9460 §2.2 has them, keys in rising order, without hints.
fn are_params(octets: &[u8]) -> bool {
    let mut r = Reader::new(octets);
    let mut last = None;
    while !r.is_empty() {
        let what = "service parameter";
        let (Ok(key), Ok(length)) = (r.u16(what), r.u16(what)) else { return false };
        if r.take(length.into(), what).is_err() || Some(key) <= last || HINTS.contains(&key) {
            return false;
        }
        last = Some(key);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9464 §A.1, its digest shortened.
    #[test]
    fn the_example_of_the_rfc() {
        let resolver = EncDns {
            priority: 1,
            addresses: vec!["2001:db8:99:88:77:66:55:44".parse().unwrap()],
            name: "doh.example.com".to_owned(),
            params: vec![0, 1, 0, 3, 2, b'h', b'2', 0, 7, 0, 2, b'/', b'q'],
        };
        let octets = resolver.encode();
        assert_eq!(octets[..4], [0, 1, 1, 15]);
        assert_eq!(EncDns::decode(true, &octets), Some(resolver));
        let digest = EncDigest { name: String::new(), hashes: vec![2], digest: vec![0x8b, 0x6e] };
        assert_eq!(digest.encode(), [1, 0, 0, 2, 0x8b, 0x6e]);
        assert_eq!(EncDigest::decode(&digest.encode()), Some(digest));
    }

    #[test]
    fn what_the_rfc_forbids_is_refused() {
        let good = [0, 1, 1, 0, 10, 0, 0, 1];
        assert!(EncDns::decode(false, &good).is_some());
        assert!(EncDns::decode(false, &[0, 0, 1, 0, 10, 0, 0, 1]).is_none(), "priority 0");
        assert!(EncDns::decode(false, &good[..7]).is_none(), "short address");
        let with = |params: &[u8]| EncDns::decode(false, &[&good[..], params].concat());
        assert!(with(&[0, 1, 0, 1, b'x']).is_some());
        assert!(with(&[0, 4, 0, 0]).is_none(), "ipv4hint");
        assert!(with(&[0, 3, 0, 0, 0, 1, 0, 0]).is_none(), "keys out of order");
        assert!(with(&[0, 3, 0, 9]).is_none(), "a lying length");
        assert!(EncDigest::decode(&[2, 0, 0, 2, 0, 3, 1]).is_none(), "a digest by two hashes");
        assert!(EncDigest::decode(&[0, 0]).is_none());
    }
}
