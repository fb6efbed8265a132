//! The VICI socket, spoken to segment by segment.

use std::path::PathBuf;
use std::time::Duration;

use ike_control::vici::ViciSocket;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use vici::{Packet, Section, Value};

use crate::common::{Carrier, Pair, tempdir};

/// A pair of daemons, the left one with a VICI socket.
pub async fn serve(name: &str) -> (Pair, PathBuf) {
    let mut pair = Pair::start(Carrier::None, "", "").await;
    let path = tempdir(name).join("charon.vici");
    pair.left.serve_vici(ViciSocket::bind(&path).expect("the socket works"), None);
    (pair, path)
}

pub struct Client(UnixStream);

impl Client {
    pub async fn connect(path: &PathBuf) -> Self {
        Self(UnixStream::connect(path).await.expect("the socket works"))
    }

    pub async fn send(&mut self, packet: &Packet) {
        self.0.write_all(&packet.encode().expect("a packet")).await.expect("the socket works");
    }

    /// `None` if the daemon has closed the connection.
    pub async fn receive(&mut self) -> Option<Packet> {
        let segment = async {
            let len = self.0.read_u32().await.ok()?;
            let mut segment = vec![0; len as usize];
            self.0.read_exact(&mut segment).await.ok()?;
            Some(Packet::decode(&segment).expect("a packet"))
        };
        tokio::time::timeout(Duration::from_secs(30), segment).await.expect("something comes")
    }

    pub async fn register(&mut self, event: &str) {
        self.send(&Packet::Register(event.to_owned())).await;
        assert_eq!(self.receive().await, Some(Packet::Confirm), "{event}");
    }

    /// The answer to a command, and the events before it.
    pub async fn ask(
        &mut self,
        command: &str,
        about: Section,
    ) -> (Section, Vec<(String, Section)>) {
        self.send(&Packet::Request(command.to_owned(), about)).await;
        let mut events = Vec::new();
        loop {
            match self.receive().await.expect("an answer") {
                Packet::Response(section) => return (section, events),
                Packet::Event(name, section) => events.push((name, section)),
                other => panic!("{other:?} as the answer to {command}"),
            }
        }
    }

    pub async fn event(&mut self) -> (String, Section) {
        match self.receive().await {
            Some(Packet::Event(name, section)) => (name, section),
            other => panic!("{other:?} where an event is due"),
        }
    }
}

pub fn inside<'a>(section: &'a Section, path: &[&str]) -> &'a Section {
    path.iter().fold(section, |section, name| match section.get(name) {
        Some(Value::Section(inside)) => inside,
        other => panic!("{name} is {other:?}"),
    })
}

fn net() -> Section {
    Section::new().text("child", "net")
}

