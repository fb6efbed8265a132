//! What follows the end of an IKE SA, of a Child SA, and of a failed attempt at one. Only this module decides that.
//! docs/lifecycle.md has the whole table, and the differences to strongSwan.

use crate::config::{Action, AuthConfig, ChildConfig, ConnectionConfig};
use crate::event::Failure;
use crate::wire::registry::NotifyType;

/// Why something ended, and by whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum End {
    /// The operator of this end has ended it.
    Commanded,
    /// This end has ended it, because a hard limit was reached: time, volume, the authorization of RFC 4478,
    /// message IDs.
    Lifetime,
    /// This end has ended it, because there was no traffic for `inactivity`.
    Inactive,
    /// The peer deleted it.
    Deleted,
    /// The peer does not answer any more.
    Silent,
    /// The peer has lost it, and has proven that.
    Lost,
    /// The two ends no longer had the same state, or the peer put off every request for minutes.
    OutOfStep,
    /// The data plane lost it, or refused a change.
    DataPlane,
    /// Another IKE SA takes its place: INITIAL_CONTACT, `unique`, reauthentication.
    Replaced,
    /// An attempt: the peer did not answer.
    NoAnswer,
    /// An attempt, or a request for a child: one of the ends refused.
    Refused,
    /// An attempt: this end could not make it, because of its configuration or its resources.
    Unable,
}

impl End {
    /// The kind of the end of an established IKE SA or of a child, by its reason.
    pub(crate) fn of_sa(reason: &Failure) -> Self {
        match reason {
            Failure::Terminated => Self::Commanded,
            Failure::Expired => Self::Lifetime,
            Failure::Inactive => Self::Inactive,
            Failure::DeletedByPeer => Self::Deleted,
            Failure::Timeout => Self::Silent,
            Failure::LostByPeer => Self::Lost,
            Failure::DataPlane(_) => Self::DataPlane,
            Failure::Replaced => Self::Replaced,
            Failure::Peer(_)
            | Failure::Refused(_)
            | Failure::Authentication
            | Failure::Untrusted(..)
            | Failure::Credentials(_)
            | Failure::Config(_)
            | Failure::NotFound
            | Failure::Policy(_)
            | Failure::Crypto => Self::OutOfStep,
        }
    }

    /// The same for an attempt, and for a request for a child.
    pub(crate) fn of_attempt(reason: &Failure) -> Self {
        match reason {
            Failure::Terminated => Self::Commanded,
            Failure::Timeout => Self::NoAnswer,
            Failure::Replaced => Self::Replaced,
            Failure::Credentials(_)
            | Failure::DataPlane(_)
            | Failure::Config(_)
            | Failure::Policy(_)
            | Failure::Crypto => Self::Unable,
            Failure::Peer(_)
            | Failure::Refused(_)
            | Failure::Authentication
            | Failure::Untrusted(..)
            | Failure::NotFound
            | Failure::Expired
            | Failure::Inactive
            | Failure::LostByPeer
            | Failure::DeletedByPeer => Self::Refused,
        }
    }
}

/// What the configuration and the operator want of a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wishes {
    /// True if the child is wanted up, by `start_action = start` or by a command, and no command has taken that
    /// back.
    pub(crate) wanted: bool,
    /// `close_action`.
    pub(crate) close: Action,
    /// `dpd_action`.
    pub(crate) dpd: Action,
    /// `keyingtries = 0`.
    pub(crate) forever: bool,
    /// Another attempt is allowed by `keyingtries`.
    pub(crate) tries_left: bool,
}

impl Wishes {
    /// The wishes for `child`, of which `tries` attempts in a row have failed.
    pub(crate) fn of(
        connection: &ConnectionConfig,
        child: Option<&ChildConfig>,
        wanted: bool,
        tries: u32,
    ) -> Self {
        Self {
            wanted,
            close: child.map_or(Action::None, |child| child.close_action),
            dpd: child.map_or(Action::None, |child| child.dpd_action),
            forever: connection.keyingtries == 0,
            tries_left: connection.keyingtries == 0 || tries < connection.keyingtries,
        }
    }

    /// The same without the actions, because there was no child to which they would apply.
    pub(crate) fn without_actions(self) -> Self {
        Self { close: Action::None, dpd: Action::None, ..self }
    }
}

/// What follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing: the child is not wanted any more.
    Nothing,
    /// Its trap is installed.
    Trap,
    /// The child is started at once, unless the last start was only a moment ago.
    Start,
    /// The child is started after a back-off.
    StartLater,
}

impl Next {
    /// True if this end will bring the child up again.
    pub(crate) fn starts(self) -> bool {
        matches!(self, Self::Start | Self::StartLater)
    }
}

/// Decides what follows an end.
pub(crate) fn after(end: End, wishes: Wishes) -> Next {
    let Wishes { wanted, close, dpd, forever, tries_left } = wishes;
    let by_action = |action| match action {
        Action::Start => Next::Start,
        Action::Trap => Next::Trap,
        // With `keyingtries = 0` only the operator ends what is wanted.
        Action::None if wanted && forever => Next::Start,
        Action::None => Next::Nothing,
    };
    // Neither end wanted this.
    let unwanted_end = |again| match close {
        _ if wanted => again,
        Action::Start => again,
        Action::Trap => Next::Trap,
        Action::None => Next::Nothing,
    };
    match end {
        End::Commanded | End::Inactive => Next::Nothing,
        // The peer has ended it on purpose: `close_action` alone decides, as in charon.
        End::Deleted if close == Action::None => Next::Nothing,
        End::Deleted => by_action(close),
        End::Silent | End::Lost => by_action(dpd),
        End::Lifetime | End::OutOfStep => unwanted_end(Next::Start),
        End::DataPlane => unwanted_end(Next::StartLater),
        // The other IKE SA may have the child, or get it in a moment.
        End::Replaced if wanted => Next::StartLater,
        End::Replaced => Next::Nothing,
        End::NoAnswer if tries_left => Next::Start,
        End::Refused | End::Unable if wanted && forever => Next::StartLater,
        End::NoAnswer | End::Refused | End::Unable => Next::Nothing,
    }
}

