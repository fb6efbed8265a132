//! Slow key exchanges, which the engine has others do: what arrives meanwhile, what never comes, what comes
//! too late, and what breaks off.

mod halves;
mod initial;
mod places;

use std::time::Duration;

use ike_proto::wire::registry::ExchangeType;
use ike_proto::{Failure, RequestId};
use ike_tests::ExchangeFate;
use ike_tests::{A, Pair, Setup};

const SECOND: Duration = Duration::from_secs(1);

/// Two ends with these methods for the IKE SA and for children. Timers are strongSwan's, so that requests
/// come again in the meantime.
fn setup(seed: u64, ike: &str, esp: &str) -> Setup {
    let mut setup = Setup::new(seed);
    setup.both(|side| {
        side.ike_proposals(&[&format!("aes128gcm16-prfsha256-{ike}")]);
        side.esp_proposals(&[&format!("aes128gcm16{esp}")]);
        side.settings.retransmission.timeout = Some(SECOND);
        side.settings.retransmission.tries = Some(6);
    });
    setup
}

fn set_delay(pair: &mut Pair, delay: Option<Duration>) {
    for host in &mut pair.hosts {
        host.exchange_delay = delay;
    }
}

/// What a slow key exchange is part of, once there is an IKE SA.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// Methods of the IKE SA, and of its rekeys.
    ike: &'static str,
    /// Methods of the child's rekeys.
    esp: &'static str,
    /// Whether the IKE SA is rekeyed or the child.
    of_ike: bool,
    /// Its exchange.
    exchange: ExchangeType,
    /// Slow ones in the rekey: each costs the initiator two steps and the responder one.
    slow: usize,
}

const PLACES: [Place; 7] = [
    Place {
        ike: "x25519",
        esp: "-modp2048",
        of_ike: false,
        exchange: ExchangeType::CREATE_CHILD_SA,
        slow: 1,
    },
    Place {
        ike: "x25519",
        esp: "-x25519-ke1_modp2048",
        of_ike: false,
        exchange: ExchangeType::IKE_FOLLOWUP_KE,
        slow: 1,
    },
    Place {
        ike: "x25519",
        esp: "-modp2048-ke1_ecp256",
        of_ike: false,
        exchange: ExchangeType::CREATE_CHILD_SA,
        slow: 1,
    },
    Place {
        ike: "x25519",
        esp: "-modp2048-ke1_modp3072-ke2_ecp256",
        of_ike: false,
        exchange: ExchangeType::IKE_FOLLOWUP_KE,
        slow: 2,
    },
    Place {
        ike: "modp2048",
        esp: "",
        of_ike: true,
        exchange: ExchangeType::CREATE_CHILD_SA,
        slow: 1,
    },
    Place {
        ike: "ecp256-ke1_modp2048",
        esp: "",
        of_ike: true,
        exchange: ExchangeType::IKE_FOLLOWUP_KE,
        slow: 1,
    },
    Place {
        ike: "modp3072-ke1_ecp256-ke2_modp2048",
        esp: "",
        of_ike: true,
        exchange: ExchangeType::IKE_FOLLOWUP_KE,
        slow: 2,
    },
];

impl Place {
    /// An established pair.
    fn pair(self, seed: u64) -> Pair {
        let mut pair = setup(seed, self.ike, self.esp).build();
        pair.establish();
        for host in &mut pair.hosts {
            host.exchanges = 0;
        }
        pair
    }

    fn rekey(self, pair: &mut Pair, host: usize) -> RequestId {
        if self.of_ike { pair.rekey_ike(host) } else { pair.rekey_child(host) }
    }
}

fn count(pair: &Pair, exchange: ExchangeType, response: bool) -> usize {
    pair.net.trace.iter().filter(|packet| packet.is(exchange, response)).count()
}

/// The next steps at `host`.
fn fates(pair: &mut Pair, host: usize, fates: impl IntoIterator<Item = ExchangeFate>) {
    pair.hosts[host].exchange_fates = fates.into_iter().collect();
}

/// Nothing is left at either end.
#[track_caller]
fn assert_nothing_left(pair: &Pair) {
    for host in &pair.hosts {
        assert!(host.ikes().is_empty() && host.plane.inbound_spis().is_empty(), "{}", pair.story());
        assert_eq!(host.endpoint.half_open(), 0);
        assert_eq!(host.endpoint.reassembly_memory(), 0);
    }
}

/// How the command ended that A gave.
#[track_caller]
fn outcome(pair: &Pair, request: RequestId) -> Result<(), Failure> {
    pair.hosts[A].done(request).unwrap_or_else(|| panic!("no end of it: {}", pair.story()))
}
