//! Communication between the shards of a daemon: datagrams that the kernel gave to the wrong shard, messages about
//! another shard's SAs, and reports of the data plane, which the first shard receives.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Arc, LazyLock};

use esp::io::IkeDatagram;
use ike_proto::config::{EndpointConfig, Shard};
use ike_proto::dataplane::{Event, PolicyId};
use ike_proto::{IkeSaId, Notice, Path, Transport};
use tokio::sync::{mpsc, watch};

/// IKE datagrams that may wait for a driver that somebody else has received; a flood beyond it is dropped
/// there.
pub(crate) const WAITING: usize = 1024;

/// An IKE datagram that somebody else received.
#[derive(Debug)]
pub(crate) struct Arrived {
    /// Where from and to.
    pub(crate) path: Path,
    /// Its octets, without a marker.
    pub(crate) octets: Vec<u8>,
}

impl From<IkeDatagram> for Arrived {
    fn from(datagram: IkeDatagram) -> Self {
        let IkeDatagram { local, remote, bytes } = datagram;
        Self { path: Path { local, remote, transport: Transport::UdpEncap }, octets: bytes }
    }
}

/// What a driver hears from another one, beside datagrams.
#[derive(Debug)]
pub(crate) enum News {
    /// About an IKE SA of its own.
    Notice(IkeSaId, Notice),
    /// About its policies or SAs.
    Plane(Event),
    /// The trap of a child of its own is to be installed again.
    Trap { connection: String, child: String, local: IpAddr, remote: IpAddr },
}

/// A shard's lines to and from the others.
pub(crate) struct Lines {
    shard: Shard,
    datagrams: Arc<[mpsc::Sender<Arrived>]>,
    news: Arc<[mpsc::UnboundedSender<News>]>,
    /// Datagrams that others were given.
    pub(crate) handed_over: mpsc::Receiver<Arrived>,
    pub(crate) heard: mpsc::UnboundedReceiver<News>,
    /// How many shards have nothing left to do.
    ended: watch::Sender<u8>,
    /// This one is among them.
    over: bool,
}

impl Lines {
    /// The ends of all `count` shards.
    pub(crate) fn all(count: u8) -> Vec<Self> {
        let shards = || Shard::all(count);
        let (datagrams, ours): (Vec<_>, Vec<_>) = shards().map(|_| mpsc::channel(WAITING)).unzip();
        let (news, heard): (Vec<_>, Vec<_>) = shards().map(|_| mpsc::unbounded_channel()).unzip();
        let (datagrams, news): (Arc<[_]>, Arc<[_]>) = (datagrams.into(), news.into());
        let ended = watch::Sender::new(0);
        let ends = ours.into_iter().zip(heard);
        shards()
            .zip(ends)
            .map(|(shard, (handed_over, heard))| Self {
                shard,
                datagrams: Arc::clone(&datagrams),
                news: Arc::clone(&news),
                handed_over,
                heard,
                ended: ended.clone(),
                over: false,
            })
            .collect()
    }

    /// The shard whose lines these are.
    pub(crate) fn shard(&self) -> Shard {
        self.shard
    }

    /// True if there are others.
    pub(crate) fn several(&self) -> bool {
        self.shard.count > 1
    }

    /// The shard that a message is for, if it is another one.
    pub(crate) fn other(&self, message: &[u8]) -> Option<u8> {
        if !self.several() {
            return None;
        }
        Shard::steer(self.shard.count, message).filter(|index| *index != self.shard.index)
    }

    /// Hands a datagram over. One too many is lost, as the network may; the peer sends it again.
    pub(crate) fn hand_over(&self, to: u8, datagram: Arrived) {
        if let Some(line) = self.datagrams.get(usize::from(to)) {
            let _ = line.try_send(datagram);
        }
    }

    /// Says something of an IKE SA to the shard that has it.
    pub(crate) fn notify(&self, ike: IkeSaId, notice: Notice) {
        self.tell(Shard::of_number(self.shard.count, ike.0), News::Notice(ike, notice));
    }