#[tokio::test]
async fn sas_are_made_listed_rekeyed_and_ended() {
    let (_pair, path) = serve("vici-life").await;
    let mut client = Client::connect(&path).await;
    client.register("control-log").await;
    client.register("list-sa").await;
    let (answer, log) = client.ask("initiate", net()).await;
    assert_eq!(answer, Section::new().text("success", "yes"));
    let lines: Vec<_> = log.iter().filter_map(|(_, event)| event.str("msg")).collect();
    assert!(lines.iter().any(|line| line.starts_with("IKE_SA site[1] established")), "{lines:?}");
    assert!(lines.iter().any(|line| line.starts_with("CHILD_SA net{")), "{lines:?}");

    let (answer, sas) = client.ask("list-sas", Section::new()).await;
    assert_eq!(answer, Section::new());
    let [(name, sa)] = sas.as_slice() else { panic!("{sas:?}") };
    assert_eq!(name, "list-sa");
    let site = inside(sa, &["site"]);
    assert_eq!(site.str("state"), Some("ESTABLISHED"));
    assert_eq!(site.str("initiator"), Some("yes"));
    assert_eq!(site.str("local-id"), Some("left.example.org"));
    assert_eq!(site.get("name"), None);
    let (child_name, child) = inside(site, &["child-sas"]).iter().next().expect("a child");
    let Value::Section(child) = child else { panic!("{child:?}") };
    let number = child.str("uniqueid").expect("a number").to_owned();
    assert_eq!(child_name, format!("net-{number}"));
    assert_eq!(child.str("state"), Some("INSTALLED"));
    assert_eq!(child.get("local-ts"), Some(&Value::List(vec![b"10.1.0.0/16".to_vec()])));

    // What is asked for alone is listed.
    for (filter, found) in [
        (Section::new().text("ike", "site"), 1),
        (Section::new().text("ike", "other"), 0),
        (Section::new().text("ike-id", "1"), 1),
        (Section::new().text("ike-id", "77"), 0),
        (Section::new().text("child", "net"), 1),
        (Section::new().text("child-id", "77777"), 0),
    ] {
        let (_, sas) = client.ask("list-sas", filter.clone()).await;
        assert_eq!(sas.len(), found, "{filter:?}");
    }

    let (answer, _) = client.ask("rekey", Section::new().text("child-id", &number)).await;
    assert_eq!(answer, Section::new().text("success", "yes").text("matches", "1"));
    let (answer, _) = client.ask("terminate", Section::new().text("ike", "site")).await;
    assert_eq!(answer.str("success"), Some("yes"));
    assert_eq!((answer.str("matches"), answer.str("terminated")), (Some("1"), Some("1")));
    let (_, sas) = client.ask("list-sas", Section::new()).await;
    assert!(sas.is_empty(), "{sas:?}");
}

#[tokio::test]
async fn who_watches_is_told_what_happens() {
    let (_pair, path) = serve("vici-watch").await;
    let mut watcher = Client::connect(&path).await;
    for event in ["ike-updown", "ike-rekey", "child-updown", "child-rekey"] {
        watcher.register(event).await;
    }
    let mut client = Client::connect(&path).await;
    let (answer, events) = client.ask("initiate", net()).await;
    assert_eq!(answer.str("success"), Some("yes"));
    // It has registered for nothing.
    assert!(events.is_empty(), "{events:?}");

    let (name, up) = watcher.event().await;
    assert_eq!((name.as_str(), up.str("up")), ("ike-updown", Some("yes")));
    assert_eq!(inside(&up, &["site"]).get("child-sas"), None);
    let (name, up) = watcher.event().await;
    assert_eq!((name.as_str(), up.str("up")), ("child-updown", Some("yes")));
    assert_eq!(inside(&up, &["site", "child-sas"]).iter().count(), 1);

    client.ask("rekey", net()).await;
    let (name, rekeyed) = watcher.event().await;
    assert_eq!(name, "child-rekey");
    let spi = |side| inside(&rekeyed, &["site", "child-sas", "net", side]).str("spi-in");
    assert_ne!(spi("old"), spi("new"));

    client.ask("rekey", Section::new().text("ike", "site")).await;
    let (name, rekeyed) = watcher.event().await;
    assert_eq!(name, "ike-rekey");
    let number = |side| inside(&rekeyed, &["site", side]).str("uniqueid");
    assert_eq!(number("old"), Some("1"));
    assert_ne!(number("new"), Some("1"));

    client.ask("terminate", Section::new().text("ike", "site")).await;
    let mut last = vec![watcher.event().await, watcher.event().await];
    last.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!([last[0].0.as_str(), last[1].0.as_str()], ["child-updown", "ike-updown"]);
    for (name, down) in &last {
        assert_eq!(down.str("up"), None, "{name}");
        assert_eq!(inside(down, &["site"]).str("remote-id"), Some("right.example.org"), "{name}");
    }
}

