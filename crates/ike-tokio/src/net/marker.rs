//! Telling IKE, ESP and keepalives apart on port 4500 (RFC 3948 §2).

/// The four zero octets in front of an IKE message on port 4500; where they stand, ESP has its SPI.
pub const NON_ESP_MARKER: [u8; 4] = [0; 4];

/// A datagram of port 4500.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Datagram<'a> {
    /// An IKE message, its marker taken off.
    Ike(&'a [u8]),
    /// An ESP packet.
    Esp,
    /// A NAT keepalive, or something too short to be anything.
    Nothing,
}

/// Tells what `octets` are.
pub fn classify(octets: &[u8]) -> Datagram<'_> {
    match octets.split_first_chunk::<4>() {
        Some((&NON_ESP_MARKER, message)) => Datagram::Ike(message),
        Some((_, rest)) if rest.len() >= 4 => Datagram::Esp,
        _ => Datagram::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind() {
        assert_eq!(classify(&[0, 0, 0, 0, 1, 2]), Datagram::Ike(&[1, 2]));
        assert_eq!(classify(&[0, 0, 0, 0]), Datagram::Ike(&[]));
        assert_eq!(classify(&[0, 0, 1, 0, 0, 0, 0, 1]), Datagram::Esp);
        for nothing in [&[][..], &[0xFF], &[0, 0, 0], &[0, 0, 1, 0, 0]] {
            assert_eq!(classify(nothing), Datagram::Nothing);
        }
    }
}
