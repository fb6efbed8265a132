//! The chains whose rules do not depend on policies.

use std::ffi::{CStr, CString};
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
const FORWARDED: &CStr = c"forwarded";
const NOT_MADE_HERE: &CStr = c"not-made-here";
const OUTPUT: &CStr = c"output";
const MADE_HERE: &CStr = c"made-here";
const PROTECTED: &CStr = c"protected";
const LEAVE: &CStr = c"leave";
const OUTER: &CStr = c"outer";
const OWN_SOURCE: &CStr = c"own-source";

/// The bits of the priority that say what becomes of the packet: the upper octet of the traffic class's major number. This
/// octet is 0, unless a program has chosen a class with a major number above ff.
const PLACE: u32 = 0xff00_0000;
/// It had an SA before the translation of its source address.
const HAS_SA: u32 = 0xa500_0000;
/// It comes to the hooks again, transformed.
const AGAIN: u32 = 0xa600_0000;
/// This host forwards it, and no SA has made it.
const FORWARDS: u32 = 0xa700_0000;
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
    /// # Errors
    /// The kernel does not tell what it can do: it may tell later.
    pub(super) fn probe(
        transactions: &mut Transactions,
        options: &XfrmGuardOptions,
    ) -> io::Result<Self> {
        let stays = !options.ownerless
            && knows(transactions, |batch, table| {
                batch.new_table_of_ours(table, Owner::SocketThenNone);
            })?;
        let fib = knows(transactions, |batch, table| {
            batch.new_table_of_ours(table, Owner::None);
            batch.new_chain(table, OUTER, None);
            let own = Expressions::new().has_own_source(true).accept();
            batch.rule(table, OUTER, &own, None);
        })?;
        Ok(Self { owner: if stays { Owner::SocketThenNone } else { Owner::None }, fib })
    }
}

