//! Messages and ESP packets that belong to no SA. Their sender gets INVALID_SPI (RFC 7296 §1.5). A host that receives
//! INVALID_SPI checks whether the peer has lost the IKE SA, and then gets the token of RFC 6290 §8.2.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::admission::origin;
use super::closed::Late;
use super::{Endpoint, Entry};
use crate::channel::window::Datagrams;
use crate::dataplane::SaId;
use crate::event::{Event, IkeSaId, Notice, Now, Output, Path, TransmitKind, Transport};
use crate::exchange::invalid_spi;
use crate::reason::DropReason;
use crate::wire::Message;

/// The IKE port.
const IKE_PORT: u16 = 500;
/// A peer from which an authentic message came within this time is alive.
const LATELY: Duration = Duration::from_secs(5);

impl Endpoint {
    /// Handles a message whose receiver has no SA with the SPI in it.
    pub(super) fn on_unknown_spi(
        &mut self,
        now: Now,
        path: Path,
        message: &Message<'_>,
        octets: &[u8],
    ) {
        if let Some(spi) = invalid_spi::read(message) {
            return self.on_invalid_spi(now, path, spi);
        }
        let header = &message.header;
        let request = !header.flags.response && header.spi_r != 0;
        if request {
            match self.closed.judge(path, header, || self.registry.digest(octets)) {
                Late::Again(to, datagrams) => return self.answer_late(to, &datagrams),
                Late::Ignore => return self.drop_datagram(path, DropReason::Closed),
                Late::Unknown => {}
            }
        }
        self.drop_datagram(path, DropReason::SpiOfNoSa);
        if request {
            self.answer_unknown(now, path, message);
        }
    }

    /// Answers a request that comes again after its IKE SA has ended.
    fn answer_late(&mut self, path: Path, datagrams: &Datagrams) {
        for octets in datagrams.iter() {
            self.transmit_init(path, octets.clone(), TransmitKind::Retransmission);
        }
    }

    /// The data plane has no SA for a packet of `octets`.
    pub(super) fn on_unknown_esp(
        &mut self,
        now: Now,
        spi: u32,
        (local, remote): (IpAddr, SocketAddr),
        octets: usize,
    ) {
        // While an SA is made or removed, its packets may come without an SA in the data plane.
        if !self.config.send_invalid_spi || self.ids.esp.get(&spi).is_some() {
            return;
        }
        let (port, from, transport) = match remote.port() {
            0 => (IKE_PORT, IKE_PORT, Transport::Udp),
            port => (port, self.config.natt_port, Transport::UdpEncap),
        };
        let path = Path {
            local: SocketAddr::new(local, from),
            remote: SocketAddr::new(remote.ip(), port),
            transport,
        };
        self.drop_datagram(path, DropReason::EspOfNoSa);
        // No host gets more octets than have come from its address.
        let came = octets + if transport == Transport::UdpEncap { 8 } else { 0 };
        if came < invalid_spi::length(transport)
            || !self.crash.may_tell(now.mono, origin(remote.ip()))
        {
            return;
        }
        //= https://www.rfc-editor.org/rfc/rfc7296#section-1.5
        //# if the receiving node has an active IKE SA to the
        //# IP address from whence the packet came, it MAY send an INVALID_SPI
        //# notification of the wayward packet over that IKE SA in an
        //# INFORMATIONAL exchange.
        for ike in self.index.at(remote.ip()) {
            let mut told = false;
            self.with_sa(now, ike, |sa, _| {
                let port = sa.channel.route().esp_path().remote.port();
                // Other hosts behind the same address may have lost their SAs.
                if remote.port() == 0 || remote.port() == port {
                    told = sa.tell_invalid_spi(spi);
                }
            });
            if told {
                return;
            }
        }
        self.send_unprotected(path, invalid_spi::encode(spi));
    }

    //= https://www.rfc-editor.org/rfc/rfc7296#section-1.5
    //# it should only be used by the
    //# recipient as a hint that something might be wrong (because it could
    //# easily be forged).  This message is not part of an INFORMATIONAL
    //# exchange, and the receiving node MUST NOT respond to it
    /// Handles an unprotected INVALID_SPI from `path`: that host has no SA for ESP packets with this SPI.
    fn on_invalid_spi(&mut self, now: Now, path: Path, spi: u32) {
        self.drop_datagram(path, DropReason::InvalidSpiOutside);
        if !self.crash.may_hint(now.mono, origin(path.remote.ip())) {
            return;
        }
        let sa = SaId { spi, dst: path.remote.ip().to_canonical() };
        match self.registry.claimant(&sa).filter(|index| *index != self.config.shard.index) {
            // The number stands for the shard.
            Some(index) => {
                let notice = Notice::UnknownSpi(sa);
                self.out.push_back(Output::Event(Event::Notice(IkeSaId(index.into()), notice)));
            }
            None => self.doubt(now, sa),
        }
    }

    /// Checks that the peer is alive: it may have lost the SA by which this end sends.
    pub(super) fn doubt(&mut self, now: Now, sa: SaId) {
        let silent = |ike: &IkeSaId| match self.entries.get(ike).map(|slot| &slot.entry) {
            Some(Entry::Sa(known)) => {
                now.mono.saturating_duration_since(known.channel.last_heard()) >= LATELY
            }
            _ => false,
        };
        //= https://www.rfc-editor.org/rfc/rfc7296#section-2.4
        //# If a cryptographically
        //# protected (fresh, i.e., not retransmitted) message has been received
        //# from the other side recently, unprotected Notify messages MAY be
        //# ignored.  Implementations MUST limit the rate at which they take
        //# actions based on unprotected messages.
        if let Some(ike) = self.ids.esp.sender_by(sa).filter(silent) {
            self.with_sa(now, ike, |sa, _| sa.check_liveness());
        }
    }
}
