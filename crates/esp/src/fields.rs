//! Which fields of IP headers are copied between the inner and the outer packet (RFC 4301 §5.1.2, RFC 4303 §3.1).

use ipsec_types::dataplane::{CopyDscp, Processing};

use crate::tos::{ECN_MASK, decapsulate};

/// Fields of an IP header. In transport mode ESP leaves them as they are. In tunnel mode it makes the outer ones from the
/// inner ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fields {
    /// TOS or traffic class: DSCP and ECN.
    pub tos: u8,
    /// TTL or hop limit; `None` if the system chooses it, or if it is not known.
    pub hop_limit: Option<u8>,
    /// Don't Fragment. IPv6 has it always.
    pub dont_fragment: bool,
    /// Flow label of IPv6; 0 if the system chooses it, or if it is not known.
    pub flow_label: u32,
}

impl Fields {
    /// Default fields, with Don't Fragment.
    pub const PLAIN: Self = Self { tos: 0, hop_limit: None, dont_fragment: true, flow_label: 0 };

    /// The fields of the packet at the start of `octets`.
    pub(crate) fn of(octets: &[u8]) -> Option<Self> {
        match octets.first()? >> 4 {
            4 => {
                let &[_, tos, _, _, _, _, flags, _, hop_limit] = octets.first_chunk()?;
                let dont_fragment = flags & 0x40 != 0;
                Some(Self { tos, hop_limit: Some(hop_limit), dont_fragment, flow_label: 0 })
            }
            6 => {
                let &[b0, b1, b2, b3, _, _, _, hop_limit] = octets.first_chunk()?;
                let first = u32::from_be_bytes([b0, b1, b2, b3]);
                Some(Self {
                    tos: (first >> 20) as u8,
                    hop_limit: Some(hop_limit),
                    dont_fragment: true,
                    flow_label: first & 0xf_ffff,
                })
            }
            _ => None,
        }
    }
}

/// Which fields a child copies in tunnel mode: `copy_dscp`, `copy_ecn` and `copy_df`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copied {
    dscp_out: bool,
    dscp_in: bool,
    ecn: bool,
    df: bool,
}

impl From<&Processing> for Copied {
    fn from(processing: &Processing) -> Self {
        let dscp = processing.copy_dscp;
        Self {
            dscp_out: matches!(dscp, CopyDscp::Out | CopyDscp::Yes),
            dscp_in: matches!(dscp, CopyDscp::In | CopyDscp::Yes),
            ecn: processing.copy_ecn,
            df: processing.copy_df,
        }
    }
}

impl Copied {
    /// The outer fields for a packet with `tos` and `dont_fragment`. ECN as in RFC 6040 §4.1: copied in normal mode, and
    /// none in compatibility mode.
    #[inline]
    pub fn outside(&self, tos: u8, dont_fragment: bool) -> Fields {
        let dscp = if self.dscp_out { tos & !ECN_MASK } else { 0 };
        let ecn = if self.ecn { tos & ECN_MASK } else { 0 };
        let dont_fragment = dont_fragment && self.df;
        Fields { tos: dscp | ecn, hop_limit: None, dont_fragment, flow_label: 0 }
    }

    /// The TOS octet of the inner packet after decapsulation: `inner` is its own, `outer` that of the outer header. `None`
    /// if the packet must be dropped.
    #[inline]
    pub fn inside(&self, inner: u8, outer: u8) -> Option<u8> {
        let tos = if self.ecn { decapsulate(inner, outer)? } else { inner };
        Some(if self.dscp_in { outer & !ECN_MASK | tos & ECN_MASK } else { tos })
    }

    /// True if all fields of the outer header of an arriving packet are needed.
    pub(crate) fn needs_outer_fields(&self) -> bool {
        self.dscp_in
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copied(copy_dscp: CopyDscp, copy_ecn: bool, copy_df: bool) -> Copied {
        Copied::from(&Processing { copy_dscp, copy_ecn, copy_df, ..Processing::default() })
    }

    /// EF with ECT(0).
    const INNER: u8 = 0xba;
    /// AF11 with CE.
    const OUTER: u8 = 0x2b;

    /// Fault: in `outside` or `inside`, copy whatever the options say.
    #[test]
    fn the_options_say_what_is_copied() {
        for (dscp, out, back) in [
            (CopyDscp::Out, 0xba, 0xbb),
            (CopyDscp::In, 0x02, 0x2b),
            (CopyDscp::Yes, 0xba, 0x2b),
            (CopyDscp::No, 0x02, 0xbb),
        ] {
            let all = copied(dscp, true, true);
            assert_eq!(all.outside(INNER, true).tos, out, "{dscp:?}");
            assert_eq!(all.inside(INNER, OUTER), Some(back), "{dscp:?}");
            let less = copied(dscp, false, true);
            assert_eq!(less.outside(INNER, true).tos, out & !ECN_MASK, "{dscp:?}");
            assert_eq!(less.inside(INNER, OUTER), Some(back & !ECN_MASK | 0b10), "{dscp:?}");
            // Without ECN a mark of the network is nobody's business.
            assert!(less.inside(0xb8, OUTER).is_some(), "{dscp:?}");
            assert_eq!(all.inside(0xb8, OUTER), None, "{dscp:?}");
        }
        for (inner, copy, outer) in [(true, true, true), (false, true, false), (true, false, false)]
        {
            let fields = copied(CopyDscp::Out, true, copy).outside(0, inner);
            assert_eq!(fields.dont_fragment, outer);
        }
    }
}
