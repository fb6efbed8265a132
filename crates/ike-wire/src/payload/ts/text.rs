//! Traffic selectors as text, the way strongSwan reads and prints them.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use super::TrafficSelector;

/// Why a string is not a traffic selector; names the part that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TsParseError {
    /// The part that cannot be read.
    pub part: String,
    /// The value that was expected there.
    pub expected: &'static str,
}

impl fmt::Display for TsParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not {}", self.part.escape_default(), self.expected)
    }
}

impl std::error::Error for TsParseError {}

fn error(part: &str, expected: &'static str) -> TsParseError {
    TsParseError { part: part.to_owned(), expected }
}

impl TrafficSelector {
    /// Parses the bracketed part of a selector, `tcp/80`, `udp`, `icmp/8(0)`, `/1024-2048`,
    /// `gre`, `47/opaque`, without its brackets: protocol, first and last port.
    pub fn parse_proto_port(text: &str) -> Result<(u8, u16, u16), TsParseError> {
        let (protocol, port) = match text.split_once('/') {
            Some((protocol, port)) => (protocol, Some(port)),
            None => (text, None),
        };
        let protocol = parse_protocol(protocol)?;
        let (start, end) = port.map_or(Ok(ANY_PORT), |port| parse_ports(protocol, port))?;
        Ok((protocol, start, end))
    }
}

impl FromStr for TrafficSelector {
    type Err = TsParseError;

    /// `10.1.0.0/16`, `10.0.0.1`, `10.0.0.1-10.0.0.9`, `10.0.0.1..10.0.0.9`, each with
    /// `[protocol/port]` after it if wanted.
    fn from_str(text: &str) -> Result<Self, TsParseError> {
        let (addresses, proto_port) = match text.split_once('[') {
            None => (text, None),
            Some((addresses, rest)) => {
                let inner = rest.strip_suffix(']').ok_or(error(text, "closed by `]`"))?;
                (addresses, Some(inner))
            }
        };
        let mut ts = parse_addresses(addresses)?;
        if let Some(inner) = proto_port {
            (ts.protocol, ts.start_port, ts.end_port) = Self::parse_proto_port(inner)?;
        }
        Ok(ts)
    }
}

fn parse_addresses(text: &str) -> Result<TrafficSelector, TsParseError> {
    let address =
        |part: &str| part.trim().parse::<IpAddr>().map_err(|_| error(part, "an IP address"));
    if let Some((start, end)) = text.split_once("..").or_else(|| text.split_once('-')) {
        let (start, end) = (address(start)?, address(end)?);
        return TrafficSelector::from_range(start, end)
            .ok_or(error(text, "a range of addresses in rising order"));
    }
    match text.split_once('/') {
        None => Ok(TrafficSelector::host(address(text)?)),
        Some((prefix, len)) => len
            .parse()
            .ok()
            .and_then(|len| TrafficSelector::from_cidr(address(prefix).ok()?, len))
            .ok_or(error(text, "a subnet")),
    }
}

fn parse_protocol(text: &str) -> Result<u8, TsParseError> {
    if text.is_empty() || text == "any" || text == "%any" {
        return Ok(0);
    }
    match PROTOCOLS.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)) {
        Some((_, number)) => Ok(*number),
        None => text.parse().map_err(|_| error(text, "an IP protocol")),
    }
}

fn parse_ports(protocol: u8, text: &str) -> Result<(u16, u16), TsParseError> {
    match text {
        "" | "any" | "%any" => return Ok(ANY_PORT),
        "opaque" => return Ok(OPAQUE),
        _ => {}
    }
    if is_icmp(protocol) {
        return parse_icmp(text).ok_or(error(text, "an ICMP type or type(code)"));
    }
    let port = |part: &str| -> Result<u16, TsParseError> {
        match SERVICES.iter().find(|(name, _)| *name == part) {
            Some((_, number)) => Ok(*number),
            None => part.parse().map_err(|_| error(part, "a port")),
        }
    };
    let (start, end) = text.split_once('-').unwrap_or((text, text));
    let (start, end) = (port(start)?, port(end)?);
    if start <= end { Ok((start, end)) } else { Err(error(text, "a rising range of ports")) }
}

