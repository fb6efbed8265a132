//! The stages of an SA's life, and what each end holds in them.

use std::time::Duration;

use super::ends::Ends;
use super::suite::Suite;
use ike_tests::heap::{self, Amount};

/// Longer than any answer is kept, and than a rekeyed child lingers.
const QUIET: Duration = Duration::from_secs(600);

/// What one end holds for each SA.
#[derive(Debug, Clone, Copy)]
pub struct Held {
    /// Octets asked of the allocator.
    pub octets: f64,
    /// Allocations.
    pub blocks: f64,
    /// Octets of glibc's chunks.
    pub chunks: f64,
    /// The most octets since the stage before.
    pub most: f64,
}

/// One stage.
#[derive(Debug, Clone)]
pub struct Stage {
    /// What has happened.
    pub name: &'static str,
    /// What the responder holds.
    pub responder: Held,
    /// What the initiator holds.
    pub initiator: Held,
}

/// What was measured of a suite.
#[derive(Debug, Clone)]
pub struct Measured {
    /// The suite.
    pub suite: Suite,
    /// SAs.
    pub sas: usize,
    /// Octets of the IKE_SA_INIT messages, request and response.
    pub init: f64,
    /// The stages in order.
    pub stages: Vec<Stage>,
    /// Octets of resident memory that the process grew by for each SA of a responder whose initiators are
    /// gone; 0 if it was not asked for.
    pub resident: f64,
    /// Of the same responder: allocations of each size up to [`heap::LARGEST`], for each SA.
    pub sizes: Vec<(usize, f64)>,
    /// And octets in larger ones, which are tables.
    pub tables: f64,
}

impl Measured {
    /// The stage with this name.
    pub fn stage(&self, name: &str) -> Option<&Stage> {
        self.stages.iter().find(|stage| stage.name == name)
    }
}

/// The stage in which a responder waits for IKE_AUTH or IKE_INTERMEDIATE, and the initiator for the answer.
pub const HALF_OPEN: &str = "half-open";
/// Right after the handshake.
pub const ESTABLISHED: &str = "established";
/// The same when what is kept for a while is gone.
pub const IDLE: &str = "idle";
/// Right after a rekey of the child.
pub const CHILD_REKEYED: &str = "child rekeyed";
/// When its traces are gone.
pub const CHILD_IDLE: &str = "child rekeyed, idle";
/// Right after a rekey of the IKE SA.
pub const IKE_REKEYED: &str = "IKE rekeyed";
/// When its traces are gone.
pub const IKE_IDLE: &str = "IKE rekeyed, idle";

/// Measures `sas` SAs, each with one child.
///
/// # Errors
///
/// If one of them does not come about, or if this program does not count its memory.
pub fn measure(suite: Suite, sas: usize, resident: bool) -> Result<Measured, String> {
    if !heap::begin() {
        return Err("this program does not count its memory".to_owned());
    }
    // First, while nothing that was freed can be used again.
    let (resident, sizes, tables) = if resident { alone(suite, sas)? } else { Default::default() };
    let mut ends = Ends::new(suite, None, |_| {});
    let mut measured =
        Measured { suite, sas, init: 0.0, stages: Vec::new(), resident, sizes, tables };
    let mut stage = |ends: &mut Ends, name| {
        let initiator = (ends.held_by_clients(), ends.most_of_clients());
        let responder = (ends.gateway.held, ends.gateway.most);
        ends.forget_peaks();
        let [responder, initiator] = [responder, initiator].map(|held| for_each(held, sas));
        measured.stages.push(Stage { name, responder, initiator });
        ends.check()
    };
    ends.initiate(sas);
    ends.round();
    ends.round();
    let half_open = ends.gateway.endpoint().half_open();
    if half_open != sas {
        return Err(format!("{half_open} half-open SAs and not {sas}"));
    }
    stage(&mut ends, HALF_OPEN)?;
    let init = ends.init_octets;
    ends.run();
    let up = ends.gateway.up;
    if up != [sas as u64; 2] {
        return Err(format!("{} IKE SAs and {} children came up, not {sas}", up[0], up[1]));
    }
    stage(&mut ends, ESTABLISHED)?;
    ends.pass(QUIET);
    stage(&mut ends, IDLE)?;
    ends.rekey(false);
    stage(&mut ends, CHILD_REKEYED)?;
    ends.pass(QUIET);
    stage(&mut ends, CHILD_IDLE)?;
    ends.rekey(true);
    stage(&mut ends, IKE_REKEYED)?;
    ends.pass(QUIET);
    stage(&mut ends, IKE_IDLE)?;
    let left = ends.gateway.endpoint().ike_sas().len();
    if left != sas {
        return Err(format!("{left} IKE SAs are left of {sas}"));
    }
    measured.init = init as f64 / sas as f64;
    Ok(measured)
}

/// Resident memory, allocations by size, and octets in tables.
type Alone = (f64, Vec<(usize, f64)>, f64);

/// A responder whose initiators are gone: resident memory for each SA, and of what size its allocations are.
fn alone(suite: Suite, sas: usize) -> Result<Alone, String> {
    let mut ends = Ends::new(suite, None, |_| {});
    // What the first ones allocate once and for all does not count.
    let first = sas / 50;
    ends.connect_and_forget(first);
    let (before, sizes) = (heap::resident()?, heap::sizes());
    let held = ends.gateway.held.octets;
    ends.connect_and_forget(sas);
    ends.pass(QUIET);
    let after = heap::resident()?;
    ends.check()?;
    let octets = after.saturating_sub(before);
    let count = (sas - first) as f64;
    let now = heap::sizes();
    let grown = now.iter().zip(&sizes).enumerate();
    let grown = grown.map(|(size, (now, before))| (size, (now - before) as f64 / count));
    let sizes: Vec<_> = grown.filter(|(_, each)| *each > 0.05).collect();
    let small: f64 = sizes.iter().map(|(size, each)| *size as f64 * each).sum();
    let tables = (ends.gateway.held.octets - held) as f64 / count - small;
    Ok((octets as f64 / count, sizes, tables))
}

fn for_each((held, most): (Amount, i64), sas: usize) -> Held {
    let each = |amount: i64| amount as f64 / sas as f64;
    Held {
        octets: each(held.octets),
        blocks: each(held.blocks),
        chunks: each(held.chunks),
        most: each(most),
    }
}
