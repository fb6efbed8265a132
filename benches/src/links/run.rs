//! Runs the handshakes of every row, on every core the backend may use.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use super::outcome::{Outcome, Summary};
use super::progress::Progress;
use super::{Backend, Case};

/// How often, and from which seed.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Handshakes of each row.
    pub runs: usize,
    /// Everything random depends on it, and on nothing else: neither on the number of cores nor on
    /// which other rows there are.
    pub seed: u64,
}

/// A case and what came of it.
#[derive(Debug, Clone)]
pub struct Row {
    /// The case.
    pub case: Case,
    /// Each handshake, in the order of their numbers.
    pub outcomes: Vec<Outcome>,
    /// The handshake on which nothing is lost.
    pub lossless: Outcome,
    /// All of it.
    pub summary: Summary,
}

/// Runs `cases` one after the other, and the handshakes of each side by side. Says on standard error how
/// far it is.
///
/// # Errors
/// The first of the backend's.
pub fn run(backend: &dyn Backend, cases: Vec<Case>, plan: Plan) -> Result<Vec<Row>, String> {
    let progress = Progress::new(cases.len() * plan.runs);
    let mut rows = Vec::with_capacity(cases.len());
    for case in cases {
        progress.begin(&format!("{} {} {}", case.label, case.suite.name, case.rules_name()));
        let lossless = backend.lossless(&case)?;
        let outcomes = outcomes(backend, &case, plan, &progress)?;
        let summary = Summary::of(&outcomes, &lossless, case.rules[0].first_timer());
        rows.push(Row { case, outcomes, lossless, summary });
    }
    progress.end();
    Ok(rows)
}

fn outcomes(
    backend: &dyn Backend,
    case: &Case,
    plan: Plan,
    progress: &Progress,
) -> Result<Vec<Outcome>, String> {
    let next = AtomicUsize::new(0);
    let failed = AtomicBool::new(false);
    let done = Mutex::new((vec![Outcome::default(); plan.runs], None::<String>));
    let threads = backend.parallel().clamp(1, plan.runs.max(1));
    let work = &|| {
        while !failed.load(Ordering::Relaxed) {
            let first = next.fetch_add(BATCH, Ordering::Relaxed);
            if first >= plan.runs {
                break;
            }
            for run in first..plan.runs.min(first + BATCH) {
                let result = backend.handshake(case, seed(plan.seed, case, run));
                let Ok(mut done) = done.lock() else { return };
                match result {
                    Ok(outcome) => {
                        if let Some(slot) = done.0.get_mut(run) {
                            *slot = outcome;
                        }
                    }
                    Err(why) => {
                        failed.store(true, Ordering::Relaxed);
                        done.1.get_or_insert(why);
                        return;
                    }
                }
                progress.count();
            }
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        while !threads.iter().all(|thread| thread.is_finished()) {
            std::thread::sleep(Duration::from_millis(10));
            progress.tell();
        }
    });
    let (outcomes, error) = done.into_inner().map_err(|_| "a thread panicked".to_owned())?;
    error.map_or(Ok(outcomes), Err)
}

/// Handshakes that a thread takes at once.
const BATCH: usize = 4;

/// The seed of handshake number `run`: of its own for each case, by what the case is.
pub fn seed(seed: u64, case: &Case, run: usize) -> u64 {
    let name = format!("{} {} {}", case.label, case.suite.name, case.rules_name());
    let fold = |sum: u64, octet: u8| (sum ^ u64::from(octet)).wrapping_mul(0x0100_0000_01b3);
    let name = name.bytes().fold(0xcbf2_9ce4_8422_2325, fold);
    let mut stream = ike_tests::Seeded::new(seed ^ name);
    stream.fork().number() ^ (run as u64).wrapping_mul(0xd134_2543_de82_ef95)
}
