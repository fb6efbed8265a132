//! The data planes that a user can ask for.

use clap::ValueEnum;

/// What carries the traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DataPlaneKind {
    /// The kernel if it has ESP, else this process
    Auto,
    /// The kernel's XFRM
    Kernel,
    /// ESP in this process, over a TUN device
    Userspace,
    /// None: SAs are negotiated and carry no traffic
    None,
}
