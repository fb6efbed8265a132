//! Commands for traps.

use ike_proto::Command;
use ike_proto::config::Action;
use ike_tokio::{PolicyView, Target};

use super::choose::to_initiate;
use super::{Lacking, Operator};
use crate::error::OperatorError;

impl Operator {
    /// Installs the trap policies of a child. The error says why not.
    pub async fn install(&self, ike: Option<&str>, child: &str) -> Result<(), OperatorError> {
        let target = Target {
            ike: ike.map(str::to_owned),
            child: Some(child.to_owned()),
            ..Target::default()
        };
        let (connection, child) = to_initiate(&self.config(), &target)?;
        let newest = self.taken_down.newest();
        let ends = self.ends(&connection).await?;
        let name = (connection, child.unwrap_or_default());
        self.taken_down.end_older(&name, newest);
        self.install_between(&name, ends).await
    }

    /// Takes the trap policies of a child away: of the first connection that has them, if `ike` names none. If the trap was
    /// the child's `start_action`, the child is down by command, and a reload does not install the trap again.
    pub async fn uninstall(&self, ike: Option<&str>, child: &str) -> Result<(), OperatorError> {
        let policies = self.handle.policies().await?;
        let found = policies.into_iter().find_map(|policy| match policy {
            PolicyView::Trap(trap)
                if trap.child.name == child && ike.is_none_or(|ike| ike == trap.connection) =>
            {
                Some(trap.connection)
            }
            _ => None,
        });
        // A trap that waits for a way to the peer is taken away as well. A child that waits for a start is none.
        let waits = |(connection, waiting): &Lacking| {
            ike.is_none_or(|ike| ike == connection)
                && found.as_ref().is_none_or(|found| found == connection)
                && waiting.as_deref() == Some(child)
                && self.start_action(connection, child) == Action::Trap
        };
        let waited = self.lacks(|lacks| {
            let first = lacks.keys().find(|name| waits(name)).cloned();
            first.filter(|name| lacks.remove(name).is_some())
        });
        if let (Some((connection, _)), None) = (&waited, &found) {
            self.untrapped((connection.clone(), child.to_owned()));
            return Ok(());
        }
        let connection = found.ok_or_else(|| OperatorError::NoTrap(child.to_owned()))?;
        let name = (connection.clone(), child.to_owned());
        self.command(Command::UninstallTrap { connection, child: child.to_owned() }).await?;
        self.untrapped(name);
        Ok(())
    }
}
