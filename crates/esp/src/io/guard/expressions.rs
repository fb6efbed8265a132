//! The expressions that rules are made of.

use std::ffi::CStr;
use std::ops::RangeInclusive;

use netlink_bindings::nftables::{
    CmpOps, FibFlags, MetaKeys, PayloadBase, PushExprAttrs, PushExprListAttrs, Registers,
    VerdictCode,
};
use netlink_bindings::traits::Pusher;
use netlink_bindings::utils::{finalize_nested_header, push_header, push_nested_header};

/// The register of the expressions.
const REGISTER: u32 = Registers::Reg1 as u32;

/// NFTA_EXPR_DATA, and of the expression `rt` NFTA_RT_DREG, NFTA_RT_KEY and NFT_RT_XFRM.
const EXPRESSION_DATA: u16 = 2;
const RT_REGISTER: u16 = 1;
const RT_KEY: u16 = 2;
const RT_XFRM: u32 = 4;
/// NFTA_LOOKUP_SET and NFTA_LOOKUP_SREG. The bindings have another number for the second one.
const LOOKUP_SET: u16 = 1;
const LOOKUP_REGISTER: u16 = 2;
/// NFT_FIB_RESULT_ADDRTYPE. The bindings have another number for it.
const FIB_ADDRESS_TYPE: u32 = 3;

/// NFT_REG32_00: the first of the registers of four octets that a look-up in a set reads.
const FIRST: u32 = 8;

/// Octets of the name of a kind of interfaces (IFNAMSIZ), and RTN_LOCAL.
const KIND: usize = 16;
const RTN_LOCAL: u32 = 2;

/// A part of a packet that is looked up in a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// Of the IP header, from this octet on.
    Network(u32),
    /// Of the transport header, from this octet on.
    Transport(u32),
    /// The packet's mark.
    Mark,
}

/// The expressions of one rule: the conditions, and then the verdict.
#[derive(Debug, Default)]
pub(super) struct Expressions(Vec<u8>);

impl Expressions {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// As netlink attributes.
    pub(super) fn octets(&self) -> &[u8] {
        &self.0
    }

    /// The packet came in by this interface.
    pub(super) fn arrived_by(self, index: u32) -> Self {
        self.meta(MetaKeys::Iif).compare(CmpOps::Eq, &index.to_ne_bytes())
    }

    /// The packet leaves by this interface.
    pub(super) fn leaves_by(self, index: u32) -> Self {
        self.meta(MetaKeys::Oif).compare(CmpOps::Eq, &index.to_ne_bytes())
    }

    /// The packet leaves by an interface of this kind, as `vrf`.
    pub(super) fn leaves_by_kind(self, kind: &[u8]) -> Self {
        let mut name = [0; KIND];
        name.iter_mut().zip(kind).for_each(|(to, from)| *to = *from);
        self.meta(MetaKeys::Oifkind).compare(CmpOps::Eq, &name)
    }

    /// The source address is one of this host. `leaving`: of the interface by which the packet leaves, also if that belongs to
    /// a VRF.
    pub(super) fn has_own_source(mut self, leaving: bool) -> Self {
        let flags = FibFlags::Saddr as u32 | if leaving { FibFlags::Oif as u32 } else { 0 };
        self.element()
            .nested_data_fib()
            .push_dreg(REGISTER)
            .push_result(FIB_ADDRESS_TYPE)
            .push_flags(flags)
            .end_nested()
            .end_nested();
        self.compare(CmpOps::Eq, &RTN_LOCAL.to_ne_bytes())
    }

    /// The packet has this mark.
    pub(super) fn marked(self, mark: u32) -> Self {
        self.meta(MetaKeys::Mark).compare(CmpOps::Eq, &mark.to_ne_bytes())
    }

    /// Whether the packet is to go through an SA of the kernel: yes or no.
    pub(super) fn in_tunnel(mut self, yes: bool) -> Self {
        let mut element = self.element().push_name(c"rt");
        let octets = element.as_vec_mut();
        let data = push_nested_header(octets, EXPRESSION_DATA);
        for (attribute, value) in [(RT_REGISTER, REGISTER), (RT_KEY, RT_XFRM)] {
            push_header(octets, attribute, 4);
            octets.extend_from_slice(&value.to_be_bytes());
        }
        finalize_nested_header(octets, data);
        element.end_nested();
        self.compare(CmpOps::Eq, &[u8::from(yes)])
    }

    /// The bits of `mask` of the packet's priority are `value`.
    pub(super) fn priority(self, mask: u32, value: u32) -> Self {
        let masked = self.meta(MetaKeys::Priority).mask(mask, 0);
        masked.compare(CmpOps::Eq, &value.to_ne_bytes())
    }

    /// The bits of `mask` of the packet's priority are not `value`.
    pub(super) fn other_priority(self, mask: u32, value: u32) -> Self {
        let masked = self.meta(MetaKeys::Priority).mask(mask, 0);
        masked.compare(CmpOps::Neq, &value.to_ne_bytes())
    }

    /// Gives the bits of `mask` of the packet's priority this `value`.
    pub(super) fn set_priority(self, mask: u32, value: u32) -> Self {
        let mut changed = self.meta(MetaKeys::Priority).mask(!mask, value);
        changed
            .element()
            .nested_data_meta()
            .push_key(MetaKeys::Priority as u32)
            .push_sreg(REGISTER)
            .end_nested()
            .end_nested();
        changed
    }

    /// The packet is of this address family (NFPROTO_*).
    pub(super) fn family(self, family: u8) -> Self {
        self.meta(MetaKeys::Nfproto).compare(CmpOps::Eq, &[family])
    }

