//! One nf_tables transaction: netlink messages between a begin and an end.

use std::ffi::CStr;

use netlink_bindings::nftables::{
    Nfgenmsg, OpGetchainDo, OpGetgenDo, OpGetruleDump, OpGetsetelemDump, OpGettableDo, OpNewruleDo,
    Request, SetelemListElemAttrs, TableFlags, VerdictCode,
};
use netlink_bindings::traits::{NetlinkRequest, Protocol, Pusher};
use netlink_packet_core::{NLM_F_ACK, NLM_F_ECHO, NLM_F_REQUEST, NetlinkBuffer};

use super::expressions::Expressions;

/// NFPROTO_INET: IPv4 and IPv6.
const INET: u8 = 1;
/// NFNL_SUBSYS_NFTABLES, the subsystem of the transaction.
const SUBSYSTEM: u16 = 10;
/// NFT_MSG_NEWRULE, of that subsystem.
const NEW_RULE: u16 = SUBSYSTEM << 8 | 6;
/// NFT_MSG_NEWTABLE, NFT_MSG_NEWSETELEM and NFT_MSG_NEWGEN, of that subsystem.
const NEW_TABLE: u16 = SUBSYSTEM << 8;
const NEW_VALUES: u16 = SUBSYSTEM << 8 | 12;
const NEW_GENERATION: u16 = SUBSYSTEM << 8 | 15;
/// Octets of a transaction that many messages make up. It has to fit into the buffer of a socket for sending, and the rules
/// that it makes come back into the buffer for receiving, each with its overhead. Both have 212,992 octets by default.
const FULL: usize = 64 * 1024;
/// What libnftnl calls NFTNL_UDATA_RULE_COMMENT: the number of an octet string that ends with 0.
const RULE_COMMENT: u8 = 0;
/// Octets of a netlink message header.
const HEADER: usize = 16;
/// Where a chain is called from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hook {
    Input,
    Forward,
    /// Of what this host forwards, after the filters of other programs.
    Forwarded,
    /// Of what this host has made, and of what an SA has made of a packet.
    Output,
    /// Of what leaves, before its source address is translated.
    LeavingUntranslated,
    /// Of what leaves, with the source address that it leaves with.
    Leaving,
    /// After that.
    Left,
}

