//! A digest of all that an endpoint puts out: two builds of the engine with one digest behave alike.

use std::fmt::{Debug, Display};
use std::time::Duration;

use ike_proto::{Event, Output};

/// What [`Output`]s were, and when. It is kept if the environment variable `IKE_LIVES_DIGEST` is set.
#[derive(Debug)]
pub(crate) struct Digest(Option<u64>);

/// FNV-1a, whose result is the same on every machine.
const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0100_0000_01b3;

/// Adds `octets` to the digest `so_far`.
pub fn add(so_far: u64, octets: &[u8]) -> u64 {
    octets.iter().fold(so_far, |digest, octet| (digest ^ u64::from(*octet)).wrapping_mul(PRIME))
}

/// The digest of these digests, in their order.
pub fn of_all(digests: impl Iterator<Item = u64>) -> u64 {
    digests.fold(BASIS, |so_far, digest| add(so_far, &digest.to_be_bytes()))
}

impl Digest {
    pub(crate) fn new() -> Self {
        Self(std::env::var_os("IKE_LIVES_DIGEST").map(|_| BASIS))
    }

    /// Adds an output at the time `now`. A deadline is added as `wake`, because an `Instant` differs in each run.
    pub(crate) fn add(&mut self, now: Duration, output: &Output, wake: Option<Duration>) {
        let Some(digest) = &mut self.0 else { return };
        let text = match output {
            Output::Timeout(_) => format!("{now:?} {wake:?}"),
            Output::Event(Event::Dropped { path, why }) => dropped(path, why),
            other => without_instants(&format!("{now:?} {other:?}")),
        };
        *digest = add(*digest, text.as_bytes());
    }

    /// The digest; 0 if none is kept.
    pub(crate) fn value(&self) -> u64 {
        self.0.unwrap_or(0)
    }
}

fn dropped(path: &impl Debug, why: &impl Display) -> String {
    format!("dropped {path:?} {why}")
}

/// `text` without the numbers in it that count from the start of the machine.
fn without_instants(text: &str) -> String {
    let mut parts = text.split("Instant {");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| all + part.split_once('}').map_or(part, |(_, after)| after))
}
