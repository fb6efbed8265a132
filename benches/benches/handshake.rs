//! A handshake of two engines in one process, and the library calls that it must make.

mod clock;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use ike_bench::handshake::{SUITES, ends, floor, once};

fn handshake(criterion: &mut Criterion<clock::Counter>) {
    let mut group = criterion.benchmark_group("handshake");
    group.sample_size(20);
    for suite in SUITES {
        let mut ends = ends(suite).expect("a handshake");
        group.bench_function(BenchmarkId::new("engines", suite.name), |b| {
            b.iter_custom(|times| (0..times).map(|_| once(&mut ends).expect("a handshake")).sum());
        });
        let mut floor = floor(suite).expect("a handshake to record");
        group.bench_function(BenchmarkId::new("floor", suite.name), |b| {
            b.iter(|| floor.run(&ike_bench::handshake::KINDS).expect("the same calls"));
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = clock::criterion();
    targets = handshake
}
criterion_main!(benches);
