//! What `list-sas` costs a gateway that has thousands of SAs: how long its engine does nothing else, and what
//! is held meanwhile. Once as a whole, and once in pages as the daemon does it.
//!
//! `cargo run --release -p ike-bench --example list_sas [SAS]`

use std::time::Duration;

use ike_bench::memory::ends::Ends;
use ike_bench::memory::suite;
use ike_tests::heap;
use ike_tokio::PAGE;
use nix::time::{ClockId, clock_gettime};

#[global_allocator]
static HEAP: heap::Counting = heap::Counting;

/// Runs of each.
const RUNS: usize = 9;

fn main() -> Result<(), String> {
    let sas = match std::env::args().nth(1) {
        Some(given) => given.parse().map_err(|_| format!("{given} is no number"))?,
        None => 12_000,
    };
    heap::begin();
    let suite = *suite::SUITES.first().ok_or("no suite")?;
    let mut ends = Ends::new(suite, None, |_| {});
    ends.initiate(sas);
    ends.run();
    ends.check()?;
    let engine = ends.gateway.endpoint();
    let (mut whole, mut numbers) = (Vec::new(), Vec::new());
    let (mut pages, mut middle) = (Vec::new(), Vec::new());
    let (mut held, mut held_paged) = (0, 0);
    for _ in 0..RUNS {
        let (begun, before) = (cpu()?, heap::live());
        let mut ids = engine.ids();
        numbers.push(cpu()?.saturating_sub(begun));
        // The driver's client does this, not the engine.
        ids.sort_unstable();
        let mut each = Vec::new();
        for page in ids.chunks(PAGE) {
            let begun = cpu()?;
            let views: Vec<_> = page.iter().filter_map(|id| engine.ike_sa(*id)).collect();
            each.push(cpu()?.saturating_sub(begun));
            held_paged = held_paged.max((heap::live() - before).octets);
            drop(views);
        }
        each.sort();
        pages.push(each.last().copied().unwrap_or_default());
        middle.push(median(each));
    }
    // Last: what it frees is work for whoever allocates next.
    for _ in 0..RUNS {
        let (begun, before) = (cpu()?, heap::live());
        let all = engine.ike_sas();
        whole.push(cpu()?.saturating_sub(begun));
        held = (heap::live() - before).octets;
        if all.len() != sas {
            return Err(format!("{} IKE SAs are there", all.len()));
        }
        drop(all);
    }
    println!("{sas} IKE SAs with one child; CPU time, the middle of {RUNS} runs");
    println!("  all at once    {:>10.1?}, {held} octets held", median(whole));
    println!("  their numbers  {:>10.1?}", median(numbers));
    println!("  a page         {:>10.1?}", median(middle));
    println!("  longest page   {:>10.1?}, {held_paged} octets held in all", median(pages));
    Ok(())
}

/// The processor's time of this thread, so that what else the machine does is not counted.
fn cpu() -> Result<Duration, String> {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
    time.map(Duration::from).map_err(|error| error.to_string())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
