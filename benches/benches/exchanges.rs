//! Each exchange alone, between two engines in one process: both ends together.

mod clock;

use criterion::{Criterion, criterion_group, criterion_main};
use ike_bench::counter::ticks;
use ike_bench::handshake::{Ends, Spent, Suite, by_exchange, ends};

fn exchanges(criterion: &mut Criterion<clock::Counter>) {
    let mut group = criterion.benchmark_group("exchange");
    group.sample_size(20);
    type Part = fn(&Spent) -> u64;
    let parts: [(&str, Part); 4] = [
        ("IKE_SA_INIT", |spent| spent.sa_init),
        ("IKE_INTERMEDIATE", |spent| spent.intermediate),
        ("IKE_AUTH", |spent| spent.auth),
        ("reassembly", |spent| spent.fragments),
    ];
    for name in ["psk-x25519", "psk-mlkem768", "ecdsa-mlkem768", "mldsa87-mlkem1024"] {
        let suite = Suite::named(name).expect("a suite");
        let mut pair = ends(suite).expect("a handshake");
        let first = by_exchange(&mut pair).expect("a handshake");
        for (exchange, part) in parts {
            // Not every suite has every exchange, nor messages that need fragments.
            if part(&first) == 0 {
                continue;
            }
            group.bench_function(format!("{exchange}/{name}"), |b| {
                b.iter_custom(|times| {
                    let spent = (0..times).map(|_| by_exchange(&mut pair).expect("a handshake"));
                    spent.map(|spent| part(&spent)).sum()
                });
            });
        }
    }
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

/// Ticks of `exchange` on an IKE SA of its own each time.
fn each(suite: &Suite, times: u64, exchange: impl Fn(&mut Ends) -> Result<(), String>) -> u64 {
    let mut ends = ends(suite).expect("a handshake");
    let mut taken = 0;
    for _ in 0..times {
        ends.handshake().expect("a handshake");
        let begun = ticks();
        exchange(&mut ends).expect("an exchange");
        taken += ticks() - begun;
        if ends.count() > 0 {
            // What is left may be deleted by either end already.
            let _ = ends.delete();
        }
        ends.pass(std::time::Duration::from_secs(600));
    }
    taken
}

criterion_group! {
    name = benches;
    config = clock::criterion();
    targets = exchanges
}
criterion_main!(benches);
