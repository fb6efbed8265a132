//! How the packets of a child are treated: marks, interfaces, header bits, policies.

use std::sync::Arc;

use ike_proto::config::{ChildConfig, InterfaceId, Scope};
use ike_proto::dataplane::{CopyDscp, HwOffload, Mark, Mode, TfcPadding};

use super::charon::set;
use crate::diagnostic::Report;
use crate::tree::{Section, join};

/// What [`if_id`] takes, for messages.
const IF_ID: &str = "a number such as 42 or \"0x2a\", \"%unique\" or \"%unique-dir\"";
/// What a mark is, for messages.
const MARK: &str = "a mark such as 42, \"0x2a/0xff\", \"%unique\" or \"%unique-dir\"";
/// What a mark that is set is, for messages.
const SET_MARK: &str = "a mark such as 42, \"0x2a/0xff\" or \"%same\"";
/// What an interface is called, for messages.
const INTERFACE: &str = "the name of an interface, of 1 to 15 characters";

/// What `tfc_padding` takes, for messages.
const TFC: &str = "a number of octets, 0 for none, or \"mtu\"";

/// The most octets in the name of an interface (IFNAMSIZ less its end).
const LONGEST_INTERFACE: usize = 15;

/// Reads the options of `[connections.<conn>.children.<name>]` that the data plane gets as they are.
pub(crate) fn read(s: &mut Section<'_>, c: &mut ChildConfig, report: &mut Report) {
    let offload = [
        ("no", HwOffload::No),
        ("crypto", HwOffload::Crypto),
        ("packet", HwOffload::Packet),
        ("auto", HwOffload::Auto),
        ("false", HwOffload::No),
        // strongSwan's word for what a device does of the cryptography, and without it there is no SA.
        ("yes", HwOffload::Crypto),
        ("true", HwOffload::Crypto),
    ];
    let dscp = [
        ("out", CopyDscp::Out),
        ("in", CopyDscp::In),
        ("yes", CopyDscp::Yes),
        ("no", CopyDscp::No),
        ("true", CopyDscp::Yes),
        ("false", CopyDscp::No),
    ];
    numbers(s, c, report);
    let p = Arc::make_mut(&mut c.processing);
    set(&mut p.reqid, s.number("reqid", 0, u32::MAX, report));
    set(&mut p.mark_in_sa, s.switch("mark_in_sa", report));
    p.interface = interface(s, report);
    set(&mut p.hw_offload, s.choice("hw_offload", &offload, report));
    set(&mut p.copy_df, s.switch("copy_df", report));
    set(&mut p.copy_ecn, s.switch("copy_ecn", report));
    set(&mut p.copy_dscp, s.choice("copy_dscp", &dscp, report));
    set(&mut p.icmp, s.switch("icmp", report));
    set(&mut p.policies, s.switch("policies", report));
    set(&mut p.policies_fwd_out, s.switch("policies_fwd_out", report));
    set(&mut p.per_cpu, per_cpu(s, report));
    set(&mut p.tfc_padding, tfc_padding(s, c.mode, report));
}

/// `tfc_padding`. Other modes than `tunnel` do not say how long an inner packet is, or have packets of one length anyhow.
fn tfc_padding(s: &mut Section<'_>, mode: Mode, report: &mut Report) -> Option<TfcPadding> {
    let padding = s.parsed("tfc_padding", TFC, report, |text| match text {
        "mtu" => Some(TfcPadding::Mtu),
        "0" => Some(TfcPadding::None),
        text => number(text).map(TfcPadding::To),
    })?;
    if mode != Mode::Tunnel && padding != TfcPadding::None {
        let option = join(&s.path, "tfc_padding");
        let message =
            format!("`{option}` changes nothing: packets are padded in tunnel mode alone");
        report.warn(Some(s.place("tfc_padding")), message);
    }
    Some(padding)
}

/// Marks and interface ids.
fn numbers(s: &mut Section<'_>, c: &mut ChildConfig, report: &mut Report) {
    let p = Arc::make_mut(&mut c.processing);
    for (key, mark, unique) in [
        ("mark_in", &mut p.mark_in, &mut c.unique.mark_in),
        ("mark_out", &mut p.mark_out, &mut c.unique.mark_out),
    ] {
        if let Some((value, mask)) = s.parsed(key, MARK, report, |text| mark_of(text, value)) {
            (*mark, *unique) = (Mark { value: value.fixed() & mask, mask }, value.scope());
        }
    }
    for (key, mark, same) in [
        ("set_mark_in", &mut p.set_mark_in, &mut c.unique.set_mark_in_same),
        ("set_mark_out", &mut p.set_mark_out, &mut c.unique.set_mark_out_same),
    ] {
        let parsed = s.parsed(key, SET_MARK, report, |text| mark_of(text, same_or_number));
        if let Some((value, mask)) = parsed {
            (*mark, *same) = (Mark { value: value.unwrap_or(0) & mask, mask }, value.is_none());
        }
    }
    for (key, place, unique) in [
        ("if_id_in", &mut p.if_id_in, &mut c.unique.if_id_in),
        ("if_id_out", &mut p.if_id_out, &mut c.unique.if_id_out),
    ] {
        if let Some(value) = s.parsed(key, IF_ID, report, value) {
            (*place, *unique) = (value.fixed(), value.scope());
        }
    }
}

