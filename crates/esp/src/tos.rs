//! DSCP and ECN across the tunnel (RFC 4301 §5.1.2, RFC 6040).

/// ECN codepoints, the low two bits of the TOS or traffic class octet (RFC 3168 §5).
pub(crate) const ECN_MASK: u8 = 0b11;
const NOT_ECT: u8 = 0b00;
const ECT_0: u8 = 0b10;
const ECT_1: u8 = 0b01;
const CE: u8 = 0b11;

/// The inner octet after decapsulation (RFC 6040 §4.2, Figure 4): DSCP of the inner header, the more
/// severe ECN of the two; `None` where the packet must be dropped.
pub fn decapsulate(inner: u8, outer: u8) -> Option<u8> {
    let ecn = match (inner & ECN_MASK, outer & ECN_MASK) {
        (NOT_ECT, CE) => return None,
        (NOT_ECT, _) => NOT_ECT,
        (CE, _) | (_, CE) => CE,
        (ECT_1, _) | (_, ECT_1) => ECT_1,
        _ => ECT_0,
    };
    Some(inner & !ECN_MASK | ecn)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Figure 4 of RFC 6040, row by row.
    #[test]
    fn decapsulation_table() {
        let outer = [NOT_ECT, ECT_0, ECT_1, CE];
        let rows = [
            (NOT_ECT, [Some(NOT_ECT), Some(NOT_ECT), Some(NOT_ECT), None]),
            (ECT_0, [Some(ECT_0), Some(ECT_0), Some(ECT_1), Some(CE)]),
            (ECT_1, [Some(ECT_1), Some(ECT_1), Some(ECT_1), Some(CE)]),
            (CE, [Some(CE); 4]),
        ];
        for (inner, expected) in rows {
            for (o, want) in outer.into_iter().zip(expected) {
                assert_eq!(decapsulate(inner, o), want, "inner {inner:02b} outer {o:02b}");
            }
        }
    }

    #[test]
    fn the_inner_dscp_survives() {
        assert_eq!(decapsulate(0xb8 | ECT_0, 0x28 | CE), Some(0xb8 | CE));
    }
}
