//! NAT detection, and the paths of messages and ESP that follow from it (RFC 7296 §2.23).

use std::net::{IpAddr, SocketAddr};

use crate::event::{Path, Transport};

/// The port on which a peer with NAT traversal listens (RFC 7296 §2.23).
pub(crate) const NATT_PORT: u16 = 4500;

/// The result of NAT detection (RFC 7296 §2.23).
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NatStatus {
    /// The peer supports it.
    pub(crate) supported: bool,
    /// This end is behind a NAT, or pretends to be.
    pub(crate) local: bool,
    /// The peer is behind a NAT, or pretends to be.
    pub(crate) remote: bool,
}

impl NatStatus {
    /// The path between two addresses that has the rest of `path`.
    pub(crate) fn path_between(self, path: Path, local: IpAddr, remote: IpAddr) -> Path {
        let port = if self.remote && remote != path.remote.ip().to_canonical() {
            NATT_PORT
        } else {
            path.remote.port()
        };
        let remote = SocketAddr::new(remote, port);
        Path { local: SocketAddr::new(local, path.local.port()), remote, ..path }
    }
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
