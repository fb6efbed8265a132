//! What was received, sent and done since the start, by the names that strongSwan's counters have.

use std::sync::atomic::{AtomicU64, Ordering};

use ike_proto::wire::registry::ExchangeType;

/// Counters of the whole daemon, which all drivers share.
#[derive(Debug, Default)]
pub struct Counters([AtomicU64; NAMES.len()]);

/// In the order that strongSwan lists them in.
const NAMES: [&str; 21] = [
    "ike-rekey-init",
    "ike-rekey-resp",
    "child-rekey",
    "invalid",
    "invalid-spi",
    "ike-init-in-req",
    "ike-init-in-resp",
    "ike-init-out-req",
    "ike-init-out-resp",
    "ike-auth-in-req",
    "ike-auth-in-resp",
    "ike-auth-out-req",
    "ike-auth-out-resp",
    "create-child-in-req",
    "create-child-in-resp",
    "create-child-out-req",
    "create-child-out-resp",
    "info-in-req",
    "info-in-resp",
    "info-out-req",
    "info-out-resp",
];

const IKE_REKEY: usize = 0;
const CHILD_REKEY: usize = 2;
const INVALID: usize = 3;
const INVALID_SPI: usize = 4;
const MESSAGES: usize = 5;

/// Octets of the IKE header (RFC 7296 §3.1).
const HEADER: usize = 28;
/// The payload that carries a fragment (RFC 7383 §2.5).
const FRAGMENT: u8 = 53;

impl Counters {
    /// Names and values.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, u64)> {
        NAMES.iter().zip(&self.0).map(|(name, count)| (*name, count.load(Ordering::Relaxed)))
    }

    /// Begins anew.
    pub fn reset(&self) {
        self.0.iter().for_each(|count| count.store(0, Ordering::Relaxed));
    }

    /// An IKE SA was rekeyed, by this end's wish or the peer's.
    pub(super) fn ike_rekeyed(&self, ours: bool) {
        self.count(if ours { IKE_REKEY } else { IKE_REKEY + 1 });
    }

    /// A Child SA was rekeyed.
    pub(super) fn child_rekeyed(&self) {
        self.count(CHILD_REKEY);
    }

    /// A message was of no use.
    pub(super) fn dropped(&self, why: &str) {
        self.count(if why.contains("SPI") { INVALID_SPI } else { INVALID });
    }

    /// A message came in or goes out for the first time. Of its fragments the first counts.
    pub(super) fn message(&self, incoming: bool, octets: &[u8]) {
        let Some(&[payload, _, exchange, flags]) = octets.get(16..20) else { return };
        let exchange = match ExchangeType(exchange) {
            ExchangeType::IKE_SA_INIT => 0,
            ExchangeType::IKE_AUTH => 1,
            ExchangeType::CREATE_CHILD_SA => 2,
            ExchangeType::INFORMATIONAL => 3,
            _ => return,
        };
        if payload == FRAGMENT && octets.get(HEADER + 4..HEADER + 6) != Some(&[0, 1]) {
            return;
        }
        let response = flags & 0x20 != 0;
        let kind = usize::from(response) + if incoming { 0 } else { 2 };
        self.count(MESSAGES + 4 * exchange + kind);
    }

    fn count(&self, which: usize) {
        if let Some(count) = self.0.get(which) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_count_by_exchange_and_direction_and_fragments_once() {
        let counters = Counters::default();
        let message = |payload: u8, exchange: u8, flags: u8, fragment: u16| {
            let mut octets = vec![0; HEADER + 8];
            (octets[16], octets[17], octets[18], octets[19]) = (payload, 0x20, exchange, flags);
            octets[HEADER + 4..HEADER + 6].copy_from_slice(&fragment.to_be_bytes());
            octets
        };
        counters.message(true, &message(33, 34, 0x08, 0));
        counters.message(false, &message(33, 34, 0x20, 0));
        counters.message(true, &message(FRAGMENT, 35, 0x08, 1));
        counters.message(true, &message(FRAGMENT, 35, 0x08, 2));
        counters.message(false, &message(46, 37, 0x08, 0));
        counters.message(true, &message(46, 43, 0x08, 0));
        counters.message(true, b"short");
        counters.ike_rekeyed(false);
        counters.dropped("unknown SPI");
        let counted: Vec<_> = counters.all().filter(|(_, value)| *value > 0).collect();
        let expected = [
            ("ike-rekey-resp", 1),
            ("invalid-spi", 1),
            ("ike-init-in-req", 1),
            ("ike-init-out-resp", 1),
            ("ike-auth-in-req", 1),
            ("info-out-req", 1),
        ];
        assert_eq!(counted, expected);
        counters.reset();
        assert!(counters.all().all(|(_, value)| value == 0));
    }
}
