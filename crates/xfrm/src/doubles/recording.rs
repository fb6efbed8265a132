//! A data plane that remembers.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use ipsec_types::crypto::CipherSuite;
use ipsec_types::dataplane::{
    Capabilities, Command, DataPlane, DataPlaneError, Direction, Encapsulation, Event, Mode,
    PolicyId, PolicySpec, Processing, Reply, SaId, SaSpec, TrafficSelector, Usage,
};

use crate::summary::Summary;

/// An installed SA as [`Recording`] knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedSa {
    /// Direction.
    pub direction: Direction,
    /// Mode.
    pub mode: Mode,
    /// Cipher suite.
    pub suite: CipherSuite,
    /// The policy it serves.
    pub policy: PolicyId,
    /// The CPU it is for; `None` for all.
    pub cpu: Option<u32>,
    /// How packets are treated.
    pub processing: Arc<Processing>,
    /// Encapsulation.
    pub encap: Option<Encapsulation>,
    /// Extended sequence numbers.
    pub esn: bool,
    /// Inner addresses on this host's side.
    pub local_ts: Vec<TrafficSelector>,
    /// Inner addresses on the peer's side.
    pub remote_ts: Vec<TrafficSelector>,
    /// The answer to [`Command::QueryUsage`].
    pub usage: Usage,
    /// Says whether two SAs have the same keys: a hash, different in every process.
    pub key_tag: u64,
}

/// Records commands, without their keys, and keeps tables of what they install. It protects nothing.
#[derive(Debug, Default)]
pub struct Recording {
    commands: Vec<Summary>,
    sas: HashMap<SaId, RecordedSa>,
    policies: BTreeMap<PolicyId, PolicySpec>,
    events: VecDeque<Event>,
    hasher: std::hash::RandomState,
}

impl Recording {
    /// Nothing recorded yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The commands so far, in order.
    pub fn commands(&self) -> &[Summary] {
        &self.commands
    }

    /// Forgets the commands; installed SAs and policies stay.
    pub fn forget(&mut self) {
        self.commands.clear();
    }

    /// The SA `id`, if it is installed.
    pub fn sa(&self, id: SaId) -> Option<&RecordedSa> {
        self.sas.get(&id)
    }

    /// True if the SA `id` is installed.
    pub fn has_sa(&self, id: SaId) -> bool {
        self.sas.contains_key(&id)
    }

    /// Every SA installed, in no order.
    pub fn sas(&self) -> impl Iterator<Item = (SaId, &RecordedSa)> {
        self.sas.iter().map(|(&id, sa)| (id, sa))
    }

    /// The policy `id`, if it is installed.
    pub fn policy(&self, id: PolicyId) -> Option<&PolicySpec> {
        self.policies.get(&id)
    }

    /// Every policy installed, by id.
    pub fn policies(&self) -> impl Iterator<Item = &PolicySpec> {
        self.policies.values()
    }

    /// True if nothing is installed, for a test of an orderly end.
    pub fn is_empty(&self) -> bool {
        self.sas.is_empty() && self.policies.is_empty()
    }

    /// Sets the answer to [`Command::QueryUsage`] for `id`. False if there is no such SA.
    pub fn set_usage(&mut self, id: SaId, usage: Usage) -> bool {
        self.sas.get_mut(&id).map(|sa| sa.usage = usage).is_some()
    }

    /// Queues an event for [`DataPlane::poll_event`].
    pub fn raise(&mut self, event: Event) {
        self.events.push_back(event);
    }

    fn record(&self, spec: SaSpec) -> RecordedSa {
        let key_tag = std::hash::BuildHasher::hash_one(
            &self.hasher,
            (spec.encr_key.expose(), spec.integ_key.expose()),
        );
        let SaSpec { direction, mode, policy, suite, encap, esn, local_ts, remote_ts, .. } = spec;
        let SaSpec { cpu, processing, .. } = spec;
        let usage = Usage::default();
        RecordedSa {
            direction,
            mode,
            policy,
            suite,
            cpu,
            processing,
            encap,
            esn,
            local_ts,
            remote_ts,
            usage,
            key_tag,
        }
    }
}

impl DataPlane for Recording {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            transport_mode: true,
            esn: true,
            plain_esp: true,
            udp_costs_less: false,
            tcp_esp: true,
            iptfs: false,
            per_cpu: false,
            cpus: 0,
            processing: true,
            header_fields: true,
        }
    }

    fn apply(&mut self, command: Command) -> Result<Reply, DataPlaneError> {
        self.commands.push(Summary::of(&command));
        match command {
            Command::InstallSa(spec) => {
                let id = spec.id;
                let mut sa = self.record(*spec);
                if let Some(old) = self.sas.get(&id).filter(|old| old.key_tag == sa.key_tag) {
                    sa.usage = old.usage;
                }
                self.sas.insert(id, sa);
            }
            Command::RemoveSa(id) => _ = self.sas.remove(&id),
            Command::InstallPolicy(spec) => _ = self.policies.insert(spec.id, *spec),
            Command::RemovePolicy(id) => _ = self.policies.remove(&id),
            Command::UpdateSa { id, dst, encap, .. } => {
                let sa = self.sas.remove(&id).ok_or_else(no_such_sa)?;
                // The destination is part of the name.
                let moved = SaId { dst: dst.ip(), ..id };
                self.sas.insert(moved, RecordedSa { encap, ..sa });
            }
            Command::QueryUsage(id) => {
                let sa = self.sas.get(&id).ok_or_else(no_such_sa)?;
                return Ok(Reply::Usage(id, sa.usage));
            }
            Command::PathProbed(..) => {}
            Command::RemoveSas => self.sas.clear(),
            Command::Flush => {
                self.sas.clear();
                self.policies.clear();
            }
        }
        Ok(Reply::Done)
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}

fn no_such_sa() -> DataPlaneError {
    DataPlaneError("no such SA".into())
}
