//! NAT detection, and the paths of messages and ESP that follow from it (RFC 7296 §2.23).

use crate::channel::NatStatus;
use std::net::{IpAddr, SocketAddr};

use crate::crypto::CryptoProvider;
use crate::event::Path;
use crate::exchange::Payloads;
use crate::keys::Spis;
use crate::wire::payload::{Notify, Payload};
use crate::wire::registry::NotifyType;

/// Compares the peer's hashes with the source and destination of its message (RFC 7296 §2.23).
pub(crate) fn detect_nat(
    crypto: &CryptoProvider,
    peer: &Payloads<'_, '_>,
    spis: Spis,
    path: Path,
) -> NatStatus {
    let source = nat_hash(crypto, spis, path.remote);
    let destination = nat_hash(crypto, spis, path.local);
    let mut sources = peer
        .notifies()
        .filter(|notify| notify.kind == NotifyType::NAT_DETECTION_SOURCE_IP)
        .peekable();
    let at = peer.notify(NotifyType::NAT_DETECTION_DESTINATION_IP);
    let supported = sources.peek().is_some() && at.is_some();
    NatStatus {
        supported,
        remote: supported && !sources.any(|notify| notify.data == source),
        local: supported && at.is_some_and(|notify| notify.data != destination),
    }
}

/// The two NAT detection hashes of one message.
pub(crate) struct NatHashes {
    source: [u8; 20],
    destination: [u8; 20],
}

impl NatHashes {
    pub(crate) fn new(crypto: &CryptoProvider, spis: Spis, path: Path, fake: bool) -> Self {
        // No packet can have this source, so the peer sees a NAT.
        let nowhere = SocketAddr::new(IpAddr::from([0, 0, 0, 0]), 0);
        let source = if fake { nowhere } else { path.local };
        Self {
            source: nat_hash(crypto, spis, source),
            destination: nat_hash(crypto, spis, path.remote),
        }
    }

    pub(crate) fn push<'a>(&'a self, payloads: &mut Vec<Payload<'a>>) {
        for (kind, hash) in [
            (NotifyType::NAT_DETECTION_SOURCE_IP, &self.source),
            (NotifyType::NAT_DETECTION_DESTINATION_IP, &self.destination),
        ] {
            payloads.push(Payload::Notify(Notify::new(kind, hash)));
        }
    }
}

/// SHA-1 of SPIs, address and port (RFC 7296 §2.23).
fn nat_hash(crypto: &CryptoProvider, spis: Spis, at: SocketAddr) -> [u8; 20] {
    let (v4, v6);
    let ip: &[u8] = match at.ip().to_canonical() {
        IpAddr::V4(ip) => {
            v4 = ip.octets();
            &v4
        }
        IpAddr::V6(ip) => {
            v6 = ip.octets();
            &v6
        }
    };
    let port = at.port().to_be_bytes();
    let [spi_i, spi_r] = spis.octets();
    (crypto.sha1)(&[&spi_i, &spi_r, ip, &port])
}
