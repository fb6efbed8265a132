//! A configuration in the form that an endpoint can use.

use std::sync::Arc;
use std::time::Duration;

use crate::config::{ChildConfig, ConnectionConfig, EndpointConfig, ProposalConfig, TcpUse};
use crate::crypto::CryptoProvider;
use crate::wire::payload::Transform;
use crate::wire::registry::{FrodoNumbers, KeMethodId, TransformType};

/// The longest time that is accepted: ten years. The sum of a few such times and the time of any input is still a
/// time. A longer one in an embedder's configuration would overflow much later, which is a panic.
const LONGEST: Duration = Duration::from_secs(10 * 366 * 24 * 3600);

/// Removes algorithms that no backend has, so that they are neither offered nor chosen; inserts the numbers of
/// FrodoKEM; and limits all times.
pub(super) fn usable(mut config: EndpointConfig, crypto: &CryptoProvider) -> EndpointConfig {
    // Only once: a configuration that an endpoint has returned has its numbers already.
    let numbers = std::mem::take(&mut config.frodokem);
    let keep = |proposals: &[ProposalConfig]| {
        let numbered = proposals.iter().cloned().map(|mut proposal| {
            proposal.transforms.iter_mut().for_each(|transform| number(numbers, transform));
            proposal
        });
        numbered.filter_map(|proposal| proposal.supported_by(crypto)).collect()
    };
    bound_endpoint(&mut config);
    for connection in &mut config.connections {
        let mut usable = ConnectionConfig::clone(connection);
        usable.proposals = keep(&usable.proposals);
        bound_connection(&mut usable);
        for child in &mut usable.children {
            let mut config = ChildConfig::clone(child);
            config.esp_proposals = keep(&config.esp_proposals);
            bound_child(&mut config);
            *child = Arc::new(config);
        }
        *connection = Arc::new(usable);
    }
    config
}

/// Gives `transform` its number, if it is a key exchange.
fn number(numbers: FrodoNumbers, transform: &mut Transform) {
    let kind = transform.kind;
    if kind == TransformType::KE || kind.additional_ke().is_some() {
        transform.id = numbers.of(KeMethodId(transform.id)).0;
    }
}

fn bound<'a>(times: impl IntoIterator<Item = &'a mut Duration>) {
    for time in times {
        *time = (*time).min(LONGEST);
    }
}

fn bound_endpoint(config: &mut EndpointConfig) {
    bound([
        &mut config.retransmission.limit,
        &mut config.half_open_timeout,
        &mut config.keep_alive,
        &mut config.retry_initiate_interval,
        &mut config.delete_rekeyed_delay,
        &mut config.qcd.quiet,
        &mut config.resumption.lifetime,
    ]);
    bound(&mut config.retransmission.timeout);
}

fn bound_connection(config: &mut ConnectionConfig) {
    bound([
        &mut config.dpd_delay,
        &mut config.rekey_time,
        &mut config.reauth_time,
        &mut config.over_time,
        &mut config.rand_time,
    ]);
    if let TcpUse::Fallback(patience) = &mut config.enable_tcp {
        bound([patience]);
    }
}

fn bound_child(config: &mut ChildConfig) {
    bound([
        &mut config.rekey_time,
        &mut config.life_time,
        &mut config.rand_time,
        &mut config.inactivity,
    ]);
}
