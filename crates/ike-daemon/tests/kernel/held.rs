//! What a child that is down blocks, and what has to get past it. In network namespaces.
#![expect(clippy::unwrap_used, reason = "test code")]

use std::io::{Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use ike_test_namespace::Host;

use crate::own_tunnel::{CLIENT, GATEWAY, folder, road_warrior, start, until, with_name_server};

/// Runs the program's `pki` in `folder`.
fn pki(folder: &Path, words: &str) {
    let exe = env!("CARGO_BIN_EXE_ike-daemon");
    let status = Command::new(exe).current_dir(folder).arg("pki").args(words.split(' ')).status();
    assert!(status.unwrap().success(), "{words}");
}

/// The certificate of a gateway whose CA publishes its list at crl.example, and the list.
fn certificates(folder: &Path) -> Vec<u8> {
    for name in ["x509", "x509ca", "private"] {
        std::fs::create_dir(folder.join(name)).unwrap();
    }
    for key in ["ca.key", "private/gw.key"] {
        pki(folder, &format!("--gen --type ecdsa --size 256 --out {key}"));
    }
    pki(folder, "--self --ca --in ca.key --dn CN=ca --out x509ca/ca.pem");
    pki(
        folder,
        "--issue --in private/gw.key --cacert x509ca/ca.pem --cakey ca.key --dn CN=gw --san gw.example \
         --crl http://crl.example/ca.crl --out x509/gw.pem",
    );
    pki(folder, "--signcrl --cacert x509ca/ca.pem --cakey ca.key --outform der --out ca.crl");
    std::fs::read(folder.join("ca.crl")).unwrap()
}

/// Serves `body` at 198.51.100.8. The receiver gets the address of each client.
fn serve(body: Vec<u8>) -> Receiver<String> {
    let listener = TcpListener::bind("198.51.100.8:80").unwrap();
    let (sender, asked) = channel();
    std::thread::spawn(move || {
        while let Ok((mut stream, from)) = listener.accept() {
            _ = stream.read(&mut [0; 2048]);
            let header = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            _ = stream.write_all(&[header.as_bytes(), &body].concat());
            _ = sender.send(from.ip().to_string());
        }
    });
    asked
}

/// A name server at 198.51.100.8 by which each name has that address.
fn serve_names() {
    let server = UdpSocket::bind("198.51.100.8:53").unwrap();
    std::thread::spawn(move || {
        let mut question = [0; 512];
        while let Ok((length, from)) = server.recv_from(&mut question) {
            let mut answer = question[..length].to_vec();
            let is_a = answer.ends_with(&[0, 1, 0, 1]);
            (answer[2], answer[3], answer[7]) = (0x81, 0x80, u8::from(is_a));
            // Without what the resolver appends to a question.
            answer[11] = 0;
            if is_a {
                answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 198, 51, 100, 8]);
            }
            _ = server.send_to(&answer, from);
        }
    });
}

/// The tunnel covers the name server and the server of the list.
///
/// Faults: in `Credentials::fetcher_for`, return the fetcher as it is; in `Outside::resolve`, do not ask: the gateway is
/// refused, because the list is missing.
pub(crate) fn revocation_is_asked_for_outside_the_tunnel_that_is_down() {
    let host = road_warrior();
    let folder = folder("revocation");
    let asked = serve(certificates(&folder));
    serve_names();
    let gateway = GATEWAY.replace(
        "auth = 'psk'\n    id = 'gw'",
        "auth = 'pubkey'\n    certs = 'gw.pem'\n    id = 'gw.example'",
    );
    let client = CLIENT
        .replacen("id = 'gw'", "id = 'gw.example'\n    revocation = 'strict'", 1)
        .replacen(
            "[connections.home.remote]\n    auth = 'psk'",
            "[connections.home.remote]\n    auth = 'pubkey'",
            1,
        )
        .replace("start_action = 'start'", "start_action = 'start'\n    hold = 'yes'");
    assert!(client.contains("strict") && client.contains("pubkey") && client.contains("hold"));
    let exe = env!("CARGO_BIN_EXE_ike-daemon");
    let gateway = start(&folder, "gateway", &gateway, exe, "none");
    let command = host.inside(&with_name_server(&folder, "198.51.100.8"));
    let client = start(&folder, "client", &client, &command, "userspace");
    until(&client, |list| list.contains("\"INSTALLED\""));
    let from = asked.recv_timeout(Duration::from_secs(1)).expect("a question for the list");
    assert_eq!(from, "192.0.2.1", "outside the tunnel: the virtual IP is not known yet");
    assert_eq!((client.end(), gateway.end()), (Some(0), Some(0)));
}

