//! The UDP ports of IKE.

/// UDP ports the daemon listens on; 0 lets the system choose one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ports {
    /// `port`.
    pub ike: u16,
    /// `port_nat_t`.
    pub nat_t: u16,
}

impl Default for Ports {
    fn default() -> Self {
        Self { ike: 500, nat_t: 4500 }
    }
}
