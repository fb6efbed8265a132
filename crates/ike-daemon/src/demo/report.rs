//! The account of a demonstration, for people and for programs.

use std::fmt;
use std::time::{Duration, Instant};

use ike_control::views::{ChildSa, IkeSa, suite};
use ike_tokio::{Direction, Message};
use serde::Serialize;

use super::traffic::{Throughput, Traffic};

/// What happened.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Account {
    /// Name of the suite.
    pub suite: &'static str,
    /// True if all of it worked.
    pub ok: bool,
    /// Why it did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// Address of the initiator.
    pub left: String,
    /// Address of the responder.
    pub right: String,
    /// Milliseconds from the first message to established, at the initiator.
    pub handshake_ms: Option<f64>,
    /// What was done.
    pub steps: Vec<Step>,
    /// All IKE messages of it together.
    pub total: Total,
    /// The IKE SA at the initiator.
    pub ike_sa: Option<IkeSa>,
    /// The IKE SA at the responder.
    pub peer_ike_sa: Option<IkeSa>,
    /// Small packets there and back.
    pub traffic: Option<Traffic>,
    /// Large packets one way.
    pub throughput: Vec<Throughput>,
    /// The Child SA after its rekey.
    pub rekeyed_child: Option<ChildSa>,
    /// The IKE SA after its rekey.
    pub rekeyed_ike_sa: Option<IkeSa>,
}

/// One step that worked.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Step {
    /// What it was.
    pub what: String,
    /// Milliseconds it took.
    pub ms: f64,
    /// IKE messages of it, as the initiator saw them.
    pub messages: Vec<Line>,
    /// The same by exchange, what was sent again included.
    pub exchanges: Vec<Exchange>,
}

/// One exchange: a request and its response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Exchange {
    /// Its name.
    pub exchange: String,
    /// Message ID.
    pub message_id: u32,
    /// Who asked: `left` or `right`.
    pub from: &'static str,
    /// Datagrams and octets of who asked: the request, and acknowledgments of fragments.
    pub request: Total,
    /// The same of who answered.
    pub response: Total,
}

/// Datagrams, and their octets of IKE, without UDP and marker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Total {
    /// Datagrams.
    pub datagrams: usize,
    /// Octets.
    pub bytes: usize,
}

impl Total {
    fn add(&mut self, line: &Line) {
        self.datagrams += 1;
        self.bytes += line.size;
    }
}

impl fmt::Display for Total {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { datagrams, bytes } = self;
        let s = if *datagrams == 1 { "" } else { "s" };
        write!(f, "{bytes:>6} octets in {datagrams:>2} datagram{s}")
    }
}

/// One message.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Line {
    /// Milliseconds since the beginning.
    pub ms: f64,
    /// `left` or `right`.
    pub from: &'static str,
    /// Exchange.
    pub exchange: String,
    /// `request` or `response`.
    pub kind: &'static str,
    /// Message ID.
    pub message_id: u32,
    /// Number of this fragment and of all, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fragment: Option<(u16, u16)>,
    /// Octets of IKE, without UDP and marker.
    pub size: usize,
    /// True if it was sent before.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub again: bool,
}

impl Line {
    pub(super) fn new(message: &Message, began: Instant) -> Self {
        Self {
            ms: millis(message.at.saturating_duration_since(began)),
            from: match message.direction {
                Direction::Out => "left",
                Direction::In => "right",
            },
            exchange: message.exchange.to_string(),
            kind: if message.response { "response" } else { "request" },
            message_id: message.message_id,
            fragment: message.fragment,
            size: message.size,
            again: message.again,
        }
    }
}

impl Step {
    pub(super) fn new(what: &str, time: Duration, messages: Vec<Line>) -> Self {
        let exchanges = exchanges(&messages);
        Self { what: what.to_owned(), ms: millis(time), messages, exchanges }
    }
}

impl Account {
    pub(super) fn step(&mut self, step: Step) {
        step.messages.iter().for_each(|line| self.total.add(line));
        self.steps.push(step);
    }

    /// Inbound SPI of the first child.
    pub(super) fn child_spi(&self) -> Option<String> {
        let child = self.ike_sa.as_ref()?.child_sas.first()?;
        Some(child.spi_in.clone())
    }

    fn sas(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(ike) = &self.ike_sa else { return Ok(()) };
        writeln!(f, "  IKE SA    {}_i {}_r", ike.initiator_spi, ike.responder_spi)?;
        let ppk = if ike.ppk { "/PPK" } else { "" };
        writeln!(f, "            {}{ppk}", suite(&ike.algorithms))?;
        let id = |id: &Option<String>| id.clone().unwrap_or_default();
        writeln!(f, "            {} === {}", id(&ike.local_id), id(&ike.remote_id))?;
        for child in &ike.child_sas {
            child_sa(f, child)?;
            let (local, remote) = (child.local_ts.join(" "), child.remote_ts.join(" "));
            writeln!(f, "            {local} === {remote}")?;
        }
        if let Some(ms) = self.handshake_ms {
            writeln!(f, "  established in {ms:.2} ms, from the first message sent")?;
        }
        Ok(())
    }

    fn figures(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for t in &self.throughput {
            let Throughput { direction, packets, lost, mbit_per_second, .. } = t;
            writeln!(
                f,
                "  {direction}: {mbit_per_second:.0} Mbit/s ({packets} packets, {lost} lost)"
            )?;
        }
        Ok(())
    }
}

