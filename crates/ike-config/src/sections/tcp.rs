//! TCP (RFC 9329) and separate transports of a connection.

use std::time::Duration;

use ike_proto::config::{ConnectionConfig, SeparateTransports, TcpUse};

use super::charon::set;
use crate::diagnostic::Report;
use crate::tree::{Section, join};
use crate::units;

/// `tcp_fallback_after` where it is not given: time for a request and a few more over UDP.
const FALLBACK_AFTER: Duration = Duration::from_secs(5);

/// `enable_tcp` as it stands in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    No,
    Yes,
    Fallback,
}

/// Reads `enable_tcp` and what goes with it. `enable_tcp = "no"` goes with `separate_transports = "yes"`:
/// IKE begins over UDP and goes on over TCP if the peer agrees (draft-ietf-ipsecme-ikev2-reliable-transport
/// §3.1).
pub(crate) fn read(s: &mut Section<'_>, c: &mut ConnectionConfig, report: &mut Report) {
    let words = [
        ("no", Word::No),
        ("yes", Word::Yes),
        ("fallback", Word::Fallback),
        ("false", Word::No),
        ("true", Word::Yes),
    ];
    let word = s.choice("enable_tcp", &words, report).unwrap_or(Word::No);
    let what = format!("{}, longer than 0", units::DURATION);
    let after = s.parsed("tcp_fallback_after", &what, report, |text| {
        units::duration(text).filter(|time| *time > Duration::ZERO)
    });
    if s.has("tcp_fallback_after") && word != Word::Fallback {
        let path = join(&s.path, "tcp_fallback_after");
        let message = format!("`{path}` without `enable_tcp = \"fallback\"`");
        report.expected(s.place("tcp_fallback_after"), message, "both, or neither");
    }
    c.enable_tcp = match word {
        Word::No => TcpUse::No,
        Word::Yes => TcpUse::Yes,
        Word::Fallback => TcpUse::Fallback(after.unwrap_or(FALLBACK_AFTER)),
    };
    set(&mut c.tcp_remote_port, s.number("tcp_remoteport", 1, u16::MAX, report));
    let separate = [
        ("no", SeparateTransports::No),
        ("accept", SeparateTransports::Accept),
        ("yes", SeparateTransports::Yes),
        ("false", SeparateTransports::No),
        ("true", SeparateTransports::Yes),
    ];
    set(&mut c.separate_transports, s.choice("separate_transports", &separate, report));
}
