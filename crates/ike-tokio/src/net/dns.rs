//! DNS queries (RFC 1035) that leave outside all tunnels.
//!
//! getaddrinfo uses sockets of its own. While a child is down, its hold may stop these queries too, and without the
//! peer's address the child does not come up. So if the system's resolver fails, the daemon asks the same name servers
//! itself, by sockets that no route and no policy of this program applies to.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// Makes a socket that is connected to a name server.
pub(super) type Connect<'a> = dyn Fn(SocketAddr) -> io::Result<UdpSocket> + 'a;

/// Where the system's resolver has its name servers, and where systemd-resolved has those that it asks itself.
pub const FILES: [&str; 2] = ["/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"];
/// Name servers that are asked, as many as getaddrinfo asks.
const SERVERS: usize = 3;
/// How long one of them may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// The most responses that are read for one query. An attacker has to guess the query's ID and port, and has no more tries
/// than that.
const MOST_ANSWERS: usize = 16;
const PORT: u16 = 53;
/// Types of addresses.
const A: u16 = 1;
const AAAA: u16 = 28;
/// The octets of a header, and of a record between its name and its data.
const HEADER: usize = 12;
const RECORD: usize = 10;

/// The text of the files that name the system's name servers.
pub fn files() -> String {
    let files = FILES.iter().filter_map(|file| std::fs::read_to_string(file).ok());
    files.map(|text| text + "\n").collect()
}

/// The name servers in `text`, which is that of [`files`], without those on this host: the system's resolver has asked
/// these.
pub fn servers_in(text: &str) -> Vec<SocketAddr> {
    let addresses = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        words.next().filter(|word| *word == "nameserver")?;
        words.next()?.parse::<IpAddr>().ok()
    });
    let distant = addresses.filter(|address| !address.is_loopback() && !address.is_unspecified());
    distant.map(|address| SocketAddr::new(address, PORT)).take(SERVERS).collect()
}

/// The addresses of `name`, from the first of `servers` that has any. Blocks, for `limit` at the most.
pub(super) fn look_up(
    name: &str,
    servers: &[SocketAddr],
    limit: Duration,
    connect: &Connect<'_>,
) -> Vec<IpAddr> {
    let begun = Instant::now();
    for server in servers {
        let mut found = Vec::new();
        for kind in [A, AAAA] {
            let patience = limit.saturating_sub(begun.elapsed()).min(PATIENCE);
            if patience.is_zero() {
                return found;
            }
            match ask_one((name, kind), *server, patience, connect) {
                Ok(addresses) => found.extend(addresses),
                Err(error) => {
                    tracing::debug!(%name, %server, %error, "name server");
                    break;
                }
            }
        }
        if !found.is_empty() {
            return found;
        }
    }
    Vec::new()
}

fn ask_one(
    (name, kind): (&str, u16),
    server: SocketAddr,
    patience: Duration,
    connect: &Connect<'_>,
) -> io::Result<Vec<IpAddr>> {
    let id = RandomState::new().build_hasher().finish() as u16;
    let question = question(name, kind, id).ok_or(io::ErrorKind::InvalidInput)?;
    let socket = connect(server)?;
    socket.send(&question)?;
    let end = Instant::now() + patience;
    let mut buffer = [0; 4096];
    for _ in 0..MOST_ANSWERS {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        socket.set_read_timeout(Some(left))?;
        let len = socket.recv(&mut buffer)?;
        let answer = buffer.get(..len).unwrap_or_default();
        if let Some(found) = addresses(answer, &question, kind) {
            return Ok(found);
        }
    }
    Err(io::Error::other(
        "too many responses that do not match the query: somebody may be guessing its ID",
    ))
}

