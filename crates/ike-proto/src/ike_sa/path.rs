//! The addresses that an IKE SA and its children use: following a peer behind a NAT, and keeping the NAT's mapping
//! (RFC 7296 §2.11, §2.23).

use std::net::SocketAddr;

use super::context::{Context, Effect};
use super::state::{Established, Task};
use crate::channel::{Channel, EspMove};
use crate::event::{ChildSaId, Event, Failure, Path, Transport};
use crate::exchange::sent::Retry;
use crate::ike_sa::children::Moves;
use crate::wire::registry::NotifyType;

impl Established {
    /// Handles a new and authentic message by `path`: this end sends by that path from now on, if the peer is
    /// behind a NAT or not proven so far.
    pub(super) fn follow(&mut self, channel: &mut Channel, ctx: &mut Context<'_>, path: Path) {
        if !channel.adopt_path(&mut ctx.io, path) {
            return;
        }
        ctx.io.event(Event::PathChanged { ike: channel.link().id(), path });
        if path.transport != Transport::Tcp || channel.route().esp_is_beside() {
            self.move_children(channel, ctx);
        }
        if path.transport == Transport::Tcp {
            channel.send_again(&mut ctx.io);
        }
    }

    /// Handles an authentic ESP packet of `child` from `remote`: IKE (without MOBIKE) and all children move there,
    /// as if an IKE message had come from there (RFC 7296 §2.23 names any validated packet). ESP without UDP has
    /// no port to follow, and no NAT that would change it.
    pub(crate) fn follow_esp(
        &mut self,
        channel: &mut Channel,
        ctx: &mut Context<'_>,
        child: ChildSaId,
        remote: SocketAddr,
    ) {
        let found = self.children.get(child);
        if found.is_none_or(|child| child.encap.is_none()) {
            return;
        }
        match channel.roaming().note_esp(remote) {
            EspMove::Nothing => {}
            EspMove::Children => self.move_children(channel, ctx),
            EspMove::All => self.follow(channel, ctx, Path { remote, ..channel.route().path() }),
        }
    }

    /// Moves the children's outer addresses to those of the peer.
    pub(crate) fn move_children(&mut self, channel: &Channel, ctx: &mut Context<'_>) {
        let path = channel.route().esp_path();
        let mobike = channel.route().mobike().is_some();
        let nat = mobike.then(|| channel.route().puts_esp_in_udp());
        // Without MOBIKE no peer has proven its address (RFC 4555 §3.7).
        let proven = (mobike && !channel.route().is_held()).then_some(channel.route().path());
        let claim = |there, spi_in| ctx.ids.claim(there, spi_in);
        let from = self.children.as_slice().first().map(|child| child.remote);
        let Moves { batch, moved, stale, stuck, renamed } =
            self.children.move_to(path, (proven, nat), claim);
        if let (Some(from), Some(to)) = (from, proven) {
            let connection = channel.connection().name.clone();
            ctx.effects.push_back(Effect::Moved { connection, from, to });
        }
        if !batch.is_empty() {
            ctx.change(batch, moved, stale);
        }
        // The SAs in the data plane keep their selectors. A rekey makes others.
        for child in renamed {
            self.queue.push(Task::RekeyChild { child, request: None, retry: Retry::default() });
        }
        for child in stuck {
            let reason = Failure::Refused(NotifyType::NO_ADDITIONAL_SAS);
            self.queue.give_up_child(child, reason);
        }
    }
}
