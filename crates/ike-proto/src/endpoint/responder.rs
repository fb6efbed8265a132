//! Admission of unauthenticated peers: IKE_SA_INIT requests, cookies and limits (RFC 7296 §2.6).

use std::net::SocketAddr;
use std::sync::Arc;

use super::admission::{Admission, weight};
use super::parked::{Asked, Parked, Waited};
use super::{Endpoint, Entry, Slot};
use crate::channel::stream::Stream;
use crate::config::candidates::Candidates;
use crate::event::{
    Event, Failure, IkeSaId, Now, Output, Path, Ticket, Transmit, TransmitKind, Transport,
};
use crate::exchange::Payloads;
use crate::exchange::detail;
use crate::exchange::key_exchange::Halt;
use crate::exchange::sa_init::{self, Answer};
use crate::ike_sa::state::State;
use crate::question::{self, Exchanged, Question};
use crate::reason::{DropReason, TicketReason};
use crate::shares::Origin;
use crate::wire::Message;
use crate::wire::registry::{ExchangeType, NotifyType};

/// The longest IKE_SA_INIT request that is accepted, in octets: several times as long as a long list of proposals
/// and the largest public value. The request is kept while the SA is half-open.
const LONGEST_REQUEST: usize = 16 << 10;
/// The same over TCP, where no datagram limits the public value: FrodoKEM-1344 has 21,520 octets.
const LONGEST_IN_TCP: usize = 32 << 10;

/// An IKE_SA_INIT request that was admitted.
pub(super) struct InitRequest<'a> {
    pub(super) id: IkeSaId,
    pub(super) path: Path,
    pub(super) octets: &'a [u8],
    pub(super) message: &'a Message<'a>,
    hash: u64,
    /// True if it brought a cookie.
    brought: bool,
    /// This end's SPI, if it has one already.
    spi_r: Option<u64>,
}

/// An IKE_SA_INIT request that may have come before.
struct Repeated<'a> {
    /// Its hash without its cookie.
    hash: u64,
    octets: &'a [u8],
    cookie: Option<&'a [u8]>,
    /// True if this end has made the cookie for its sender.
    valid: bool,
}

/// How many times the octets of an IKE_SA_INIT request may be sent to an address before the address is validated.
const AMPLIFIED: usize = 3;

impl Endpoint {
    pub(super) fn on_init_request(
        &mut self,
        now: Now,
        path: Path,
        octets: &[u8],
        message: &Message<'_>,
    ) {
        let header = &message.header;
        let plausible = header.flags.initiator && header.spi_r == 0 && header.message_id == 0;
        if !plausible {
            return self.drop_datagram(path, DropReason::NotInitRequest);
        }
        let tcp = path.transport == Transport::Tcp;
        if octets.len() > if tcp { LONGEST_IN_TCP } else { LONGEST_REQUEST } {
            return self.drop_datagram(path, DropReason::InitRequestTooLong);
        }
        // Nobody else draws the same 64 bits. An endpoint that answers its own request, with one key for all its
        // peers, would be authenticated by itself. A request of another shard is not in this table. It can arrive
        // only on a TCP connection whose first message was for this shard.
        let own = self.by_spi.contains_key(&header.spi_i);
        if own || self.config.shard.may_be_of_another(header.spi_i) {
            return self.drop_datagram(path, DropReason::OwnInitRequest);
        }
        if self.shutdown.has_begun() {
            return self.drop_datagram(path, DropReason::ShuttingDown);
        }
        // A request that comes without a cookie, and then with one, is of one attempt. Two IKE SAs would confuse the peer.
        let parts = sa_init::without_cookie(octets, message);
        let hash = self.registry.digest(parts.as_ref().map_or(octets, |(bare, _)| bare));
        let brought = self.has_cookie(now, path, message);
        let cookie = parts.as_ref().map(|(_, cookie)| *cookie);
        if self.answer_again(now, path, &Repeated { hash, octets, cookie, valid: brought }) {
            return;
        }
        //= https://www.rfc-editor.org/rfc/rfc9329#section-6.1
        //# Multiple IKE SAs MUST NOT share a single TCP connection, unless one
        //# is a rekey of an existing IKE SA
        if tcp && self.is_taken(&path) {
            return self.drop_datagram(path, DropReason::TakenConnection);
        }
        let refused = self.refused.in_second(now.mono);
        let origin = Origin::of(path.remote.ip());
        let from = self.half_open.count_from(origin);
        let admission = self.half_open.judge(&self.config, from, weight(octets.len()), refused);
        if let Admission::Full(why) = admission
            && !tcp
        {
            return self.drop_datagram(path, why);
        }
        let connections = self.connections_for(path);
        let resumes = header.exchange == ExchangeType::IKE_SESSION_RESUME;
        if connections.is_empty() && resumes {
            return self.refuse_ticket(now, path, message, TicketReason::NoConnection);
        }
        if connections.is_empty() {
            return self.refuse_init(now, path, message, NotifyType::NO_PROPOSAL_CHOSEN.into());
        }
        if self.redirect_init(path, message) {
            return;
        }
        //= https://www.rfc-editor.org/rfc/rfc9329#section-6.3
        //# The exchange Responder SHOULD NOT send an IKEv2 Cookie request
        //# without an accompanied Puzzle; implementations might choose to
        //# have exceptions to this for cases like mitigating TCP sequence
        //# number attacks.
        // With `cookie_threshold = 1` a cookie is demanded over TCP, too.
        let wanted = admission == Admission::Cookie && (!tcp || self.config.cookie_threshold == 1);
        if wanted && !brought {
            return self.demand_cookie(now, path, message);
        }
        if let Err(why) = self.make_room(now, (origin, from), octets.len(), tcp || brought) {
            return self.drop_datagram(path, why);
        }
        let id = self.ids.ike();
        let spi_r = None;
        let request = InitRequest { id, path, octets, message, hash, brought, spi_r };
        if resumes {
            return self.answer_resume(now, &request, &connections);
        }
        self.answer_init(now, &request, connections, None);
    }

