//! Why an operator's command has failed.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use ike_proto::Failure;
use ike_tokio::Stopped;

/// The reason why a command of an operator has failed. The text of each reason is a sentence for a person.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum OperatorError {
    /// The drivers have ended.
    Stopped,
    /// The engine has carried the command out, without success.
    Failed(Failure),
    /// As [`Self::Failed`], and the engine tries again after this time.
    TriesAgain(Failure, Duration),
    /// These of several commands have failed, each with the name of its connection and child.
    Several {
        /// The number of commands.
        of: usize,
        /// The commands that have failed.
        failed: Vec<(String, Self)>,
    },
    /// The command names no SA and no connection.
    NoName,
    /// The configuration has no connection and no child of this name.
    Unknown(String),
    /// Several connections have a child of this name.
    Ambiguous {
        /// The child.
        child: String,
        /// The connections.
        connections: Vec<String>,
    },
    /// A connection and a child have this name.
    ConnectionAndChild(String),
    /// There is no SA of this name or number.
    NoSa(String),
    /// No IKE SA fits what a redirect asks for.
    NoClient,
    /// A redirect says neither a connection, an SA, an address nor an identity.
    AnyClient,
    /// Only an IKE SA can be reauthenticated, and the command names none.
    NoIkeSa,
    /// No child of this name has trap policies.
    NoTrap(String),
    /// `remote_addrs` has no address to initiate to.
    NoRemoteAddress,
    /// This name of the peer has no address.
    NoAddress(String),
    /// This host has no route to the peer.
    NoRoute {
        /// The peer.
        remote: IpAddr,
        /// The system's reason.
        reason: String,
    },
    /// `local_addrs` does not have the address from which the peer is reached.
    NoLocalAddress {
        /// The peer.
        remote: IpAddr,
        /// The address that the routing table chooses.
        route: IpAddr,
    },
    /// The name servers have not answered in this time.
    NameServers(Duration),
    /// The data plane cannot honour some options; a sentence for each.
    Unmet(Vec<String>),
    /// The program has no configuration file that could be read again.
    NoFile,
    /// The program takes nothing from control clients.
    NoLoader,
    /// Control clients have loaded nothing with this name or identifier.
    NotLoaded(String),
    /// The configuration file has mistakes. The text has a line for each.
    Mistakes(String),
    /// The program refuses what a client loads, or the new configuration; its reason.
    Refused(String),
    /// A task of this process has ended too early.
    Task,
}

impl OperatorError {
    /// The error of a connection to `remote` for which the routing table has no answer.
    pub(crate) fn no_route(remote: IpAddr, error: &io::Error) -> Self {
        Self::NoRoute { remote, reason: error.to_string() }
    }
}

impl fmt::Display for OperatorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped => Stopped.fmt(f),
            Self::Failed(why) => why.fmt(f),
            Self::TriesAgain(why, Duration::ZERO) => {
                write!(f, "{why}; the daemon tries again until the connection is up or taken down")
            }
            Self::TriesAgain(why, wait) => write!(
                f,
                "{why}; the daemon tries again in {} s, until the connection is up or taken down",
                wait.as_secs().max(1)
            ),
            Self::Several { of, failed } => {
                write!(f, "{} of {of} failed", failed.len())?;
                failed.iter().try_for_each(|(name, why)| write!(f, "\n{name}: {why}"))
            }
            Self::NoName => f.write_str("no name given"),
            Self::Unknown(name) => {
                write!(f, "the configuration has no {}", name.escape_default())
            }
            Self::Ambiguous { child, connections } => write!(
                f,
                "several connections have a child {child}: choose one by --ike ({})",
                connections.join(", ")
            ),
            Self::ConnectionAndChild(name) => {
                write!(f, "{name} is a connection and a child: say --ike or --child")
            }
            Self::NoSa(named) => write!(f, "no SA of {named}"),
            Self::NoClient => f.write_str("no IKE SA is meant by that"),
            Self::AnyClient => {
                f.write_str("which clients? Name a connection, an SA, an address or an identity")
            }
            Self::NoIkeSa => {
                f.write_str("only an IKE SA can be reauthenticated: name a connection")
            }
            Self::NoTrap(child) => write!(f, "no trap policy of a child {child:?}"),
            Self::NoRemoteAddress => f.write_str("remote_addrs has no address to initiate to"),
            Self::NoAddress(name) => {
                write!(f, "host name {name} has no address: check the name and the name servers")
            }
            Self::NoRoute { remote, reason } => write!(f, "no route to {remote}: {reason}"),
            Self::NoLocalAddress { remote, route } => write!(
                f,
                "local_addrs has no address to reach {remote} from (the route has {route})"
            ),
            Self::NameServers(limit) => write!(
                f,
                "the name servers do not answer within {} s: check /etc/resolv.conf",
                limit.as_secs()
            ),
            Self::Unmet(options) => f.write_str(&options.join("; ")),
            Self::NoFile => f.write_str("this daemon was started without a configuration file"),
            Self::NoLoader => f.write_str("this daemon has no configuration file"),
            Self::NotLoaded(name) => {
                write!(f, "there is nothing loaded by the name {name:?}")
            }
            Self::Mistakes(why) | Self::Refused(why) => f.write_str(why),
            Self::Task => f.write_str("the task of this command has ended: see the log"),
        }
    }
}

impl std::error::Error for OperatorError {}

impl From<Stopped> for OperatorError {
    fn from(_: Stopped) -> Self {
        Self::Stopped
    }
}

impl From<Failure> for OperatorError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fault: in `fmt`, write the failures of `Several` with `; ` between them.
    #[test]
    fn each_command_that_failed_has_a_line() {
        let failed = vec![
            ("a/net".to_owned(), OperatorError::Failed(Failure::Timeout)),
            ("b".to_owned(), OperatorError::NoRemoteAddress),
        ];
        let text = OperatorError::Several { of: 3, failed }.to_string();
        assert_eq!(text.lines().count(), 3, "{text}");
        assert!(text.starts_with("2 of 3 failed\na/net: "), "{text}");
    }

    /// Fault: in `fmt`, print `as_secs()` without `max(1)`.
    #[test]
    fn the_next_attempt_is_never_told_to_be_in_no_time() {
        let text = |wait| OperatorError::TriesAgain(Failure::Timeout, wait).to_string();
        assert!(text(Duration::from_millis(200)).contains("in 1 s, until"));
        assert!(text(Duration::from_secs(7)).contains("in 7 s, until"));
        assert!(text(Duration::ZERO).contains("tries again until"));
    }
}
