//! Drops packets in clear that a policy protects: those that arrive (RFC 4301 §5.2), and those that leave.
//!
//! Such packets never come to the TUN device, so the kernel has to drop them. A table of the device's own in
//! nf_tables does this. What leaves comes to the device by routes, so `leave` is a second line: it holds while a
//! rule or a route is missing that another program has taken away.
//!
//! ```text
//! table inet ike-ike0 {
//!   chain input   { type filter hook input priority raw;   iif ike0 accept; iif lo accept
//!                   meta l4proto esp accept; meta l4proto udp jump encap
//!                   <neighbor discovery> accept; <later IPv6 fragments of ESP and UDP> accept
//!                   jump clear }
//!   chain forward { type filter hook forward priority raw; iif ike0 accept; jump clear }
//!   chain encap   { udp dport 500 accept; udp dport 4500 accept }
//!   chain encap-tcp { tcp dport 4500 accept; tcp sport 4500 tcp flags ack accept }
//!   chain clear   { ip saddr <remote> ip daddr <local> … counter drop; … }    # in the SPD's order
//!   chain before-snat { type filter hook postrouting priority srcnat - 1; jump leave }
//!   chain after-snat  { type filter hook postrouting priority srcnat + 1; jump leave }
//!   chain leave   { oif ike0 accept; oif lo accept; meta mark <ours> accept; <neighbor discovery> accept
//!                   jump leave-clear }
//!   chain leave-clear { ip saddr <local> ip daddr <remote> … counter drop; … }    # in the SPD's order
//! }
//! ```
//!
//! ESP and IKE are exempt only if they are for this host: port 500 of an inner host is protected like its other
//! ports. The table belongs to the netlink socket, and goes with it if the process dies; kernels older than 5.12
//! keep it until the next run.

use std::ffi::CString;
use std::fmt;
use std::io;

use tracing::debug;

use crate::plane::ClearRule;
use batch::Owner;
use transactions::Transactions;

pub use absence::missing;
pub use xfrm::{Changes, Leaving, Verdict, XfrmGuard, XfrmGuardOptions, put_back};

pub(super) mod absence;
mod batch;
mod expressions;
mod rules;
mod transactions;
mod xfrm;

/// Rules of the SPD in one transaction: the handles of the kernel's rules, two for each, come back into a buffer that
/// has an end.
const CHUNK: usize = 50;

/// Exemptions from a [`Guard`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GuardOptions {
    /// UDP ports of IKE, and of ESP in UDP.
    pub ports: Vec<u16>,
    /// TCP ports of IKE and ESP.
    pub tcp: TcpPorts,
    /// The mark of the daemon's own packets. With it, what is protected leaves by the device or with this mark, or not
    /// at all. `None` if other devices lead to it too.
    pub mark: Option<u32>,
}

/// Ports of TCP connections that carry IKE and ESP.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TcpPorts {
    /// On which this host accepts connections.
    pub local: Vec<u16>,
    /// Of peers, to which this host opens connections. Segments with ACK come from there.
    pub remote: Vec<u16>,
}

/// The table of one device.
pub struct Guard {
    transactions: Transactions,
    names: Names,
    /// The rules in force, in their order, with the kernel's handles.
    rules: Vec<(ClearRule, Handles)>,
    /// False if the kernel may have something else than `rules`.
    in_step: bool,
}

/// The kernel's rules that one rule of the SPD has become: one for what arrives, and perhaps one for what leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Handles {
    arriving: u64,
    leaving: Option<u64>,
}

/// The names in the table, apart from the rules.
struct Names {
    table: CString,
    device: u32,
    ports: Vec<u16>,
    tcp: TcpPorts,
    mark: Option<u32>,
}

