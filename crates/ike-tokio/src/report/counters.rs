//! Counters of messages and events since the start, under the names of strongSwan's counters.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use ike_proto::wire::registry::ExchangeType;
use ike_proto::{DropClass, DropReason};

/// Counters of all drivers together, in total and for each connection.
#[derive(Debug, Default)]
pub struct Counters {
    all: Values,
    /// From the first message whose connection is known. Never more than [`MOST`].
    connections: RwLock<BTreeMap<String, Arc<Values>>>,
}

/// A value of each counter.
#[derive(Debug, Default)]
pub struct Values([AtomicU64; NAMES.len()]);

/// Connections that are counted by themselves: clients may load and unload ever new ones.
const MOST: usize = 65_536;

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
/// Flags of the header.
const RESPONSE: u8 = 0x20;
const INITIATOR: u8 = 0x08;

/// What a message counts as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kind(usize);

impl Values {
    /// Names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        NAMES.iter().zip(&self.0).map(|(name, count)| (*name, count.load(Ordering::Relaxed)))
    }

    /// The numbers of received and of sent messages.
    pub fn messages(&self) -> [u64; 2] {
        let mut sums = [0; 2];
        for (index, count) in self.0.iter().skip(MESSAGES).enumerate() {
            sums[index / 2 % 2] += count.load(Ordering::Relaxed);
        }
        sums
    }

    /// The numbers of rekeyed IKE SAs and of rekeyed Child SAs.
    pub fn rekeys(&self) -> [u64; 2] {
        let of = |which: usize| self.0.get(which).map_or(0, |count| count.load(Ordering::Relaxed));
        [of(IKE_REKEY) + of(IKE_REKEY + 1), of(CHILD_REKEY)]
    }

    fn count(&self, which: usize) {
        if let Some(count) = self.0.get(which) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Counters {
    /// The names and values of the total counters.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.all.iter()
    }

    /// The counters of one connection; `None` before its first count.
    pub fn of(&self, connection: &str) -> Option<Arc<Values>> {
        self.read().get(connection).cloned()
    }

    /// The counters of every connection that has counters.
    pub fn by_connection(&self) -> Vec<(String, Arc<Values>)> {
        self.read().iter().map(|(name, values)| (name.clone(), Arc::clone(values))).collect()
    }

    /// Sets the total counters to zero.
    pub fn reset(&self) {
        self.all.0.iter().for_each(|count| count.store(0, Ordering::Relaxed));
    }

    /// Removes the counters of one connection until its next count. False if the connection had none.
    pub fn reset_connection(&self, connection: &str) -> bool {
        self.write().remove(connection).is_some()
    }

    /// Removes the counters of all connections.
    pub fn reset_connections(&self) {
        self.write().clear();
    }

    /// An IKE SA was rekeyed, by this end's wish or the peer's.
    pub(crate) fn ike_rekeyed(&self, ours: bool, connection: &str) {
        self.count(if ours { IKE_REKEY } else { IKE_REKEY + 1 }, connection);
    }

    /// A Child SA was rekeyed.
    pub(crate) fn child_rekeyed(&self, connection: &str) {
        self.count(CHILD_REKEY, connection);
    }

    /// A message was of no use. Whose it was nobody has proven.
    pub(crate) fn dropped(&self, why: DropReason) {
        self.all.count(match why.class() {
            DropClass::Spi => INVALID_SPI,
            DropClass::Other => INVALID,
        });
    }

    /// A message came in or goes out for the first time; whose it is, as far as that is known.
    pub(crate) fn message(&self, kind: Kind, connection: &str) {
        self.count(kind.0, connection);
    }

    fn count(&self, which: usize, connection: &str) {
        self.all.count(which);
        if connection.is_empty() {
            return;
        }
        if let Some(values) = self.read().get(connection) {
            return values.count(which);
        }
        let mut connections = self.write();
        if connections.len() < MOST || connections.contains_key(connection) {
            connections.entry(connection.to_owned()).or_default().count(which);
        }
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, BTreeMap<String, Arc<Values>>> {
        self.connections.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, BTreeMap<String, Arc<Values>>> {
        self.connections.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What `octets` count as, in this direction. Of fragments the first counts.
pub(crate) fn kind(incoming: bool, octets: &[u8]) -> Option<Kind> {
    let &[payload, _, exchange, flags] = octets.get(16..20)? else { return None };
    let exchange = match ExchangeType(exchange) {
        ExchangeType::IKE_SA_INIT => 0,
        ExchangeType::IKE_AUTH => 1,
        ExchangeType::CREATE_CHILD_SA => 2,
        ExchangeType::INFORMATIONAL => 3,
        _ => return None,
    };
    if payload == FRAGMENT && octets.get(HEADER + 4..HEADER + 6) != Some(&[0, 1]) {
        return None;
    }
    let response = flags & RESPONSE != 0;
    let kind = usize::from(response) + if incoming { 0 } else { 2 };
    Some(Kind(MESSAGES + 4 * exchange + kind))
}

/// The SPI that this end has chosen, of a message in this direction.
pub(crate) fn own_spi(incoming: bool, octets: &[u8]) -> Option<u64> {
    let initiators = octets.get(19)? & INITIATOR != 0;
    // The sender of the I flag is the initiator, whose SPI is the first.
    let at = if initiators == incoming { 8 } else { 0 };
    let spi = octets.get(at..at + 8)?.try_into().ok()?;
    Some(u64::from_be_bytes(spi))
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
        let count = |incoming: bool, octets: &[u8], connection: &str| {
            if let Some(kind) = kind(incoming, octets) {
                counters.message(kind, connection);
            }
        };
        count(true, &message(33, 34, 0x08, 0), "");
        count(false, &message(33, 34, 0x20, 0), "");
        count(true, &message(FRAGMENT, 35, 0x08, 1), "");
        count(true, &message(FRAGMENT, 35, 0x08, 2), "");
        count(false, &message(46, 37, 0x08, 0), "site");
        count(true, &message(46, 43, 0x08, 0), "site");
        count(true, b"short", "");
        counters.ike_rekeyed(false, "site");
        counters.dropped(DropReason::SpiOfNoSa);
        counters.dropped(DropReason::BadIntegrity);
        let counted: Vec<_> = counters.all().filter(|(_, value)| *value > 0).collect();
        let expected = [
            ("ike-rekey-resp", 1),
            ("invalid", 1),
            ("invalid-spi", 1),
            ("ike-init-in-req", 1),
            ("ike-init-out-resp", 1),
            ("ike-auth-in-req", 1),
            ("info-out-req", 1),
        ];
        assert_eq!(counted, expected);
        let site = counters.of("site").expect("counted");
        let of_site: Vec<_> = site.iter().filter(|(_, value)| *value > 0).collect();
        assert_eq!(of_site, [("ike-rekey-resp", 1), ("info-out-req", 1)]);
        assert_eq!((site.messages(), site.rekeys()), ([0, 1], [1, 0]));
        counters.reset();
        assert!(counters.all().all(|(_, value)| value == 0));
        assert_eq!(counters.by_connection().len(), 1, "a connection's own go on");
        assert!(counters.reset_connection("site") && !counters.reset_connection("site"));
        assert!(counters.of("site").is_none());
        counters.child_rekeyed("other");
        counters.reset_connections();
        assert!(counters.by_connection().is_empty());
    }

    #[test]
    fn connections_are_not_counted_without_end() {
        let counters = Counters::default();
        for n in 0..MOST + 10 {
            counters.child_rekeyed(&format!("c{n}"));
        }
        counters.child_rekeyed("c0");
        assert_eq!(counters.by_connection().len(), MOST);
        assert_eq!(counters.of("c0").expect("counted").rekeys(), [0, 2]);
    }

    #[test]
    fn a_message_has_the_spi_of_its_receiver() {
        let mut octets = vec![0; HEADER];
        (octets[7], octets[15]) = (1, 2);
        octets[19] = INITIATOR;
        assert_eq!((own_spi(true, &octets), own_spi(false, &octets)), (Some(2), Some(1)));
        octets[19] = RESPONSE;
        assert_eq!((own_spi(true, &octets), own_spi(false, &octets)), (Some(1), Some(2)));
        assert_eq!(own_spi(true, &octets[..12]), None);
    }
}