/// Whether the kernel takes a transaction that makes the table of a name, which is there during this transaction only.
fn knows(
    transactions: &mut Transactions,
    write: impl FnOnce(&mut Batch, &CStr),
) -> io::Result<bool> {
    let table = CString::new(format!("ike-xfrm-probe-{}", std::process::id()))?;
    let mut batch = transactions.begin();
    write(&mut batch, &table);
    // Only if the transaction has made it: one of another program makes the whole transaction fail.
    batch.del_table(&table);
    match transactions.commit(batch) {
        Ok(_) => Ok(true),
        Err(error) if is_unknown(&error) => Ok(false),
        Err(error) => Err(error),
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

    // What the kernel has made for an SA. ESP in UDP of another program may be on any port.
    batch.new_chain(table, OUTER, None);
    for protocol in TRANSFORMED.into_iter().chain([proto::UDP]) {
        batch.rule(table, OUTER, &new().protocol(protocol).accept(), None);
    }

    // A program may have erased the note by a class of its own. Only before the translation of the source address: after that,
    // all forwarded packets may have one of this host's. Before that, one that this host forwards may claim to have it.
    batch.new_chain(table, OWN_SOURCE, None);
    if abilities.fib {
        let noted = || new().priority(PLACE, AGAIN).leave_chain();
        let own = |leaving| new().has_own_source(leaving).set_priority(PLACE, AGAIN);
        let forwards = new().priority(PLACE, FORWARDS).leave_chain();
        for rule in [noted(), forwards, own(false), noted(), own(true)] {
            batch.rule(table, OWN_SOURCE, &rule, None);
        }
    }

    // A device transforms packets behind the hooks, so they come again in clear. A class of another program may have taken the
    // place of the note: that is any with a major number. Without one it is what the TOS of the packet has made.
    batch.new_chain(table, BY_DEVICE, None);
    let by_device = [
        new().priority(MAJOR, FORWARDS).counter().drop(),
        new().other_priority(MAJOR, 0).accept(),
        new().counter().drop(),
    ];
    by_device.iter().for_each(|rule| batch.rule(table, BY_DEVICE, rule, None));

    batch.new_chain(table, LEAVE_CLEAR, None);
    // It is decided here: after the translation of its source address a packet does not tell whose it is.
    batch.new_chain(table, NOT_MADE_HERE, None);
    let no_note = [0, AGAIN];
    let not_made_here =
        no_note.map(|place| new().priority(PLACE, place).set_priority(PLACE, FORWARDS));
    for rule in [new().jump(LEAVE_CLEAR)].iter().chain(&not_made_here) {
        batch.rule(table, NOT_MADE_HERE, rule, None);
    }

    batch.new_chain(table, LEAVE, None);
    for passes in passes(options) {
        batch.rule(table, LEAVE, &passes, None);
    }
    batch.rule(table, LEAVE, &neighbor_discovery().accept(), None);
    batch.rule(table, LEAVE, &new().priority(PLACE, AGAIN).jump(OUTER), None);
    batch.rule(table, LEAVE, &new().jump(LEAVE_CLEAR), None);

    batch.new_chain(table, PROTECTED, None);
    let protected = [
        new().set_priority(PLACE, 0),
        new().in_tunnel(false).counter().drop(),
        vrf(),
        new().priority(MAJOR, 0).set_priority(PLACE, AGAIN),
        new().accept(),
    ];
    protected.iter().for_each(|rule| batch.rule(table, PROTECTED, rule, None));
}

/// What leaves by a device that needs no second line, and the daemon's own. A device of an XFRM interface or a VTI sends nothing
/// without a policy of its own.
fn passes(options: &XfrmGuardOptions) -> impl Iterator<Item = Expressions> {
    let new = Expressions::new;
    let kinds: [&[u8]; 3] = [b"xfrm", b"vti", b"vti6"];
    let devices = kinds.map(|kind| new().leaves_by_kind(kind));
    let first = [new().leaves_by(LOOPBACK), new().marked(options.mark)];
    first.into_iter().chain(devices).map(Expressions::accept)
}

/// Packets that may be those of an SA, by their protocol and port.
fn may_be_outer(options: &XfrmGuardOptions) -> impl Iterator<Item = Expressions> {
    let new = Expressions::new;
    let transformed = TRANSFORMED.into_iter().map(move |p| new().protocol(p));
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
    let to_accept = || new().in_tunnel(true).accept();
    let outer = |chain| may_be_outer(options).map(move |outer| outer.jump(chain));

    // Here is told who has made a packet: in `postrouting` kernels before Linux 5.5 do not tell by which interface it came.
    let forwarded = [to_accept()].into_iter().chain(passes(options)).chain(outer(NOT_MADE_HERE));
    let made_here = [0, FORWARDS];
    let made_here = made_here.map(|place| new().priority(PLACE, place).set_priority(PLACE, AGAIN));

    let before = [
        // A program has chosen this class.
        new().in_tunnel(false).priority(PLACE, HAS_SA).set_priority(PLACE, 0),
        note(AGAIN, HAS_SA),
        note(0, HAS_SA),
        to_accept(),
        vrf(),
    ];
    let before = before.into_iter().chain(outer(OWN_SOURCE)).chain([new().jump(LEAVE)]);

    let after = [
        new().priority(PLACE, HAS_SA).jump(PROTECTED),
        vrf(),
        // A packet with a class of its own keeps it: where the device transforms it at once, it does not come again.
        new().in_tunnel(true).priority(MAJOR, 0).set_priority(PLACE, AGAIN),
        note(FORWARDS, AGAIN),
        to_accept(),
        new().jump(LEAVE),
    ];

    let clear = |place| new().in_tunnel(false).priority(PLACE, place).set_priority(PLACE, 0);
    let restore = [vrf(), clear(AGAIN), clear(FORWARDS)];

    let own = [to_accept()].into_iter().chain(outer(MADE_HERE));
    batch.new_chain(table, MADE_HERE, None);
    made_here.iter().for_each(|rule| batch.rule(table, MADE_HERE, rule, None));
    let hooks: [(&CStr, Hook, Vec<Expressions>); 5] = [
        (FORWARDED, Hook::Forwarded, forwarded.collect()),
        (OUTPUT, Hook::Output, own.collect()),
        (BEFORE_SNAT, Hook::LeavingUntranslated, before.collect()),
        (AFTER_SNAT, Hook::Leaving, after.into()),
        (RESTORE, Hook::Left, restore.into()),
    ];
    for (chain, hook, rules) in hooks {
        batch.new_chain(table, chain, Some(hook));
        rules.iter().for_each(|rule| batch.rule(table, chain, rule, None));
    }
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

/// Those of the tables that are there. A kernel without nf_tables has none.
pub(super) fn there(transactions: &mut Transactions) -> io::Result<Vec<&'static CStr>> {
    let mut all = Vec::new();
    for table in [TABLE, STAGE] {
        match transactions.has_table(table) {
            Ok(true) => all.push(table),
            Ok(false) => {}
            Err(error) if is_unsupported(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

/// True if there is one of the tables.
pub(super) fn is_there(transactions: &mut Transactions) -> io::Result<bool> {
    Ok(!there(transactions)?.is_empty())
}

/// True if an earlier run has ended while [`STAGE`] was in force.
pub(super) fn is_staged(transactions: &mut Transactions) -> io::Result<bool> {
    transactions.has_chain(STAGE, AFTER_SNAT)
}

/// The Authentication Header and IP compression (RFC 4302, RFC 3173): other programs use them.
const AH: u8 = 51;
const IPCOMP: u8 = 108;
/// What SAs make of packets, beside UDP.
const TRANSFORMED: [u8; 3] = [proto::ESP, AH, IPCOMP];

/// True if the kernel has no nf_tables.
pub(super) fn is_unsupported(error: &io::Error) -> bool {
    const EPROTONOSUPPORT: i32 = 93;
    const EAFNOSUPPORT: i32 = 97;
    let code = error.raw_os_error();
    [EINVAL, EPROTONOSUPPORT, EOPNOTSUPP, EAFNOSUPPORT].map(Some).contains(&code)
}

/// True if the kernel does not know a flag, an attribute or an expression. Another error says nothing about what it knows.
fn is_unknown(error: &io::Error) -> bool {
    [ENOENT, EINVAL, EOPNOTSUPP].map(Some).contains(&error.raw_os_error())
}

const ENOENT: i32 = 2;
const EINVAL: i32 = 22;
const EOPNOTSUPP: i32 = 95;

#[cfg(test)]
mod tests {
    use super::*;

    /// Fault: in `is_unknown`, return true.
    #[test]
    fn only_what_says_so_says_that_the_kernel_cannot() {
        let unknown = |code| is_unknown(&io::Error::from_raw_os_error(code));
        assert!([ENOENT, EINVAL, EOPNOTSUPP].into_iter().all(unknown));
        // EPERM, EINTR, EAGAIN, ENOMEM, EEXIST and ENOBUFS.
        assert!(![1, 4, 11, 12, 17, 105].into_iter().any(unknown));
        assert!(!is_unknown(&io::ErrorKind::TimedOut.into()));
    }
}
