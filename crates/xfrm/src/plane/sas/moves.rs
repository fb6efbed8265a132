//! SAs that move to other addresses or ports.

use std::net::{IpAddr, SocketAddr};

use ipsec_types::dataplane::{DataPlaneError, Direction, Mode, SaId};

use super::{Sa, Sas, about, canonical, named, no_such_sa};
use crate::kernel::Kernel;
use crate::netlink::Transport;
use crate::plane::clock::Clock;
use crate::plane::install::Install;
use crate::plane::spec::{is_exhausted, lifetime};
use crate::selector::{Prefix, Selector};
use crate::state::{Encapsulation, State, StateInfo};

/// Numbers that an outbound SA skips when it moves. Packets that it sends between the reading of its last number
/// and its removal would otherwise share their numbers with later packets: for counter modes, the same IV.
const SKIPPED: u64 = 1 << 16;

impl Sas {
    /// Moves an SA. Its sequence numbers, its window, its counters and its limits go on.
    pub(in crate::plane) fn update<T: Transport>(
        &mut self,
        kernel: &mut Kernel<T>,
        installer: &mut dyn Install<T>,
        id: SaId,
        path: (SocketAddr, SocketAddr),
        encap: Option<Encapsulation>,
        clock: &dyn Clock,
    ) -> Result<SaId, DataPlaneError> {
        let id = canonical(id);
        let (src, dst) = (path.0.ip().to_canonical(), path.1.ip().to_canonical());
        let new = SaId { dst, ..id };
        if new != id && self.sas.contains_key(&new) {
            return Err(DataPlaneError(format!("{} is in use", named(new))));
        }
        self.clean(kernel, new)?;
        let Some(sa) = self.sas.get_mut(&id) else { return Err(no_such_sa(id)) };
        let stays = new == id && sa.state.src == src;
        if stays && sa.state.encapsulation == encap {
            return Ok(id);
        }
        // The kernel changes ports where there are some, and neither addresses nor the rest.
        // Of an SA in a device it would change no more than its own record.
        let in_software = sa.state.offload.is_none();
        if stays && in_software && sa.state.encapsulation.is_some() && encap.is_some() {
            let old = std::mem::replace(&mut sa.state.encapsulation, encap);
            sa.set_time_limit(clock);
            match kernel.update_state(&sa.state) {
                Ok(()) => return Ok(id),
                Err(error) => {
                    sa.state.encapsulation = old;
                    tracing::debug!(%error, "{}: made anew for other ports", named(id));
                }
            }
        }
        let Some(sa) = self.sas.remove(&id) else { return Err(no_such_sa(id)) };
        self.make_anew(kernel, installer, sa, (src, dst), encap, clock)?;
        Ok(new)
    }

    /// Removes the state of `sa` and adds one for its new path; for the old one if that fails.
    ///
    /// An inbound state may accept packets between the look at its window and its removal, of which the new
    /// window does not know. Each could be replayed once. Two requests follow one another there, without anything
    /// else between: that is some microseconds of traffic, once for each move, which only the peer can ask for.
    // The kernel has no request that removes a state and tells its window. To make up for it by moving the new
    // window forwards would drop packets of the peer that are on their way, at every move.
    fn make_anew<T: Transport>(
        &mut self,
        kernel: &mut Kernel<T>,
        installer: &mut dyn Install<T>,
        mut sa: Sa,
        (src, dst): (IpAddr, IpAddr),
        encap: Option<Encapsulation>,
        clock: &dyn Clock,
    ) -> Result<(), DataPlaneError> {
        let old = sa.state.id;
        let id = SaId { spi: old.spi, dst: old.dst };
        let result = match kernel.state(&old) {
            Ok(Some(info)) => kernel.delete_state(&old).map(|_| Some(info)),
            other => other,
        };
        let info = match result {
            Ok(Some(info)) => info,
            Ok(None) => {
                self.sas.insert(id, sa);
                return Err(no_such_sa(id));
            }
            Err(error) => {
                self.sas.insert(id, sa);
                return Err(about(id, &error));
            }
        };
        installer.removed(kernel, &old);
        sa.carry_on(&info);
        sa.dated = clock.wall();
        sa.set_time_limit(clock);
        let before = (sa.state.src, old.dst, sa.state.encapsulation);
        let (wanted, protocols) = (sa.wanted, sa.protocols.clone());
        sa.state.relocate(src, dst, encap);
        let moved = SaId { dst, ..id };
        let Err(error) = self.add(kernel, installer, &mut sa.state, wanted, &protocols) else {
            self.sas.insert(moved, sa);
            return Ok(());
        };
        sa.state.relocate(before.0, before.1, before.2);
        let restored = self.add(kernel, installer, &mut sa.state, wanted, &protocols);
        if let Err(again) = restored {
            // Its removal finds it.
            tracing::warn!(error = %again, "{}: lost while it moved", named(id));
            sa.gone = true;
        }
        self.sas.insert(id, sa);
        Err(error)
    }
}

impl Sa {
    /// Makes the state to be added one that goes on where `info` stopped.
    fn carry_on(&mut self, info: &StateInfo) {
        self.used.0 = self.used.0.saturating_add(info.bytes);
        self.used.1 = self.used.1.saturating_add(info.packets);
        let last = if self.state.replay.esn { u64::MAX } else { u64::from(u32::MAX) };
        let mut replay = info.replay.clone();
        if self.direction == Direction::Out {
            replay.sent = replay.sent.saturating_add(SKIPPED).min(last);
        }
        replay.esn = self.state.replay.esn;
        replay.window = self.state.replay.window;
        self.state.lifetime = lifetime(&self.limits, self.used, &replay);
        self.state.replay = replay;
    }

    /// What is due at once after a move, because of sequence numbers that were skipped: the kernel sends
    /// nothing by the last number, and raises no event.
    pub(in crate::plane) fn is_exhausted(&self) -> bool {
        is_exhausted(&self.state.replay)
    }
}

impl State {
    /// Gives it other outer addresses. In transport mode those are in its selector as well.
    fn relocate(&mut self, src: IpAddr, dst: IpAddr, encapsulation: Option<Encapsulation>) {
        if self.mode == Mode::Transport
            && let Some(selector) = &mut self.selector
        {
            let follow = |prefix: Prefix, old, new| {
                if prefix == Prefix::host(old) { Prefix::host(new) } else { prefix }
            };
            let Selector { src: from, dst: to, .. } = *selector;
            selector.src = follow(from, self.src, src);
            selector.dst = follow(to, self.id.dst, dst);
        }
        self.src = src;
        self.id.dst = dst;
        self.encapsulation = encapsulation;
    }
}
