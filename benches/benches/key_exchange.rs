//! Every key exchange method under criterion, to compare two builds.

mod clock;

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use ike_bench::operations::key_exchanges;

fn key_exchange(criterion: &mut Criterion<clock::Counter>) {
    for exchange in key_exchanges() {
        let method = exchange.method;
        let mut group = criterion.benchmark_group(method.id().to_string());
        let mut rng = pq_kem::os_random();
        let pending = method.initiate(&mut rng).expect("a backend makes keys");
        let (public, _) = method.respond(pending.public(), &mut rng).expect("of its own keys");
        let id = |operation| BenchmarkId::new(operation, exchange.backend);
        group
            .bench_function(id("keygen"), |b| b.iter(|| method.initiate(&mut pq_kem::os_random())));
        group.bench_function(id("encaps"), |b| {
            b.iter(|| method.respond(black_box(pending.public()), &mut pq_kem::os_random()));
        });
        group.bench_function(id("decaps"), |b| b.iter(|| pending.complete(black_box(&public))));
        group.finish();
    }
}

criterion_group! {
    name = benches;
    config = clock::criterion();
    targets = key_exchange
}
criterion_main!(benches);