/// `if_id_in` or `if_id_out` of a connection.
pub(crate) fn if_id(
    s: &mut Section<'_>,
    key: &'static str,
    report: &mut Report,
) -> Option<InterfaceId> {
    s.parsed(key, IF_ID, report, value).map(|value| match value {
        Value::Fixed(id) => InterfaceId::Fixed(id),
        Value::Chosen(scope) => InterfaceId::Unique(scope),
    })
}

/// `per_cpu_sas`. Its UDP encapsulation with ports of each CPU's own is not negotiated with the peer, and
/// no data plane here has it.
fn per_cpu(s: &mut Section<'_>, report: &mut Report) -> Option<bool> {
    let choices = [
        ("no", Some(false)),
        ("yes", Some(true)),
        ("encap", None),
        ("false", Some(false)),
        ("true", Some(true)),
    ];
    let choice = s.choice("per_cpu_sas", &choices, report)?;
    if choice.is_none() {
        let path = join(&s.path, "per_cpu_sas");
        let message = format!("`{path} = \"encap\"` is not supported");
        report.expected(s.place("per_cpu_sas"), message, "\"yes\" or \"no\"");
    }
    choice
}

fn interface(s: &mut Section<'_>, report: &mut Report) -> Option<String> {
    s.parsed("interface", INTERFACE, report, |name| {
        let fits = (1..=LONGEST_INTERFACE).contains(&name.len())
            && !["", ".", ".."].contains(&name)
            && name.bytes().all(|b| b.is_ascii_graphic() && b != b'/' && b != b':');
        fits.then(|| name.to_owned())
    })
}

/// A number, or how one is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Value {
    Fixed(u32),
    Chosen(Scope),
}

impl Value {
    /// The number; 0 if it is chosen later.
    fn fixed(self) -> u32 {
        match self {
            Self::Fixed(value) => value,
            Self::Chosen(_) => 0,
        }
    }

    fn scope(self) -> Option<Scope> {
        match self {
            Self::Fixed(_) => None,
            Self::Chosen(scope) => Some(scope),
        }
    }
}

fn value(text: &str) -> Option<Value> {
    match text.trim() {
        "%unique" => Some(Value::Chosen(Scope::Pair)),
        "%unique-dir" => Some(Value::Chosen(Scope::Direction)),
        text => number(text).map(Value::Fixed),
    }
}

/// `Some(None)` for `%same`.
fn same_or_number(text: &str) -> Option<Option<u32>> {
    match text.trim() {
        "%same" => Some(None),
        text => number(text).map(Some),
    }
}

/// A value and the mask after a slash; all bits without one.
fn mark_of<T>(text: &str, value: impl FnOnce(&str) -> Option<T>) -> Option<(T, u32)> {
    let (text, mask) = match text.split_once('/') {
        Some((text, mask)) => (text, number(mask.trim())?),
        None => (text, u32::MAX),
    };
    Some((value(text)?, mask))
}

/// Decimal, or hexadecimal after `0x`.
fn number(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    match digits {
        // `from_str_radix` would take a sign.
        Some(digits) if digits.bytes().all(|b| b.is_ascii_hexdigit()) => {
            u32::from_str_radix(digits, 16).ok()
        }
        None if text.bytes().all(|b| b.is_ascii_digit()) => text.parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_decimal_or_hexadecimal_and_have_32_bits() {
        assert_eq!(number("42"), Some(42));
        assert_eq!(number("0x2a"), Some(42));
        assert_eq!(number("0XFFFFFFFF"), Some(u32::MAX));
        for wrong in ["", "0x", "-1", "+1", "0x+1", "4294967296", "0x100000000", "2a", "%same"] {
            assert_eq!(number(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn marks_have_a_mask_or_all_bits() {
        assert_eq!(mark_of("42", value), Some((Value::Fixed(42), u32::MAX)));
        assert_eq!(mark_of("0x10/0xf0", value), Some((Value::Fixed(16), 0xf0)));
        assert_eq!(mark_of("%unique/0xff", value), Some((Value::Chosen(Scope::Pair), 0xff)));
        assert_eq!(mark_of("%same/3", same_or_number), Some((None, 3)));
        for wrong in ["", "/", "1/", "/1", "1/2/3", "%same", "%unique_dir"] {
            assert_eq!(mark_of(wrong, value), None, "{wrong:?}");
        }
    }
}
