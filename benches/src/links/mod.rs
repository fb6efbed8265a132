//! `ike-bench links`: how long an IKE SA takes over links that are slow, long or lossy, and what it
//! costs in octets.
//!
//! * [`suite`]: what is negotiated, by the sizes of the messages that come of it.
//! * [`rules`]: how an end retransmits.
//! * [`scenario`]: links, suites and rules in rows that belong together, with published figures.
//! * [`outcome`]: what came of one handshake, and of all of a row.
//! * [`sim`]: handshakes on the simulated network; another [`Backend`] may have them anywhere.
//! * [`check`]: whether published figures could be a sample of ours.
//! * [`report`] and [`plot`]: tables, CSV and pictures.

pub mod check;
pub mod cli;
pub mod outcome;
pub mod plot;
pub mod progress;
pub mod published;
pub mod report;
pub mod rules;
mod run;
pub mod scenario;
pub mod sim;
pub mod suite;

use std::time::Duration;

use ike_tests::link::LinkModel;

use outcome::Outcome;
use rules::Rules;
use suite::Suite;

pub use run::{Plan, Row, run, seed};

/// One row of a table: a suite, an end's rules each, and a link.
#[derive(Debug, Clone)]
pub struct Case {
    /// What the link is called in its scenario.
    pub label: String,
    /// What is negotiated.
    pub suite: Suite,
    /// How the initiator and the responder retransmit.
    pub rules: [Rules; 2],
    /// The link from the initiator to the responder, and back.
    pub links: [LinkModel; 2],
    /// What either end takes to answer a message: computing, and whatever else was part of a published
    /// measurement.
    pub processing: Duration,
    /// Published figures of the same case.
    pub published: Option<published::Figures>,
}

impl Case {
    /// A case without published figures or processing time.
    pub fn new(label: impl Into<String>, suite: Suite, rules: Rules, link: LinkModel) -> Self {
        Self {
            label: label.into(),
            suite,
            rules: [rules; 2],
            links: [link; 2],
            processing: Duration::ZERO,
            published: None,
        }
    }

    /// The round-trip time without serialization and processing.
    pub fn rtt(&self) -> Duration {
        self.links.iter().map(|link| link.delay).sum()
    }

    /// What a handshake of so many octets of IP packets in each direction takes at least, without loss:
    /// a round trip and two answers for each exchange, and the time on the link.
    pub fn ideal(&self, ip_octets: [u64; 2]) -> Duration {
        let waiting = (self.rtt() + self.processing * 2) * self.suite.exchanges();
        let sending = self.links.iter().zip(ip_octets);
        waiting
            + sending.map(|(link, octets)| link.serialization(octets as usize)).sum::<Duration>()
    }

    /// The rules of both ends in a word: those of the initiator first if they differ.
    pub fn rules_name(&self) -> String {
        match self.rules {
            [one, other] if one == other => one.name().to_owned(),
            [initiator, responder] => format!("{}/{}", initiator.name(), responder.name()),
        }
    }
}

/// Where handshakes take place.
pub trait Backend: Sync {
    /// What to call it in a report.
    fn name(&self) -> String;

    /// Handshakes that may take place at the same time without being in each other's way.
    fn parallel(&self) -> usize;

    /// Handshake number `run` of `case`; everything random in it comes of `seed`.
    ///
    /// # Errors
    /// What prevents a measurement, which is not the same as a handshake that fails.
    fn handshake(&self, case: &Case, seed: u64) -> Result<Outcome, String>;

    /// A handshake of `case` on which nothing is lost and nothing sent twice, to compare with. Its time
    /// is [`Case::ideal`] at the least.
    ///
    /// # Errors
    /// As [`handshake`](Self::handshake).
    fn lossless(&self, case: &Case) -> Result<Outcome, String>;
}