    /// Answers a request that was admitted.
    fn answer_init(
        &mut self,
        now: Now,
        request: &InitRequest<'_>,
        connections: Candidates,
        waited: Option<Waited>,
    ) {
        let InitRequest { id, path, octets, message, hash, brought, spi_r } = *request;
        let spi_i = message.header.spi_i;
        let mut ctx = self.context(now, Some(id));
        let answered = sa_init::respond(&mut ctx, spi_r, connections, path, message, octets);
        let answered = answered.map(|answer| Answer {
            connections: self.lists.share(answer.connections.iter()),
            ..answer
        });
        match answered {
            Ok(answer) => self.answer_with(now, request, answer, waited),
            Err(Halt::Refuse(refusal)) => {
                self.remove(now, id, Failure::Refused(refusal.kind));
                self.refuse_init(now, path, message, refusal);
            }
            Err(Halt::Ask(mut exchange)) => {
                let mut ctx = self.context(now, Some(id));
                let key = exchange.key();
                let _claim = exchange.claim(true);
                let ticket = ctx.ask(Question::Exchange(exchange));
                let spi_r = ctx.ids.ike_spi(ctx.io.rng);
                let request_octets = octets.into();
                let asked = Asked {
                    ticket,
                    key,
                    _claim,
                    request: request_octets,
                    hash,
                    brought,
                    stray: None,
                    spi_r,
                };
                let parked = Parked::asked(&ctx, id, path, asked, spi_i);
                self.put(now, request, spi_r, Entry::Parked(Box::new(parked)));
            }
        }
    }

    /// Sends the answer to a request, and keeps the half-open SA.
    pub(super) fn answer_with(
        &mut self,
        now: Now,
        request: &InitRequest<'_>,
        answer: Answer,
        waited: Option<Waited>,
    ) {
        let InitRequest { id, path, octets, message, brought, .. } = *request;
        let (tcp, spi_i) = (path.transport == Transport::Tcp, message.header.spi_i);
        let ctx = self.context(now, Some(id));
        match answer {
            // An attacker must not make this end send much more to others than the attacker sends itself, as long
            // as the address is not validated. RFC 9000 §8.1 has the same limit.
            answer
                if !(tcp || brought)
                    && answer.transcript.response.len() > AMPLIFIED * octets.len() =>
            {
                // This leaves no half-open SA, but has cost a key exchange.
                self.refused.count(now.mono);
                self.remove(now, id, Failure::Replaced);
                self.demand_cookie(now, path, message);
            }
            answer => {
                let spi = answer.spi_r;
                let response = Arc::clone(&answer.transcript.response);
                let entry = half_open(&ctx, id, path, answer, spi_i, waited);
                let Some(entry) = entry else { return self.remove(now, id, Failure::Crypto) };
                self.transmit_init(path, response, TransmitKind::Ike);
                self.put(now, request, spi, entry);
            }
        }
    }

