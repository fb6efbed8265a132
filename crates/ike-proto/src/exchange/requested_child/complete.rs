//! From the response to a Child SA (RFC 7296 §1.2, §1.3).

use super::RequestedChild;
use crate::child::ChildSa;
use crate::child::selectors::{is_whole, narrow, within};
use crate::config::proposal::{self, Selected};
use crate::crypto::Secret;
use crate::dataplane::Mode;
use crate::event::{Event, Hint};
use crate::exchange::child_sa::{KeyMaterial, ReadyChild, Terms};
use crate::exchange::mobike::Ends;
use crate::exchange::mode::{Asked, Requirements};
use crate::exchange::parts::Parts;
use crate::exchange::{Payloads, Refusal, required, resource, tfc};
use crate::ike_sa::{Children, Context, Seen};
use crate::wire::payload::Spi;
use crate::wire::registry::{KeMethodId, NotifyType};

impl RequestedChild {
    /// Turns the response into a Child SA. `material` has the secrets of the exchanges after the first one.
    pub(super) fn complete(
        &self,
        parts: &mut Parts<'_, '_>,
        payloads: &Payloads<'_, '_>,
        material: KeyMaterial<'_>,
    ) -> Result<ReadyChild, Refusal> {
        let Parts { channel, peer, identity, children, ctx, .. } = parts;
        let sa = required(payloads.sa()?)?;
        let selected = proposal::accept(&self.proposals, sa)
            .map_err(|_| Refusal::new(NotifyType::NO_PROPOSAL_CHOSEN))?;
        let Spi::Esp(spi_out) = selected.spi else {
            return Err(NotifyType::INVALID_SYNTAX.into());
        };
        if !selected.spi.is_usable() {
            return Err(NotifyType::NO_PROPOSAL_CHOSEN.into());
        }
        let mut local_ts = required(payloads.ts_i()?)?.clone();
        let mut remote_ts = required(payloads.ts_r()?)?.clone();
        let (mode, dont_fragment) = granted(self.mode, Asked::read(payloads))?;
        if mode == Mode::Transport {
            //= https://www.rfc-editor.org/rfc/rfc7296#section-2.23.1
            //# Do address substitution before using those Traffic Selectors
            //# for anything other than storing original content of them.
            (local_ts, remote_ts) = Ends::of(channel).as_seen_here(&local_ts, &remote_ts);
        }
        // RFC 7296 §2.9: the responder may narrow and must not widen. If it does widen, this end uses the
        // selectors that it has requested, because its policy lets nothing else through.
        if !within(&local_ts, &self.local_ts) || !within(&remote_ts, &self.remote_ts) {
            let own = (narrow(&self.local_ts, &local_ts), narrow(&self.remote_ts, &remote_ts));
            if own.0.is_empty() || own.1.is_empty() {
                return Err(NotifyType::TS_UNACCEPTABLE.into());
            }
            let answered = (std::mem::take(&mut local_ts), std::mem::take(&mut remote_ts));
            let child = self.config.name.clone();
            (local_ts, remote_ts) = own.clone();
            let hint =
                Hint::SelectorsTooWide { ike: channel.link().id(), child, answered, used: own };
            ctx.io.event(Event::Hint(Box::new(hint)));
        }
        // The offer in IKE_AUTH was made before the peer's certificate was known.
        remote_ts = identity.narrow_to_certified(remote_ts);
        if remote_ts.is_empty() {
            return Err(NotifyType::TS_UNACCEPTABLE.into());
        }
        // RFC 7296 §2.9.2: a rekey makes no child for less. What it left out would leave without protection.
        if self.rekeys.is_some()
            && !is_whole((&local_ts, &remote_ts), (&self.local_ts, &self.remote_ts))
        {
            return Err(NotifyType::TS_UNACCEPTABLE.into());
        }
        if self.heritage.is_none() {
            local_ts = peer.assigned().narrow_to_own(channel, &self.config, mode, local_ts);
            if local_ts.is_empty() {
                return Err(NotifyType::TS_UNACCEPTABLE.into());
            }
        }
        if let Some(other) = self.members(children)? {
            // For a rekeyed child nothing is said (RFC 9611 §3).
            let said = self.rekeys.is_some() || resource::is_asked(payloads);
            if !(said && resource::is_alike(other, &selected, mode, &local_ts, &remote_ts)) {
                return Err(NotifyType::NO_PROPOSAL_CHOSEN.into());
            }
            (local_ts, remote_ts) = (other.local_ts.clone(), other.remote_ts.clone());
        }
        let per_cpu = self.per_cpu && resource::is_asked(payloads);
        // Both ends may have requested the first child at once. Then there are two, which share one policy.
        let other = match per_cpu && self.heritage.is_none() {
            true => children.same_traffic(&self.config, &local_ts, &remote_ts),
            false => None,
        };
        let beside = other.map(|other| (other.policy, other.heritage_beside(None, 0)));
        let (policy, heritage) = match beside {
            Some((policy, heritage)) => (policy, Some(heritage)),
            None => (self.policy, self.heritage.clone()),
        };
        let shared = self.complete_ke(ctx, &selected, payloads)?;
        let terms = Terms {
            id: self.id,
            policy,
            spi_in: self.spi_in,
            spi_out,
            mode,
            local_ts,
            remote_ts,
            replaces: self.rekeys,
            per_cpu,
            heritage,
            dont_fragment,
            takes_tfc: tfc::is_taken(payloads),
            asker: peer.asker(self.packet),
            started: self.started,
        };
        let child = terms.unkeyed(Seen { channel, peer }, identity, ctx, &self.config, selected)?;
        let shared: Vec<_> = shared.iter().chain(material.shared.iter().copied()).collect();
        let material = KeyMaterial { shared: &shared, ..material };
        ReadyChild::keyed(channel, children, ctx, child, material)
    }

