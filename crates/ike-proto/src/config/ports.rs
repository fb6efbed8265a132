//! The UDP ports of IKE.

/// UDP ports to listen on; 0 lets the system choose one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ports {
    /// For IKE without a non-ESP marker; usually 500.
    pub ike: u16,
    /// For IKE with a non-ESP marker, and for ESP in UDP (RFC 3948); usually 4500.
    pub nat_t: u16,
}

impl Default for Ports {
    fn default() -> Self {
        Self { ike: 500, nat_t: 4500 }
    }
}