#[tokio::test]
async fn what_cannot_be_done_is_answered() {
    let (_pair, path) = serve("vici-wrong").await;
    let mut client = Client::connect(&path).await;
    client.send(&Packet::Request("fly".to_owned(), Section::new())).await;
    assert_eq!(client.receive().await, Some(Packet::UnknownCommand));
    client.send(&Packet::Register("weather".to_owned())).await;
    assert_eq!(client.receive().await, Some(Packet::UnknownEvent));
    // Nobody has registered for it.
    client.send(&Packet::Unregister("list-sa".to_owned())).await;
    assert_eq!(client.receive().await, Some(Packet::UnknownEvent));
    for (command, about) in [
        ("initiate", Section::new().text("child", "nothing")),
        ("initiate", Section::new()),
        ("initiate", net().text("timeout", "soon")),
        ("terminate", Section::new().text("ike", "site")),
        ("terminate", Section::new().text("ike-id", "one")),
        ("terminate", Section::new().text("ike", "site").text("force", "yes")),
        ("rekey", Section::new().text("child-id", "9")),
        ("reload-settings", Section::new()),
    ] {
        let (answer, _) = client.ask(command, about.clone()).await;
        assert_eq!(answer.str("success"), Some("no"), "{command} {about:?}");
        assert!(answer.str("errmsg").is_some_and(|why| !why.is_empty()), "{command} {about:?}");
    }
    let (version, _) = client.ask("version", Section::new()).await;
    assert_eq!(version.str("daemon"), Some("ike-daemon"));
    let (stats, _) = client.ask("stats", Section::new()).await;
    assert_eq!(inside(&stats, &["ikesas"]).str("total"), Some("0"));
}

#[tokio::test]
async fn connections_are_listed_as_configured() {
    let (_pair, path) = serve("vici-conns").await;
    let mut client = Client::connect(&path).await;
    client.register("list-conn").await;
    let (_, connections) = client.ask("list-conns", Section::new()).await;
    let [(_, connection)] = connections.as_slice() else { panic!("{connections:?}") };
    let site = inside(connection, &["site"]);
    assert_eq!(site.str("version"), Some("IKEv2"));
    assert_eq!(inside(site, &["local-1"]).str("class"), Some("pre-shared key"));
    assert_eq!(inside(site, &["remote-1"]).str("id"), Some("right.example.org"));
    let child = inside(site, &["children", "net"]);
    assert_eq!(child.get("remote-ts"), Some(&Value::List(vec![b"10.2.0.0/16".to_vec()])));
    // What the file has was not loaded by a client, and is none of what clients unload.
    let (names, _) = client.ask("get-conns", Section::new()).await;
    assert_eq!(names.get("conns"), Some(&Value::List(vec![])));
}

#[tokio::test]
async fn who_sends_what_is_no_packet_is_hung_up_on_and_others_are_served() {
    let (_pair, path) = serve("vici-noise").await;
    for noise in [
        &b"\0\0\0\x02\x09\0"[..],
        b"\0\0\0\x0a\0\x07version\x02",
        b"\0\x08\0\x01",
        b"\xff\xff\xff\xff",
        b"\0\0\0\0",
        // What only servers send.
        b"\0\0\0\x01\x05",
    ] {
        let mut client = Client::connect(&path).await;
        client.0.write_all(noise).await.expect("the socket works");
        assert_eq!(client.receive().await, None, "{noise:?}");
    }
    let mut client = Client::connect(&path).await;
    let (version, _) = client.ask("version", Section::new()).await;
    assert_eq!(version.str("daemon"), Some("ike-daemon"));
}

/// Clients that say nothing keep nobody out; those that listen to events, or wait for an answer, stay.
///
/// Fault: in `requests`, leave out `place.busy()`. Another: in `Places::try_take`, answer `Err(None)` when all places
/// are taken.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_clients_keep_no_other_out() {
    let (_pair, path) = serve("vici-silent").await;
    let mut listener = Client::connect(&path).await;
    listener.register("ike-updown").await;
    let mut silent = Vec::new();
    for _ in 0..200 {
        silent.push(Client::connect(&path).await);
    }
    let ask = async {
        let mut client = Client::connect(&path).await;
        client.ask("version", Section::new()).await
    };
    let answer = tokio::time::timeout(Duration::from_secs(10), ask).await.expect("in time");
    assert!(answer.0.str("daemon").is_some(), "{answer:?}");
    // The oldest of them is gone, and the one that listens is not.
    assert_eq!(silent[0].receive().await, None);
    listener.register("child-updown").await;
}