    /// Continues a request whose slow key exchange is done.
    pub(super) fn on_init_exchanged(
        &mut self,
        now: Now,
        id: IkeSaId,
        ticket: Ticket,
        answer: question::Answer,
    ) {
        let waiting = match self.entries.get(&id) {
            Some(Slot { entry: Entry::Parked(parked), .. }) => {
                parked.waiting_for(ticket).map(|(asked, waited)| (parked, asked, waited))
            }
            _ => None,
        };
        let Some((parked, asked, waited)) = waiting else {
            return tracing::debug!(ike = ?id, "key exchange not used: no request waits for it");
        };
        let done = match answer {
            question::Answer::Exchanged(done) if done.is_of(&asked.key) => done,
            _ => Exchanged::failed(asked.key.clone()),
        };
        let (path, octets) = (parked.path(), Arc::clone(&asked.request));
        let (hash, spi_r) = (asked.hash, Some(asked.spi_r));
        let (brought, stray) = (asked.brought, asked.stray.clone());
        // These are the octets of a request that was decoded before it was asked about.
        let Ok(message) = Message::decode(&octets) else {
            return debug_assert!(false, "a message that was decoded once cannot be decoded");
        };
        let octets = &*octets;
        let message = &message;
        let request = InitRequest { id, path, octets, message, hash, brought, spi_r };
        let connections = self.connections_for(path);
        self.ids.exchanged = vec![done];
        self.answer_init(now, &request, connections, Some(waited));
        self.ids.exchanged.clear();
        if let Some(Slot { entry: Entry::Parked(parked), .. }) = self.entries.get_mut(&id) {
            parked.set_stray(stray);
        }
    }

    /// Adds the entry of the request with this hash, or replaces the entry that waited.
    fn put(&mut self, now: Now, request: &InitRequest<'_>, spi: u64, entry: Entry) {
        let InitRequest { id, hash, spi_r, .. } = *request;
        if spi_r.is_some() {
            if let Some(slot) = self.entries.get_mut(&id) {
                slot.entry = entry;
            }
            return self.settle(now, id);
        }
        self.insert(now, id, spi, entry);
        self.answered.insert(hash, id);
        if let Some(slot) = self.entries.get_mut(&id) {
            slot.request = Some(hash);
        }
    }

    /// True if a TCP connection belongs to an established IKE SA.
    fn is_taken(&self, path: &Path) -> bool {
        let established = |id| match self.entries.get(&id).map(|slot| &slot.entry) {
            Some(Entry::Sa(sa)) => matches!(sa.state, State::Established(_)),
            _ => false,
        };
        self.index.users_of(path).into_iter().any(established)
    }

    /// Answers a retransmitted request with the kept response. True if it was a retransmission. It may come from
    /// another address or port: a NAT may have changed its mapping, or a copy may have been faster.
    fn answer_again(&mut self, now: Now, path: Path, repeated: &Repeated<'_>) -> bool {
        let Repeated { hash, octets, cookie, valid } = *repeated;
        //= https://www.rfc-editor.org/rfc/rfc7296#section-2.1
        //# Instead, a
        //# robust responder will do the IKE SA lookup using the whole packet,
        //# its hash, or the Ni payload.
        let Some(id) = self.answered.get(&hash) else { return false };
        let again = match self.entries.get_mut(id).map(|slot| &mut slot.entry) {
            // Later the request is an old duplicate.
            Some(Entry::Sa(sa)) => {
                sa.channel.init_answered(now.mono, true);
                sa.state.half_open().map(|waiting| {
                    (
                        Arc::clone(&waiting.transcript.response),
                        sa.channel.route().path().remote == path.remote,
                    )
                })
            }
            Some(Entry::Parked(parked)) => {
                if let Some(cookie) = cookie {
                    // Somebody else sent a copy first. The peer has proven its address, and gets an SA of its own.
                    if valid && parked.path() != path {
                        return false;
                    }
                    parked.came_with(path, octets, cookie, valid);
                }
                let again = parked.answer_again(now.mono);
                again.map(|(response, to)| (response, to.remote == path.remote))
            }
            _ => None,
        };
        // A peer with a TCP connection has proven its address.
        if let Some((response, same_place)) = again
            && (same_place
                || path.transport.is_reliable()
                || (response.len() <= AMPLIFIED * octets.len() && self.courtesy.take(now.mono)))
        {
            self.transmit_init(path, response, TransmitKind::Retransmission);
        }
        true
    }

    /// Connections whose addresses fit: exact addresses before ranges and `%any`.
    fn connections_for(&mut self, path: Path) -> Candidates {
        let (local, remote) = (path.local.ip().to_canonical(), path.remote.ip().to_canonical());
        let by_address = self.lookup.by_address();
        let found = by_address.fitting(&self.config.connections, local, remote);
        self.lists.share(found.iter().map(|(_, connection)| *connection))
    }

