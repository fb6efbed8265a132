//! Fetching over HTTP: what is taken, and that a server can neither stall nor flood the daemon.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use ike_aaa::Fetcher;

/// A server that gives each connection the next of `answers`, and tells what it was asked.
pub struct Server {
    pub address: SocketAddr,
    pub requests: Receiver<String>,
}

pub fn serve(answers: Vec<Vec<u8>>) -> Server {
    serve_slowly(answers, Duration::ZERO)
}

/// As [`serve`], with a pause after each half of an answer.
pub fn serve_slowly(answers: Vec<Vec<u8>>, pause: Duration) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let (sender, requests) = channel();
    std::thread::spawn(move || {
        for answer in answers {
            let Ok((mut stream, _)) = listener.accept() else { return };
            let mut request = Vec::new();
            let mut octets = [0; 4096];
            while !whole(&request) {
                match stream.read(&mut octets) {
                    Ok(0) | Err(_) => break,
                    Ok(n) => request.extend(&octets[..n]),
                }
            }
            let _ = sender.send(String::from_utf8_lossy(&request).into_owned());
            for half in answer.chunks(answer.len().div_ceil(2).max(1)) {
                let _ = stream.write_all(half);
                std::thread::sleep(pause);
            }
        }
    });
    Server { address, requests }
}

/// True once header and body of a request are there.
fn whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request).to_ascii_lowercase();
    let Some(end) = text.find("\r\n\r\n") else { return false };
    let length = text.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
    let length = length.map_or(0, |length| length.trim().parse().unwrap_or(0));
    request.len() >= end + 4 + length
}

pub fn ok(body: &[u8]) -> Vec<u8> {
    let header = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    [header.as_bytes(), body].concat()
}

fn moved(location: &str) -> Vec<u8> {
    format!("HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n").into()
}

pub fn url(server: &Server) -> String {
    format!("http://{}/ca.crl", server.address)
}

fn fetcher() -> Fetcher {
    Fetcher::new(Duration::from_secs(2))
}

#[test]
fn a_list_is_got_and_a_responder_is_asked() {
    let server = serve(vec![ok(b"list"), ok(b"answer")]);
    assert_eq!(fetcher().get(&url(&server), 100).unwrap(), b"list");
    let request = server.requests.recv().unwrap();
    assert!(request.starts_with("GET /ca.crl HTTP/1.1\r\n"), "{request}");
    assert!(!request.to_ascii_lowercase().contains("ureq"), "{request}");

    assert_eq!(fetcher().post(&url(&server), b"who?", 100).unwrap(), b"answer");
    let request = server.requests.recv().unwrap();
    assert!(request.starts_with("POST /ca.crl HTTP/1.1\r\n"), "{request}");
    let header = "content-type: application/ocsp-request\r\n";
    assert!(request.to_ascii_lowercase().contains(header), "{request}");
    assert!(request.ends_with("\r\n\r\nwho?"), "{request}");
}

#[test]
fn too_much_is_refused_whatever_length_was_announced() {
    let exact = serve(vec![ok(&[7; 100])]);
    assert_eq!(fetcher().get(&url(&exact), 100).unwrap().len(), 100);
    let announced = serve(vec![ok(&[7; 101])]);
    assert!(fetcher().get(&url(&announced), 100).is_err());
    let unannounced = serve(vec![[b"HTTP/1.0 200 OK\r\n\r\n".to_vec(), vec![7; 101]].concat()]);
    assert!(fetcher().get(&url(&unannounced), 100).is_err());
    let mut header = b"HTTP/1.1 200 OK\r\n".to_vec();
    header.extend((0..4000).flat_map(|n| format!("X-{n}: 1234567890\r\n").into_bytes()));
    let header = serve(vec![[header, b"\r\n".to_vec()].concat()]);
    assert!(fetcher().get(&url(&header), 100).is_err());
}

#[test]
fn a_slow_server_is_given_up() {
    let server = serve_slowly(vec![ok(&[7; 100])], Duration::from_secs(5));
    let begin = Instant::now();
    let quick = Fetcher::new(Duration::from_millis(300));
    assert!(quick.get(&url(&server), 1000).is_err());
    assert!(begin.elapsed() < Duration::from_secs(3));
}

#[test]
fn redirections_stay_with_http_and_end() {
    let target = serve(vec![ok(b"list")]);
    let server = serve(vec![moved(&url(&target))]);
    assert_eq!(fetcher().get(&url(&server), 100).unwrap(), b"list");
    for location in ["https://127.0.0.1:1/", "file:///etc/hostname", "ftp://127.0.0.1/", "gopher:x"]
    {
        let server = serve(vec![moved(location)]);
        assert!(fetcher().get(&url(&server), 100).is_err(), "{location}");
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let own = format!("http://{}/", listener.local_addr().unwrap());
    let loops = {
        let own = own.clone();
        std::thread::spawn(move || {
            let mut served = 0;
            listener.set_nonblocking(true).unwrap();
            let end = Instant::now() + Duration::from_millis(1500);
            while Instant::now() < end {
                let Ok((mut stream, _)) = listener.accept() else {
                    std::thread::sleep(Duration::from_millis(5));
                    continue;
                };
                stream.set_nonblocking(false).unwrap();
                let _ = stream.read(&mut [0; 4096]);
                let _ = stream.write_all(&moved(&own));
                served += 1;
            }
            served
        })
    };
    assert!(fetcher().get(&own, 100).is_err());
    assert_eq!(loops.join().unwrap(), 4, "the first request and three redirections");
}

#[test]
fn anything_but_a_good_status_is_none() {
    for status in ["404 Not Found", "500 Oops", "304 Not Modified", "302 Found"] {
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 4\r\n\r\nlist");
        let server = serve(vec![answer.into_bytes()]);
        assert!(fetcher().get(&url(&server), 100).is_err(), "{status}");
    }
    for garbage in [&b"\x1b[31mlist"[..], b"", b"HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\nlist"]
    {
        let server = serve(vec![garbage.to_vec()]);
        let error = fetcher().get(&url(&server), 100).unwrap_err().to_string();
        assert!(!error.contains('\x1b') && error.len() < 1000, "{error:?}");
    }
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    assert!(fetcher().get(&format!("http://{closed}/"), 100).is_err());
}
