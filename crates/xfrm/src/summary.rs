//! Commands without their keys.

use std::fmt;
use std::net::SocketAddr;

use ipsec_types::crypto::CipherSuite;
use ipsec_types::dataplane::{
    Command, Direction, Encapsulation, Mode, PolicyAction, PolicyId, PolicySpec, Probed, SaId,
    SaSpec,
};

/// Which command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CommandKind {
    /// [`Command::InstallSa`].
    InstallSa,
    /// [`Command::RemoveSa`].
    RemoveSa,
    /// [`Command::InstallPolicy`].
    InstallPolicy,
    /// [`Command::RemovePolicy`].
    RemovePolicy,
    /// [`Command::UpdateSa`].
    UpdateSa,
    /// [`Command::QueryUsage`].
    QueryUsage,
    /// [`Command::PathProbed`].
    PathProbed,
    /// [`Command::Flush`].
    Flush,
    /// [`Command::RemoveSas`].
    RemoveSas,
}

impl CommandKind {
    /// The kind of `command`.
    pub fn of(command: &Command) -> Self {
        match command {
            Command::InstallSa(_) => Self::InstallSa,
            Command::RemoveSa(_) => Self::RemoveSa,
            Command::InstallPolicy(_) => Self::InstallPolicy,
            Command::RemovePolicy(_) => Self::RemovePolicy,
            Command::UpdateSa { .. } => Self::UpdateSa,
            Command::QueryUsage(_) => Self::QueryUsage,
            Command::PathProbed(..) => Self::PathProbed,
            Command::Flush => Self::Flush,
            Command::RemoveSas => Self::RemoveSas,
        }
    }
}

/// The content of a command without key material, which may be stored, compared and printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Summary {
    /// An SA was installed.
    InstallSa {
        /// SPI and destination.
        id: SaId,
        /// Direction.
        direction: Direction,
        /// Mode.
        mode: Mode,
        /// The policy it serves.
        policy: PolicyId,
        /// Cipher suite.
        suite: CipherSuite,
        /// Encapsulation.
        encap: Option<Encapsulation>,
    },
    /// An SA was removed.
    RemoveSa(SaId),
    /// A policy was installed.
    InstallPolicy {
        /// Its id.
        id: PolicyId,
        /// Name of the child configuration.
        child: String,
        /// Its action.
        action: PolicyAction,
    },
    /// A policy was removed.
    RemovePolicy(PolicyId),
    /// An SA was moved.
    UpdateSa {
        /// The SA.
        id: SaId,
        /// New source.
        src: SocketAddr,
        /// New destination.
        dst: SocketAddr,
        /// New encapsulation.
        encap: Option<Encapsulation>,
    },
    /// Counters were asked for.
    QueryUsage(SaId),
    /// Everything was removed.
    Flush,
    /// A probe has shown something about a path.
    PathProbed(SaId, Probed),
    /// All SAs were removed.
    RemoveSas,
}

impl Summary {
    /// Summarizes `command`.
    pub fn of(command: &Command) -> Self {
        match command {
            Command::InstallSa(spec) => {
                let SaSpec { id, direction, mode, policy, suite, encap, .. } = **spec;
                Self::InstallSa { id, direction, mode, policy, suite, encap }
            }
            Command::RemoveSa(id) => Self::RemoveSa(*id),
            Command::InstallPolicy(spec) => {
                let PolicySpec { id, child, action, .. } = &**spec;
                Self::InstallPolicy { id: *id, child: child.clone(), action: action.clone() }
            }
            Command::RemovePolicy(id) => Self::RemovePolicy(*id),
            &Command::UpdateSa { id, src, dst, encap } => Self::UpdateSa { id, src, dst, encap },
            Command::QueryUsage(id) => Self::QueryUsage(*id),
            Command::PathProbed(id, probed) => Self::PathProbed(*id, *probed),
            Command::Flush => Self::Flush,
            Command::RemoveSas => Self::RemoveSas,
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InstallSa { id, direction, mode, policy, suite, encap } => {
                write!(f, "install {direction:?} {mode:?} SA {} for policy {}", Sa(id), policy.0)?;
                write!(f, ": {}", suite.encr)?;
                if suite.key_bits != 0 {
                    write!(f, "-{}", suite.key_bits)?;
                }
                if suite.integ.0 != 0 {
                    write!(f, "/{}", suite.integ)?;
                }
                let (name, ports) = match encap {
                    None => return Ok(()),
                    Some(Encapsulation::Udp(ports)) => ("UDP", ports),
                    Some(Encapsulation::Tcp(ports)) => ("TCP", ports),
                };
                write!(f, ", {name} {} to {}", ports.src_port, ports.dst_port)
            }
            Self::RemoveSa(id) => write!(f, "remove SA {}", Sa(id)),
            Self::InstallPolicy { id, child, action } => {
                let verb = match action {
                    PolicyAction::Protect { outbound: Some(id), .. } => {
                        return write!(f, "install policy {child}: protect by {}", Sa(id));
                    }
                    PolicyAction::Protect { outbound: None, .. } => "protect",
                    PolicyAction::Trap => "trap",
                    PolicyAction::Pass => "pass",
                    PolicyAction::Drop => "drop",
                    PolicyAction::Shunt { .. } => "shunt",
                    PolicyAction::Hold { .. } => "hold",
                };
                write!(f, "install policy {} of {child}: {verb}", id.0)
            }
            Self::RemovePolicy(id) => write!(f, "remove policy {}", id.0),
            Self::UpdateSa { id, src, dst, .. } => {
                write!(f, "move SA {} to {src} -> {dst}", Sa(id))
            }
            Self::QueryUsage(id) => write!(f, "query SA {}", Sa(id)),
            Self::PathProbed(id, probed) => write!(f, "path of SA {}: {probed:?}", Sa(id)),
            Self::Flush => f.write_str("flush"),
            Self::RemoveSas => f.write_str("remove SAs"),
        }
    }
}

/// An SA's name as logs spell it.
struct Sa<'a>(&'a SaId);

impl fmt::Display for Sa<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x} to {}", self.0.spi, self.0.dst)
    }
}
