//! The account of a demonstration, for people and for programs.

use std::fmt;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::traffic::{Throughput, Traffic};
use crate::control::sas::{ChildSa, IkeSa};
use crate::control::suite;
use crate::driver::{Direction, Message};

/// What happened.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Account {
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
}

/// One message.
#[derive(Debug, Serialize)]
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
        Self { what: what.to_owned(), ms: millis(time), messages }
    }
}

impl Account {
    pub(super) fn step(&mut self, step: Step) {
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
        writeln!(f, "            {}", suite(&ike.algorithms))?;
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
        writeln!(f, "left  {} initiates, right {} answers.", self.left, self.right)?;
        for (index, step) in self.steps.iter().enumerate() {
            writeln!(f, "\n{}. {}: ok, {:.2} ms", index + 1, step.what, step.ms)?;
            for line in &step.messages {
                writeln!(f, "  {line}")?;
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
            None => write!(f, "\nAll of it worked."),
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

/// Milliseconds to the microsecond.
fn millis(time: Duration) -> f64 {
    time.as_micros() as f64 / 1000.0
}