/// `8`, `8(0)`, `8-10`, `8(0)-10(255)`: types with all codes, or type and code.
fn parse_icmp(text: &str) -> Option<(u16, u16)> {
    let side = |part: &str, default_code: u8| -> Option<u16> {
        let (kind, code) = match part.split_once('(') {
            Some((kind, code)) => (kind, code.strip_suffix(')')?.parse().ok()?),
            None => (part, default_code),
        };
        Some(u16::from_be_bytes([kind.parse().ok()?, code]))
    };
    let (start, end) = text.split_once('-').unwrap_or((text, text));
    let (start, end) = (side(start, 0)?, side(end, u8::MAX)?);
    (start <= end).then_some((start, end))
}

impl fmt::Display for TrafficSelector {
    /// As strongSwan prints it: `10.1.0.0/16`, `10.0.0.1..10.0.0.9`, `10.1.0.0/16[tcp/80]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.prefix_len() {
            Some(len) => write!(f, "{}/{len}", self.start)?,
            None => write!(f, "{}..{}", self.start, self.end)?,
        }
        if self.protocol == 0 && self.any_port() {
            return Ok(());
        }
        f.write_str("[")?;
        match PROTOCOLS.iter().find(|(_, number)| *number == self.protocol) {
            Some((name, _)) => f.write_str(name)?,
            None if self.protocol == 0 => {}
            None => write!(f, "{}", self.protocol)?,
        }
        if self.is_opaque() {
            f.write_str("/opaque")?;
        } else if !self.any_port() {
            f.write_str("/")?;
            self.fmt_ports(f)?;
        }
        f.write_str("]")
    }
}

impl TrafficSelector {
    /// The prefix length, if the range is exactly one subnet.
    pub fn prefix_len(&self) -> Option<u8> {
        let differing = match (self.start, self.end) {
            (IpAddr::V4(a), IpAddr::V4(b)) => u128::from(u32::from(a) ^ u32::from(b)),
            (IpAddr::V6(a), IpAddr::V6(b)) => u128::from(a) ^ u128::from(b),
            _ => return None,
        };
        let width = if self.start.is_ipv4() { 32 } else { 128 };
        let host_bits = u8::try_from(u128::BITS - differing.leading_zeros()).ok()?;
        let len = width - host_bits;
        (Self::from_cidr(self.start, len)?.with_ports_of(self) == *self).then_some(len)
    }

    fn with_ports_of(self, other: &Self) -> Self {
        let Self { protocol, start_port, end_port, .. } = *other;
        Self { protocol, start_port, end_port, ..self }
    }

    fn fmt_ports(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (start, end) = (self.start_port, self.end_port);
        if !is_icmp(self.protocol) {
            return if start == end { write!(f, "{start}") } else { write!(f, "{start}-{end}") };
        }
        let ([type_a, code_a], [type_b, code_b]) = (start.to_be_bytes(), end.to_be_bytes());
        match (type_a == type_b, code_a, code_b) {
            (true, 0, u8::MAX) => write!(f, "{type_a}"),
            (false, 0, u8::MAX) => write!(f, "{type_a}-{type_b}"),
            (true, a, b) if a == b => write!(f, "{type_a}({code_a})"),
            _ => write!(f, "{type_a}({code_a})-{type_b}({code_b})"),
        }
    }
}

fn is_icmp(protocol: u8) -> bool {
    protocol == 1 || protocol == 58
}

const ANY_PORT: (u16, u16) = (0, u16::MAX);
const OPAQUE: (u16, u16) = (u16::MAX, 0);