/// A message with the question for the addresses of `name`. None if it is no name of the DNS.
fn question(name: &str, kind: u16, id: u16) -> Option<Vec<u8>> {
    // One question, and recursion is desired.
    let mut message = [id.to_be_bytes(), [1, 0], [0, 1], [0, 0], [0, 0], [0, 0]].concat();
    let name = name.strip_suffix('.').unwrap_or(name);
    for label in name.split('.') {
        let len = u8::try_from(label.len()).ok().filter(|len| (1..64).contains(len))?;
        message.push(len);
        message.extend(label.as_bytes());
    }
    message.push(0);
    message.extend([kind.to_be_bytes(), [0, 1]].concat());
    (name.len() < 254).then_some(message)
}

/// The addresses in `answer`, none if it says that there are none. `None` if it does not answer `question`.
fn addresses(answer: &[u8], question: &[u8], kind: u16) -> Option<Vec<IpAddr>> {
    let (header, body) = answer.split_at_checked(HEADER)?;
    let [first, second, flags, code, _, _, many, few, ..] = *header else { return None };
    let is_answer = question.starts_with(&[first, second]) && flags & 0x80 != 0;
    let mut rest = body.strip_prefix(question.get(HEADER..)?).filter(|_| is_answer)?;
    let mut found = Vec::new();
    // A name server that fails has no answer, whatever is in the message.
    let records = if code & 0x0f == 0 { u16::from_be_bytes([many, few]) } else { 0 };
    for _ in 0..records {
        let Some((of, data, behind)) = record(rest) else { break };
        rest = behind;
        let octets4 = <[u8; 4]>::try_from(data).ok().filter(|_| kind == A);
        let octets6 = <[u8; 16]>::try_from(data).ok().filter(|_| kind == AAAA);
        let four = octets4.map(|octets| IpAddr::from(Ipv4Addr::from(octets)));
        let six = octets6.map(|octets| IpAddr::from(Ipv6Addr::from(octets)));
        found.extend(four.or(six).filter(|_| of == kind));
    }
    Some(found)
}

/// The type and the data of the first record of `octets`, and what is behind it.
fn record(octets: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let (fixed, rest) = behind_name(octets)?.split_at_checked(RECORD)?;
    let [high, low, _, _, _, _, _, _, long, short] = *fixed else { return None };
    let (data, rest) = rest.split_at_checked(u16::from_be_bytes([long, short]).into())?;
    Some((u16::from_be_bytes([high, low]), data, rest))
}

