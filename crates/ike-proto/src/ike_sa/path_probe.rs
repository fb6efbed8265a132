//! Probes of the path that ESP takes, for a data plane that asks whether the path carries a size (RFC 8899). Every peer
//! answers them, because they are liveness checks with padding.
//!
//! ```text
//!    HDR, SK {N(padding)}  -->          one datagram of the size, with Don't Fragment; then without padding
//!                          <--  HDR, SK {}
//! ```

use crate::channel::probing::Probing;
use crate::child::{ChildSa, Phase};
use crate::dataplane::{Command, Probed};
use crate::event::ChildSaId;
use crate::exchange::sent::Sent;
use crate::ike_sa::Stem;
use crate::ike_sa::context::Context;
use crate::ike_sa::state::{Established, IkePhase, Task};

/// A probe that the data plane wants.
pub(crate) struct PathProbe {
    /// The child whose path it probes.
    pub(super) child: ChildSaId,
    /// Octets of its packet.
    pub(super) octets: u16,
}

impl PathProbe {
    /// For the path of `child`.
    pub(crate) fn new(child: ChildSaId, octets: u16) -> Self {
        Self { child, octets }
    }

    /// Queues the probe that the data plane wants, unless another one is under way: the data plane asks again later.
    pub(crate) fn queue(self, sa: &mut Established, stem: &Stem<'_>, ctx: &mut Context<'_>) {
        if !Probing::is_possible(stem.channel) {
            return self.tell(sa, ctx, Probed::Impossible);
        }
        let under_way = matches!(sa.sent, Some(Sent::Probe { .. }))
            || sa.queue.all().any(|task| matches!(task, Task::Probe { .. }));
        if sa.phase == IkePhase::Alive && !under_way {
            let Self { child, octets } = self;
            sa.queue.push_probe(&mut sa.life, ctx.io.now.mono, Task::Probe { child, octets });
        }
    }

    /// Sends it.
    pub(super) fn send(self, sa: &mut Established, stem: &mut Stem<'_>, ctx: &mut Context<'_>) {
        if sa.phase != IkePhase::Alive {
            return tracing::debug!(
                ike = ?stem.channel.link().id(),
                "probe: not sent, because the IKE SA ends"
            );
        }
        if !Probing::is_possible(stem.channel) {
            return self.tell(sa, ctx, Probed::Impossible);
        }
        match Probing::send(stem.channel, &mut ctx.io, self.octets) {
            Ok(octets) => {
                sa.queue.note_probe(ctx.io.now.mono);
                sa.sent = Some(Sent::Probe { child: self.child, octets });
            }
            Err(unsent) => stem.ending.on_unsent(unsent),
        }
    }

    /// Handles its answer. If the request had to be sent again, the probe was lost.
    pub(super) fn on_response(self, sa: &Established, stem: &Stem<'_>, ctx: &mut Context<'_>) {
        let octets = self.octets;
        let probed = match stem.channel.window().is_probe_answered() {
            true => Probed::Carried(octets),
            false => {
                let told = ctx.io.mtus.told(stem.channel.route().path().remote.ip());
                Probed::Lost { octets, hint: told.filter(|told| *told < octets) }
            }
        };
        self.tell(sa, ctx, probed);
    }

    /// Tells the data plane about the path of the child. If the child was replaced, another child stands for it, because all
    /// children of an IKE SA have the same path.
    fn tell(&self, sa: &Established, ctx: &mut Context<'_>, probed: Probed) {
        let installed = |child: &&ChildSa| child.phase == Phase::Installed;
        let found = sa.children.get(self.child).or_else(|| sa.children.iter().find(installed));
        let batch = found.map(|child| Command::PathProbed(child.outbound(), probed));
        if batch.is_some() {
            ctx.data_plane(batch.into_iter().collect());
        }
    }
}
