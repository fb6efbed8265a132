//! Simulated lives by the thousand.
//!
//! `cargo test --release -p ike-tests --test lives` runs 10,000 of them, an unoptimised build 500.
//! `IKE_LIVES` is another number; `IKE_LIFE` is the seed of a single one, told in full if it fails.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use ike_tests::life::{Summary, live};

/// Failures told before the rest is only counted.
const TOLD: usize = 400;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text:?}")))
}

#[test]
fn both_ends_always_agree_in_the_end() {
    if let Some(seed) = number("IKE_LIFE") {
        println!("{:?}", live(seed, true).unwrap_or_else(|what| panic!("{what}")));
        return;
    }
    let lives = number("IKE_LIVES").unwrap_or(if cfg!(debug_assertions) { 500 } else { 10_000 });
    let next = AtomicU64::new(0);
    let failed = AtomicU64::new(0);
    let told = Mutex::new(Vec::new());
    let total = Mutex::new(Summary::default());
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= lives {
                        return;
                    }
                    match live(seed, false) {
                        Ok(summary) => add(&mut total.lock().unwrap(), summary),
                        Err(what) => {
                            failed.fetch_add(1, Ordering::Relaxed);
                            told.lock().unwrap().push((seed, what));
                        }
                    }
                }
            });
        }
    });
    println!("{lives} lives: {:?}", total.into_inner().unwrap());
    let mut told = told.into_inner().unwrap();
    told.sort();
    for (seed, what) in told.iter().take(TOLD) {
        println!("{what}\n  again, with its story: IKE_LIFE={seed}\n");
    }
    let seeds: Vec<_> = told.iter().map(|(seed, _)| *seed).collect();
    assert!(told.is_empty(), "{} of {lives} lives failed: {seeds:?}", failed.into_inner());
}

fn add(total: &mut Summary, one: Summary) {
    total.lasted += one.lasted;
    total.datagrams += one.datagrams;
    total.events += one.events;
    total.ike_rekeys += one.ike_rekeys;
    total.child_rekeys += one.child_rekeys;
    total.packets += one.packets;
}
