//! Where the routes of tunnels go.

/// The mark of IKE and ESP packets, unless configured otherwise.
pub const DEFAULT_MARK: u32 = 220;

/// Where routes go; the defaults are strongSwan's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouteOptions {
    /// `routing_table`.
    pub table: u32,
    /// `routing_table_prio`: priority of the rule.
    pub priority: u32,
    /// `fwmark`: packets with it do not take these routes.
    pub mark: u32,
}

impl Default for RouteOptions {
    fn default() -> Self {
        Self { table: 220, priority: 220, mark: DEFAULT_MARK }
    }
}