impl Guard {
    /// Makes the table for the device `name` with this interface index. Needs CAP_NET_ADMIN, and
    /// nf_tables in the kernel.
    pub fn start(name: &str, index: u32, options: GuardOptions) -> io::Result<Self> {
        let transactions = Transactions::open()?;
        let table = CString::new(format!("ike-{name}"))?;
        let GuardOptions { ports, tcp, mark } = options;
        let names = Names { table, device: index, ports, tcp, mark };
        let mut guard = Self { transactions, names, rules: Vec::new(), in_step: true };
        if let Err(error) = guard.make_table(Owner::Socket) {
            // An old kernel does not know the flag; one without nf_tables refuses this as well.
            debug!(%error, "nf_tables: no owner");
            guard.make_table(Owner::None)?;
        }
        Ok(guard)
    }

    /// Makes the table again, without rules for protected addresses.
    fn make_table(&mut self, owner: Owner) -> io::Result<()> {
        let table = &self.names.table;
        let mut batch = self.transactions.begin();
        // Removing a missing table is an error, so the table is made first.
        batch.new_table(table, owner);
        batch.del_table(table);
        batch.new_table(table, owner);
        rules::write(&mut batch, &self.names);
        self.transactions.commit(batch).map(drop)
    }

    /// Puts `rules` in force, in their order: first adds new rules, then removes old ones. Rules that stay at both
    /// ends of the list are not touched. After an error, the next call makes the whole table again.
    pub(crate) fn set(&mut self, mut rules: Vec<ClearRule>) -> io::Result<()> {
        rules.retain(rules::applies);
        rules.dedup();
        if !self.in_step {
            self.flush()?;
        }
        let same = |(rule, (old, _)): &(&ClearRule, &(ClearRule, Handles))| rule == &old;
        let before = rules.iter().zip(&self.rules).take_while(same).count();
        let rest = rules.iter().skip(before).rev().zip(self.rules.iter().skip(before).rev());
        let after = rest.take_while(same).count();
        let (new_end, old_end) = (rules.len() - after, self.rules.len() - after);

        let made = self.insert(rules.get(before..new_end).unwrap_or_default(), old_end);
        let made = made.inspect_err(|_| self.in_step = false)?;
        let gone: Vec<_> = self.rules.splice(before..old_end, made).collect();
        for chunk in gone.chunks(CHUNK) {
            let mut batch = self.transactions.begin();
            chunk.iter().for_each(|(_, handles)| rules::remove(&mut batch, &self.names, *handles));
            self.transactions.commit(batch).inspect_err(|_| self.in_step = false)?;
        }
        Ok(())
    }

    /// Adds `rules` before those that are at `end` and behind it.
    fn insert(&mut self, rules: &[ClearRule], end: usize) -> io::Result<Vec<(ClearRule, Handles)>> {
        let mut behind = self.rules.iter().skip(end).map(|(_, handles)| handles);
        let arriving = behind.clone().next().map(|handles| handles.arriving);
        let next = rules::Next { arriving, leaving: behind.find_map(|handles| handles.leaving) };
        let mut made = Vec::with_capacity(rules.len());
        for chunk in rules.chunks(CHUNK) {
            let mut batch = self.transactions.begin();
            let both: Vec<bool> =
                chunk.iter().map(|rule| rules::add(&mut batch, &self.names, rule, next)).collect();
            // Of several before the same one, the last added comes last.
            let mut handles = self.transactions.commit(batch)?.into_iter();
            let untold = || io::Error::other("the kernel has not told the handles of the rules");
            for (rule, both) in chunk.iter().zip(both) {
                let arriving = handles.next().ok_or_else(untold)?;
                let leaving = if both { Some(handles.next().ok_or_else(untold)?) } else { None };
                made.push((*rule, Handles { arriving, leaving }));
            }
        }
        Ok(made)
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut batch = self.transactions.begin();
        rules::flush(&mut batch, &self.names);
        self.transactions.commit(batch)?;
        self.rules.clear();
        self.in_step = true;
        Ok(())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let mut batch = self.transactions.begin();
        batch.del_table(&self.names.table);
        if let Err(error) = self.transactions.commit(batch) {
            debug!(%error, "nf_tables: table not removed");
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Guard({:?})", self.names.table)
    }
}
