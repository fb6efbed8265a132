//! Drops packets that source NAT has taken out of a tunnel of the kernel.
//!
//! The kernel finds the policy of a packet before it translates the source address, and looks again after that. A packet
//! whose new address no policy has leaves in clear, though a policy has protected it. Only a hook on either side of the
//! translation sees both: the first one writes into the packet's priority that it is to go through an SA, and the second
//! one restores the priority and drops the packet if it has lost its SA. This needs no connection tracking, and takes the
//! same time with any number of policies.
//!
//! ```text
//! table inet ike-xfrm {
//!   chain before-snat { type filter hook postrouting priority srcnat - 1
//!                       rt ipsec exists, (meta priority & ff00:0) == 0: meta priority |= a500:0 }
//!   chain after-snat  { type filter hook postrouting priority srcnat + 1; (meta priority & ff00:0) == a500:0 jump protected }
//!   chain protected   { meta priority &= ff:ffff; rt ipsec missing counter drop }
//! }
//! ```

use std::ffi::CStr;
use std::io;

use super::batch::{Hook, Owner};
use super::expressions::Expressions;
use super::transactions::Transactions;

const TABLE: &CStr = c"ike-xfrm";
const BEFORE_SNAT: &CStr = c"before-snat";
const AFTER_SNAT: &CStr = c"after-snat";
const PROTECTED: &CStr = c"protected";

/// The bits of the priority that say whether the packet had an SA: the upper octet of the traffic class's major number. This
/// octet is 0, unless a program has chosen a class with a major number above ff.
const PLACE: u32 = 0xff00_0000;
const HAS_SA: u32 = 0xa500_0000;

/// A table that drops packets that source NAT has taken out of a tunnel of the kernel, also out of other programs' tunnels.
/// Since Linux 6.9 the table stays when this value is dropped, as policies do.
pub struct TranslatedGuard(Transactions);

impl TranslatedGuard {
    /// Makes the table again, also if it is there. Needs CAP_NET_ADMIN, and nf_tables in the kernel.
    ///
    /// # Errors
    /// The kernel has no nf_tables, or another process owns the table.
    pub fn start() -> io::Result<Self> {
        let mut transactions = Transactions::open()?;
        // Older kernels do not know the flags.
        make(&mut transactions, Owner::SocketThenNone)
            .or_else(|_| make(&mut transactions, Owner::Socket))
            .or_else(|_| make(&mut transactions, Owner::None))?;
        Ok(Self(transactions))
    }

    /// Removes the table.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn remove(mut self) -> io::Result<()> {
        remove(&mut self.0)
    }

    /// Removes the table that an earlier run has left, if there is one.
    ///
    /// # Errors
    /// The kernel refuses: another process owns the table.
    pub fn remove_left() -> io::Result<()> {
        remove(&mut Transactions::open()?)
    }
}

fn make(transactions: &mut Transactions, owner: Owner) -> io::Result<()> {
    let new = Expressions::new;
    let mut batch = transactions.begin();
    // Removing a missing table is an error, so the table is made first.
    batch.new_table(TABLE, Owner::None);
    batch.del_table(TABLE);
    batch.new_table(TABLE, owner);
    batch.new_chain(TABLE, BEFORE_SNAT, Some(Hook::LeavingUntranslated));
    let note = new().in_tunnel(true).priority(PLACE, 0).set_priority(PLACE, HAS_SA);
    batch.rule(TABLE, BEFORE_SNAT, &note, None);
    batch.new_chain(TABLE, PROTECTED, None);
    batch.rule(TABLE, PROTECTED, &new().set_priority(PLACE, 0), None);
    batch.rule(TABLE, PROTECTED, &new().in_tunnel(false).counter().drop(), None);
    batch.new_chain(TABLE, AFTER_SNAT, Some(Hook::Leaving));
    batch.rule(TABLE, AFTER_SNAT, &new().priority(PLACE, HAS_SA).jump(PROTECTED), None);
    transactions.commit(batch).map(drop)
}

fn remove(transactions: &mut Transactions) -> io::Result<()> {
    let mut batch = transactions.begin();
    batch.new_table(TABLE, Owner::None);
    batch.del_table(TABLE);
    transactions.commit(batch).map(drop)
}
