//! The SAs of a command.

/// Names connections, children or SAs. Every field that is set must match. For [`Handle::lift`](crate::Handle::lift)
/// nothing matches if the number of an SA is set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Target {
    /// A child, or a connection.
    pub name: Option<String>,
    /// A connection, exactly.
    pub ike: Option<String>,
    /// A child, exactly.
    pub child: Option<String>,
    /// The number of an IKE SA.
    pub ike_id: Option<u64>,
    /// The number of a Child SA.
    pub child_id: Option<u64>,
}

impl Target {
    /// A child or connection of this name.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..Self::default() }
    }
}
