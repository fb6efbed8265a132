//! Sealing and opening ESP per suite and size beside the bare cipher under criterion, to compare two builds.

mod clock;

use std::hint::black_box;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use esp::Buffer;
use ike_bench::esp::{Bare, SIZES, SUITES, Tunnel, packet};

fn suites(criterion: &mut Criterion<clock::Counter>) {
    for suite in SUITES {
        let mut group = criterion.benchmark_group(format!("esp/{}", suite.name));
        for size in SIZES {
            group.throughput(Throughput::Bytes(size as u64));
            let tunnel = Tunnel::new(suite.suite).expect("the backend has the suite");
            let (mut sender, mut receiver) = (tunnel.sender(), tunnel.receiver());
            let (packet, mut opened) = (packet(size, 1), Buffer::new());
            let mut sealed = Buffer::new();
            group.bench_function(BenchmarkId::new("seal", size), |b| {
                b.iter(|| {
                    sealed.clear();
                    tunnel.seal(&mut sender, black_box(&packet), &mut sealed)
                });
            });
            // Every packet opens once only.
            group.bench_function(BenchmarkId::new("open", size), |b| {
                let seal = || {
                    let mut esp = Buffer::new();
                    tunnel.seal(&mut sender, &packet, &mut esp);
                    esp
                };
                let open = |esp: &mut Buffer| {
                    opened.clear();
                    tunnel.open(&mut receiver, esp, &mut opened)
                };
                b.iter_batched_ref(seal, open, BatchSize::SmallInput);
            });
            let mut bare = Bare::new(suite.suite).expect("the backend has the suite");
            let mut buffer = vec![0x5a; bare.len(size)];
            group.bench_function(BenchmarkId::new("bare-seal", size), |b| {
                b.iter(|| bare.seal(black_box(&mut buffer)));
            });
            group.bench_function(BenchmarkId::new("bare-seal-open", size), |b| {
                b.iter(|| {
                    bare.seal(black_box(&mut buffer));
                    bare.open(black_box(&mut buffer), 0, 1);
                });
            });
        }
        group.finish();
    }
}

criterion_group! {
    name = benches;
    config = clock::criterion();
    targets = suites
}
criterion_main!(benches);
