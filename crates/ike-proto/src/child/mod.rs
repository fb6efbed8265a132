//! Child SAs, and the data-plane commands that install and remove them.

pub(crate) mod processing;
pub mod selectors;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::processing::{Asker, Lease};
use crate::config::proposal::Selected;
use crate::config::{ChildConfig, FailureShunt, PpkId, TsSpec};
use crate::crypto::CipherSuite;
use crate::dataplane::{
    Command, Direction, EncapPorts, Encapsulation, Flow, Mode, PolicyAction, PolicyId, PolicySpec,
    Processing, SaId, SaSpec, TrafficSelector,
};
use crate::event::{ChildSaId, ChildState, ChildStatus, Path, Transport};
use crate::keys::schedule::DirectionKeys;
use crate::wire::registry::IntegId;

/// The phase of a Child SA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The data plane is at work on it.
    Installing,
    /// It is in use. If the peer's rekey made it, its outbound SA may still be pending.
    Installed,
    /// Its replacement is in use. It waits for the Delete.
    Rekeyed,
    /// This end has sent a Delete.
    Deleting,
}

/// The place of a further child among those that share a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Join {
    pub(crate) policy: PolicyId,
    /// `None` to replace the child for all CPUs, if that has gone.
    pub(crate) cpu: Option<u32>,
}

/// What a child takes over from another one: by a rekey, or as a further child for the same traffic.
#[derive(Debug, Clone)]
pub(crate) struct Heritage {
    pub(crate) processing: Arc<Processing>,
    pub(crate) lease: Lease,
    /// The first child of the line, and who has asked for that; `None` for a new line.
    pub(crate) line: Option<(ChildSaId, Asker)>,
    pub(crate) cpu: Option<u32>,
    pub(crate) ordinal: u32,
}

/// One negotiated pair of ESP SAs.
pub(crate) struct ChildSa {
    pub(crate) id: ChildSaId,
    pub(crate) config: Arc<ChildConfig>,
    /// Its policy is on standby: the peer has requested it and may not have its SAs yet.
    pub(crate) standby: bool,
    /// Who has asked for the first child of its line.
    pub(crate) asker: Asker,
    pub(crate) phase: Phase,
    pub(crate) policy: PolicyId,
    /// Connection and the peer's identity: the owner of its traffic.
    pub(crate) owner: String,
    pub(crate) selected: Selected,
    /// The PPK mixed into its own keys (RFC 9867 §3.2).
    pub(crate) ppk: Option<PpkId>,
    pub(crate) mode: Mode,
    /// The configured processing, with the numbers chosen for it and the agreements of the peers.
    pub(crate) processing: Arc<Processing>,
    /// Keeps the numbers that were chosen for it.
    pub(crate) lease: Lease,
    /// The first child of the rekeys that led to it; at first itself.
    pub(crate) line: ChildSaId,
    /// Its CPU, among children that share a policy (RFC 9611); `None` for all CPUs.
    pub(crate) cpu: Option<u32>,
    /// Its identifier among these, for the peer.
    pub(crate) ordinal: u32,
    pub(crate) spi_in: u32,
    pub(crate) spi_out: u32,
    /// Outer addresses at installation; follows the IKE SA's path.
    pub(crate) local: IpAddr,
    pub(crate) remote: IpAddr,
    /// Encapsulation of the packets that this end sends.
    pub(crate) encap: Option<Encapsulation>,
    pub(crate) local_ts: Vec<TrafficSelector>,
    pub(crate) remote_ts: Vec<TrafficSelector>,
    /// The outbound SA of a rekey the peer started, until the peer uses the new SA
    /// (RFC 7296 §2.8).
    pub(crate) pending_out: Option<Box<SaSpec>>,
    /// True if it has no outbound SA and will get none: the peer has closed it, by a request that crossed this
    /// end's own (RFC 7296 §1.4.1), or it is the loser of two rekeys.
    pub(crate) half_closed: bool,
    /// True if its policy sends by it: of the children that share a policy, the last one that got it.
    pub(crate) routed: bool,
    /// The child that this one replaces, while that still exists.
    pub(crate) replaces: Option<ChildSaId>,
    pub(crate) started: Instant,
    pub(crate) installed: Instant,
    pub(crate) setup_time: Duration,
    pub(crate) rekey_at: Option<Instant>,
    pub(crate) expires_at: Option<Instant>,
    /// When its first rekey was due.
    pub(crate) soft_at: Option<Instant>,
    /// The limit that one of its SAs in the data plane has reached since another child replaced it. It counts if the
    /// peer takes the replacement back.
    pub(crate) reached: Option<Limit>,
}

/// A limit of an SA in the data plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    /// The child is to be rekeyed.
    Soft,
    /// The SA has ended.
    Hard,
}

