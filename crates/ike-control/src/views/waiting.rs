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

/// The line of `list` about a data plane without a second line.
pub fn render_without_second_line(reason: Option<&str>) -> String {
    reason.map(|reason| format!("no second line: {reason}\n")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fault: in `render_without_second_line`, say nothing.
    #[test]
    fn list_says_that_there_is_no_second_line_and_why() {
        assert_eq!(render_without_second_line(Some("no memory")), "no second line: no memory\n");
        assert_eq!(render_without_second_line(None), "");
    }
}