    /// DSCP of messages that are sent before a connection is chosen: that of the first connection whose addresses
    /// fit.
    fn dscp(&self, path: Path) -> u8 {
        if !self.lookup.has_dscp() {
            return 0;
        }
        let (local, remote) = (path.local.ip().to_canonical(), path.remote.ip().to_canonical());
        let found = self.lookup.by_address().fitting(&self.config.connections, local, remote);
        found.first().map_or(0, |(_, connection)| connection.dscp)
    }

    /// True if the request brought a valid cookie, so that its sender receives at its address.
    fn has_cookie(&self, now: Now, path: Path, message: &Message<'_>) -> bool {
        let Some(cookies) = &self.cookies else { return true };
        let payloads = Payloads(&message.payloads);
        let (Some(cookie), Ok(Some(ni))) = (payloads.notify(NotifyType::COOKIE), payloads.nonce())
        else {
            return false;
        };
        cookies.check(now.mono, cookie.data, ni, cookie_address(path), message.header.spi_i)
    }

    /// Handles that the half-open SA of an entry may be about to be made: it learns which cookies its peer may have got.
    pub(super) fn tell_cookies(&mut self, now: Now, id: IkeSaId) {
        if let Some(cookies) = self.cookies.as_ref().filter(|cookies| cookies.made_any())
            && let Some(Slot { entry: Entry::Parked(parked), .. }) = self.entries.get_mut(&id)
        {
            let from = cookie_address(parked.path());
            parked.add_cookies(|ni, spi_i| cookies.made(now.mono, ni, from, spi_i));
        }
    }

    fn demand_cookie(&mut self, now: Now, path: Path, message: &Message<'_>) {
        let Ok(Some(ni)) = Payloads(&message.payloads).nonce() else {
            return self.drop_datagram(path, DropReason::NoNonce);
        };
        let Some(cookies) = &mut self.cookies else {
            return tracing::debug!(?path, "request: dropped, because no PRF makes a cookie");
        };
        let spi_i = message.header.spi_i;
        let from = cookie_address(path);
        let cookie = cookies.make(now.mono, &mut *self.rng, ni, from, spi_i);
        self.send_unprotected(path, sa_init::demand_cookie(&message.header, &cookie));
    }

    fn refuse_init(
        &mut self,
        now: Now,
        path: Path,
        message: &Message<'_>,
        refusal: crate::exchange::Refusal,
    ) {
        self.drop_datagram(path, DropReason::InitRefused);
        self.refused.count(now.mono);
        // Without INVALID_KE_PAYLOAD a genuine peer cannot continue. The answer is smaller than any request. It
        // must not depend on how many other answers a flood has used.
        let needed = refusal.kind == NotifyType::INVALID_KE_PAYLOAD;
        // The limit of answers also limits log lines.
        let courtesy = needed || self.courtesy.take(now.mono);
        if courtesy && !needed {
            let (payloads, connections) = (Payloads(&message.payloads), self.connections_for(path));
            let why = detail::init(&self.config, connections.to_vec(), &payloads, &refusal);
            self.out.push_back(Output::Event(Event::InitRefused { path, why }));
        }
        if courtesy {
            self.send_unprotected(path, sa_init::refuse(&message.header, &refusal));
        }
    }

    pub(super) fn transmit_init(&mut self, path: Path, octets: Arc<[u8]>, kind: TransmitKind) {
        let dscp = self.dscp(path);
        self.out.push_back(Output::Transmit(Transmit { path, kind, dscp, octets }));
    }
}

/// The address that a cookie is for.
fn cookie_address(path: Path) -> SocketAddr {
    let mut from = path.remote;
    //= https://www.rfc-editor.org/rfc/rfc9329#section-6.3
    //# Note that the Responder MUST NOT include the
    //# Initiator's TCP port into the Cookie calculation
    if path.transport == Transport::Tcp {
        from.set_port(0);
    }
    from
}

fn half_open(
    ctx: &crate::ike_sa::context::Context<'_>,
    id: IkeSaId,
    path: Path,
    answer: Answer,
    spi_i: u64,
    waited: Option<Waited>,
) -> Option<Entry> {
    let separate = answer.extensions.separate;
    let mut parked = Parked::new(ctx, id, path, answer, spi_i, waited);
    if path.transport != Transport::Tcp {
        return Some(Entry::Parked(Box::new(parked)));
    }
    let mut sa = parked.wake(ctx).ok()?;
    let beside = crate::channel::nat::beside(path, ctx.io.config.natt_port);
    sa.channel.roaming().begin_stream(Some(Stream::accepted()), separate.then_some(beside));
    Some(Entry::Sa(Box::new(sa)))
}
