//! Children that wait for a way to their peers.

use serde::{Deserialize, Serialize};

/// A child that is to be started, and cannot be yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Waiting {
    /// Its connection.
    pub connection: String,
    /// Its name.
    pub child: String,
    /// The route, the address or the host name that is not there, as a sentence.
    pub waits_for: String,
}

/// A child that a command has taken down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct TakenDown {
    /// Its connection.
    pub connection: String,
    /// Its name.
    pub child: String,
}

/// The lines of `list` about children that a command has taken down.
pub fn render_taken_down(all: &[TakenDown]) -> String {
    let line = |one: &TakenDown| {
        format!(
            "{}: {} is down by command, until `up` or a restart of the daemon\n",
            one.connection, one.child
        )
    };
    all.iter().map(line).collect()
}

/// The lines of `list` about children that wait.
pub fn render_waiting(all: &[Waiting]) -> String {
    let line = |one: &Waiting| {
        format!(
            "{}: {} waits for a way to the peer: {}\n",
            one.connection, one.child, one.waits_for
        )
    };
    all.iter().map(line).collect()
}
