//! One endpoint on a bench, and a hand-made peer that it takes for host B.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ike_proto::crypto::CryptoProvider;
use ike_proto::wire::payload::{IdData, Notify, Payload, Spi, TrafficSelector};
use ike_proto::wire::registry::{ExchangeType, NotifyType, ProtocolId};
use ike_proto::{Command, RequestId};

use crate::cheap;
use crate::handmade::{ESP, Handmade, Started, proposal};
use crate::host::Host;
use crate::network::Packet;
use crate::setup::{Side, address, identity, side};
use crate::world::World;

/// The pre-shared key of hosts A and B.
pub const PSK: &[u8] = b"secret of 1 and 2";

/// Host A, in a world without anybody else.
pub struct Bench {
    /// The world. Its network is manual.
    pub world: World,
    crypto: Arc<CryptoProvider>,
    next_seed: u64,
}

impl Bench {
    /// Host A of the usual setup.
    pub fn new() -> Self {
        Self::with(side(1, 2))
    }

    /// The endpoint that `side` describes.
    pub fn with(side: Side) -> Self {
        let mut world = World::new(1);
        world.net.manual = true;
        world.net.tracing = false;
        let (config, crypto) = (side.config(), Arc::clone(&side.crypto));
        world.add(side.address, config, side.crypto, side.plane);
        world.hosts[0].answerer = side.answerer;
        Self { world, crypto, next_seed: 1000 }
    }

    /// The endpoint and its data plane.
    pub fn host(&self) -> &Host {
        &self.world.hosts[0]
    }

    /// Hands the endpoint a datagram from the peer's port 500, and returns what it sends then.
    pub fn give(&mut self, octets: &[u8]) -> Vec<Vec<u8>> {
        self.give_from(SocketAddr::new(address(2), 500), octets)
    }

    /// The same from another address.
    pub fn give_from(&mut self, src: SocketAddr, octets: &[u8]) -> Vec<Vec<u8>> {
        let dst = SocketAddr::new(address(1), 500);
        self.world.inject(Packet::forged(src, dst, octets));
        self.sent()
    }

    /// What the endpoint has sent since this was asked last.
    pub fn sent(&mut self) -> Vec<Vec<u8>> {
        self.world.net.mailbox.drain(..).map(|packet| packet.octets.to_vec()).collect()
    }

    /// Tells the endpoint to initiate towards the peer, and returns its IKE_SA_INIT request.
    pub fn initiate(&mut self) -> (RequestId, Vec<u8>) {
        let request = self.world.command(0, initiate());
        (request, self.sent().remove(0))
    }

    /// The same, and a peer who has answered: its response is not given to the endpoint yet.
    ///
    /// # Panics
    ///
    /// If the request cannot be answered.
    pub fn initiate_to_peer(&mut self) -> (RequestId, Handmade) {
        let (request, init) = self.initiate();
        let seed = self.seed();
        let peer = Handmade::answer(&cheap::provider(), &init, seed);
        (request, peer.expect("IKE_SA_INIT that can be answered"))
    }

    /// A number never given before, to seed a peer with.
    pub fn seed(&mut self) -> u64 {
        self.next_seed += 1;
        self.next_seed
    }

    /// A peer about to send IKE_SA_INIT.
    pub fn start(&mut self) -> Started {
        let seed = self.seed();
        Started::new(Arc::clone(&self.crypto), seed)
    }

    /// The same, with NAT detection that finds none.
    pub fn start_with_nat_detection(&mut self) -> Started {
        let mut started = self.start();
        let hash = |n| {
            let octets = match address(n) {
                IpAddr::V4(address) => address.octets().to_vec(),
                IpAddr::V6(address) => address.octets().to_vec(),
            };
            let spi = started.spi_i.to_be_bytes();
            (self.crypto.sha1)(&[&spi, &[0; 8], &octets, &500_u16.to_be_bytes()])
        };
        let (source, destination) = (hash(2), hash(1));
        let mut payloads = started.payloads();
        for (kind, hash) in [
            (NotifyType::NAT_DETECTION_SOURCE_IP, &source),
            (NotifyType::NAT_DETECTION_DESTINATION_IP, &destination),
        ] {
            payloads.push(Payload::Notify(Notify::new(kind, hash)));
        }
        started.request = started.encode(&payloads);
        started
    }

    /// A peer whose IKE_SA_INIT request was answered: a half-open SA.
    ///
    /// # Panics
    ///
    /// If it was not answered so.
    #[track_caller]
    pub fn half_open(&mut self) -> Handmade {
        let started = self.start();
        let sent = self.give(&started.request);
        assert_eq!(sent.len(), 1, "dropped: {:?}", self.host().dropped);
        started.finish(&sent[0]).expect("an SA in the response")
    }

