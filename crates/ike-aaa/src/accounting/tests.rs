use super::*;
use std::collections::HashSet;
use std::net::{SocketAddr, UdpSocket as StdSocket};

use ::eap::accounting::attribute;
use ::eap::radius::attribute as common;
use ike_proto::Failure;
use ike_proto::crypto::Secret;
use ike_proto::dataplane::{Capabilities, Command, DataPlane, DataPlaneError, Reply};

use crate::radius::EXCHANGES;
use ike_config::{RadiusOptions, RadiusServer};

fn account(server: &StdSocket, interval: Option<Duration>) -> Arc<Account> {
    of(radius(server.local_addr().expect("an address"), interval, 100))
}

fn radius(address: SocketAddr, interval: Option<Duration>, millis: u64) -> Arc<RadiusClient> {
    let options = AccountingConfig {
        interval,
        close_on_timeout: true,
        requires_vip: false,
        send_class: false,
    };
    Arc::new(RadiusClient::new(RadiusOptions {
        servers: vec![RadiusServer {
            name: "test".to_owned(),
            address,
            accounting: address,
            secret: Secret::copy_from(b"shared"),
            nas_identifier: "gw".to_owned(),
        }],
        retransmit_tries: 1,
        retransmit_timeout: Duration::from_millis(millis),
        retransmit_base: 1.0,
        accounting: Some(options),
        ..RadiusOptions::default()
    }))
}

fn of(radius: Arc<RadiusClient>) -> Arc<Account> {
    let options = radius.options.accounting.clone();
    Arc::new(Account {
        ike: AtomicU64::new(7),
        id: "1-7".to_owned(),
        radius,
        options,
        attributes: vec![(common::USER_NAME, b"carol".to_vec())],
        begun: Instant::now(),
        totals: Mutex::default(),
        sas: Mutex::default(),
        ending: AtomicBool::new(false),
    })
}

/// The value of an attribute of a request, as a number.
fn number(request: &[u8], kind: u8) -> Option<u32> {
    let mut rest = request.get(20..)?;
    while let [this, len, ..] = *rest {
        let (attribute, after) = rest.split_at_checked(len.into())?;
        if this == kind {
            return Some(u32::from_be_bytes(attribute.get(2..)?.try_into().ok()?));
        }
        rest = after;
    }
    None
}

fn answer(request: &[u8], secret: &[u8]) -> Vec<u8> {
    use md5::{Digest, Md5};
    let head = [5, request[1], 0, 20];
    let digest = Md5::digest([&head[..], &request[4..20], secret].concat());
    [&head[..], &digest].concat()
}

fn install(accounting: &Accounting, account: &Arc<Account>, id: SaId, way: usize) {
    let tracked = Tracked { account: Arc::clone(account), way, seen: Usage::default() };
    lock(&account.sas).insert(id);
    lock(&accounting.0.sas).insert(id, tracked);
}

#[tokio::test]
async fn a_session_is_told_from_its_beginning_to_its_end() {
    let server = StdSocket::bind("127.0.0.1:0").expect("a socket");
    let account = account(&server, Some(Duration::from_millis(50)));
    let (accounting, mut close) = Accounting::new();
    let (heard, mut hears) = mpsc::unbounded_channel();
    let requests = std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        let mut all = Vec::new();
        loop {
            let (len, from) = server.recv_from(&mut buffer).expect("a request");
            let request = buffer[..len].to_vec();
            // What is not signed by the secret is no answer.
            server.send_to(&answer(&request, b"other"), from).expect("sent");
            server.send_to(&answer(&request, b"shared"), from).expect("sent");
            let status = number(&request, attribute::STATUS_TYPE);
            let last = status == Some(2);
            let _ = heard.send(status);
            all.push(request);
            if last {
                return all;
            }
        }
    });
    let sa = |spi| SaId { spi, dst: [192, 0, 2, 1].into() };
    let usage = |bytes| Usage { bytes, packets: bytes / 100, ..Usage::default() };
    install(&accounting, &account, sa(1), 0);
    install(&accounting, &account, sa(2), 1);
    accounting.seen(&[sa(1), sa(2)], vec![usage(1000), usage(5_000_000_000)]);
    // It has moved, and counts on; then a rekey has another in its place.
    accounting.moved(&[(sa(1), sa(11))]);
    let own: HashSet<SaId> = Accounting::sas_of(&account).into_iter().collect();
    assert_eq!(own, [sa(2), sa(11)].into());
    accounting.seen(&[sa(11)], vec![Usage::default()]);
    accounting.seen(&[sa(11)], vec![usage(1500)]);
    lock(&accounting.0.sas).remove(&sa(11));
    install(&accounting, &account, sa(3), 0);
    accounting.seen(&[sa(3)], vec![usage(200)]);

    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn({
        let (accounting, account) = (accounting.clone(), Arc::clone(&account));
        async move { accounting.keep(&account, stopped).await }
    });
    // An update, however slow this machine is.
    while hears.recv().await.expect("a server") != Some(3) {}
    stop.send(Cause::IdleTimeout).expect("it listens");
    task.await.expect("it ends");
    let requests = requests.join().expect("no panic");
    let status: Vec<_> =
        requests.iter().filter_map(|one| number(one, attribute::STATUS_TYPE)).collect();
    assert_eq!((status.first(), status.last()), (Some(&1), Some(&2)));
    assert!(status.len() > 2 && status[1..status.len() - 1].iter().all(|one| *one == 3));
    let (first, last) = (&requests[0], &requests[requests.len() - 1]);
    assert_eq!(number(first, attribute::INPUT_OCTETS), None);
    assert_eq!(number(last, attribute::INPUT_OCTETS), Some(1700));
    assert_eq!(number(last, attribute::INPUT_PACKETS), Some(17));
    assert_eq!(number(last, attribute::OUTPUT_GIGAWORDS), Some(1));
    assert_eq!(number(last, attribute::OUTPUT_OCTETS), Some(705_032_704));
    assert_eq!(number(last, attribute::TERMINATE_CAUSE), Some(4));
    assert!(requests.iter().all(|one| one.windows(5).any(|part| part == b"\x2c\x051-7")));
    assert!(close.try_recv().is_err(), "it was heard");
}

