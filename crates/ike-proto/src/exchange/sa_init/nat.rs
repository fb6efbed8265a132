//! NAT detection, and the paths of messages and ESP that follow from it (RFC 7296 §2.23).

use std::net::{IpAddr, SocketAddr};

use super::NATT_PORT;
use crate::crypto::CryptoProvider;
use crate::event::{Path, Transport};
use crate::exchange::Payloads;
use crate::ike_sa::state::NatStatus;
use crate::keys::Spis;
use crate::wire::payload::{Notify, Payload};
use crate::wire::registry::NotifyType;

impl NatStatus {
    /// Compares the peer's hashes with the source and destination of its message (RFC 7296 §2.23).
    pub(crate) fn detect(
        crypto: &CryptoProvider,
        peer: &Payloads<'_, '_>,
        spis: Spis,
        path: Path,
    ) -> Self {
        let source = nat_hash(crypto, spis, path.remote);
        let destination = nat_hash(crypto, spis, path.local);
        let mut sources = peer
            .notifies()
            .filter(|notify| notify.kind == NotifyType::NAT_DETECTION_SOURCE_IP)
            .peekable();
        let at = peer.notify(NotifyType::NAT_DETECTION_DESTINATION_IP);
        let supported = sources.peek().is_some() && at.is_some();
        Self {
            supported,
            remote: supported && !sources.any(|notify| notify.data == source),
            local: supported && at.is_some_and(|notify| notify.data != destination),
        }
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

/// The path of everything after IKE_SA_INIT: port 4500 if there is a NAT (RFC 7296 §2.23), or if MOBIKE may lead
/// to one.
pub(crate) fn floated(path: Path, nat: NatStatus, mobike: bool, natt_port: u16) -> Path {
    //= https://www.rfc-editor.org/rfc/rfc9329#section-6.5
    //# no change should be made for encapsulation of
    //# subsequent IKE or ESP packets since TCP encapsulation inherently
    //# supports NAT traversal.
    //= https://www.rfc-editor.org/rfc/rfc4555#section-3.3
    //# implementations that support both this specification
    //# and NAT Traversal MUST change to port 4500 if the correspondent also
    //# supports both, even if no NAT was detected between them
    // Whether the peer supports MOBIKE is known later.
    let floats = nat.local || nat.remote || mobike && nat.supported;
    if path.transport != Transport::Udp || !floats {
        return path;
    }
    let mut floated = Path { transport: Transport::UdpEncap, ..path };
    floated.local.set_port(natt_port);
    floated.remote.set_port(NATT_PORT);
    floated
}

/// The path of ESP beside IKE over TCP: port 4500 at both ends. Packets of the peer show which port a NAT has
/// given it.
pub(crate) fn beside(path: Path, natt_port: u16) -> Path {
    let mut beside = Path { transport: Transport::UdpEncap, ..path };
    beside.local.set_port(natt_port);
    beside.remote.set_port(NATT_PORT);
    beside
}
