//! One nf_tables transaction: netlink messages between a begin and an end.

use std::ffi::CStr;

use netlink_bindings::nftables::{Nfgenmsg, OpNewruleDo, Request, TableFlags, VerdictCode};
use netlink_bindings::traits::{NetlinkRequest, Protocol, Pusher};
use netlink_packet_core::{NLM_F_ACK, NLM_F_ECHO, NLM_F_REQUEST, NetlinkBuffer};

use super::expressions::Expressions;

/// NFPROTO_INET: IPv4 and IPv6.
const INET: u8 = 1;
/// NFNL_SUBSYS_NFTABLES, the subsystem of the transaction.
const SUBSYSTEM: u16 = 10;
/// NFT_MSG_NEWRULE, of that subsystem.
const NEW_RULE: u16 = SUBSYSTEM << 8 | 6;
/// Octets of a netlink message header.
const HEADER: usize = 16;
/// Where a chain is called from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hook {
    Input,
    Forward,
    /// Of what leaves, before its source address is translated.
    LeavingUntranslated,
    /// Of what leaves, with the source address that it leaves with.
    Leaving,
}

impl Hook {
    /// NF_INET_*, and the priority.
    fn place(self) -> (u32, i32) {
        /// Before connection tracking.
        const RAW: i32 = -300;
        /// Of the translation of source addresses.
        const SRCNAT: i32 = 100;
        match self {
            Self::Input => (1, RAW),
            Self::Forward => (2, RAW),
            Self::LeavingUntranslated => (4, SRCNAT - 1),
            Self::Leaving => (4, SRCNAT + 1),
        }
    }
}

/// The owner of a table. Only the owner may change the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// No owner: every process may change the table.
    None,
    /// The socket that makes the table. The kernel removes the table when the socket is closed (Linux 5.12).
    Socket,
    /// The socket that makes the table. When the socket is closed the table stays, without an owner (Linux 6.9).
    SocketThenNone,
}

impl Owner {
    fn flags(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Socket => TableFlags::Owner as u32,
            Self::SocketThenNone => TableFlags::Owner as u32 | TableFlags::Persist as u32,
        }
    }
}

/// A transaction that is being written.
pub(super) struct Batch {
    octets: Vec<u8>,
    next: u32,
    /// Where the last message but the end begins.
    last: usize,
}

impl Batch {
    /// Begins one; its messages are numbered from `sequence`.
    pub(super) fn new(sequence: u32) -> Self {
        let mut batch = Self { octets: Vec::new(), next: sequence, last: 0 };
        batch.push(&Request::new().op_batch_begin_do(&transaction()));
        batch
    }

    pub(super) fn new_table(&mut self, table: &CStr, owner: Owner) {
        let mut request = Request::new().set_create().op_newtable_do(&inet());
        let encoder = request.encode().push_name(table);
        // Without flags the attribute is left out: it would ask to change those of a table that is there, which the kernel
        // refuses for `persist`.
        match owner.flags() {
            0 => drop(encoder),
            flags => drop(encoder.push_flags(flags)),
        }
        self.push(&request);
    }

    pub(super) fn del_table(&mut self, table: &CStr) {
        let mut request = Request::new().op_deltable_do(&inet());
        request.encode().push_name(table);
        self.push(&request);
    }

    /// A chain, called from a hook or by other chains only.
    pub(super) fn new_chain(&mut self, table: &CStr, name: &CStr, hook: Option<Hook>) {
        let mut request = Request::new().set_create().op_newchain_do(&inet());
        let encoder = request.encode().push_table(table).push_name(name);
        match hook {
            Some(hook) => {
                let (number, priority) = hook.place();
                let hook = encoder.nested_hook().push_num(number).push_priority(priority);
                let chain = hook.end_nested().push_type(c"filter");
                drop(chain.push_policy(VerdictCode::Accept as u32));
            }
            None => drop(encoder),
        }
        self.push(&request);
    }

    /// A rule at the end of a chain, or before the one of this handle. Its own will be told.
    pub(super) fn rule(
        &mut self,
        table: &CStr,
        chain: &CStr,
        expressions: &Expressions,
        before: Option<u64>,
    ) {
        let request = Request::new().set_create().set_flags(NLM_F_ECHO);
        let request = if before.is_none() { request.set_append() } else { request };
        let mut request = request.op_newrule_do(&inet());
        let rule = request.encode().push_table(table).push_chain(chain);
        let rule = match before {
            Some(handle) => rule.push_position(handle),
            None => rule,
        };
        let mut list = rule.nested_expressions();
        list.as_vec_mut().extend_from_slice(expressions.octets());
        list.end_nested();
        self.push(&request);
    }

    /// Removes a rule of a chain, or all.
    pub(super) fn del_rule(&mut self, table: &CStr, chain: &CStr, handle: Option<u64>) {
        let mut request = Request::new().op_delrule_do(&inet());
        let rule = request.encode().push_table(table).push_chain(chain);
        match handle {
            Some(handle) => drop(rule.push_handle(handle)),
            None => drop(rule),
        }
        self.push(&request);
    }

    /// Ends it. The number of the message that the kernel answers comes with it.
    pub(super) fn finish(mut self) -> (Vec<u8>, u32) {
        let answered = self.next.wrapping_sub(1);
        // Answers to all would not fit into the socket's buffer.
        if let Some(last) = self.octets.get_mut(self.last..) {
            let mut message = NetlinkBuffer::new(last);
            let flags = message.flags();
            message.set_flags(flags | NLM_F_ACK);
        }
        self.push(&Request::new().op_batch_end_do(&transaction()));
        (self.octets, answered)
    }

    fn push(&mut self, request: &impl NetlinkRequest) {
        let kind = match request.protocol() {
            Protocol::Raw { request_type, .. } => request_type,
            Protocol::Generic(_) => return,
        };
        let payload = request.payload();
        self.octets.resize(self.octets.len().next_multiple_of(4), 0);
        self.last = self.octets.len();
        let len = HEADER + payload.len().next_multiple_of(4);
        self.octets.resize(self.last + HEADER, 0);
        self.octets.extend_from_slice(payload);
        self.octets.resize(self.last + len, 0);
        let mut message = NetlinkBuffer::new(&mut self.octets[self.last..]);
        message.set_length(len as u32);
        message.set_message_type(kind);
        message.set_flags(request.flags() | NLM_F_REQUEST);
        message.set_sequence_number(self.next);
        self.next = self.next.wrapping_add(1);
    }
}

/// The messages in `received`, from a socket.
pub(super) fn messages(received: &[u8]) -> impl Iterator<Item = NetlinkBuffer<&[u8]>> {
    let mut rest = received;
    std::iter::from_fn(move || {
        let message = NetlinkBuffer::new_checked(rest).ok()?;
        let len = message.length() as usize;
        let whole = NetlinkBuffer::new_checked(rest.get(..len)?).ok()?;
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(whole)
    })
}

/// The handle of a rule that was made, if `message` tells it.
pub(super) fn rule_handle(message: &NetlinkBuffer<&[u8]>) -> Option<u64> {
    if message.message_type() != NEW_RULE {
        return None;
    }
    OpNewruleDo::decode_reply(message.payload()).1.get_handle().ok()
}

fn inet() -> Nfgenmsg {
    Nfgenmsg { nfgen_family: INET, ..Nfgenmsg::default() }
}

fn transaction() -> Nfgenmsg {
    let mut header = Nfgenmsg::default();
    header.set_res_id(SUBSYSTEM);
    header
}