/// The tunnel covers the name server, and the gateway is known by name alone: at the start, and after the gateway was away.
///
/// Fault: in `Names::of_system`, do not call `ask_outside`: the gateway's name is never resolved.
pub(crate) fn a_gateway_is_found_by_name_outside_its_own_tunnel() {
    let host = road_warrior();
    let folder = folder("by-name");
    serve_names();
    let exe = env!("CARGO_BIN_EXE_ike-daemon");
    let gateway = start(&folder, "gateway", GATEWAY, exe, "none");
    let client = CLIENT
        .replace("'198.51.100.9'", "'gw.example'\n    local_addrs = '192.0.2.1'")
        .replace("start_action = 'start'", "start_action = 'start'\n    hold = 'yes'");
    assert!(client.contains("gw.example") && client.contains("hold"));
    let command = host.inside(&with_name_server(&folder, "198.51.100.8"));
    let client = start(&folder, "client", &client, &command, "userspace");
    until(&client, |list| list.contains("\"INSTALLED\""));
    drop(gateway);
    client.wait_for("is started again in");
    let gateway = start(&folder, "gateway", GATEWAY, exe, "none");
    until(&client, |list| list.contains("\"INSTALLED\""));
    assert_eq!((client.end(), gateway.end()), (Some(0), Some(0)));
}

/// The tunnel covers the name server and the server of the gateway's certificate.
///
/// Fault: in `Credentials::looked_up`, give no `outside`: the gateway is refused, because its certificate is not fetched.
pub(crate) fn certificates_by_url_are_fetched_outside_the_tunnel_that_is_down() {
    let host = road_warrior();
    let folder = folder("by-url");
    _ = certificates(&folder);
    std::fs::create_dir(folder.join("web")).unwrap();
    pki(&folder, "--publish --in x509/gw.pem --dir web");
    let published = std::fs::read_dir(folder.join("web")).unwrap().next().unwrap().unwrap();
    let asked = serve(std::fs::read(published.path()).unwrap());
    serve_names();
    let gateway = GATEWAY.replace(
        "auth = 'psk'\n    id = 'gw'",
        "auth = 'pubkey'\n    certs = 'gw.pem'\n    id = 'gw.example'",
    );
    let gateway = format!(
        "[charon]\nhash_and_url = true\n{gateway}\n\
         [authorities.ca]\ncacert = 'ca.pem'\ncert_uri_base = 'http://certs.example/'"
    );
    let lookup =
        "[charon]\n    hash_and_url = true\n    hash_and_url_from = 'http://certs.example/'";
    let client = CLIENT
        .replacen("id = 'gw'", "id = 'gw.example'\n    revocation = 'relaxed'", 1)
        .replacen(
            "[connections.home.remote]\n    auth = 'psk'",
            "[connections.home.remote]\n    auth = 'pubkey'",
            1,
        )
        .replace("start_action = 'start'", "start_action = 'start'\n    hold = 'yes'")
        .replace("[charon]", lookup);
    // The client has the certificate of the CA alone.
    let own = folder.join("client");
    std::fs::create_dir_all(own.join("x509ca")).unwrap();
    std::fs::copy(folder.join("x509ca/ca.pem"), own.join("x509ca/ca.pem")).unwrap();
    let exe = env!("CARGO_BIN_EXE_ike-daemon");
    let gateway = start(&folder, "gateway", &gateway, exe, "none");
    let command = host.inside(&with_name_server(&folder, "198.51.100.8"));
    let client = start(&own, "client", &client, &command, "userspace");
    until(&client, |list| list.contains("\"INSTALLED\""));
    let from = asked.recv_timeout(Duration::from_secs(1)).expect("a question for the certificate");
    assert_eq!(from, "192.0.2.1", "outside the tunnel: the virtual IP is not known yet");
    assert_eq!((client.end(), gateway.end()), (Some(0), Some(0)));
}

fn checks_sources(host: &Host, how: u8) {
    for of in ["all", "default", "in0"] {
        let file = format!("/proc/sys/net/ipv4/conf/{of}/rp_filter");
        let command = host.inside(&format!("sh -c 'echo {how} > {file}'"));
        assert!(Command::new("sh").args(["-c", &command]).status().unwrap().success());
    }
}

/// A road warrior on one of the many systems with `rp_filter = 2`: its gateway dies and comes back.
///
/// Fault: in `UserspacePlane::route`, give a shunt the fallback route alone: the answers of the gateway are dropped.
pub(crate) fn a_full_tunnel_comes_back_although_the_kernel_checks_sources() {
    let host = road_warrior();
    checks_sources(&host, 2);
    let folder = folder("sources");
    let exe = env!("CARGO_BIN_EXE_ike-daemon");
    let gateway = start(&folder, "gateway", GATEWAY, exe, "none");
    let client = start(&folder, "client", CLIENT, &host.inside(exe), "userspace");
    until(&client, |list| list.contains("\"INSTALLED\""));
    drop(gateway);
    client.wait_for("is started again in");
    client.wait_for("is started again in");
    // Senders get an error immediately.
    let connect = host.inside("timeout 2 bash -c '</dev/tcp/198.51.100.77/9'");
    let told = Command::new("sh").args(["-c", &connect]).output().unwrap();
    let told = String::from_utf8(told.stderr).unwrap();
    assert!(told.contains("No route to host"), "{told}");
    let gateway = start(&folder, "gateway", GATEWAY, exe, "none");
    until(&client, |list| list.contains("\"INSTALLED\""));
    assert_eq!((client.end(), gateway.end()), (Some(0), Some(0)));
}
