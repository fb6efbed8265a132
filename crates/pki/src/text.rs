//! Names and dates as text.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ike_proto::wire::der::{self as wire, Der};
use ike_proto::wire::payload::IdData;
use ike_proto::wire::registry::IdType;

/// A distinguished name (DER) as text that is safe in a log line, and of limited length.
pub(crate) fn name(der: &[u8]) -> String {
    let text = IdData { kind: IdType::DER_ASN1_DN, data: der.to_vec() }.to_string();
    // Anyone can make a certificate with a name of 60,000 octets.
    if text.len() > LONGEST {
        return text.chars().take(LONGEST).chain("...".chars()).collect();
    }
    text
}

/// Most characters of a name that are shown.
const LONGEST: usize = 1024;

/// The OBJECT IDENTIFIER of a DER `AlgorithmIdentifier`, in dotted form.
pub(crate) fn algorithm(identifier: &[u8]) -> String {
    let parts = Der::new(identifier).nested(wire::SEQUENCE);
    let dotted = parts.and_then(|mut parts| {
        let mut text = String::new();
        wire::write_dotted(&mut text, parts.object_identifier()?).ok().map(|()| text)
    });
    dotted.unwrap_or_else(|| "of a malformed AlgorithmIdentifier".to_owned())
}

/// A point in time as `2026-11-20 13:45:00 UTC`.
pub(crate) struct Date(pub SystemTime);

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let since = self.0.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        match der::DateTime::from_unix_duration(since) {
            Ok(t) => write!(
                f,
                "{:04}-{:02}-{:02} {:02}:{:02}:{:02} UTC",
                t.year(),
                t.month(),
                t.day(),
                t.hour(),
                t.minutes(),
                t.seconds()
            ),
            Err(_) => f.write_str("a day far away"),
        }
    }
}