impl ChildSa {
    pub(crate) fn inbound(&self) -> SaId {
        SaId { spi: self.spi_in, dst: self.local }
    }

    pub(crate) fn outbound(&self) -> SaId {
        SaId { spi: self.spi_out, dst: self.remote }
    }

    /// True if this end has requested it, or the first child of its line.
    pub(crate) fn is_ours(&self) -> bool {
        self.asker != Asker::Peer
    }

    /// True if it is installed, and a packet asked for it or for the first child of its line. If it ends, the next packet asks
    /// again.
    pub(crate) fn may_give_way(&self) -> bool {
        self.asker == Asker::Packet && self.cpu.is_none() && self.phase == Phase::Installed
    }

    /// True if packets leave by it.
    pub(crate) fn carries(&self) -> bool {
        matches!(self.phase, Phase::Installed) && self.pending_out.is_none()
    }

    /// True if it may carry `packet`.
    pub(crate) fn takes(&self, packet: Flow) -> bool {
        let within = |list: &[TrafficSelector], ts| list.iter().any(|wide| wide.contains(ts));
        within(&self.local_ts, &packet.local) && within(&self.remote_ts, &packet.remote)
    }

    /// True if `packet` is of an address for which its configuration says `dynamic`, where virtual IPs stand for that on
    /// this IKE SA. A trap is older than these and takes such packets, but no child of this configuration does: nothing
    /// that this end can offer covers them. `virtual_ips` are those of this end and of the peer.
    pub(crate) fn leaves_out(&self, packet: Flow, virtual_ips: &[Vec<IpAddr>; 2]) -> bool {
        let [ours, theirs] = virtual_ips;
        let is_out = |specs: &[TsSpec], ts: TrafficSelector, outer: IpAddr, inner: &[IpAddr]| {
            let is_dynamic = |spec: &TsSpec| matches!(spec, TsSpec::Dynamic { .. });
            let is_fixed =
                |spec: &TsSpec| matches!(spec, TsSpec::Fixed(wide) if wide.contains(&ts));
            ts.start == outer.to_canonical()
                && !inner.is_empty()
                && !inner.iter().any(|ip| *ip == ts.start || ip.is_unspecified())
                && specs.iter().any(is_dynamic)
                && !specs.iter().any(is_fixed)
        };
        is_out(&self.config.local_ts, packet.local, self.local, ours)
            || is_out(&self.config.remote_ts, packet.remote, self.remote, theirs)
    }

    /// True if it would carry packets that meet the trap with the processing `trap`.
    pub(crate) fn is_marked_like(&self, trap: &Processing) -> bool {
        let of = |processing: &Processing| (processing.mark_out, processing.if_id_out);
        of(&self.processing) == of(trap)
    }

    /// What the child of a rekey takes over.
    pub(crate) fn heritage(&self) -> Heritage {
        let line = Some((self.line, self.asker));
        Heritage { line, ..self.heritage_beside(self.cpu, self.ordinal) }
    }

    /// What a further child for the same traffic takes over.
    pub(crate) fn heritage_beside(&self, cpu: Option<u32>, ordinal: u32) -> Heritage {
        let (processing, lease) = (Arc::clone(&self.processing), Lease::clone(&self.lease));
        Heritage { processing, lease, line: None, cpu, ordinal }
    }

    /// True if it is one of the children for the same selectors that `policy` serves (RFC 9611), and is not being
    /// replaced.
    pub(crate) fn shares(&self, policy: PolicyId) -> bool {
        self.policy == policy
            && self.processing.per_cpu
            && matches!(self.phase, Phase::Installing | Phase::Installed)
    }

    /// True if its selectors are one address at each end.
    pub(crate) fn is_single_pair(&self) -> bool {
        let single = |list: &[TrafficSelector]| list.iter().all(|ts| ts.start == ts.end);
        single(&self.local_ts) && single(&self.remote_ts)
    }

    /// True if the data plane has its outbound SA.
    pub(crate) fn has_outbound(&self) -> bool {
        self.pending_out.is_none() && !self.half_closed
    }

    /// Replaces selectors that are an address of one of the two ends, because the ends have moved. True if that
    /// changed any. In transport mode these are all such selectors, and `path` has the new addresses as this end sees
    /// them. In tunnel mode they are those that the configuration calls `dynamic`, and `proven` has the new addresses;
    /// without it there are none.
    //= https://www.rfc-editor.org/rfc/rfc7296#section-2.23.1
    //# This will also ensure that the Security Association Database (SAD)
    //# entries for the tunnel exit checks and return packets are added using
    //# the addresses as seen by the local operating system stack.
    pub(crate) fn follow_addresses(&mut self, path: Path, proven: Option<Path>) -> bool {
        let transport = self.mode == Mode::Transport;
        let ends = if transport { Some(path) } else { proven };
        let Some(Path { local, remote, .. }) = ends else { return false };
        let is_dynamic = |spec: &TsSpec| matches!(spec, TsSpec::Dynamic { .. });
        let mut changed = false;
        for (list, specs, old, new) in [
            (&mut self.local_ts, &self.config.local_ts, self.local, local.ip()),
            (&mut self.remote_ts, &self.config.remote_ts, self.remote, remote.ip()),
        ] {
            if !transport && !specs.iter().any(is_dynamic) {
                continue;
            }
            let (old, new) = (old.to_canonical(), new.to_canonical());
            for ts in list.iter_mut().filter(|ts| ts.start == old && ts.end == old && old != new) {
                (ts.start, ts.end) = (new, new);
                changed = true;
            }
        }
        changed
    }

