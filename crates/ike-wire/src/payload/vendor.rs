//! Vendor ID payload (RFC 7296 §3.12): an opaque string of any length, none included.

#[cfg(test)]
mod tests {
    use crate::payload::{Payload, assert_round_trip};

    #[test]
    fn round_trip() {
        assert_round_trip(&Payload::Vendor(b"vendor"), b"vendor");
        assert_round_trip(&Payload::Vendor(b""), b"");
    }
}