impl Hook {
    /// NF_INET_*, and the priority.
    fn place(self) -> (u32, i32) {
        /// Before connection tracking.
        const RAW: i32 = -300;
        /// Of the translation of source addresses.
        const SRCNAT: i32 = 100;
        /// After programs that choose a mark or a traffic class.
        const LATE: i32 = 300;
        match self {
            Self::Input => (1, RAW),
            Self::Forward => (2, RAW),
            Self::Forwarded => (2, LATE),
            Self::Output => (3, LATE),
            Self::LeavingUntranslated => (4, SRCNAT - 1),
            Self::Leaving => (4, SRCNAT + 1),
            Self::Left => (4, SRCNAT + 2),
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
    /// How many rules it makes.
    rules: usize,
}

impl Batch {
    /// Begins one; its messages are numbered from `sequence`.
    pub(super) fn new(sequence: u32) -> Self {
        let mut batch = Self { octets: Vec::new(), next: sequence, last: 0, rules: 0 };
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

    /// A table that is not there. If it is, nothing of the transaction is done (EEXIST).
    pub(super) fn new_table_of_ours(&mut self, table: &CStr, owner: Owner) {
        let mut request = Request::new().set_create().set_excl().op_newtable_do(&inet());
        let encoder = request.encode().push_name(table);
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
        self.rule_with_comment(table, chain, expressions, before, "");
    }

    /// A rule with a comment of at most 127 octets, which `nft` lists, and [`comment`] reads.
    pub(super) fn rule_with_comment(
        &mut self,
        table: &CStr,
        chain: &CStr,
        expressions: &Expressions,
        before: Option<u64>,
        comment: &str,
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
        let rule = list.end_nested();
        let length = u8::try_from(comment.len() + 1).unwrap_or_default();
        match comment {
            "" => drop(rule),
            _ => drop(
                rule.push_userdata(&[&[RULE_COMMENT, length], comment.as_bytes(), &[0]].concat()),
            ),
        }
        self.push(&request);
        self.rules += 1;
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

    /// A set of values of so many octets. `kind` tells programs that list the set what the values are.
    pub(super) fn new_set(&mut self, table: &CStr, name: &CStr, kind: u32, octets: u32) {
        // The number names the set in this transaction, which goes by the name alone.
        let number = self.next;
        let mut request = Request::new().set_create().op_newset_do(&inet());
        let set = request.encode().push_table(table).push_name(name).push_id(number);
        drop(set.push_key_type(kind).push_key_len(octets));
        self.push(&request);
    }

    /// Removes a set that no rule names.
    pub(super) fn del_set(&mut self, table: &CStr, name: &CStr) {
        let mut request = Request::new().op_delset_do(&inet());
        request.encode().push_table(table).push_name(name);
        self.push(&request);
    }

    /// Adds a value to a set.
    pub(super) fn add_value(&mut self, table: &CStr, set: &CStr, value: &[u8]) {
        let mut request = Request::new().set_create().op_newsetelem_do(&inet());
        let values = request.encode().push_table(table).push_set(set).nested_elements();
        drop(values.nested_elem().nested_key().push_value(value));
        self.push(&request);
    }

    /// Takes a value out of a set.
    pub(super) fn del_value(&mut self, table: &CStr, set: &CStr, value: &[u8]) {
        let mut request = Request::new().op_delsetelem_do(&inet());
        let values = request.encode().push_table(table).push_set(set).nested_elements();
        drop(values.nested_elem().nested_key().push_value(value));
        self.push(&request);
    }

    /// True if it is large enough with `more` octets.
    pub(super) fn is_full(&self, more: usize) -> bool {
        self.octets.len() + more >= FULL
    }

    /// How many rules it makes so far.
    pub(super) fn rules(&self) -> usize {
        self.rules
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
        self.octets.resize(self.octets.len().next_multiple_of(4), 0);
        self.last = self.octets.len();
        append(&mut self.octets, request, self.next, 0);
        self.next = self.next.wrapping_add(1);
    }
}

/// A question about the tables, as a message of its own.
#[derive(Debug, Clone, Copy)]
pub(super) enum Question<'a> {
    /// Is there this table, and which flags has it?
    Table(&'a CStr),
    /// Is there this chain of the table?
    Chain(&'a CStr, &'a CStr),
    /// Which rules does the table have?
    Rules(&'a CStr),
    /// Which values does this set of the table have?
    Values(&'a CStr, &'a CStr),
    /// The number of the last transaction, whoever has made it.
    Generation,
}

impl Question<'_> {
    /// The message with this number. The kernel ends its answer with an acknowledgement, or with NLMSG_DONE.
    pub(super) fn message(self, sequence: u32) -> Vec<u8> {
        let mut octets = Vec::new();
        match self {
            Self::Table(table) => {
                let mut request: OpGettableDo<'_> = Request::new().op_gettable_do(&inet());
                request.encode().push_name(table);
                append(&mut octets, &request, sequence, NLM_F_ACK);
            }
            Self::Chain(table, chain) => {
                let mut request: OpGetchainDo<'_> = Request::new().op_getchain_do(&inet());
                request.encode().push_table(table).push_name(chain);
                append(&mut octets, &request, sequence, NLM_F_ACK);
            }
            Self::Rules(table) => {
                let mut request: OpGetruleDump<'_> = Request::new().op_getrule_dump(&inet());
                request.encode().push_table(table);
                append(&mut octets, &request, sequence, 0);
            }
            Self::Values(table, set) => {
                let mut request: OpGetsetelemDump<'_> = Request::new().op_getsetelem_dump(&inet());
                request.encode().push_table(table).push_set(set);
                append(&mut octets, &request, sequence, 0);
            }
            Self::Generation => {
                let request: OpGetgenDo<'_> = Request::new().op_getgen_do(&Nfgenmsg::default());
                append(&mut octets, &request, sequence, NLM_F_ACK);
            }
        }
        octets
    }
}

/// Appends the message of `request` with this number.
fn append(octets: &mut Vec<u8>, request: &impl NetlinkRequest, sequence: u32, flags: u16) {
    let kind = match request.protocol() {
        Protocol::Raw { request_type, .. } => request_type,
        Protocol::Generic(_) => return,
    };
    let payload = request.payload();
    let at = octets.len();
    let len = HEADER + payload.len().next_multiple_of(4);
    octets.resize(at + HEADER, 0);
    octets.extend_from_slice(payload);
    octets.resize(at + len, 0);
    let mut message = NetlinkBuffer::new(&mut octets[at..]);
    message.set_length(len as u32);
    message.set_message_type(kind);
    message.set_flags(request.flags() | NLM_F_REQUEST | flags);
    message.set_sequence_number(sequence);
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

/// The comment of a rule that `message` tells.
pub(super) fn comment(message: &NetlinkBuffer<&[u8]>) -> Option<String> {
    if message.message_type() != NEW_RULE {
        return None;
    }
    let rule = OpNewruleDo::decode_reply(message.payload()).1;
    let [RULE_COMMENT, length, rest @ ..] = rule.get_userdata().ok()? else { return None };
    let text = rest.get(..usize::from(*length))?.strip_suffix(&[0])?;
    String::from_utf8(text.to_vec()).ok()
}

/// Whether the table is dormant, if `message` tells it.
pub(super) fn is_dormant(message: &NetlinkBuffer<&[u8]>) -> Option<bool> {
    if message.message_type() != NEW_TABLE {
        return None;
    }
    let flags = OpGettableDo::decode_reply(message.payload()).1.get_flags().ok()?;
    Some(flags & TableFlags::Dormant as u32 != 0)
}

/// The values of a set that `message` tells.
pub(super) fn values(message: &NetlinkBuffer<&[u8]>) -> Vec<Vec<u8>> {
    if message.message_type() != NEW_VALUES {
        return Vec::new();
    }
    let reply = OpGetsetelemDump::decode_reply(message.payload()).1;
    let all = reply.get_elements().ok().into_iter().flatten().flatten();
    all.filter_map(|SetelemListElemAttrs::Elem(one)| {
        one.get_key().ok()?.get_value().ok().map(<[u8]>::to_vec)
    })
    .collect()
}

/// The number of the last transaction, if `message` tells it.
pub(super) fn generation(message: &NetlinkBuffer<&[u8]>) -> Option<u32> {
    if message.message_type() != NEW_GENERATION {
        return None;
    }
    OpGetgenDo::decode_reply(message.payload()).1.get_id().ok()
}

fn inet() -> Nfgenmsg {
    Nfgenmsg { nfgen_family: INET, ..Nfgenmsg::default() }
}

fn transaction() -> Nfgenmsg {
    let mut header = Nfgenmsg::default();
    header.set_res_id(SUBSYSTEM);
    header
}
