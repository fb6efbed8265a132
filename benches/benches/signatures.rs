//! Every signature scheme under criterion, to compare two builds. Key generation is `ike-bench`'s.

mod clock;

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use ike_bench::operations::signatures;

const MESSAGE: [u8; 800] = [0x5a; 800];

fn sign_and_verify(criterion: &mut Criterion<clock::Counter>) {
    // Without optimisation, as in `cargo test --bench`, SLH-DSA takes seconds for a signature.
    let is_measured = std::env::args().any(|argument| argument == "--bench");
    let all = signatures().into_iter();
    for signature in all.filter(|signature| is_measured || signature.backend != "slh-dsa") {
        let scheme = &signature.scheme;
        let mut group = criterion.benchmark_group(signature.name());
        // SLH-DSA takes up to a second per signature.
        group.sample_size(10);
        let key =
            (signature.keygen)(scheme.clone(), signature.rsa_bits).expect("a backend makes keys");
        let signed = key.sign(scheme, &MESSAGE).expect("a key signs with its scheme");
        let id = |operation| BenchmarkId::new(operation, signature.backend);
        group.bench_function(id("sign"), |b| b.iter(|| key.sign(scheme, black_box(&MESSAGE))));
        group.bench_function(id("verify"), |b| {
            b.iter(|| {
                signature.verifier.verify(scheme, key.public_key(), &MESSAGE, black_box(&signed))
            });
        });
        group.finish();
    }
}

criterion_group! {
    name = benches;
    config = clock::criterion();
    targets = sign_and_verify
}
criterion_main!(benches);
