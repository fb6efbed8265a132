//! Secrets are wiped: when an owner lets go of one, no memory of this process has its octets any more.
//!
//! The process reads all of its own memory by /proc/self/mem. The stack of the thread that runs the test is left out:
//! there the test itself may have left octets behind.
//!
//! What is read lies in a buffer meanwhile, which is memory of the process as well. A search knows its own buffer, and
//! not that of a search on another thread: two at a time find each other's copies of what they read. So there is one
//! at a time.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};

use ike_proto::crypto::{Secret, SecureRandom};
use ike_proto::wire::payload::{Delete, Payload};
use ike_proto::wire::registry::ExchangeType;
use ike_tests::Seeded;
use ike_tests::bench::Bench;
use zeroize::Zeroize;

/// Octets that are looked for: chance does not make so many.
const LENGTH: usize = 24;
/// Octets that are read at a time.
const CHUNK: usize = 1 << 16;

/// Held while memory is searched.
static SEARCH: Mutex<()> = Mutex::new(());

/// A piece of a secret, every bit of it inverted, so that the search does not find itself.
struct Piece(Vec<u8>);

impl Piece {
    /// The end of `secret`: what frees memory writes to its beginning.
    fn of(secret: &[u8]) -> Self {
        Self(secret[secret.len() - LENGTH..].iter().map(|octet| !octet).collect())
    }

    /// Where this process has it in memory.
    fn found(&self) -> Vec<u64> {
        let _alone = SEARCH.lock().unwrap_or_else(PoisonError::into_inner);
        let maps = std::fs::read_to_string("/proc/self/maps").expect("/proc is mounted");
        let memory = File::open("/proc/self/mem").expect("a process may read itself");
        let mut buffer = vec![0; CHUNK + LENGTH];
        let own = buffer.as_ptr() as u64..buffer.as_ptr() as u64 + buffer.len() as u64;
        let here = &raw const own as u64;
        let mut found = Vec::new();
        for line in maps.lines() {
            let mut words = line.split_whitespace();
            let (range, rights) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
            let number = |text: &str| u64::from_str_radix(text, 16).expect("an address");
            let (start, end) = range.split_once('-').expect("two addresses");
            let (start, end) = (number(start), number(end));
            if !rights.starts_with("rw") || (start..end).contains(&here) {
                continue;
            }
            for at in (start..end).step_by(CHUNK) {
                let room = buffer.len().min(usize::try_from(end - at).expect("64 bits"));
                let Ok(read) = memory.read_at(&mut buffer[..room], at) else { continue };
                found.extend(self.places_in(&buffer[..read]).map(|place| at + place));
            }
        }
        // Pieces overlap, so that a place may be there twice.
        found.dedup();
        found.retain(|place| !own.contains(place));
        buffer.zeroize();
        found
    }

    fn places_in(&self, octets: &[u8]) -> impl Iterator<Item = u64> {
        let first = !self.0[0];
        let candidates = octets.iter().enumerate().filter(move |(_, octet)| **octet == first);
        candidates.filter_map(|(at, _)| {
            let there = octets.get(at..at + LENGTH)?;
            there.iter().zip(&self.0).all(|(there, own)| *there == !own).then_some(at as u64)
        })
    }
}

/// Octets that nothing else has, with `spare` octets of room behind them.
fn octets(seed: u64, spare: usize) -> Vec<u8> {
    let mut octets = Vec::with_capacity(256 + spare);
    octets.resize(256, 0);
    Seeded::new(seed).fill(&mut octets);
    octets
}

/// Fault: in `Secret` (crypto/secret.rs), leave out `ZeroizeOnDrop`; or, in `Secret::new`, `octets.zeroize`.
#[test]
fn a_secret_that_is_dropped_is_nowhere() {
    type Make = fn(Vec<u8>) -> Vec<Secret>;
    let ways: [(&str, usize, Make); 4] = [
        ("without room to spare", 0, |octets| vec![Secret::new(octets)]),
        ("with room to spare", 100, |octets| vec![Secret::new(octets)]),
        ("copied", 0, |mut octets| {
            let secret = Secret::copy_from(&octets);
            octets.zeroize();
            vec![secret]
        }),
        ("twice", 0, |octets| {
            let secret = Secret::new(octets);
            vec![secret.duplicate(), secret]
        }),
    ];
    for (seed, (how, spare, make)) in (1..).zip(ways) {
        let octets = octets(seed, spare);
        let piece = Piece::of(&octets);
        let secrets = make(octets);
        assert_eq!(piece.found().len(), secrets.len(), "{how}, while it is there");
        drop(secrets);
        assert_eq!(piece.found(), [], "{how}");
    }
}

/// Of an IKE SA that its peer has deleted, the engine has no key any more.
///
/// Fault: in `Secret` (crypto/secret.rs), leave out `ZeroizeOnDrop`.
#[test]
fn the_keys_of_a_deleted_ike_sa_are_nowhere() {
    let mut bench = Bench::new();
    let mut peer = bench.established(0x1000);
    let keys = peer.secrets();
    let pieces: Vec<_> = keys.iter().map(|(name, key)| (*name, Piece::of(key))).collect();
    let delete = [Payload::Delete(Delete::ike())];
    let request = peer.next_request(ExchangeType::INFORMATIONAL, &delete);
    drop(peer);
    // Keys that only derive others, or authenticate, may be gone already.
    let kept = pieces.iter().filter(|(_, piece)| !piece.found().is_empty()).count();
    assert!(kept > 0, "the engine has keys of an SA that is up");
    assert_eq!(bench.give(&request).len(), 1);
    assert_eq!(bench.host().ikes().len(), 0);
    for (name, piece) in pieces {
        assert_eq!(piece.found(), [], "{name}");
    }
}
