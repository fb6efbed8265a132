//! Drops what arrives in clear for addresses that a policy protects (RFC 4301 §5.2).
//!
//! Such packets never come to the TUN device, so the kernel has to drop them: by nf_tables, in a table
//! of the device's own that is made anew, in one transaction, whenever the selectors of the SPD change.
//!
//! ```text
//! table inet ike-ike0 {
//!   chain input   { type filter hook input priority raw;   iif ike0 accept; iif lo accept
//!                   meta l4proto esp accept; meta l4proto udp jump encap
//!                   <neighbor discovery> accept; <later IPv6 fragments of ESP and UDP> accept
//!                   jump clear }
//!   chain forward { type filter hook forward priority raw; iif ike0 accept; jump clear }
//!   chain encap   { udp dport 500 accept; udp dport 4500 accept }
//!   chain clear   { ip saddr <remote> ip daddr <local> … counter drop; … }    # in the SPD's order
//! }
//! ```
//!
//! ESP and IKE are exempt only where they are for this host: an inner host's port 500 is protected like
//! its others. The table belongs to the netlink socket, and goes with it if the process dies; kernels
//! older than 5.12 keep it until the next run.

use std::fmt;
use std::io;
use std::time::Duration;

use netlink_packet_core::{ErrorBuffer, NLMSG_ERROR, NetlinkBuffer};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};
use nix::sys::socket::{setsockopt, sockopt};
use socket2::SockRef;
use tracing::debug;

use crate::plane::ClearRule;
use batch::Batch;

mod batch;
mod expressions;
mod rules;

/// Octets of a transaction, and so the bound on the rules: about 400 octets each.
const LARGEST: usize = 32 << 20;

/// The kernel answers at once, or never.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a [`Guard`] leaves alone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GuardOptions {
    /// UDP ports of IKE, and of ESP in UDP.
    pub ports: Vec<u16>,
}

/// The table of one device.
pub struct Guard {
    socket: Socket,
    sequence: u32,
    names: Names,
    /// What is in force; `None` if nothing is.
    rules: Option<Vec<ClearRule>>,
    owned: bool,
}

/// What the table is made from, besides the rules.
struct Names {
    table: std::ffi::CString,
    device: u32,
    ports: Vec<u16>,
}

impl Guard {
    /// Makes the table for the device `name` with this interface index. Needs CAP_NET_ADMIN, and
    /// nf_tables in the kernel.
    pub fn start(name: &str, index: u32, options: GuardOptions) -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_NETFILTER)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        socket.set_cap_ack(true)?;
        // Best effort, as root of a user namespace may not; a transaction too large is refused later.
        _ = setsockopt(&socket, sockopt::SndBufForce, &LARGEST);
        SockRef::from(&socket).set_read_timeout(Some(PATIENCE))?;
        let table = std::ffi::CString::new(format!("ike-{name}"))?;
        let names = Names { table, device: index, ports: options.ports };
        let mut guard = Self { socket, sequence: 0, names, rules: None, owned: true };
        if let Err(error) = guard.set(Vec::new()) {
            // An old kernel does not know the flag; one without nf_tables refuses this as well.
            debug!(%error, "nf_tables: no owner");
            guard.owned = false;
            guard.set(Vec::new())?;
        }
        Ok(guard)
    }

    /// Puts `rules` in force, in their order. On an error the ones before stay.
    pub(crate) fn set(&mut self, rules: Vec<ClearRule>) -> io::Result<()> {
        if self.rules.as_ref() == Some(&rules) {
            return Ok(());
        }
        let mut batch = Batch::new(self.sequence);
        // Removing what is not there is an error, so it is made first.
        batch.new_table(&self.names.table, self.owned);
        batch.del_table(&self.names.table);
        batch.new_table(&self.names.table, self.owned);
        rules::write(&mut batch, &self.names, &rules);
        self.commit(batch)?;
        self.rules = Some(rules);
        Ok(())
    }

    /// Sends a transaction and waits for its outcome.
    fn commit(&mut self, batch: Batch) -> io::Result<()> {
        let first = self.sequence;
        let (octets, last) = batch.finish();
        self.sequence = last.wrapping_add(2);
        let sent = self.socket.send(&octets, 0)?;
        if sent != octets.len() {
            return Err(io::Error::other("netlink took a part of the message"));
        }
        let mut outcome = Ok(());
        loop {
            let (answer, _) = self.socket.recv_from_full()?;
            let Ok(message) = NetlinkBuffer::new_checked(&answer) else { continue };
            if message.message_type() != NLMSG_ERROR {
                continue;
            }
            let code = ErrorBuffer::new_checked(message.payload()).ok().and_then(|e| e.code());
            if let (Some(code), Ok(())) = (code, &outcome) {
                outcome = Err(io::Error::from_raw_os_error(code.get().saturating_neg()));
            }
            // The last message asks for an answer; about the whole, the first one gets it.
            if [first, last].contains(&message.sequence_number()) {
                return outcome;
            }
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let mut batch = Batch::new(self.sequence);
        batch.del_table(&self.names.table);
        if let Err(error) = self.commit(batch) {
            debug!(%error, "nf_tables: table not removed");
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Guard({:?})", self.names.table)
    }
}
