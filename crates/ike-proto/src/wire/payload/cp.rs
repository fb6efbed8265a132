//! Configuration payload (RFC 7296 §3.15).

/// The body of a CP payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config<'a> {
    /// CFG type: 1 request, 2 reply, 3 set, 4 ack.
    pub kind: u8,
    /// Attributes.
    pub attributes: Vec<ConfigAttribute<'a>>,
}

/// One configuration attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConfigAttribute<'a> {
    /// Attribute type, 15 bits.
    pub kind: u16,
    /// Value.
    pub value: &'a [u8],
}
