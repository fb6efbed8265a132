//! Where the routes of tunnels go.

/// The mark of IKE and ESP packets, unless configured otherwise.
pub const DEFAULT_MARK: u32 = 220;

/// The table and the priority of its rule, unless configured otherwise. charon's are 220: it flushes that table, and removes
/// rules that lead there, whoever has made them.
pub const DEFAULT_TABLE: u32 = 7296;
/// See [`DEFAULT_TABLE`].
pub const DEFAULT_PRIORITY: u32 = 219;

/// Where routes go.
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
        Self { table: DEFAULT_TABLE, priority: DEFAULT_PRIORITY, mark: DEFAULT_MARK }
    }
}