    /// Has the shard of `connection` install a trap again.
    pub(crate) fn trap(&self, connection: String, child: String, local: IpAddr, remote: IpAddr) {
        let to = home(self.shard.count, &connection);
        self.tell(to, News::Trap { connection, child, local, remote });
    }

    /// Tells other shards of an event of the data plane that may be about theirs. True if it may be about
    /// one of this shard: that is for the caller.
    pub(crate) fn plane_event(&self, event: &Event) -> bool {
        if !self.several() {
            return true;
        }
        let mut ours = false;
        let whose = whose(event);
        for Shard { index, .. } in Shard::all(self.shard.count) {
            match whose {
                Some(other) if other != index => {}
                _ if index == self.shard.index => ours = true,
                _ => self.tell(index, News::Plane(*event)),
            }
        }
        ours
    }

    fn tell(&self, index: u8, news: News) {
        if let Some(line) = self.news.get(usize::from(index)) {
            // It may have ended.
            let _ = line.send(news);
        }
    }

    /// This shard has no SA left and takes no more.
    pub(crate) fn end(&mut self) {
        if !std::mem::replace(&mut self.over, true) {
            self.ended.send_modify(|ended| *ended += 1);
        }
    }

    /// Returns when no shard has anything left to do. Until then each goes on handing over.
    pub(crate) fn all_ended(&self) -> impl Future<Output = ()> + use<> {
        let (mut ended, count) = (self.ended.subscribe(), self.shard.count);
        async move {
            let _ = ended.wait_for(|ended| *ended >= count).await;
        }
    }
}

impl Drop for Lines {
    /// One that has died is not waited for.
    fn drop(&mut self) {
        self.end();
    }
}

/// The shard that an event is about: it is in the number of a policy, and in the SPI of an inbound SA. An
/// SA that expires is named by either end's SPI, so that all have to look.
fn whose(event: &Event) -> Option<u8> {
    match event {
        Event::Acquire { policy: PolicyId(number), .. } => {
            Some(u8::try_from(number >> 24 & 0xff).unwrap_or_default())
        }
        Event::Mapping { sa, .. } | Event::FirstPacket(sa) => {
            let [index, ..] = sa.spi.to_be_bytes();
            Some(index)
        }
        // The first one says so for all.
        Event::UnknownSpi { .. } => Some(0),
        Event::SoftExpire(_) | Event::HardExpire(_) | Event::ProbePath { .. } => None,
    }
}

/// Without what is outdated: a peer whose packets come from many addresses in turn has reported only where
/// the last one came from.
pub(crate) fn newest_mappings(mut events: Vec<Event>) -> impl Iterator<Item = Event> {
    let mut mapped = HashSet::new();
    events.reverse();
    events.retain(|event| match event {
        Event::Mapping { sa, .. } => mapped.insert(*sa),
        _ => true,
    });
    events.into_iter().rev()
}

/// The shard on which `connection` is begun, where no other one has an IKE SA of it. It is drawn anew with
/// each start: many hosts with one configuration are not all to come from one shard, for the SPIs of that
/// would bring them to one shard of a peer, too.
pub(crate) fn home(count: u8, connection: &str) -> u8 {
    static DRAWN: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    Shard::of_number(count, DRAWN.hash_one(connection))
}

/// `config` for one shard: of what is counted or held in all, it gets its part. Limits for one address hold
/// on each, since a shard does not know what others have of it.
pub(crate) fn part(config: &EndpointConfig, shard: Shard) -> EndpointConfig {
    let share = |all: u32| all.div_ceil(shard.count.max(1).into());
    EndpointConfig {
        shard,
        cookie_threshold: share(config.cookie_threshold),
        init_limit_half_open: share(config.init_limit_half_open),
        reassembly_memory: config.reassembly_memory / usize::from(shard.count.max(1)),
        ..config.clone()
    }
}