    /// The packet is of this protocol.
    pub(super) fn protocol(self, protocol: u8) -> Self {
        self.meta(MetaKeys::L4Proto).compare(CmpOps::Eq, &[protocol])
    }

    /// `octets` of the IP header from `offset` are in a range.
    pub(super) fn network(self, offset: u32, start: &[u8], end: &[u8]) -> Self {
        self.load(PayloadBase::NetworkHeader, offset, start.len()).range(start, end)
    }

    /// The 16 bits at `offset` of the transport header are in a range. Fragments but the first do not
    /// have them, so that it does not hold.
    pub(super) fn transport(self, offset: u32, range: RangeInclusive<u16>) -> Self {
        let (start, end) = (range.start().to_be_bytes(), range.end().to_be_bytes());
        self.load(PayloadBase::TransportHeader, offset, 2).range(&start, &end)
    }

    /// Takes the bits of `mask` of a part of the packet as the octets from `at` on of the value that is looked up.
    pub(super) fn part(mut self, at: usize, part: Part, mask: &[u8]) -> Self {
        let register = FIRST + (at / 4) as u32;
        let mut loaded = match part {
            Part::Network(offset) => {
                self.load_into(register, PayloadBase::NetworkHeader, offset, mask.len())
            }
            Part::Transport(offset) => {
                self.load_into(register, PayloadBase::TransportHeader, offset, mask.len())
            }
            Part::Mark => {
                self.element()
                    .nested_data_meta()
                    .push_dreg(register)
                    .push_key(MetaKeys::Mark as u32)
                    .end_nested()
                    .end_nested();
                self
            }
        };
        if mask.iter().any(|octet| *octet != u8::MAX) {
            loaded.keep(register, mask, &vec![0; mask.len()]);
        }
        loaded
    }

    /// The parts of the packet are in a set.
    pub(super) fn in_set(mut self, set: &CStr) -> Self {
        let mut element = self.element().push_name(c"lookup");
        let octets = element.as_vec_mut();
        let data = push_nested_header(octets, EXPRESSION_DATA);
        let name = set.to_bytes_with_nul();
        push_header(octets, LOOKUP_SET, name.len() as u16);
        octets.extend_from_slice(name);
        push_header(octets, LOOKUP_REGISTER, 4);
        octets.extend_from_slice(&FIRST.to_be_bytes());
        finalize_nested_header(octets, data);
        element.end_nested();
        self
    }

    /// Counts the packets that come so far.
    pub(super) fn counter(mut self) -> Self {
        self.element()
            .nested_data_counter()
            .push_packets(0)
            .push_bytes(0)
            .end_nested()
            .end_nested();
        self
    }

    pub(super) fn accept(self) -> Self {
        self.verdict(VerdictCode::Accept, None)
    }

    /// The chain that has called this one goes on.
    pub(super) fn leave_chain(self) -> Self {
        self.verdict(VerdictCode::Return, None)
    }

    pub(super) fn drop(self) -> Self {
        self.verdict(VerdictCode::Drop, None)
    }

    pub(super) fn jump(self, chain: &CStr) -> Self {
        self.verdict(VerdictCode::Jump, Some(chain))
    }

    fn element(&mut self) -> PushExprAttrs<PushExprListAttrs<&mut Vec<u8>>> {
        PushExprListAttrs::new(&mut self.0).nested_elem()
    }

    fn meta(mut self, key: MetaKeys) -> Self {
        self.element()
            .nested_data_meta()
            .push_dreg(REGISTER)
            .push_key(key as u32)
            .end_nested()
            .end_nested();
        self
    }

    fn load(self, base: PayloadBase, offset: u32, len: usize) -> Self {
        self.load_into(REGISTER, base, offset, len)
    }

    fn load_into(mut self, register: u32, base: PayloadBase, offset: u32, len: usize) -> Self {
        self.element()
            .nested_data_payload()
            .push_dreg(register)
            .push_base(base as u32)
            .push_offset(offset)
            .push_len(len as u32)
            .end_nested()
            .end_nested();
        self
    }

    /// Keeps the bits of `mask` in the register, and inverts those of `xor`.
    fn mask(mut self, mask: u32, xor: u32) -> Self {
        self.keep(REGISTER, &mask.to_ne_bytes(), &xor.to_ne_bytes());
        self
    }

    fn keep(&mut self, register: u32, mask: &[u8], xor: &[u8]) {
        self.element()
            .nested_data_bitwise()
            .push_sreg(register)
            .push_dreg(register)
            .push_len(mask.len() as u32)
            .nested_mask()
            .push_value(mask)
            .end_nested()
            .nested_xor()
            .push_value(xor)
            .end_nested()
            .end_nested()
            .end_nested();
    }

    fn range(self, start: &[u8], end: &[u8]) -> Self {
        self.compare(CmpOps::Gte, start).compare(CmpOps::Lte, end)
    }

    fn compare(mut self, operator: CmpOps, value: &[u8]) -> Self {
        self.element()
            .nested_data_cmp()
            .push_sreg(REGISTER)
            .push_op(operator as u32)
            .nested_data()
            .push_value(value)
            .end_nested()
            .end_nested()
            .end_nested();
        self
    }

    fn verdict(mut self, code: VerdictCode, chain: Option<&CStr>) -> Self {
        let verdict = self
            .element()
            .nested_data_immediate()
            .push_dreg(Registers::RegVerdict as u32)
            .nested_data()
            .nested_verdict()
            .push_code(code as u32);
        let verdict = match chain {
            Some(chain) => verdict.push_chain(chain),
            None => verdict,
        };
        verdict.end_nested().end_nested().end_nested().end_nested();
        self
    }
}