    /// One SA of the pair for the data plane. `schedule` is the length of a retransmission schedule.
    pub(crate) fn spec(
        &self,
        direction: Direction,
        keys: DirectionKeys,
        schedule: Duration,
    ) -> Box<SaSpec> {
        let inbound = direction == Direction::In;
        let (id, src) =
            if inbound { (self.inbound(), self.remote) } else { (self.outbound(), self.local) };
        let encap = if inbound { self.encap.map(Encapsulation::reversed) } else { self.encap };
        Box::new(SaSpec {
            id,
            src,
            direction,
            mode: self.mode,
            policy: self.policy,
            suite: self.suite(),
            encr_key: keys.encr,
            integ_key: keys.integ,
            esn: self.selected.esn,
            replay_window: if inbound { self.config.replay_window } else { 0 },
            encap,
            local_ts: self.local_ts.clone(),
            remote_ts: self.remote_ts.clone(),
            limits: self.config.limits,
            lifetime: match self.config.life_time {
                Duration::ZERO => Duration::ZERO,
                life => life + schedule,
            },
            cpu: self.cpu,
            processing: Arc::clone(&self.processing),
        })
    }

    /// The negotiated suite, or the one that this end uses instead (`sha256_96`).
    fn suite(&self) -> CipherSuite {
        match self.selected.suite {
            suite if suite.integ == IntegId::HMAC_SHA2_256_128 && self.config.sha256_96 => {
                CipherSuite { integ: IntegId::HMAC_SHA2_256_96, ..suite }
            }
            suite => suite,
        }
    }

    /// The policy, sending by this SA.
    pub(crate) fn install_policy(&self) -> Command {
        Command::InstallPolicy(Box::new(PolicySpec {
            id: self.policy,
            child: self.config.name.clone(),
            owner: self.owner.clone(),
            local_ts: self.local_ts.clone(),
            remote_ts: self.remote_ts.clone(),
            action: PolicyAction::Protect {
                mode: self.mode,
                local: self.local,
                remote: self.remote,
                outbound: Some(self.outbound()),
            },
            priority: self.config.priority,
            processing: Arc::clone(&self.processing),
            outer: None,
            standby: self.standby,
        }))
    }

    /// The policy, which keeps traffic from leaving until the child is up again.
    pub(crate) fn hold_policy(&self) -> Command {
        let silent = self.config.failure_shunt == FailureShunt::Drop;
        let mut command = self.install_policy();
        if let Command::InstallPolicy(spec) = &mut command {
            spec.action = PolicyAction::Shunt { silent };
        }
        command
    }

    /// The encapsulation of packets that this end sends by `path`. `udp` if they are to use UDP there. `None` for
    /// plain ESP.
    pub(crate) fn encap_on(path: Path, udp: bool) -> Option<Encapsulation> {
        let ports = EncapPorts { src_port: path.local.port(), dst_port: path.remote.port() };
        match path.transport {
            Transport::Tcp => Some(Encapsulation::Tcp(ports)),
            Transport::UdpEncap if udp => Some(Encapsulation::Udp(ports)),
            Transport::UdpEncap | Transport::Udp => None,
        }
    }

    pub(crate) fn status(&self) -> ChildStatus {
        ChildStatus {
            id: self.id,
            name: self.config.name.clone(),
            config: Arc::clone(&self.config),
            state: match self.phase {
                Phase::Installing => ChildState::Installing,
                Phase::Installed => ChildState::Installed,
                Phase::Rekeyed => ChildState::Rekeyed,
                Phase::Deleting => ChildState::Deleting,
            },
            ours: self.is_ours(),
            mode: self.mode,
            policy: self.policy,
            processing: Arc::clone(&self.processing),
            cpu: self.cpu,
            inbound: self.inbound(),
            outbound: self.outbound(),
            encap: self.encap,
            ppk: self.ppk.clone(),
            algorithms: self.selected.clone(),
            local_ts: self.local_ts.clone(),
            remote_ts: self.remote_ts.clone(),
            installed: self.installed,
            setup_time: self.setup_time,
            rekey_at: self.rekey_at,
            expires_at: self.expires_at,
        }
    }
}