#[cfg(test)]
mod tests {
    use ike_proto::dataplane::SaId;

    use super::*;

    #[test]
    fn what_is_configured_for_all_is_divided() {
        let mut config = EndpointConfig { init_limit_half_open: 0, ..EndpointConfig::default() };
        let shard = Shard { index: 2, count: 4 };
        let one = part(&config, shard);
        assert_eq!((one.shard, one.cookie_threshold, one.init_limit_half_open), (shard, 8, 0));
        assert_eq!(one.reassembly_memory, config.reassembly_memory / 4);
        assert_eq!(one.block_threshold, config.block_threshold);
        // "Always" stays always, "never" never.
        for threshold in [0, 1] {
            config.cookie_threshold = threshold;
            assert_eq!(part(&config, shard).cookie_threshold, threshold);
        }
        assert_eq!(part(&config, Shard::default()).cookie_threshold, 1);
    }

    #[tokio::test]
    async fn a_shard_that_has_died_is_not_waited_for() {
        let mut all = Lines::all(3);
        let ended = all[0].all_ended();
        let mut ended = std::pin::pin!(ended);
        let mut over = async || {
            let limit = std::time::Duration::from_millis(1);
            tokio::time::timeout(limit, &mut ended).await.is_ok()
        };
        all[0].end();
        all[0].end();
        drop(all.pop());
        assert!(!over().await, "one is left");
        drop(all.pop());
        assert!(over().await);
    }

    #[test]
    fn events_go_to_whom_they_are_about() {
        let sa = |spi| SaId { spi, dst: "192.0.2.1".parse().unwrap() };
        let mapping =
            |spi, port| Event::Mapping { sa: sa(spi), remote: ([192, 0, 2, 9], port).into() };
        let mut all = Lines::all(3);
        let mut heard = |event: Event| {
            let ours = all[0].plane_event(&event);
            let told = all.iter_mut().map(|lines| lines.heard.try_recv().is_ok());
            (ours, told.collect::<Vec<_>>())
        };
        // What is this shard's own does not go by the line.
        assert_eq!(heard(mapping(0x0012_3456, 1)), (true, vec![false; 3]));
        assert_eq!(heard(mapping(0x0212_3456, 1)), (false, vec![false, false, true]));
        assert_eq!(heard(Event::FirstPacket(sa(0x0100_0001))), (false, vec![false, true, false]));
        assert_eq!(heard(Event::SoftExpire(sa(0x0100_0001))), (true, vec![false, true, true]));
        assert_eq!(heard(mapping(0xff00_0001, 1)), (false, vec![false; 3]), "nobody's");
        let (local, remote) = ("192.0.2.1".parse().unwrap(), ([192, 0, 2, 9], 0).into());
        let unknown = Event::UnknownSpi { spi: 0x0200_0001, local, remote, octets: 100 };
        assert_eq!(heard(unknown), (true, vec![false; 3]), "one says so, whose it may have been");
        assert!(Lines::all(1)[0].plane_event(&mapping(0xff00_0001, 1)), "one shard looks itself");
        let events = vec![
            mapping(1, 1),
            Event::FirstPacket(sa(1)),
            mapping(2, 7),
            mapping(1, 2),
            Event::FirstPacket(sa(1)),
            mapping(1, 3),
        ];
        let left: Vec<_> = newest_mappings(events.clone()).collect();
        assert_eq!(left, [events[1], events[2], events[4], events[5]]);
    }

    #[test]
    fn a_connection_stays_at_home() {
        for count in [1, 2, 7] {
            let homes: Vec<_> = (0..512).map(|n| home(count, &format!("site-{n}"))).collect();
            assert_eq!(homes[7], home(count, "site-7"));
            assert!(homes.iter().all(|index| *index < count));
            assert!((0..count).all(|index| homes.contains(&index)), "all have some of them");
        }
    }
}
