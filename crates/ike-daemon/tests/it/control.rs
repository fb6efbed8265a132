//! The control socket, spoken to as a client of any language would.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use crate::common::{Carrier, Pair, until};
use ike_control::control::ControlSocket;
use ike_control::control::protocol::LONGEST_REQUEST;
use ike_tokio::PolicyView;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

/// A pair of daemons, the left one with a control socket.
async fn serve(name: &str) -> (Pair, PathBuf) {
    serve_with(name, "", Duration::from_secs(30)).await
}

async fn serve_with(name: &str, charon: &str, patience: Duration) -> (Pair, PathBuf) {
    let mut pair = Pair::start(Carrier::None, charon, "").await;
    let path = crate::common::tempdir(name).join("control.sock");
    let socket = ControlSocket::bind(&path).expect("the socket works").with_patience(patience);
    pair.left.serve(socket, None);
    (pair, path)
}

/// As many clients as the daemon serves at a time.
const ALL_PLACES: usize = 64;

/// Asks for the list as one client more than there are places.
async fn one_more(path: &PathBuf) -> Value {
    let mut client = Client::connect(path).await;
    let answer =
        tokio::time::timeout(Duration::from_secs(20), client.ask(json!({"command": "list"})));
    answer.await.expect("there is a place again")
}

struct Client(BufReader<UnixStream>);

impl Client {
    async fn connect(path: &PathBuf) -> Self {
        Self(BufReader::new(UnixStream::connect(path).await.expect("the socket works")))
    }

    async fn send(&mut self, line: &[u8]) {
        self.0.get_mut().write_all(line).await.expect("the socket works");
    }

    async fn receive(&mut self) -> Value {
        let mut line = String::new();
        self.0.read_line(&mut line).await.expect("the socket works");
        serde_json::from_str(&line).unwrap_or(Value::Null)
    }

    async fn ask(&mut self, request: Value) -> Value {
        self.send(format!("{request}\n").as_bytes()).await;
        self.receive().await
    }
}

#[tokio::test]
async fn one_connection_serves_many_requests() {
    let (_pair, path) = serve("requests").await;
    let mut client = Client::connect(&path).await;
    assert_eq!(client.ask(json!({"command": "list"})).await, json!({"ok": true, "sas": []}));
    let up = client.ask(json!({"command": "up", "name": "net", "timeout": 20})).await;
    assert_eq!(up, json!({"ok": true, "count": 1}));
    let list = client.ask(json!({"command": "list"})).await;
    let ike = &list["sas"][0];
    assert_eq!(ike["state"], "ESTABLISHED");
    assert_eq!(ike["version"], 2);
    assert_eq!(ike["local-id"], "left.example.org");
    assert_eq!(ike["encr-alg"], "AES_GCM_16");
    assert_eq!(ike["encr-keysize"], 256);
    let child = &ike["child-sas"][0];
    assert_eq!((&child["state"], &child["mode"]), (&json!("INSTALLED"), &json!("TUNNEL")));
    assert_eq!((&child["bytes-in"], &child["packets-out"]), (&json!(0), &json!(0)));
    assert_eq!(child["local-ts"], json!(["10.1.0.0/16"]));
    for name in ["initiator-spi", "responder-spi", "setup-time-ms", "established", "rekey-time"] {
        assert!(!ike[name].is_null(), "{name}");
    }
    for name in ["spi-in", "spi-out", "setup-time-ms", "install-time", "life-time", "reqid"] {
        assert!(!child[name].is_null(), "{name}");
    }
    assert_eq!(client.ask(json!({"command": "rekey", "child": "net"})).await["ok"], true);
    assert_eq!(client.ask(json!({"command": "down", "ike": "site"})).await["ok"], true);
    assert_eq!(client.ask(json!({"command": "list"})).await["sas"], json!([]));
}