    /// The secret of the key exchange in the response, if it has one.
    fn complete_ke(
        &self,
        ctx: &Context<'_>,
        selected: &Selected,
        payloads: &Payloads<'_, '_>,
    ) -> Result<Option<Secret>, Refusal> {
        let ke = payloads.ke()?;
        match (self.ke.as_ref(), selected.ke) {
            (_, KeMethodId::NONE) if ke.is_none() => Ok(None),
            (Some((method, half)), chosen) if *method == chosen => {
                let ke = required(ke)?;
                if ke.method != chosen {
                    return Err(NotifyType::INVALID_SYNTAX.into());
                }
                let shared = ctx.complete(chosen, half, ke.data);
                shared.map(Some).map_err(|_| NotifyType::INVALID_SYNTAX.into())
            }
            _ => Err(NotifyType::INVALID_SYNTAX.into()),
        }
    }

    /// The child beside which this is a further one, or which it replaces. Fails if there is none any more.
    fn members<'a>(&self, children: &'a Children) -> Result<Option<&'a ChildSa>, Refusal> {
        let Some(join) = self.join else {
            let old = self.rekeys.and_then(|old| children.get(old));
            return Ok(old.filter(|old| old.processing.per_cpu));
        };
        let other = children.sharing(join.policy).next();
        other.map(Some).ok_or_else(|| NotifyType::NO_ADDITIONAL_SAS.into())
    }
}

/// The mode that a peer has granted after a request for `wanted`, and whether the peer refuses split inner
/// packets.
fn granted(wanted: Mode, answer: Asked) -> Result<(Mode, bool), Refusal> {
    match (answer, wanted) {
        // Without a notify the mode is tunnel mode.
        (Asked::Tunnel, _) => Ok((Mode::Tunnel, false)),
        (Asked::Transport, Mode::Transport) => Ok((Mode::Transport, false)),
        (Asked::Aggfrag(Requirements::Met { dont_fragment }), Mode::Iptfs) => {
            Ok((Mode::Iptfs, dont_fragment))
        }
        // The peer uses AGGFRAG payloads now, in a way that this end does not support. The SA has to end.
        (Asked::Aggfrag(Requirements::Beyond), Mode::Iptfs) => {
            Err(NotifyType::NO_PROPOSAL_CHOSEN.into())
        }
        _ => Err(NotifyType::INVALID_SYNTAX.into()),
    }
}