/// Protocols by the names of /etc/protocols.
const PROTOCOLS: &[(&str, u8)] = &[
    ("icmp", 1),
    ("igmp", 2),
    ("ipencap", 4),
    ("tcp", 6),
    ("udp", 17),
    ("dccp", 33),
    ("ipv6", 41),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("ipv6-icmp", 58),
    ("icmpv6", 58),
    ("ospf", 89),
    ("ipip", 94),
    ("vrrp", 112),
    ("l2tp", 115),
    ("sctp", 132),
    ("udplite", 136),
];

/// The few services that configurations name.
const SERVICES: &[(&str, u16)] = &[
    ("ftp", 21),
    ("ssh", 22),
    ("smtp", 25),
    ("domain", 53),
    ("http", 80),
    ("ntp", 123),
    ("https", 443),
    ("l2tp", 1701),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_what_it_reads() {
        for (text, printed) in [
            ("10.1.0.0/16", "10.1.0.0/16"),
            ("10.1.2.3/16", "10.1.0.0/16"),
            ("10.0.0.1", "10.0.0.1/32"),
            ("10.0.0.1-10.0.0.9", "10.0.0.1..10.0.0.9"),
            ("10.0.0.1..10.0.0.9", "10.0.0.1..10.0.0.9"),
            ("10.0.0.0..10.0.0.255", "10.0.0.0/24"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("::/0", "::/0"),
            ("2001:db8::-2001:db8::7", "2001:db8::/125"),
            ("10.1.0.0/16[tcp/80]", "10.1.0.0/16[tcp/80]"),
            ("10.1.0.0/16[6/http]", "10.1.0.0/16[tcp/80]"),
            ("10.1.0.0/16[udp/1024-2048]", "10.1.0.0/16[udp/1024-2048]"),
            ("10.1.0.0/16[udp]", "10.1.0.0/16[udp]"),
            ("10.1.0.0/16[gre/%any]", "10.1.0.0/16[gre]"),
            ("10.1.0.0/16[200]", "10.1.0.0/16[200]"),
            ("10.1.0.0/16[/53]", "10.1.0.0/16[/53]"),
            ("10.1.0.0/16[tcp/opaque]", "10.1.0.0/16[tcp/opaque]"),
            ("10.1.0.0/16[icmp/8]", "10.1.0.0/16[icmp/8]"),
            ("10.1.0.0/16[icmp/8(0)]", "10.1.0.0/16[icmp/8(0)]"),
            ("10.1.0.0/16[icmp/3(1)-3(4)]", "10.1.0.0/16[icmp/3(1)-3(4)]"),
            ("10.1.0.0/16[icmp/8-10]", "10.1.0.0/16[icmp/8-10]"),
            ("fe80::/10[icmpv6/135]", "fe80::/10[ipv6-icmp/135]"),
        ] {
            let ts: TrafficSelector = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(ts.to_string(), printed, "{text}");
            assert_eq!(printed.parse(), Ok(ts), "{text}");
        }
    }

    #[test]
    fn errors_name_the_wrong_part() {
        for (text, message) in [
            ("10.1.0.0/33", "`10.1.0.0/33` is not a subnet"),
            ("10.1.0.0/", "`10.1.0.0/` is not a subnet"),
            ("10.1.0", "`10.1.0` is not an IP address"),
            (
                "10.0.0.9-10.0.0.1",
                "`10.0.0.9-10.0.0.1` is not a range of addresses in rising order",
            ),
            ("10.0.0.1-::1", "`10.0.0.1-::1` is not a range of addresses in rising order"),
            ("10.1.0.0/16[tcp/80", "`10.1.0.0/16[tcp/80` is not closed by `]`"),
            ("10.1.0.0/16[tpc]", "`tpc` is not an IP protocol"),
            ("10.1.0.0/16[tcp/65536]", "`65536` is not a port"),
            ("10.1.0.0/16[tcp/90-80]", "`90-80` is not a rising range of ports"),
            ("10.1.0.0/16[icmp/8(]", "`8(` is not an ICMP type or type(code)"),
        ] {
            assert_eq!(text.parse::<TrafficSelector>().unwrap_err().to_string(), message);
        }
    }
}
