//! Simulated lives by the thousand.
//!
//! `cargo test --release -p ike-test-lives --test lives` runs 5,000 of each of the first two kinds and 10,000 on a host with
//! routes (`hosts`), an unoptimised build 500, 300 and 100. `IKE_LIVES` is another number, and a fifth of it on hosts;
//! `IKE_LIFE` is the seed of a single one of each kind, told in full if it fails. With `IKE_LIVES_DIGEST=1` a digest of all
//! outputs of the engine is printed. It stays as it is while the same seeds give the same lives.

mod hosts;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ike_tests::digest;
use ike_tests::disturbed::{self, Met, Properties};
use ike_tests::life::{self, Summary};

/// Failures told before the rest is only counted.
const TOLD: usize = 400;
/// Of ten thousand lives, so many meet each disturbance at the least. On hosts it is half as many.
const EACH: u64 = 1000;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text:?}")))
}

/// Lives `count` lives on all cores; what came of each, in the order of seeds. `tell` is told before a failure is.
///
/// # Panics
///
/// If one fails.
fn live_all<T: Send>(
    count: u64,
    live: impl Fn(u64) -> Result<T, String> + Sync,
    tell: impl FnOnce(&[T]),
) {
    let first = number("IKE_LIVES_FROM").unwrap_or(0);
    let next = AtomicU64::new(first);
    let told = Mutex::new(Vec::new());
    let all = Mutex::new(BTreeMap::new());
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count {
                        return;
                    }
                    let outcome = catch_unwind(AssertUnwindSafe(|| live(seed)));
                    match outcome.unwrap_or_else(|_| Err(format!("life {seed}: a panic"))) {
                        Ok(one) => {
                            _ = all.lock().expect("no life panics in here").insert(seed, one)
                        }
                        Err(what) => {
                            told.lock().expect("no life panics in here").push((seed, what))
                        }
                    }
                }
            });
        }
    });
    let mut told = told.into_inner().expect("no life panics in here");
    told.sort();
    for (seed, what) in told.iter().take(TOLD) {
        println!("{what}\n  again, with its story: IKE_LIFE={seed}\n");
    }
    let seeds: Vec<_> = told.iter().map(|(seed, _)| *seed).collect();
    let all: Vec<_> = all.into_inner().expect("no life panics in here").into_values().collect();
    tell(&all);
    assert!(told.is_empty(), "{} of {count} lives failed: {seeds:?}", told.len());
}

#[test]
fn both_ends_always_agree_in_the_end() {
    if let Some(seed) = number("IKE_LIFE") {
        println!("{:?}", life::live(seed, true).unwrap_or_else(|what| panic!("{what}")));
        return;
    }
    let lives = number("IKE_LIVES").unwrap_or(if cfg!(debug_assertions) { 500 } else { 5000 });
    let tell = |all: &[Summary]| {
        let mut total = Summary::default();
        for one in all {
            total.lasted += one.lasted;
            total.datagrams += one.datagrams;
            total.events += one.events;
            total.ike_rekeys += one.ike_rekeys;
            total.child_rekeys += one.child_rekeys;
            total.packets += one.packets;
        }
        total.digest = digest::of_all(all.iter().map(|one| one.digest));
        println!("{lives} lives: {total:?}");
    };
    live_all(lives, |seed| life::live(seed, false), tell);
}

/// The properties that are asked for: those that hold, or those that `IKE_LIVES_ONLY` names (`alive`, `single`,
/// `moves`, `closed`, `agree`, with commas).
fn properties() -> Properties {
    let Ok(only) = std::env::var("IKE_LIVES_ONLY") else { return Properties::HELD };
    let asked = |name: &str| only.split(',').any(|one| one == name);
    Properties {
        alive: asked("alive"),
        single: asked("single"),
        moves: asked("moves"),
        closed: asked("closed"),
        agree: asked("agree"),
    }
}

/// What is wanted carries traffic soon after the last disturbance, once, and nothing of it leaves in clear.
///
/// Fault: in `World::apply`, look for clear packets with the shunts of the plane left out; or in
/// `Driver::on_child_up`, arm no shunt.
#[test]
fn wanted_children_always_come_back() {
    if let Some(seed) = number("IKE_LIFE") {
        let told = disturbed::live(seed, true, properties());
        println!("{:?}", told.unwrap_or_else(|what| panic!("{what}")));
        return;
    }
    let lives = number("IKE_LIVES").unwrap_or(if cfg!(debug_assertions) { 300 } else { 5000 });
    live_all(
        lives,
        |seed| disturbed::live(seed, false, properties()),
        |all| {
            tell(all);
            let met = |what: &Met| {
                let lives = all.iter().filter(|one| one.met.contains(what)).count();
                u64::try_from(lives).expect("a count")
            };
            for what in Met::ALL {
                println!("{:>7} lives met: {}", met(what), what.words());
            }
            let rare: Vec<_> =
                Met::ALL.iter().filter(|what| met(what) < EACH * lives / 10_000).collect();
            assert!(lives < 5000 || rare.is_empty(), "too few lives met {rare:?}");
        },
    );
}

