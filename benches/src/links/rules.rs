//! How an end retransmits.

use std::time::Duration;

use ike_proto::config::{EndpointConfig, Retransmission};

/// The rules of an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Rules {
    /// This engine's defaults.
    Ours,
    /// strongSwan's defaults: 4.0 s growing 1.8 times with each of five tries, then a new attempt;
    /// whole messages are sent again, all fragments of 1280 octets at once, and none is acknowledged.
    Strongswan,
}

impl Rules {
    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Strongswan => "strongswan",
        }
    }

    /// Changes the settings of an endpoint, which are the defaults.
    pub fn apply(self, config: &mut EndpointConfig) {
        match self {
            Self::Ours => {}
            Self::Strongswan => {
                config.retransmission = Retransmission::strongswan();
                config.fragment_ack = None;
                config.fragment_size.get_or_insert(1280);
            }
        }
    }

    /// The first timer of an end that knows nothing of the path.
    pub fn first_timer(self) -> Duration {
        match self {
            Self::Ours => Duration::from_millis(500),
            Self::Strongswan => Duration::from_secs(4),
        }
    }
}
