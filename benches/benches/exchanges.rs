//! Each exchange after IKE_SA_INIT alone, between two engines in one process: both ends together.

use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use ike_bench::handshake::{Ends, Suite, ends};

fn exchanges(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("exchange");
    group.sample_size(20);
    for name in ["psk-x25519", "psk-mlkem768"] {
        let suite = Suite::named(name).expect("a suite");
        group.bench_function(format!("rekey-child/{name}"), |b| {
            b.iter_custom(|times| each(suite, times, |ends| ends.rekey(false)));
        });
        group.bench_function(format!("rekey-ike/{name}"), |b| {
            b.iter_custom(|times| each(suite, times, |ends| ends.rekey(true)));
        });
        // INFORMATIONAL that takes an IKE SA and its child down.
        group.bench_function(format!("delete/{name}"), |b| {
            b.iter_custom(|times| each(suite, times, Ends::delete));
        });
    }
    group.finish();
}

/// Time of `exchange` on an IKE SA of its own each time.
fn each(suite: &Suite, times: u64, exchange: impl Fn(&mut Ends) -> Result<(), String>) -> Duration {
    let mut ends = ends(suite).expect("a handshake");
    let mut taken = Duration::ZERO;
    for _ in 0..times {
        ends.handshake().expect("a handshake");
        let begun = Instant::now();
        exchange(&mut ends).expect("an exchange");
        taken += begun.elapsed();
        if ends.count() > 0 {
            // What is left may be deleted by either end already.
            let _ = ends.delete();
        }
        ends.pass(Duration::from_secs(600));
    }
    taken
}

criterion_group!(benches, exchanges);
criterion_main!(benches);
