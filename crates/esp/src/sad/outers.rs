//! The outer packets of outbound SAs: whose packet it is takes the same few looks with any number of SAs.

use std::collections::HashMap;
use std::net::IpAddr;

use super::Path;
use crate::ip::{IpPacket, proto};

/// Source and destination port, as far as they are known.
type Ports = (Option<u16>, Option<u16>);

/// What the outer packets of an SA look like.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Outer {
    src: IpAddr,
    dst: IpAddr,
    protocol: u8,
    /// `None` stands for all ports: later fragments show none.
    ports: Option<Ports>,
}

/// How many outbound SAs send each kind of outer packets.
#[derive(Debug, Default)]
pub(super) struct Outers(HashMap<Outer, usize>);

impl Outers {
    /// An outbound SA has `path`.
    pub(super) fn add(&mut self, path: &Path) {
        for outer in of(path) {
            *self.0.entry(outer).or_default() += 1;
        }
    }

    /// An outbound SA with `path` is gone.
    pub(super) fn remove(&mut self, path: &Path) {
        for outer in of(path) {
            let left = self.0.get_mut(&outer).map(|count| {
                *count -= 1;
                *count
            });
            if left == Some(0) {
                self.0.remove(&outer);
            }
        }
    }

    /// True if `packet` may be one that an SA has sent.
    pub(super) fn have(&self, packet: &IpPacket) -> bool {
        let Some(protocol @ (proto::ESP | proto::UDP | proto::TCP)) = packet.protocol else {
            return false;
        };
        let has = |ports| {
            #[cfg(test)]
            crate::looks::note();
            let IpPacket { src, dst, .. } = *packet;
            self.0.contains_key(&Outer { src, dst, protocol, ports })
        };
        match packet.ports {
            None => has(None),
            Some((from, to)) => {
                let [from, to] = [from, to].map(|port| [Some(port), None]);
                from.into_iter().any(|from| to.into_iter().any(|to| has(Some((from, to)))))
            }
        }
    }
}

fn of(path: &Path) -> [Outer; 2] {
    let (protocol, from, to) = path.outside();
    [Some((from, to)), None].map(|ports| Outer { src: path.src, dst: path.dst, protocol, ports })
}
