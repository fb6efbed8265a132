//! The chains whose rules do not depend on policies.

use std::ffi::CStr;
use std::io;
use std::time::Duration;

use super::super::batch::{Batch, Hook, Owner};
use super::super::expressions::Expressions;
use super::super::rules::{LOOPBACK, SOURCE, neighbor_discovery};
use super::super::transactions::Transactions;
use crate::ip::proto;

/// The table.
pub(super) const TABLE: &CStr = c"ike-xfrm";
/// The table that is in force while [`TABLE`] is made again in several transactions.
pub(super) const STAGE: &CStr = c"ike-xfrm-stage";
/// Where the rules of policies are.
pub(super) const LEAVE_CLEAR: &CStr = c"leave-clear";
/// Where packets go that are in the selectors of a policy which a device applies.
pub(super) const BY_DEVICE: &CStr = c"by-device";
const BEFORE_SNAT: &CStr = c"before-snat";
const AFTER_SNAT: &CStr = c"after-snat";
const RESTORE: &CStr = c"restore";
const PROTECTED: &CStr = c"protected";
const LEAVE: &CStr = c"leave";
const OUTER: &CStr = c"outer";
const OWN_SOURCE: &CStr = c"own-source";
/// A table that is there during one transaction.
const PROBE: &CStr = c"ike-probe";

/// The bits of the priority that say what becomes of the packet: the upper octet of the traffic class's major number. This
/// octet is 0, unless a program has chosen a class with a major number above ff.
const PLACE: u32 = 0xff00_0000;
/// It had an SA before the translation of its source address.
const HAS_SA: u32 = 0xa500_0000;
/// It comes to the hooks again, transformed.
const AGAIN: u32 = 0xa600_0000;
/// The major number of the traffic class.
const MAJOR: u32 = 0xffff_0000;

/// What a [`XfrmGuard`](super::XfrmGuard) lets pass, and when it begins.
#[derive(Debug, Clone, Default)]
pub struct XfrmGuardOptions {
    /// The mark of the daemon's own packets.
    pub mark: u32,
    /// UDP ports of IKE.
    pub ports: Vec<u16>,
    /// How long the table of an earlier run stays in force: until then the policies of this run are installed.
    pub settle: Duration,
    /// The table has no owner, as on kernels before Linux 6.9. Other programs can remove it, and it is put back.
    pub ownerless: bool,
}

/// What the kernel can do with a table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Abilities {
    /// A table with an owner stays after the owner has ended. Else the table has no owner: a second line that goes with the
    /// process is none.
    pub(super) owner: Owner,
    /// It has the expression `fib`.
    fib: bool,
}

impl Abilities {
    pub(super) fn probe(transactions: &mut Transactions, options: &XfrmGuardOptions) -> Self {
        let mut knows = |write: &dyn Fn(&mut Batch)| {
            let mut batch = transactions.begin();
            write(&mut batch);
            batch.del_table(PROBE);
            transactions.commit(batch).is_ok()
        };
        let stays = !options.ownerless
            && knows(&|batch: &mut Batch| batch.new_table(PROBE, Owner::SocketThenNone));
        let fib = knows(&|batch: &mut Batch| {
            batch.new_table(PROBE, Owner::None);
            batch.new_chain(PROBE, OUTER, None);
            let own = Expressions::new().has_own_source(true).accept();
            batch.rule(PROBE, OUTER, &own, None);
        });
        Self { owner: if stays { Owner::SocketThenNone } else { Owner::None }, fib }
    }
}

/// Makes a table again, also if it is there, without [`hooks`]: nothing comes to its chains yet.
pub(super) fn write(
    batch: &mut Batch,
    table: &CStr,
    options: &XfrmGuardOptions,
    abilities: Abilities,
) {
    let new = Expressions::new;
    // Removing a missing table is an error, so the table is made first.
    batch.new_table(table, Owner::None);
    batch.del_table(table);
    batch.new_table(table, abilities.owner);

    // Packets that this host has made for an SA.
    batch.new_chain(table, OUTER, None);
    let outer = [new().made_here(), new().priority(PLACE, AGAIN)];
    outer.into_iter().for_each(|rule| batch.rule(table, OUTER, &rule.accept(), None));

    // Those of an SA for forwarded packets have the interface by which these came, and a program may have erased the note by a
    // class of its own. Only before the translation of the source address: after that, all forwarded packets may have one of
    // this host's.
    batch.new_chain(table, OWN_SOURCE, None);
    if abilities.fib {
        batch.rule(table, OWN_SOURCE, &new().made_here().leave_chain(), None);
        for leaving in [false, true] {
            let own = new().has_own_source(leaving).set_priority(PLACE, AGAIN);
            batch.rule(table, OWN_SOURCE, &own, None);
        }
    }

    // A device transforms packets behind the hooks, so they come again in clear. A class of another program may have taken the
    // place of the note: that is any with a major number. Without one it is what the TOS of the packet has made.
    batch.new_chain(table, BY_DEVICE, None);
    let by_device = [new().other_priority(MAJOR, 0).accept(), new().counter().drop()];
    by_device.iter().for_each(|rule| batch.rule(table, BY_DEVICE, rule, None));

    batch.new_chain(table, LEAVE_CLEAR, None);
    batch.new_chain(table, LEAVE, None);
    let passes = [new().leaves_by(LOOPBACK), new().marked(options.mark), neighbor_discovery()];
    for passes in passes {
        batch.rule(table, LEAVE, &passes.accept(), None);
    }
    for outer in may_be_outer(options) {
        batch.rule(table, LEAVE, &outer.jump(OUTER), None);
    }
    // ESP in UDP of another program may be on any port.
    let encapsulated = new().protocol(proto::UDP).priority(PLACE, AGAIN);
    batch.rule(table, LEAVE, &encapsulated.accept(), None);
    batch.rule(table, LEAVE, &new().jump(LEAVE_CLEAR), None);

    batch.new_chain(table, PROTECTED, None);
    let protected = [
        new().set_priority(PLACE, 0),
        new().in_tunnel(false).counter().drop(),
        vrf(),
        new().set_priority(PLACE, AGAIN),
        new().accept(),
    ];
    protected.iter().for_each(|rule| batch.rule(table, PROTECTED, rule, None));
}