/// A tunnel that was taken down for maintenance does not come back because somebody has reloaded the file.
///
/// Faults: in `Operator::begin`, do not look at what was taken down; in `Down::review`, keep or drop everything.
#[tokio::test]
async fn what_a_command_took_down_stays_down_over_a_reload() {
    let mut pair = Pair::start(Carrier::None, "", "").await;
    let path = crate::common::tempdir("down").join("control.sock");
    pair.left.serve(ControlSocket::bind(&path).expect("the socket works"), None);
    let mut client = Client::connect(&path).await;
    let port = pair.right.ports().nat_t;
    let reload = async |pair: &Pair, options: &str| {
        let ids = ["left.example.org", "right.example.org"];
        let config = crate::common::configuration("left", ids, port, "", options);
        pair.left.reload(config).await.expect("a reload");
    };
    let taken = json!([{"connection": "site", "child": "net"}]);
    for action in ["start", "trap"] {
        let options = format!("start_action = '{action}'");
        reload(&pair, &options).await;
        assert_eq!(client.ask(json!({"command": "up", "name": "net"})).await["ok"], true);
        let trapped = async {
            let handle = pair.left.operator().handle();
            let is_trap = |policy: &PolicyView| matches!(policy, PolicyView::Trap(_));
            while !handle.policies().await.expect("it runs").iter().any(is_trap) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        if action == "trap" {
            tokio::time::timeout(Duration::from_secs(20), trapped).await.expect("a trap");
        }
        assert_eq!(client.ask(json!({"command": "down", "name": "site"})).await["ok"], true);
        for _ in 0..2 {
            reload(&pair, &options).await;
            tokio::time::sleep(Duration::from_millis(300)).await;
            let list = client.ask(json!({"command": "list"})).await;
            assert_eq!((&list["sas"], &list["down"]), (&json!([]), &taken), "{action}");
        }
        assert_eq!(client.ask(json!({"command": "up", "name": "net"})).await["ok"], true);
        assert_eq!(client.ask(json!({"command": "list"})).await.get("down"), None);
        assert_eq!(client.ask(json!({"command": "down", "name": "site"})).await["ok"], true);
    }
    // A change of the child wants it as it is now.
    reload(&pair, "start_action = 'start'\npriority = 7").await;
    until(&pair.left, "the changed child is up", |sas| sas.len() == 1).await;
    assert_eq!(client.ask(json!({"command": "list"})).await.get("down"), None);
}

#[tokio::test]
async fn everything_comes_up_by_one_request() {
    let (pair, path) = serve("all").await;
    let mut client = Client::connect(&path).await;
    assert_eq!(
        client.ask(json!({"command": "up-all", "timeout": 20})).await,
        json!({"ok": true, "count": 1})
    );
    let list = client.ask(json!({"command": "list"})).await;
    assert_eq!(list["sas"][0]["child-sas"][0]["name"], "net");
    // What is up stays as it is.
    assert_eq!(client.ask(json!({"command": "up-all"})).await, json!({"ok": true, "count": 0}));
    assert_eq!(client.ask(json!({"command": "down", "ike": "site"})).await["ok"], true);
    drop(pair.right);
    let dead = client.ask(json!({"command": "up-all"})).await;
    let error = dead["error"].as_str().expect("an error");
    let begins = "1 of 1 failed\nsite/net: the peer does not answer; the daemon tries again";
    assert!(error.starts_with(begins), "{error}");
}

#[tokio::test]
async fn failures_have_their_reason() {
    let (pair, path) = serve("failures").await;
    let mut client = Client::connect(&path).await;
    let down = client.ask(json!({"command": "down", "name": "net"})).await;
    assert_eq!(down, json!({"ok": false, "error": "no SA of net"}));
    let reload = client.ask(json!({"command": "reload"})).await;
    assert_eq!(reload["error"], "this daemon was started without a configuration file");
    drop(pair.right);
    let slow = client.ask(json!({"command": "up", "name": "net", "timeout": 0.2})).await;
    assert_eq!((&slow["ok"], &slow["timed-out"]), (&json!(false), &json!(true)));
    let dead = client.ask(json!({"command": "up", "name": "net"})).await;
    let error = dead["error"].as_str().expect("an error");
    assert!(error.starts_with("the peer does not answer; the daemon tries again"), "{error}");
}

/// One client waits for a peer that is not there, for a minute, and has begun with its next request. Another one has
/// its answer before.
///
/// Fault: in `LocalSocket::serve` (ike-control, local/mod.rs), await the client instead of spawning a task for it.
#[tokio::test]
async fn a_slow_client_does_not_hold_up_another() {
    let (pair, path) = serve_with("two", "retransmit_base = 10.0", Duration::from_secs(300)).await;
    drop(pair.right);
    let mut slow = Client::connect(&path).await;
    slow.send(b"{\"command\":\"up\",\"name\":\"net\"}\n{\"comm").await;
    until(&pair.left, "begun", |sas| !sas.is_empty()).await;
    let mut fast = Client::connect(&path).await;
    tokio::select! {
        biased;
        answer = slow.receive() => panic!("the slow client first: {answer}"),
        answer = fast.ask(json!({"command": "list"})) => assert_eq!(answer["ok"], true),
    }
}

#[tokio::test]
async fn garbage_is_refused_and_the_daemon_lives() {
    let (_pair, path) = serve("garbage").await;
    let lines: [&[u8]; 8] = [
        b"\n",
        b"{}\n",
        b"null\n",
        b"\xff\xfe\x00\n",
        b"{\"command\":\"up\",\"timeout\":\"x\"}\n",
        b"{\"command\":\"up\"}\n",
        b"{\"command\":\"up\",\"name\":\"net\",\"timeout\":-1e308}\n",
        b"{\"command\":\"down\",\"name\":\"\\u0000\\u001b[2J\"}\n",
    ];
    for line in lines {
        let mut client = Client::connect(&path).await;
        client.send(line).await;
        let answer = client.receive().await;
        if line.contains(&b'-') {
            // A time that makes no sense is no limit.
            assert_eq!(answer["ok"], true);
        } else {
            assert_eq!(answer["ok"], false, "{answer}");
        }
    }
    let mut long = Client::connect(&path).await;
    long.send(&vec![b' '; LONGEST_REQUEST]).await;
    assert_eq!(long.receive().await["error"], "request too long");
    let mut deep = Client::connect(&path).await;
    deep.send(format!("{}\n", "[".repeat(60_000)).as_bytes()).await;
    assert_eq!(deep.receive().await["ok"], false);
    let mut cut = Client::connect(&path).await;
    cut.send(b"{\"command\":\"list\"}").await;
    cut.0.get_mut().shutdown().await.unwrap();
    assert_eq!(cut.receive().await["error"], "request without a newline");
    let mut rest = Vec::new();
    cut.0.read_to_end(&mut rest).await.unwrap();
    assert!(rest.is_empty());
    let mut client = Client::connect(&path).await;
    assert_eq!(client.ask(json!({"command": "list"})).await["ok"], true);
}

#[tokio::test]
async fn the_socket_is_private_and_belongs_to_one_daemon() {
    let path = crate::common::tempdir("private").join("control.sock");
    let socket = ControlSocket::bind(&path).unwrap();
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let refused = ControlSocket::bind(&path).unwrap_err().to_string();
    assert!(refused.contains("a daemon answers there"), "{refused}");
    drop(socket);
    assert!(!path.exists());
    // One that a daemon left behind is replaced.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    drop(ControlSocket::bind(&path).unwrap());
    let missing = crate::common::tempdir("private").join("none/control.sock");
    assert!(ControlSocket::bind(&missing).unwrap_err().to_string().contains("none/control.sock"));
}

#[tokio::test]
async fn clients_that_do_not_take_their_answers_lose_their_places() {
    let (_pair, path) = serve_with("deaf", "", Duration::from_millis(300)).await;
    let mut deaf = Vec::new();
    for _ in 0..ALL_PLACES {
        let mut stream = UnixStream::connect(&path).await.expect("the socket works");
        deaf.push(tokio::spawn(async move {
            let many = "{\"command\":\"list\"}\n".repeat(1000);
            while stream.write_all(many.as_bytes()).await.is_ok() {}
            stream
        }));
    }
    assert_eq!(one_more(&path).await["ok"], true);
    deaf.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn clients_that_are_gone_leave_their_places() {
    // Whoever waits for a peer that is not there waits for a minute.
    let (pair, path) = serve_with("gone", "retransmit_base = 10.0", Duration::from_secs(30)).await;
    drop(pair.right);
    for _ in 0..ALL_PLACES {
        let mut client = Client::connect(&path).await;
        client.send(b"{\"command\":\"up\",\"name\":\"net\"}\n").await;
    }
    assert_eq!(one_more(&path).await["ok"], true);
}

#[tokio::test]
async fn hundreds_of_clients_at_once() {
    let (_pair, path) = serve("crowd").await;
    let mut clients = Vec::new();
    for number in 0..600 {
        let path = path.clone();
        clients.push(tokio::spawn(async move {
            // The queue of those not accepted yet has an end, too.
            let mut client = loop {
                match UnixStream::connect(&path).await {
                    Ok(stream) => break Client(BufReader::new(stream)),
                    Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
                }
            };
            if number % 3 == 0 {
                return true;
            }
            client.ask(json!({"command": "list"})).await["ok"] == true
        }));
    }
    for client in clients {
        assert!(client.await.expect("no panic"));
    }
}
