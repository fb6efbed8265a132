//! One endpoint, its data plane, and what it said.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::time::{Duration, SystemTime};

use ike_proto::config::Shard;
use ike_proto::crypto::SignatureScheme;
use ike_proto::{
    Answer, ChildSaId, ChildState, ChildStatus, DropReason, EapAnswer, EapMessage, Endpoint, Event,
    Failure, IkeSaId, IkeState, IkeStatus, LeaseRequest, OwnedCert, RequestId,
};

use pki::Answerer;

use crate::cheap::Signer;
use crate::digest::Digest;
use crate::machine::{Clock, Frozen};
use crate::plane::Plane;

/// Answers a question for addresses.
pub type Leaser = Box<dyn FnMut(&LeaseRequest) -> Answer>;

/// One endpoint of a [`World`](crate::World).
pub struct Host {
    /// The engine.
    pub endpoint: Endpoint,
    /// Its data plane.
    pub plane: Plane,
    /// Its keys and certificates.
    pub answerer: Answerer,
    /// Answers in the place of `answerer`, if there is one.
    pub signer: Option<Signer>,
    /// What it can fetch by hash and URL: DER certificates and bundles.
    pub web: Vec<Vec<u8>>,
    /// Gives addresses to peers.
    pub leaser: Option<Leaser>,
    /// What does EAP, if anything does.
    pub eap: Option<Box<dyn FnMut(EapMessage) -> EapAnswer>>,
    /// How long its answers take; `None` takes for ever.
    pub answer_delay: Option<Duration>,
    /// How long its slow key exchanges take; `None` takes for ever.
    pub exchange_delay: Option<Duration>,
    /// Random times up to `exchange_delay` in its place.
    pub exchanges_vary: bool,
    /// What becomes of the next ones, before that.
    pub exchange_fates: VecDeque<ExchangeFate>,
    /// Slow key exchanges asked for.
    pub exchanges: usize,
    /// What its keys signed, in order.
    pub signed: Vec<SignedRecord>,
    /// What was asked, in order.
    pub asked: Vec<&'static str>,
    /// Events but for [`Event::Dropped`], with their times.
    pub log: Vec<(Duration, Event)>,
    /// Reasons of dropped datagrams, in order.
    pub dropped: Vec<DropReason>,
    /// Of its outputs.
    pub(crate) digest: Digest,
    /// When the engine wants to be woken.
    pub(crate) wake: Option<Duration>,
    /// Batches not applied yet.
    pub(crate) batches: usize,
    /// DSCPs of what it has sent.
    pub codepoints: BTreeSet<u8>,
    /// Messages, fragments and retransmissions sent; keepalives are not among them.
    pub sent: u64,
    /// Octets of their IKE messages.
    pub sent_octets: u64,
    /// Octets of the IP packets that carried them.
    pub sent_ip_octets: u64,
    /// NAT keepalives sent.
    pub keepalives: u64,
    /// Its clocks.
    pub clock: Clock,
    /// The machine it runs on. The shards of one machine share a number.
    pub machine: usize,
    /// Notices to other shards of the machine.
    pub notices: u64,
    /// While the signer's certificates are valid, by the host's own wall clock; `None` is always.
    pub validity: Option<Range<SystemTime>>,
    /// Which of several endpoints of the machine this is.
    pub(crate) shard: Shard,
    /// Set while it is suspended.
    pub(crate) frozen: Option<Frozen>,
}

/// What becomes of a slow key exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExchangeFate {
    /// It takes so long.
    After(Duration),
    /// It never ends.
    Never,
    /// It breaks off at once.
    Broken,
}

/// One signature of an AUTH payload.
#[derive(Debug, Clone)]
pub struct SignedRecord {
    /// InitiatorSignedOctets or ResponderSignedOctets.
    pub octets: Vec<u8>,
    /// The scheme.
    pub scheme: SignatureScheme,
    /// The signature, in the form of X.509.
    pub signature: Vec<u8>,
    /// The CERT payloads that went along, the own certificate first.
    pub certs: Vec<OwnedCert>,
}

