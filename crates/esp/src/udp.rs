//! The kinds of datagrams on port 4500 (RFC 3948 §2).

/// A datagram of port 4500, told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Datagram<'a> {
    /// NAT keepalive: one octet 0xFF, to be ignored (§2.3).
    Keepalive,
    /// IKE: the octets after the non-ESP marker of four zero octets (§2.2).
    Ike(&'a [u8]),
    /// ESP: the SPI is not zero (§2.1).
    Esp(&'a [u8]),
    /// Too short to be any of them.
    Runt,
}

/// The marker in front of IKE on port 4500 (§2.2).
pub const NON_ESP_MARKER: [u8; 4] = [0; 4];

/// The payload of a NAT keepalive (§2.3).
pub const KEEPALIVE: [u8; 1] = [0xff];

/// Classifies `datagram`.
pub fn classify(datagram: &[u8]) -> Datagram<'_> {
    match datagram.split_first_chunk::<4>() {
        Some((&NON_ESP_MARKER, ike)) => Datagram::Ike(ike),
        Some(_) => Datagram::Esp(datagram),
        None if datagram == KEEPALIVE => Datagram::Keepalive,
        None => Datagram::Runt,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind() {
        assert_eq!(classify(&[0xff]), Datagram::Keepalive);
        assert_eq!(classify(&[0, 0, 0, 0, 9, 9]), Datagram::Ike(&[9, 9]));
        assert_eq!(classify(&[0, 0, 0, 0]), Datagram::Ike(&[]));
        assert_eq!(classify(&[0, 0, 1, 0, 5]), Datagram::Esp(&[0, 0, 1, 0, 5]));
        for runt in [&[][..], &[0], &[0xff, 0xff], &[0, 0, 0]] {
            assert_eq!(classify(runt), Datagram::Runt);
        }
    }
}