#[tokio::test]
async fn an_ike_sa_that_no_server_hears_of_is_to_end() {
    let server = StdSocket::bind("127.0.0.1:0").expect("a socket");
    let account = account(&server, None);
    let (accounting, mut close) = Accounting::new();
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn({
        let accounting = accounting.clone();
        async move { accounting.keep(&account, stopped).await }
    });
    assert_eq!(close.recv().await.map(|Unheard(account)| account.ike()), Some(IkeSaId(7)));
    drop(stop);
    task.await.expect("it ends");
    server.set_nonblocking(true).expect("a socket");
    let (mut buffer, mut causes) = ([0; 4096], Vec::new());
    while let Ok(len) = server.recv(&mut buffer) {
        causes.push(number(&buffer[..len], attribute::TERMINATE_CAUSE));
    }
    // Twice each; the daemon's end is the last word.
    assert_eq!(causes, [None, None, Some(11), Some(11)]);
}

#[test]
fn causes_are_those_of_the_rfc() {
    let all = [
        (Failure::DeletedByPeer, 1),
        (Failure::Timeout, 3),
        (Failure::LostByPeer, 3),
        (Failure::Inactive, 4),
        (Failure::Expired, 5),
        (Failure::Terminated, 6),
        (Failure::Crypto, 9),
        (Failure::Replaced, 1),
    ];
    for (reason, cause) in all {
        assert_eq!(Cause::of(&reason) as u64, cause, "{reason:?}");
    }
}

/// However many sessions have something to tell a server that is silent, logins have half of the sockets; who gives
/// up makes room for one that waits.
#[tokio::test]
async fn sessions_wait_for_sockets_and_leave_some_to_logins() {
    let server = StdSocket::bind("127.0.0.1:0").expect("a socket");
    let radius = radius(server.local_addr().expect("an address"), None, 60_000);
    server.set_nonblocking(true).expect("a socket");
    let server = tokio::net::UdpSocket::from_std(server).expect("a socket");
    let tasks: Vec<_> = (0..EXCHANGES)
        .map(|_| {
            let account = of(Arc::clone(&radius));
            tokio::spawn(async move { account.tell(Status::Stop, Some(Cause::UserRequest)).await })
        })
        .collect();
    // Requests and not ports: a socket may get the port of one that is gone. None is sent twice so soon.
    let mut requests = 0;
    let mut listen = async || {
        let mut buffer = [0; 4096];
        let wait = Duration::from_millis(300);
        while let Ok(heard) = tokio::time::timeout(wait, server.recv_from(&mut buffer)).await {
            heard.expect("a request");
            requests += 1;
        }
        requests
    };
    assert_eq!(listen().await, EXCHANGES / 2);
    tasks.iter().take(20).for_each(|task| task.abort());
    assert_eq!(listen().await, EXCHANGES / 2 + 20);
    tasks.iter().for_each(|task| task.abort());
}