impl Host {
    pub(crate) fn new(endpoint: Endpoint, plane: Plane, machine: usize) -> Self {
        let shard = endpoint.config().shard;
        Self {
            endpoint,
            plane,
            answerer: Answerer::default(),
            signer: None,
            web: Vec::new(),
            leaser: None,
            eap: None,
            answer_delay: Some(Duration::ZERO),
            exchange_delay: Some(Duration::ZERO),
            exchanges_vary: false,
            exchange_fates: VecDeque::new(),
            exchanges: 0,
            signed: Vec::new(),
            asked: Vec::new(),
            log: Vec::new(),
            dropped: Vec::new(),
            digest: Digest::new(),
            wake: None,
            batches: 0,
            codepoints: BTreeSet::new(),
            sent: 0,
            sent_octets: 0,
            sent_ip_octets: 0,
            keepalives: 0,
            clock: Clock::default(),
            machine,
            notices: 0,
            validity: None,
            shard,
            frozen: None,
        }
    }

    /// When this host's engine acts by itself next.
    pub fn wake(&self) -> Option<Duration> {
        self.wake
    }

    /// Every IKE SA and attempt.
    pub fn ikes(&self) -> Vec<IkeStatus> {
        self.endpoint.ike_sas()
    }

    /// The IKE SAs in this state.
    pub fn ikes_in(&self, state: IkeState) -> Vec<IkeStatus> {
        self.ikes().into_iter().filter(|ike| ike.state == state).collect()
    }

    /// The one established IKE SA.
    ///
    /// # Panics
    ///
    /// If there is none, or more than one.
    #[track_caller]
    pub fn ike(&self) -> IkeStatus {
        let mut ikes = self.ikes_in(IkeState::Established);
        assert_eq!(ikes.len(), 1, "IKE SAs established: {ikes:#?}");
        ikes.remove(0)
    }

    /// Every child of every IKE SA.
    pub fn children(&self) -> Vec<ChildStatus> {
        self.ikes().into_iter().flat_map(|ike| ike.children).collect()
    }

    /// The one child in use.
    ///
    /// # Panics
    ///
    /// If there is none, or more than one.
    #[track_caller]
    pub fn child(&self) -> ChildStatus {
        let mut children = self.children_up();
        assert_eq!(children.len(), 1, "children in use: {children:#?}");
        children.remove(0)
    }

    /// The children in use.
    pub fn children_up(&self) -> Vec<ChildStatus> {
        self.children().into_iter().filter(|child| child.state == ChildState::Installed).collect()
    }

    /// How the command `request` ended, if it did.
    pub fn done(&self, request: RequestId) -> Option<Result<(), Failure>> {
        self.log.iter().find_map(|(_, event)| match event {
            Event::Done(other, result) if *other == request => Some(result.clone()),
            _ => None,
        })
    }

    /// Events chosen and changed by `f`, in order.
    pub fn events<T>(&self, f: impl Fn(&Event) -> Option<T>) -> Vec<T> {
        self.log.iter().filter_map(|(_, event)| f(event)).collect()
    }

    /// Why IKE SAs and attempts ended, in order.
    pub fn ike_downs(&self) -> Vec<(IkeSaId, Failure)> {
        self.events(|event| match event {
            Event::IkeDown { ike, reason, .. } => Some((*ike, reason.clone())),
            _ => None,
        })
    }

    /// Why children ended, in order.
    pub fn child_downs(&self) -> Vec<(ChildSaId, Failure)> {
        self.events(|event| match event {
            Event::ChildDown { child, reason, .. } => Some((*child, reason.clone())),
            _ => None,
        })
    }

    /// Why children could not be made or rekeyed, in order.
    pub fn child_failures(&self) -> Vec<Failure> {
        self.events(|event| match event {
            Event::ChildFailed { reason, .. } => Some(reason.clone()),
            _ => None,
        })
    }

    /// Children rekeyed, old and new, in order.
    pub fn child_rekeys(&self) -> Vec<(ChildSaId, ChildSaId)> {
        self.events(|event| match event {
            Event::ChildRekeyed { old, new, .. } => Some((*old, *new)),
            _ => None,
        })
    }

    /// IKE SAs rekeyed, old and new, in order.
    pub fn ike_rekeys(&self) -> Vec<(IkeSaId, IkeSaId)> {
        self.events(|event| match event {
            Event::IkeRekeyed { old, new } => Some((*old, *new)),
            _ => None,
        })
    }
}