/// On a host with routes of its own, beside other programs, children come back and nothing leaves in clear.
///
/// Faults: those that `hosts` names.
#[test]
fn a_daemon_keeps_its_word_on_a_host_that_others_change() {
    if let Some(seed) = number("IKE_LIFE") {
        println!("{:?}", hosts::live(seed, true).unwrap_or_else(|what| panic!("{what}")));
        return;
    }
    let usual = if cfg!(debug_assertions) { 100 } else { 10_000 };
    let lives = number("IKE_LIVES").map_or(usual, |lives| lives.div_ceil(5));
    live_all(
        lives,
        |seed| hosts::live(seed, false),
        |all| {
            tell_hosts(all);
            let met = |what: &hosts::Met| all.iter().filter(|one| one.met.contains(what)).count();
            for what in hosts::Met::ALL {
                println!("{:>7} lives met: {}", met(&what), what.words());
            }
            let each = usize::try_from(EACH * lives / 20_000).expect("a count");
            let rare: Vec<_> = hosts::Met::ALL.iter().filter(|what| met(what) < each).collect();
            assert!(lives < 2000 || rare.is_empty(), "too few lives met {rare:?}");
        },
    );
}

fn tell_hosts(all: &[hosts::Summary]) {
    let mut back: Vec<_> = all.iter().map(|one| one.back_after).collect();
    back.sort();
    let at = |percent: usize| back.get(back.len() * percent / 100).copied().unwrap_or_default();
    println!(
        "{} lives of hosts, {} s: {} test packets; traffic again after the last disturbance: half {:?}, 99 % {:?}, all \
         {:?} (allowed at most {:?})",
        all.len(),
        all.iter().map(|one| one.lasted).sum::<Duration>().as_secs(),
        all.iter().map(|one| one.packets).sum::<u64>(),
        at(50),
        at(99),
        back.last().copied().unwrap_or_default(),
        all.iter().map(|one| one.bound).max().unwrap_or_default(),
    );
}

/// The longest until all is well again after an own change of address.
const USUAL: Duration = Duration::from_secs(10);

fn tell(all: &[disturbed::Summary]) {
    let sum = |f: fn(&disturbed::Summary) -> u64| all.iter().map(f).sum::<u64>();
    let mut back: Vec<_> = all.iter().map(|one| one.back_after).collect();
    back.sort();
    let at = |percent: usize| back.get(back.len() * percent / 100).copied().unwrap_or_default();
    let worst = all.iter().max_by_key(|one| one.back_after);
    let moved = all.iter().filter_map(|one| Some((one.back_after_move?, one.move_bound)));
    let long = moved.clone().filter(|(_, bound)| *bound > USUAL);
    let usual = moved.clone().filter(|(_, bound)| *bound == USUAL);
    println!(
        "{} lives, {} s: {} datagrams, {} IKE SAs and {} children rekeyed, {} test packets, {} judged; outputs {:016x}",
        all.len(),
        all.iter().map(|one| one.lasted).sum::<Duration>().as_secs(),
        sum(|one| one.datagrams),
        sum(|one| one.ike_rekeys),
        sum(|one| one.child_rekeys),
        sum(|one| one.packets),
        sum(|one| one.judged),
        digest::of_all(all.iter().map(|one| one.digest)),
    );
    println!(
        "traffic again after the last disturbance: half {:?}, 99 % {:?}, all {:?} (allowed there {:?}; at most {:?}); \
         after an own move {} times at most 10 s, {:?} at most; {} times more round trips than that allows: {:?} at most, \
         allowed there {:?}",
        at(50),
        at(99),
        worst.map(|one| one.back_after).unwrap_or_default(),
        worst.map(|one| one.bound).unwrap_or_default(),
        all.iter().map(|one| one.bound).max().unwrap_or_default(),
        usual.clone().count(),
        usual.map(|(took, _)| took).max().unwrap_or_default(),
        long.clone().count(),
        long.clone().map(|(took, _)| took).max().unwrap_or_default(),
        long.map(|(_, bound)| bound).max().unwrap_or_default(),
    );
}