    /// A peer that has established an IKE SA with a child of the ESP SPI `spi`, as initiator.
    ///
    /// # Panics
    ///
    /// If it was refused.
    #[track_caller]
    pub fn established(&mut self, spi: u32) -> Handmade {
        let mut peer = self.half_open();
        let auth = peer.auth(&identity(2), PSK);
        let id = identity(2);
        let request =
            peer.next_request(ExchangeType::IKE_AUTH, &auth_payloads(&id, &auth, spi, true));
        let sent = self.give(&request);
        assert_eq!(sent.len(), 1, "dropped: {:?}", self.host().dropped);
        assert!(peer.open(&sent[0]).is_some(), "sealed for the peer");
        self.host().ike();
        peer
    }

    /// A peer that answers the endpoint's attempt, as far as IKE_SA_INIT; and the endpoint's IKE_AUTH
    /// request.
    ///
    /// # Panics
    ///
    /// If the endpoint does not take the answer.
    #[track_caller]
    pub fn answering(&mut self) -> (RequestId, Handmade, Vec<u8>) {
        let (request, init) = self.initiate();
        let seed = self.seed();
        let peer = Handmade::answer(&self.crypto, &init, seed).expect("a request to answer");
        let sent = self.give(&peer.response.clone());
        assert_eq!(sent.len(), 1, "dropped: {:?}", self.host().dropped);
        (request, peer, sent.into_iter().next().unwrap_or_default())
    }

    /// A peer that has answered the endpoint's attempt to the end: an IKE SA with the child "net", of
    /// which the endpoint is the initiator.
    ///
    /// # Panics
    ///
    /// If the endpoint does not take the answers.
    #[track_caller]
    pub fn answered(&mut self, spi: u32) -> Handmade {
        let (request, mut peer, _) = self.answering();
        let (id, auth) = (identity(2), peer.auth(&identity(2), PSK));
        let payloads = auth_payloads(&id, &auth, spi, false);
        let response = peer.seal(ExchangeType::IKE_AUTH, 1, true, &payloads);
        assert_eq!(self.give(&response).len(), 0);
        assert_eq!(self.host().done(request), Some(Ok(())), "dropped: {:?}", self.host().dropped);
        self.host().child();
        peer
    }

    /// Asserts that the data plane holds the SAs of the children and no others. For moments without
    /// lingering SAs.
    ///
    /// # Panics
    ///
    /// If not.
    #[track_caller]
    pub fn assert_nothing_leaked(&self) {
        let host = self.host();
        let mut wanted: Vec<_> = host.children().iter().map(|child| child.inbound.spi).collect();
        wanted.sort_unstable();
        assert_eq!(host.plane.inbound_spis(), wanted, "inbound SAs and children");
        let mut wanted: Vec<_> = host.children().iter().map(|child| child.outbound.spi).collect();
        wanted.sort_unstable();
        assert_eq!(host.plane.outbound_spis(), wanted, "outbound SAs and children");
        assert_eq!(host.plane.routes().len(), wanted.len(), "policies and children");
    }
}

impl Default for Bench {
    fn default() -> Self {
        Self::new()
    }
}

/// The payloads of a good IKE_AUTH request or response of host B: ID, AUTH, SA, TSi, TSr. An SPI below
/// 256 is refused (RFC 4303 §2.1).
pub fn auth_payloads<'a>(
    id: &'a IdData,
    auth: &'a [u8],
    spi: u32,
    initiator: bool,
) -> Vec<Payload<'a>> {
    let [ours, theirs] = [net(2), net(1)];
    let (id, ts_i, ts_r) = if initiator {
        (Payload::IdI(id.as_id()), ours, theirs)
    } else {
        (Payload::IdR(id.as_id()), theirs, ours)
    };
    vec![
        id,
        Handmade::auth_payload(auth),
        Payload::Sa(proposal(ProtocolId::ESP, ESP, Spi::Esp(spi))),
        Payload::TsI(vec![ts_i]),
        Payload::TsR(vec![ts_r]),
    ]
}

/// The network behind host `n`.
///
/// # Panics
///
/// Never.
pub fn net(n: u8) -> TrafficSelector {
    TrafficSelector::from_cidr([10, n, 0, 0].into(), 16).expect("a prefix of 16 bits")
}

/// The command for host A to bring up "net" with host B.
pub fn initiate() -> Command {
    Command::Initiate {
        connection: "ab".to_owned(),
        child: Some("net".to_owned()),
        local: address(1),
        remote: address(2),
        packet: None,
    }
}
