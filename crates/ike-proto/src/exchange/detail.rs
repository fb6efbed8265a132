//! The requested and the configured values in a few words, for the log, when nothing fits.

use std::fmt::{self, Display, Write};
use std::sync::Arc;

use super::ppk::{self, Announced};
use super::{Payloads, Refusal};
use crate::config::{
    ChildConfig, ConnectionConfig, DowngradePrevention, EndpointConfig, ProposalConfig, TsSpec,
};
use crate::wire::payload::{Proposal, Spi, TrafficSelector};
use crate::wire::registry::NotifyType;

/// The most octets of a list, because unauthenticated peers choose the length of theirs.
const LONGEST: usize = 400;

/// A text that is cut when it becomes too long.
struct Brief(String);

impl Write for Brief {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > LONGEST {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

/// `items` with commas, as many as fit.
fn list<T: Display>(items: impl Iterator<Item = T>) -> String {
    let mut brief = Brief(String::new());
    for (index, item) in items.enumerate() {
        let separator = if index == 0 { "" } else { ", " };
        if write!(brief, "{separator}{item}").is_err() {
            brief.0.push_str(" ...");
            break;
        }
    }
    if brief.0.is_empty() { "nothing".to_owned() } else { brief.0 }
}

/// In the keywords of the configuration, so that the two can be compared.
fn offered(proposals: &[Proposal]) -> String {
    list(proposals.iter().map(|offered| ProposalConfig {
        protocol: offered.protocol,
        transforms: offered.transforms.clone(),
    }))
}

/// Why IKE_SA_INIT is refused. `connections` are those for the addresses.
pub(crate) fn init(
    config: &EndpointConfig,
    mut connections: Vec<Arc<ConnectionConfig>>,
    payloads: &Payloads<'_, '_>,
    refusal: &Refusal,
) -> String {
    if connections.is_empty() {
        return "no connection for these addresses".to_owned();
    }
    let (NotifyType::NO_PROPOSAL_CHOSEN, Ok(Some(sa))) = (refusal.kind, payloads.sa()) else {
        return refusal.to_string();
    };
    let theirs = Announced::read(payloads);
    connections.retain(|connection| ppk::is_possible(config, connection, theirs));
    if connections.is_empty() {
        return "a PPK is required, and the peer announces none".to_owned();
    }
    let full = payloads.notify(NotifyType::IKE_SA_INIT_FULL_TRANSCRIPT_AUTH).is_some();
    connections.retain(|c| full || c.downgrade_prevention != DowngradePrevention::Require);
    if connections.is_empty() {
        return "downgrade prevention is required, and the peer does not announce it".to_owned();
    }
    let received = offered(&sa.proposals);
    if sa.proposals.iter().all(|proposal| proposal.spi != Spi::None) {
        return format!(
            "every proposal has an SPI, which RFC 7296 §3.3.1 forbids here: {received}"
        );
    }
    let configured = list(connections.iter().flat_map(|connection| &connection.proposals));
    format!("no proposal fits: received {received}; configured {configured}")
}

/// Why a request leads to no child, if nothing configured fits.
pub(crate) fn child(
    children: &[Arc<ChildConfig>],
    payloads: &Payloads<'_, '_>,
    refusal: &Refusal,
) -> Option<String> {
    match refusal.kind {
        NotifyType::NO_PROPOSAL_CHOSEN => {
            let configured = list(children.iter().flat_map(|child| &child.esp_proposals));
            let received = offered(&payloads.sa().ok()??.proposals);
            Some(format!("no proposal fits: received {received}; configured {configured}"))
        }
        NotifyType::TS_UNACCEPTABLE => {
            let received = |ts: &[TrafficSelector]| list(ts.iter());
            let (local, remote) = (payloads.ts_r().ok()??, payloads.ts_i().ok()??);
            let configured = list(children.iter().map(|child| selectors(child)));
            Some(format!(
                "no traffic selectors fit: received {} === {}; configured {configured}",
                received(local),
                received(remote)
            ))
        }
        NotifyType::TS_MAX_QUEUE => {
            Some("no more SAs for the same traffic selectors are taken (per_cpu_sas)".to_owned())
        }
        _ => None,
    }
}

/// A child's name and selectors, this end's first.
fn selectors(child: &ChildConfig) -> String {
    let side = |specs: &[TsSpec]| {
        list(specs.iter().map(|spec| match spec {
            TsSpec::Fixed(selector) => selector.to_string(),
            TsSpec::Dynamic { .. } => "dynamic".to_owned(),
        }))
    };
    format!("{}: {} === {}", child.name, side(&child.local_ts), side(&child.remote_ts))
}