/// What is behind the name that `octets` begin with.
fn behind_name(mut octets: &[u8]) -> Option<&[u8]> {
    loop {
        let (&len, rest) = octets.split_first()?;
        match len {
            0 => return Some(rest),
            // A pointer to the rest of the name.
            0xc0.. => return rest.get(1..),
            _ => octets = rest.get(usize::from(len)..)?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name server that gives each question the answer that `answer` makes of it, and its address.
    fn server(answer: impl Fn(&[u8]) -> Vec<Vec<u8>> + Send + 'static) -> SocketAddr {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        std::thread::spawn(move || {
            let mut buffer = [0; 512];
            while let Ok((len, from)) = socket.recv_from(&mut buffer) {
                for answer in answer(&buffer[..len]) {
                    socket.send_to(&answer, from).unwrap();
                }
            }
        });
        address
    }

    const LONG: Duration = Duration::from_secs(60);

    fn connect(server: SocketAddr) -> io::Result<UdpSocket> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.connect(server)?;
        Ok(socket)
    }

    /// An answer with an alias and, for the type that `question` asks for, an address.
    fn answer(question: &[u8]) -> Vec<u8> {
        let kind = question[question.len() - 3];
        let mut answer = question.to_vec();
        (answer[2], answer[3], answer[7]) = (0x81, 0x80, 2);
        answer.extend([0xc0, 12, 0, 5, 0, 1, 0, 0, 0, 60, 0, 4, 1, b'b', 0xc0, 15]);
        answer.extend([1, b'b', 0xc0, 15, 0, kind, 0, 1, 0, 0, 0, 60, 0]);
        match u16::from(kind) {
            A => answer.extend([4, 192, 0, 2, 7]),
            _ => answer.extend(
                [[16].as_slice(), &"2001:db8::7".parse::<Ipv6Addr>().unwrap().octets()].concat(),
            ),
        }
        answer
    }

    fn both() -> Vec<IpAddr> {
        vec!["192.0.2.7".parse().unwrap(), "2001:db8::7".parse().unwrap()]
    }

    #[test]
    fn a_name_server_knows_an_alias_and_its_addresses() {
        let server = server(|question| vec![answer(question)]);
        assert_eq!(look_up("a.example", &[server], LONG, &connect), both());
        assert_eq!(look_up("a..example", &[server], LONG, &connect), Vec::<IpAddr>::new());
    }

    /// Faults: in `addresses`, do not compare the number; leave the question out.
    #[test]
    fn only_an_answer_to_the_question_counts() {
        let server = server(|question| {
            let (mut number, mut other) = (answer(question), answer(question));
            number[0] ^= 1;
            (number[question.len() + 30], other[question.len() + 30]) = (9, 8);
            other[13] = b'x';
            vec![number, other, vec![0; 3], answer(question)]
        });
        assert_eq!(look_up("a.example", &[server], LONG, &connect), both());
    }

    /// An attacker who guesses the ID and the port of a query can forge the response.
    ///
    /// Faults: in `ask_one`, take a fixed number; look at answers for as long as there is time.
    #[test]
    fn numbers_and_ports_cannot_be_known_and_guesses_are_few() {
        let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let asked = std::sync::Arc::clone(&seen);
        let server = server(move |question| {
            asked.lock().unwrap().push([question[0], question[1]]);
            let mut wrong = answer(question);
            wrong[0] ^= 1;
            let mut all = vec![wrong; MOST_ANSWERS];
            all.push(answer(question));
            all
        });
        let ports = std::sync::Mutex::new(std::collections::BTreeSet::new());
        let connect = |to| {
            let socket = connect(to)?;
            ports.lock().unwrap().insert(socket.local_addr()?.port());
            Ok(socket)
        };
        for _ in 0..8 {
            assert_eq!(look_up("a.example", &[server], LONG, &connect), Vec::<IpAddr>::new());
        }
        let numbers: std::collections::BTreeSet<_> = seen.lock().unwrap().iter().copied().collect();
        assert!(numbers.len() >= 7, "{numbers:?}");
        assert!(ports.lock().unwrap().len() >= 7);
    }

    /// Fault: in `look_up`, do not look at `limit`.
    #[test]
    fn silent_name_servers_take_no_more_than_the_time_that_is_left() {
        let silent = server(|_| Vec::new());
        let (begun, limit) = (Instant::now(), Duration::from_millis(100));
        assert_eq!(look_up("a.example", &[silent; 3], limit, &connect), Vec::<IpAddr>::new());
        assert!(begun.elapsed() < PATIENCE);
    }

    #[test]
    fn the_next_name_server_is_asked_where_one_fails_or_says_half_of_it() {
        let failing = server(|question| {
            let mut refused = answer(question);
            refused[3] = 0x82;
            vec![refused]
        });
        let cut = server(|question| vec![answer(question)[..question.len() + 20].to_vec()]);
        let good = server(|question| vec![answer(question)]);
        assert_eq!(look_up("a.example", &[failing, cut, good], LONG, &connect), both());
    }

    #[test]
    fn name_servers_on_this_host_are_not_asked_again() {
        let text = "# nameserver 192.0.2.1\nnameserver 127.0.0.53\nnameserver 192.0.2.2\n nameserver fe80::1%eth0\n\
                    options edns0\nnameserver 2001:db8::53";
        assert_eq!(
            servers_in(text),
            ["192.0.2.2:53".parse().unwrap(), "[2001:db8::53]:53".parse().unwrap()]
        );
    }
}
