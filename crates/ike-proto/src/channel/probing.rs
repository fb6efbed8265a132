//! Probes of the path (RFC 8899): requests of a wanted size, which are sent once with Don't Fragment.
//!
//! A probe that does not fit the path is lost, although the peer is alive. The window is one request, so this request still
//! needs an answer. It is therefore sent again without its padding: a liveness check with the same message ID. Only an answer
//! before this repetition shows that the path carries the size.
//!
//! RFC 7296 §2.1 demands that a request is repeated octet for octet. Otherwise a peer that has carried out the first form
//! could act on the second one. Here neither form asks for anything, and both have the same answer. Fragments (RFC 7383
//! §2.5.2) would keep the contents, but strongSwan with its mediation extension, as Debian builds it, takes no INFORMATIONAL
//! request in fragments.
//!
//! A peer that has answered the probe may take only the probe itself for a repetition. So the probe goes with later
//! retransmissions, too.

use std::sync::Arc;

use super::Channel;
use super::io::Io;
use super::pmtu::{LARGEST, headers, max_message};
use super::send::Unsent;
use crate::event::Transport;
use crate::keys::epoch::Outgoing;
use crate::wire::Flags;
use crate::wire::payload::{Notify, Payload};
use crate::wire::registry::{ExchangeType, NotifyType};

/// Of the range for private use of status types: a receiver ignores what it does not know (RFC 7296 §3.10.1).
const PADDING: NotifyType = NotifyType(58_899);

/// Octets of a message beside the data of its notify, with any suite, at the most.
const AROUND: usize = 128;

/// The longest block of a cipher.
const BLOCK: usize = 16;

/// Probes of a channel.
pub(crate) struct Probing;

impl Probing {
    /// True if this end can send a probe on the path that ESP takes.
    pub(crate) fn is_possible(channel: &Channel) -> bool {
        let path = channel.route.path;
        path.transport != Transport::Tcp && channel.route.esp_path().remote.ip() == path.remote.ip()
    }

    /// Sends a probe of `octets`, or of a few less if the cipher has blocks, and returns its octets. The window must be
    /// free.
    pub(crate) fn send(channel: &mut Channel, io: &mut Io<'_>, octets: u16) -> Result<u16, Unsent> {
        let message_id = channel.window.next_request_id()?;
        let room = max_message(octets.min(LARGEST), channel.route.path);
        let mut data = vec![0; room.saturating_sub(AROUND)];
        let mut sealed = Self::seal(channel, io, message_id, Some(&data))?;
        // The first sealed message shows how much padding is missing. An IV that was not sent is not used again.
        data.resize(data.len() + room.saturating_sub(sealed.len()), 0);
        sealed = Self::seal(channel, io, message_id, Some(&data))?;
        if sealed.len() > room {
            data.truncate(data.len().saturating_sub(BLOCK));
            sealed = Self::seal(channel, io, message_id, Some(&data))?;
        }
        let size = sealed.len() + headers(channel.route.path);
        channel.probe.on_request_sent(io.now.mono);
        channel.acks.on_request();
        let (exchange, datagrams) = (ExchangeType::INFORMATIONAL, Arc::from([Arc::from(sealed)]));
        channel.window.start_request(io.now.mono, exchange, datagrams, io.rng)?;
        channel.window.begin_probe();
        channel.pace(io);
        Ok(u16::try_from(size).unwrap_or(u16::MAX))
    }

    /// Sends the request of a probe again without padding, because its retransmission timer has run out or something cannot
    /// wait. False if the request in flight is no probe, or was sent again before.
    pub(crate) fn fall_back(channel: &mut Channel, io: &mut Io<'_>) -> bool {
        let Some((_, message_id)) = channel.window.outstanding() else { return false };
        if !channel.window.is_probing() {
            return false;
        }
        let Ok(request) = Self::seal(channel, io, message_id, None) else { return false };
        channel.probe.on_request_sent(io.now.mono);
        channel.acks.on_refragmented(false);
        channel.window.refit_request(io.now.mono, Arc::from([Arc::from(request)]), io.rng);
        channel.pace(io);
        true
    }

    fn seal(
        channel: &mut Channel,
        io: &mut Io<'_>,
        message_id: u32,
        padding: Option<&[u8]>,
    ) -> Result<Vec<u8>, Unsent> {
        let padding = padding.map(|data| Payload::Notify(Notify::new(PADDING, data)));
        let (spis, initiator) = (channel.link.spis(), channel.link.is_initiator());
        let outgoing = Outgoing {
            spi_i: spis.i(),
            spi_r: spis.r(),
            exchange: ExchangeType::INFORMATIONAL,
            flags: Flags { initiator, version: false, response: false },
            message_id,
            payloads: padding.as_slice(),
            max_datagram: None,
            force_fragment: false,
        };
        let sealed = channel.session.epoch.seal(&outgoing, io.rng).map_err(|_| Unsent::Crypto)?;
        sealed.into_iter().next().ok_or(Unsent::Crypto)
    }
}
