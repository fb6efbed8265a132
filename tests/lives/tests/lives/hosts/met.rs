//! What the lives of hosts have met.

/// A disturbance. It counts where an SA was up at that moment, and traffic passed both ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Met {
    RuleTaken,
    TableFlushed,
    RouteTaken,
    Fought,
    InsideAddress,
    AddressGone,
    Moved,
    LinkDown,
    DefaultRoute,
    Stirred,
    PeerDied,
    Killed,
    Restarted,
    Stopped,
    Silence,
    Rekeyed,
    /// Of the start: there cannot be an SA yet.
    Booted,
    /// As well.
    EndedEarly,
}

impl Met {
    pub const ALL: [Self; 18] = [
        Self::RuleTaken,
        Self::TableFlushed,
        Self::RouteTaken,
        Self::Fought,
        Self::InsideAddress,
        Self::AddressGone,
        Self::Moved,
        Self::LinkDown,
        Self::DefaultRoute,
        Self::Stirred,
        Self::PeerDied,
        Self::Killed,
        Self::Restarted,
        Self::Stopped,
        Self::Silence,
        Self::Rekeyed,
        Self::Booted,
        Self::EndedEarly,
    ];

    pub fn words(self) -> &'static str {
        match self {
            Self::RuleTaken => "another program removes the rule",
            Self::TableFlushed => "another program empties the table",
            Self::RouteTaken => "another program removes one route",
            Self::Fought => "another program removes all of it again and again",
            Self::InsideAddress => "the address of this host's side is removed for a time",
            Self::AddressGone => "the outer address is removed, and comes back late",
            Self::Moved => "this host gets another outer address",
            Self::LinkDown => "the outer link goes down and comes up",
            Self::DefaultRoute => "the default route goes and comes back",
            Self::Stirred => "routes change that concern nothing",
            Self::PeerDied => "a peer is killed, and starts again later",
            Self::Killed => "the daemon is killed, and starts again later",
            Self::Restarted => "the daemon is restarted",
            Self::Stopped => "the daemon is stopped, and started later",
            Self::Silence => "the network is silent for a time",
            Self::Rekeyed => "an SA is rekeyed",
            Self::Booted => "the daemon starts before the first link is up",
            Self::EndedEarly => "the daemon is restarted or killed while no peer answers yet",
        }
    }
}
