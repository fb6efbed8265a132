//! How an initiator learns what the responder sent.

use std::collections::BTreeMap;
use std::fs;
use std::io;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use super::ToArgs;
use super::tally::Sent;

/// IPv4 and UDP headers.
const HEADERS: u64 = 28;

/// The source of the counts.
#[derive(Debug)]
pub enum Counts {
    /// There is none.
    None,
    /// `ike-bench serve` itself, which knows the IKE SAs.
    Asked(BufReader<TcpStream>),
    /// What the network namespace of a process has sent over IPv4, since the beginning of the handshake.
    Namespace {
        /// The process.
        pid: u32,
        /// What had been sent then.
        before: Sent,
    },
}

impl Counts {
    /// The source that `args` name.
    pub async fn open(host: &str, args: &ToArgs) -> Result<Self, String> {
        if let Some(pid) = args.counts_pid {
            return Ok(Self::Namespace { pid, before: namespace(pid).map_err(|e| e.to_string())? });
        }
        if args.counts_port == 0 {
            return Ok(Self::None);
        }
        let host = args.counts_host.as_deref().unwrap_or(host);
        let stream = TcpStream::connect((host, args.counts_port)).await.map_err(|error| {
            format!(
                "TCP {host}:{}: {error} (--counts-port 0 does without the responder's counts)",
                args.counts_port
            )
        })?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        Ok(Self::Asked(BufReader::new(stream)))
    }

    /// A handshake begins.
    pub fn begin(&mut self) -> io::Result<()> {
        if let Self::Namespace { pid, before } = self {
            *before = namespace(*pid)?;
        }
        Ok(())
    }

    /// It has ended: what the namespace has sent since its beginning, if that is the source.
    pub fn end(&self) -> io::Result<Option<Sent>> {
        let Self::Namespace { pid, before } = self else { return Ok(None) };
        let now = namespace(*pid)?;
        Ok(Some(Sent {
            datagrams: now.datagrams.saturating_sub(before.datagrams),
            octets: now.octets.saturating_sub(before.octets),
            again: 0,
        }))
    }

    /// What the responder sent in the handshakes of these initiator's SPIs, if it can be asked.
    pub async fn ask(&mut self, spis: &[u64]) -> io::Result<Option<Sent>> {
        let Self::Asked(stream) = self else { return Ok(None) };
        let words: Vec<String> = spis.iter().map(|spi| format!("{spi:016x}")).collect();
        stream.get_mut().write_all(format!("{}\n", words.join(" ")).as_bytes()).await?;
        let mut line = String::new();
        stream.read_line(&mut line).await?;
        let numbers: Vec<u64> =
            line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        match numbers.as_slice() {
            [datagrams, octets, again] => {
                Ok(Some(Sent { datagrams: *datagrams, octets: *octets, again: *again }))
            }
            _ => Err(io::Error::other("the responder's answer is not understood")),
        }
    }
}

/// What the namespace has sent over UDP and IPv4 so far; other packets than UDP's count as octets.
fn namespace(pid: u32) -> io::Result<Sent> {
    let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/net/{name}"));
    let text = read("snmp")? + &read("netstat")?;
    let counters = counters(&text);
    let get = |name: &str| {
        let missing = || io::Error::other(format!("/proc/{pid}/net has no {name}"));
        counters.get(name).copied().ok_or_else(missing)
    };
    let datagrams = get("Udp:OutDatagrams")?;
    let octets = get("IpExt:OutOctets")?.saturating_sub(HEADERS * datagrams);
    Ok(Sent { datagrams, octets, again: 0 })
}

/// The counters of /proc/net/snmp and its like: a line of names and one of values, for each protocol.
fn counters(text: &str) -> BTreeMap<String, u64> {
    let mut counters = BTreeMap::new();
    let mut lines = text.lines();
    while let (Some(names), Some(values)) = (lines.next(), lines.next()) {
        let mut names = names.split_whitespace();
        let protocol = names.next().unwrap_or_default();
        for (name, value) in names.zip(values.split_whitespace().skip(1)) {
            if let Ok(value) = value.parse() {
                counters.insert(format!("{protocol}{name}"), value);
            }
        }
    }
    counters
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_above_values() {
        let text = "Ip: Forwarding DefaultTTL\nIp: 1 64\nUdp: InDatagrams MaxConn OutDatagrams\nUdp: 3 -1 9\n";
        let counters = counters(text);
        assert_eq!(counters.get("Udp:OutDatagrams"), Some(&9));
        assert_eq!(counters.get("Ip:DefaultTTL"), Some(&64));
        assert_eq!(counters.get("Udp:MaxConn"), None);
    }
}