/// Packets that may be those of an SA, by their protocol and port.
fn may_be_outer(options: &XfrmGuardOptions) -> impl Iterator<Item = Expressions> {
    let new = Expressions::new;
    let transformed = [proto::ESP, AH, IPCOMP].into_iter().map(move |p| new().protocol(p));
    let ike = move |port: &u16| new().protocol(proto::UDP).transport(SOURCE, *port..=*port);
    transformed.chain(options.ports.iter().map(ike))
}

/// A packet comes to the hooks for the VRF, and after that for the interface behind it. No SA transforms it between the two.
fn vrf() -> Expressions {
    Expressions::new().leaves_by_kind(b"vrf").accept()
}

/// Makes the chains that the kernel calls: from now on the table is in force.
pub(super) fn hooks(batch: &mut Batch, table: &CStr, options: &XfrmGuardOptions) {
    let new = Expressions::new;
    let note = |from, to| new().in_tunnel(true).priority(PLACE, from).set_priority(PLACE, to);
    batch.new_chain(table, BEFORE_SNAT, Some(Hook::LeavingUntranslated));
    let before = [
        // A program has chosen this class.
        new().in_tunnel(false).priority(PLACE, HAS_SA).set_priority(PLACE, 0),
        note(AGAIN, HAS_SA),
        note(0, HAS_SA),
        new().in_tunnel(true).accept(),
        vrf(),
    ];
    let own = may_be_outer(options).map(|outer| outer.jump(OWN_SOURCE));
    let before = before.into_iter().chain(own).chain([new().jump(LEAVE)]);
    before.for_each(|rule| batch.rule(table, BEFORE_SNAT, &rule, None));

    batch.new_chain(table, AFTER_SNAT, Some(Hook::Leaving));
    let after = [
        new().priority(PLACE, HAS_SA).jump(PROTECTED),
        vrf(),
        note(0, AGAIN),
        new().in_tunnel(true).accept(),
        new().jump(LEAVE),
    ];
    after.iter().for_each(|rule| batch.rule(table, AFTER_SNAT, rule, None));

    batch.new_chain(table, RESTORE, Some(Hook::Left));
    let restore = [vrf(), new().in_tunnel(false).priority(PLACE, AGAIN).set_priority(PLACE, 0)];
    restore.iter().for_each(|rule| batch.rule(table, RESTORE, rule, None));
}

/// Writes the removal of a table that may not be there.
pub(super) fn write_removal(batch: &mut Batch, table: &CStr) {
    batch.new_table(table, Owner::None);
    batch.del_table(table);
}

/// Removes both tables, if they are there.
pub(super) fn remove(transactions: &mut Transactions) -> io::Result<()> {
    let mut batch = transactions.begin();
    write_removal(&mut batch, STAGE);
    write_removal(&mut batch, TABLE);
    transactions.commit(batch).map(drop)
}

/// True if there is one of the tables. A kernel without nf_tables has none.
pub(super) fn is_there(transactions: &mut Transactions) -> io::Result<bool> {
    let either = transactions.has_table(TABLE);
    let either = either.and_then(|there| Ok(there || transactions.has_table(STAGE)?));
    match either {
        Err(error) if is_unsupported(&error) => Ok(false),
        either => either,
    }
}

/// True if an earlier run has ended while [`STAGE`] was in force.
pub(super) fn is_staged(transactions: &mut Transactions) -> io::Result<bool> {
    transactions.has_chain(STAGE, AFTER_SNAT)
}

/// The Authentication Header and IP compression (RFC 4302, RFC 3173): other programs use them.
const AH: u8 = 51;
const IPCOMP: u8 = 108;

/// True if the kernel has no nf_tables.
pub(super) fn is_unsupported(error: &io::Error) -> bool {
    const EINVAL: i32 = 22;
    const EPROTONOSUPPORT: i32 = 93;
    const EOPNOTSUPP: i32 = 95;
    const EAFNOSUPPORT: i32 = 97;
    let code = error.raw_os_error();
    [EINVAL, EPROTONOSUPPORT, EOPNOTSUPP, EAFNOSUPPORT].map(Some).contains(&code)
}
