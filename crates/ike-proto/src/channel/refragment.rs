//! Sending a message again in smaller datagrams (RFC 7383 §2.5.2).

use std::sync::Arc;

use super::Channel;
use super::io::Io;
use super::pmtu::{Doubt, headers, max_message};
use super::probing::Probing;
use super::window::Datagrams;
use crate::config::Retransmission;
use crate::event::{Path, Transport};

impl Channel {
    /// Octets of the largest IP packet of the outstanding request.
    pub(super) fn largest_request(&self) -> usize {
        self.window
            .outstanding_datagrams()
            .map_or(0, |request| largest(request) + headers(self.route.path))
    }

    /// Handles the retransmission timer: sends the request again in smaller datagrams if the path seems to lose
    /// those in which it was sent. False if it does not, or if there is no smaller size.
    pub(super) fn try_smaller(&mut self, io: &mut Io<'_>) -> bool {
        let now = io.now.mono;
        if self.window.next_retransmit().is_none_or(|due| due > now) {
            return false;
        }
        if Probing::fall_back(self, io) {
            return true;
        }
        // The driver, or another IKE SA with this host, may have found a smaller size meanwhile.
        if self.refit_request(io) {
            return true;
        }
        let Some((_, message_id)) = self.window.outstanding() else { return false };
        // A fragment of the response proves that the whole request has arrived.
        if self.responses.message_id() == Some(message_id) {
            return false;
        }
        let ladder = io.config.retransmission;
        let tries = match ladder.timeout {
            Some(_) => ladder.tries.or(Retransmission::strongswan().tries),
            None => ladder.tries,
        };
        let sends = self.window.tries() + 1;
        let last = tries.is_some_and(|tries| sends > tries);
        if !last && !self.probe.is_black_hole(now, sends, self.largest_request()) {
            return false;
        }
        self.shrink(io)
    }

    /// Gives up the size of the outstanding request and sends it in the next smaller one. False, without any
    /// change, if there is none.
    pub(crate) fn shrink(&mut self, io: &mut Io<'_>) -> bool {
        let (now, remote) = (io.now.mono, self.route.path.remote.ip());
        let before = self.probe;
        let narrowest = usize::from(super::pmtu::least(remote));
        let may = self.link.may_fragment() && self.route.path.transport != Transport::Tcp;
        while may
            && self.largest_request() > narrowest
            && self.probe.step_down(io.mtus, now, remote)
        {
            if self.refit_request(io) {
                return true;
            }
        }
        // A size that changed nothing has shown nothing.
        self.probe = before;
        false
    }

    /// Sends the outstanding request in smaller datagrams, if its datagrams are too large and so are certainly lost.
    /// False if they are not.
    pub(crate) fn refit_request(&mut self, io: &mut Io<'_>) -> bool {
        let room = self.probe.room(io.mtus, io.now.mono, self.route.path);
        let Some(request) = self.window.outstanding_datagrams() else { return false };
        // ICMP about a probe may be forged. Only the retransmission timer decides that a probe is lost.
        if self.window.is_probing() || largest(request) <= room || !self.link.may_fragment() {
            return false;
        }
        let request = Arc::clone(request);
        let Some(request) = self.session.refragment(io.rng, &request, room) else { return false };
        self.probe.on_request_sent(io.now.mono);
        self.acks.on_refragmented(false);
        //= https://www.rfc-editor.org/rfc/rfc7383#section-2.5.2
        //# When starting a new probe,
        //# the node MUST reset its retransmission timers so that if it employs
        //# exponential back-off the timers will start over.
        self.window.refit_request(io.now.mono, request, io.rng);
        self.pace(io);
        true
    }

    /// Handles a repeated request by `path`, in `octets`, that was answered: makes the datagrams of the answer
    /// smaller if their size may be the reason.
    pub(super) fn fit_response(
        &mut self,
        io: &mut Io<'_>,
        path: Path,
        octets: &[u8],
        fragment: Option<(u16, u16)>,
    ) {
        let (now, remote) = (io.now.mono, self.route.path.remote.ip());
        let total = fragment.map_or(1, |(_, total)| total);
        let doubt = self.probe.on_request_again(now, octets.len() + headers(path), total);
        let Some(response) = self.window.response().map(Arc::clone) else {
            return debug_assert!(
                false,
                "a request that was answered is repeated, and has no answer"
            );
        };
        let narrowest = max_message(super::pmtu::least(remote), self.route.path);
        let may = self.link.may_fragment() && path.transport != Transport::Tcp;
        if !may || largest(&response) <= narrowest {
            return;
        }
        // Too large by what is known now, or by what the repetition may mean.
        while largest(&response) <= self.probe.room(io.mtus, io.now.mono, self.route.path) {
            // The peer's present request has room for this size: only its silence is an argument against it.
            let unheard = doubt == Doubt::Unheard;
            if !unheard || !self.probe.step_down(io.mtus, now, remote) {
                return;
            }
        }
        let room = self.probe.room(io.mtus, io.now.mono, self.route.path);
        if let Some(smaller) = self.session.refragment(io.rng, &response, room) {
            self.window.refit_response(smaller);
            self.acks.on_refragmented(true);
        }
    }
}

/// Octets of the largest datagram.
fn largest(datagrams: &Datagrams) -> usize {
    datagrams.iter().map(|octets| octets.len()).max().unwrap_or(0)
}