fn child_sa(f: &mut fmt::Formatter<'_>, child: &ChildSa) -> fmt::Result {
    let esn = if child.esn { "/ESN" } else { "" };
    let encap = if child.encap { " in UDP" } else { "" };
    writeln!(f, "  Child SA  {}_in {}_out", child.spi_in, child.spi_out)?;
    writeln!(f, "            {}{encap}: {}{esn}", child.protocol, suite(&child.algorithms))
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Two daemons in this process, UDP over loopback, ESP in userspace.")?;
        writeln!(f, "Suite {}.", self.suite)?;
        writeln!(f, "left  {} initiates, right {} answers.", self.left, self.right)?;
        for (index, step) in self.steps.iter().enumerate() {
            writeln!(f, "\n{}. {}: ok, {:.2} ms", index + 1, step.what, step.ms)?;
            messages(f, &step.messages)?;
            for exchange in &step.exchanges {
                writeln!(f, "  {exchange}")?;
            }
            match index {
                0 => self.sas(f)?,
                1 => {
                    if let Some(t) = &self.traffic {
                        writeln!(
                            f,
                            "  {} octets, {:.0} µs there and back",
                            t.bytes, t.round_trip_us
                        )?;
                    }
                }
                2 => self.figures(f)?,
                3 => self.rekeyed_child.iter().try_for_each(|child| child_sa(f, child))?,
                4 => {
                    if let Some(ike) = &self.rekeyed_ike_sa {
                        writeln!(f, "  IKE SA    {}_i {}_r", ike.initiator_spi, ike.responder_spi)?;
                    }
                }
                _ => {}
            }
        }
        match &self.failed {
            None => {
                writeln!(f, "\nIKE in all: {}.", self.total.to_string().trim_start())?;
                write!(f, "All of it worked.")
            }
            Some(why) => write!(f, "\nIt failed after this: {why}."),
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let arrow = if self.from == "left" { "left  -> right" } else { "left <-  right" };
        let Self { ms, exchange, kind, message_id, size, .. } = self;
        write!(f, "{ms:9.2} ms  {arrow}  {exchange} {kind} {message_id}, {size} octets")?;
        if let Some((number, total)) = self.fragment {
            write!(f, ", fragment {number} of {total}")?;
        }
        if self.again { write!(f, ", sent again") } else { Ok(()) }
    }
}

/// The exchanges that `messages` belong to, in the order of their first messages.
fn exchanges(messages: &[Line]) -> Vec<Exchange> {
    let mut exchanges: Vec<Exchange> = Vec::new();
    for line in messages {
        let asked_by = |from: &str| {
            let this = |exchange: &Exchange| {
                (exchange.message_id, exchange.from) == (line.message_id, from)
                    && exchange.exchange == line.exchange
            };
            exchanges.iter().position(this)
        };
        let request = line.kind == "request";
        let other = if line.from == "left" { "right" } else { "left" };
        let from = if request { line.from } else { other };
        // Who acknowledges fragments of a response answers an answer.
        let acknowledged = || asked_by(line.from).filter(|_| !request);
        let index = asked_by(from).or_else(acknowledged).unwrap_or_else(|| {
            exchanges.push(Exchange {
                exchange: line.exchange.clone(),
                message_id: line.message_id,
                from,
                request: Total::default(),
                response: Total::default(),
            });
            exchanges.len() - 1
        });
        let Some(exchange) = exchanges.get_mut(index) else { continue };
        let of_who_asked = line.from == exchange.from;
        let total = if of_who_asked { &mut exchange.request } else { &mut exchange.response };
        total.add(line);
    }
    exchanges
}

/// The messages, a line for each; the fragments of one message share a line.
fn messages(f: &mut fmt::Formatter<'_>, lines: &[Line]) -> fmt::Result {
    let same = |a: &Line, b: &Line| {
        let key = |line: &Line| (line.from, line.kind, line.message_id, line.again);
        a.fragment.is_some() && b.fragment.is_some() && key(a) == key(b) && a.exchange == b.exchange
    };
    for message in lines.chunk_by(same) {
        match message {
            [only] => writeln!(f, "  {only}")?,
            [first, .., last] => {
                let octets: usize = message.iter().map(|line| line.size).sum();
                let count = message.len();
                let whole = Line { fragment: None, size: octets, ..first.clone() };
                let last = last.ms;
                writeln!(f, "  {whole}, {count} fragments until {last:.2} ms")?;
            }
            [] => {}
        }
    }
    Ok(())
}

impl fmt::Display for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { exchange, message_id, request, response, .. } = self;
        write!(f, "  {exchange:<16} {message_id:>2}: request {request}, response {response}")
    }
}

/// Milliseconds to the microsecond.
fn millis(time: Duration) -> f64 {
    time.as_micros() as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message of an exchange.
    fn line(from: &'static str, kind: &'static str, message_id: u32, size: usize) -> Line {
        let exchange = "IKE_INTERMEDIATE".to_owned();
        Line { ms: 0.0, from, exchange, kind, message_id, size, fragment: None, again: false }
    }

    #[test]
    fn acknowledgments_of_fragments_belong_to_the_exchange_of_what_they_acknowledge() {
        let found = exchanges(&[
            line("left", "request", 2, 1000),
            line("right", "response", 2, 10),
            line("right", "response", 2, 500),
            line("left", "response", 2, 20),
            // Another, of the same number.
            line("right", "request", 2, 7),
            line("left", "response", 2, 8),
        ]);
        let bytes: Vec<_> =
            found.iter().map(|one| (one.from, one.request.bytes, one.response.bytes)).collect();
        assert_eq!(bytes, [("left", 1020, 510), ("right", 7, 8)]);
    }
}