/// True if `reason`, the failure of an attempt, may be a refused password. A server that counts refusals locks the
/// account after a few.
pub(crate) fn may_lock_account(connection: &ConnectionConfig, reason: &Failure) -> bool {
    let refused = matches!(
        reason,
        Failure::Peer(NotifyType::AUTHENTICATION_FAILED) | Failure::Credentials(_)
    );
    refused && connection.local.iter().any(|round| round.auth == AuthConfig::Eap)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fmt::Write;

    use super::*;

    const ACTIONS: [Action; 3] = [Action::None, Action::Trap, Action::Start];

    /// Each end with its name in the table, and the action that applies.
    const ENDS: [(End, &str, &str); 12] = [
        (End::Commanded, "taken down here", "-"),
        (End::Lifetime, "hard limit reached here", "close_action"),
        (End::Inactive, "`inactivity` here", "-"),
        (End::Deleted, "deleted by the peer", "close_action"),
        (End::Silent, "the peer is silent", "dpd_action"),
        (End::Lost, "the peer has lost it", "dpd_action"),
        (End::OutOfStep, "the ends are out of step", "close_action"),
        (End::DataPlane, "lost by the data plane", "close_action"),
        (End::Replaced, "replaced", "-"),
        (End::NoAnswer, "an attempt: no answer", "-"),
        (End::Refused, "an attempt: refused", "-"),
        (End::Unable, "an attempt: impossible here", "-"),
    ];

    /// `keyingtries`: for ever, some tries left, none left.
    const TRIES: [(&str, bool, bool); 3] =
        [("0", true, true), ("left", false, true), ("spent", false, false)];

    fn word(next: Next) -> &'static str {
        match next {
            Next::Nothing => "nothing",
            Next::Trap => "trap",
            Next::Start => "start",
            Next::StartLater => "later",
        }
    }

    /// What follows with `action` where it applies. Checks that the other action makes no difference.
    fn outcome(end: End, applies: &str, wanted: bool, tries: usize, action: Action) -> Next {
        let (_, forever, tries_left) = TRIES[tries];
        let mut all = BTreeSet::new();
        let mut last = Next::Nothing;
        for other in ACTIONS {
            let (close, dpd) = match applies {
                "close_action" => (action, other),
                "dpd_action" => (other, action),
                _ => (action, other),
            };
            last = after(end, Wishes { wanted, close, dpd, forever, tries_left });
            all.insert(word(last));
        }
        assert_eq!(all.len(), 1, "{end:?} depends on the action that does not apply");
        last
    }

    fn table() -> String {
        let mut text = String::from(
            "| end | wanted | `keyingtries` | action | none | trap | start |\n|---|---|---|---|---|---|---|\n",
        );
        for (end, name, applies) in ENDS {
            for wanted in [true, false] {
                let of = |tries| {
                    ACTIONS.map(|action| word(outcome(end, applies, wanted, tries, action)))
                };
                let rows: Vec<_> = (0..TRIES.len()).map(of).collect();
                let mut line = |tries: &str, [none, trap, start]: [&str; 3]| {
                    let wanted = if wanted { "yes" } else { "no" };
                    let _ = writeln!(
                        text,
                        "| {name} | {wanted} | {tries} | {applies} | {none} | {trap} | {start} |"
                    );
                };
                match rows.as_slice() {
                    [a, b, c] if a == b && b == c => line("any", *a),
                    [a, b, c] if b == c => {
                        line("0", *a);
                        line("other", *b);
                    }
                    rows => {
                        for (row, (tries, ..)) in rows.iter().zip(TRIES) {
                            line(tries, *row);
                        }
                    }
                }
            }
        }
        text
    }

    /// The whole product of reason, wish, action and tries is what docs/lifecycle.md says.
    ///
    /// Fault: in `after`, take `End::Lifetime` to `Next::Nothing`; or any other line to another outcome.
    #[test]
    fn the_table_in_the_documents_is_what_happens() {
        let document = include_str!("../../../../docs/lifecycle.md");
        let table = table();
        assert!(document.contains(&table), "docs/lifecycle.md lacks this table:\n{table}");
    }

    /// Every reason there is leads somewhere, and what is wanted and retried for ever ends by nothing but a command,
    /// `inactivity`, or a Delete of the peer's without `close_action`, or by a trap where one is configured.
    ///
    /// Fault: in `after`, drop the guard `if wanted && forever`.
    #[test]
    fn what_is_wanted_for_ever_always_comes_back() {
        for (end, _, applies) in ENDS {
            for action in ACTIONS {
                let next = outcome(end, applies, true, 0, action);
                let closed = end == End::Deleted && action == Action::None;
                let ends = closed || matches!(end, End::Commanded | End::Inactive);
                assert_eq!(next == Next::Nothing, ends, "{end:?} {action:?}");
            }
        }
        // What nobody wants, and no action asks for, is not brought back, but for a series of attempts.
        for (end, _, applies) in ENDS {
            let next = outcome(end, applies, false, 0, Action::None);
            assert_eq!(next.starts(), end == End::NoAnswer, "{end:?}");
        }
    }
}
