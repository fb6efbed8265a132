//! Datagrams that may leave with one call: the fragments of a message, most of all.

use ike_proto::{Transmit, TransmitKind, Transport};

use crate::net::socket::RUN as MOST;

/// Octets in one call: less than the longest IP packet, which they are together on their way down.
const MOST_OCTETS: usize = 60_000;

/// Datagrams in order, of one path and of one length, but for the last one, which may be shorter.
#[derive(Debug, Default)]
pub(super) struct Run {
    datagrams: Vec<Transmit>,
    octets: usize,
}

impl Run {
    /// True if there is something to send.
    pub(super) fn waits(&self) -> bool {
        !self.datagrams.is_empty()
    }

    /// True if `next` may leave along with what is here.
    pub(super) fn takes(&self, next: &Transmit) -> bool {
        let (Some(first), Some(last)) = (self.datagrams.first(), self.datagrams.last()) else {
            return true;
        };
        let alone = |transmit: &Transmit| {
            matches!(transmit.kind, TransmitKind::KeepAlive | TransmitKind::Probe)
        };
        first.path == next.path
            && first.dscp == next.dscp
            && first.path.transport != Transport::Tcp
            && !alone(first)
            && !alone(next)
            && last.octets.len() == first.octets.len()
            && next.octets.len() <= last.octets.len()
            && self.datagrams.len() < MOST
            && self.octets + next.octets.len() <= MOST_OCTETS
    }

    /// Adds a datagram that it [`takes`](Self::takes).
    pub(super) fn push(&mut self, next: Transmit) {
        self.octets += next.octets.len();
        self.datagrams.push(next);
    }

    /// What is here, which is to be given back empty.
    pub(super) fn take(&mut self) -> Vec<Transmit> {
        self.octets = 0;
        std::mem::take(&mut self.datagrams)
    }

    /// Takes back a vector that was used, so that the next run needs none.
    pub(super) fn reuse(&mut self, mut used: Vec<Transmit>) {
        used.clear();
        self.datagrams = used;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ike_proto::Path;
    use std::sync::Arc;

    fn transmit(port: u16, transport: Transport, octets: usize) -> Transmit {
        let local = "127.0.0.1:500".parse().unwrap();
        let remote = ([127, 0, 0, 2], port).into();
        let path = Path { local, remote, transport };
        Transmit { path, kind: TransmitKind::Ike, dscp: 0, octets: Arc::from(vec![0; octets]) }
    }

    #[test]
    fn a_run_has_one_path_and_ends_with_what_is_shorter() {
        let udp = |octets| transmit(500, Transport::UdpEncap, octets);
        let mut run = Run::default();
        for octets in [1200, 1200, 300] {
            assert!(run.takes(&udp(octets)));
            run.push(udp(octets));
        }
        assert!(!run.takes(&udp(300)), "after a shorter one");
        let taken = run.take();
        assert_eq!(taken.len(), 3);
        run.reuse(taken);
        assert!(!run.waits());
        run.push(udp(100));
        assert!(run.waits() && run.takes(&udp(100)));
        assert!(!run.takes(&udp(101)));
        assert!(!run.takes(&transmit(501, Transport::UdpEncap, 100)));
        assert!(!run.takes(&transmit(500, Transport::Udp, 100)));
        for kind in [TransmitKind::KeepAlive, TransmitKind::Probe] {
            assert!(!run.takes(&Transmit { kind, ..udp(1) }));
        }
        assert!(!run.takes(&Transmit { dscp: 46, ..udp(1) }));
        run.take();
        run.push(transmit(500, Transport::Tcp, 10));
        assert!(!run.takes(&transmit(500, Transport::Tcp, 10)), "each by itself");
    }

    #[test]
    fn what_one_call_takes_is_bounded() {
        for octets in [1, 2000, 40_000] {
            let next = || transmit(500, Transport::Udp, octets);
            let mut run = Run::default();
            while run.takes(&next()) {
                run.push(next());
            }
            let taken = run.take();
            assert!(taken.len() <= MOST && taken.len() * octets <= MOST_OCTETS, "{octets}");
            assert!(taken.len() == MOST || (taken.len() + 1) * octets > MOST_OCTETS, "{octets}");
        }
    }
}