#[tokio::test]
async fn a_session_does_not_end_because_this_machine_cannot_send() {
    // The socket may not broadcast.
    let nowhere = SocketAddr::from(([255, 255, 255, 255], 1813));
    let account = of(radius(nowhere, None, 20));
    let (accounting, mut close) = Accounting::new();
    let (_stop, stopped) = oneshot::channel();
    let task = tokio::spawn(async move { accounting.keep(&account, stopped).await });
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(close.try_recv().is_err());
    assert!(!task.is_finished());
    task.abort();
}

#[tokio::test]
async fn a_session_is_closed_under_the_name_that_it_has_by_now() {
    let server = StdSocket::bind("127.0.0.1:0").expect("a socket");
    let account = account(&server, None);
    let (accounting, _close) = Accounting::new();
    let (stop, _stopped) = oneshot::channel();
    lock(&accounting.0.sessions).insert(IkeSaId(7), (Arc::clone(&account), stop));
    let asked = Mutex::new(Vec::new());
    let down = async |ike| {
        lock(&asked).push(ike);
        if ike == IkeSaId(7) {
            // A rekey was before it.
            let mut sessions = lock(&accounting.0.sessions);
            let session = sessions.remove(&ike).expect("a session");
            account.ike.store(8, Ordering::Relaxed);
            sessions.insert(IkeSaId(8), session);
            return false;
        }
        lock(&accounting.0.sessions).remove(&ike);
        true
    };
    accounting.close(Unheard(Arc::clone(&account)), down).await;
    assert_eq!(*lock(&asked), [IkeSaId(7), IkeSaId(8)]);
    // What is over needs no end.
    accounting.close(Unheard(Arc::clone(&account)), async |_| panic!("it is over")).await;
}

/// A data plane whose SAs have these counters.
struct Counters(HashMap<SaId, Usage>);

impl DataPlane for Counters {
    fn capabilities(&self) -> Capabilities {
        NoPlane::CAPABILITIES
    }

    fn apply(&mut self, command: Command) -> Result<Reply, DataPlaneError> {
        let absent = || DataPlaneError("no such SA".to_owned());
        match command {
            Command::QueryUsage(id) => {
                self.0.get(&id).map(|usage| Reply::Usage(id, *usage)).ok_or_else(absent)
            }
            Command::RemoveSa(id) => self.0.remove(&id).map(|_| Reply::Done).ok_or_else(absent),
            Command::UpdateSa { id, dst, .. } => {
                let usage = self.0.remove(&id).ok_or_else(absent)?;
                self.0.insert(SaId { dst: dst.ip(), ..id }, usage);
                Ok(Reply::Done)
            }
            _ => Ok(Reply::Done),
        }
    }

    fn poll_event(&mut self) -> Option<ike_proto::dataplane::Event> {
        None
    }
}

/// Fault: in `Accounted::apply`, leave out `last_words`, or tell `moved` before the data plane has moved the SA.
#[tokio::test]
async fn an_sa_counts_until_it_is_removed_wherever_it_has_moved() {
    let (accounting, _unheard) = Accounting::new();
    let account = of(radius(SocketAddr::from(([127, 0, 0, 1], 9)), None, 1));
    let sa = |spi, last: u8| SaId { spi, dst: [192, 0, 2, last].into() };
    let usage = |bytes| Usage { bytes, packets: 1, ..Usage::default() };
    install(&accounting, &account, sa(1, 1), 0);
    install(&accounting, &account, sa(2, 1), 1);
    let counters = [(sa(1, 1), usage(1000)), (sa(2, 1), usage(30)), (sa(3, 1), usage(7))];
    let mut plane = Accounted::new(Box::new(Counters(HashMap::from(counters))), accounting.clone());
    let to = |last: u8| SocketAddr::from(([192, 0, 2, last], 4500));
    let update = |id| Command::UpdateSa { id, src: to(9), dst: to(2), encap: None };

    assert!(plane.apply(update(sa(1, 1))).is_ok());
    assert!(plane.apply(update(sa(2, 7))).is_err(), "no such SA");
    let known = || {
        let mut known: Vec<_> = Accounting::sas_of(&account).into_iter().collect();
        known.sort_by_key(|id| id.spi);
        known
    };
    assert_eq!(known(), [sa(1, 2), sa(2, 1)]);
    for id in [sa(1, 2), sa(2, 1), sa(3, 1)] {
        assert!(plane.apply(Command::RemoveSa(id)).is_ok());
    }
    assert_eq!(lock(&account.totals).octets, [1000, 30], "not those of another session's SA");
    assert_eq!(known(), []);
    assert!(lock(&accounting.0.sas).is_empty());
}
