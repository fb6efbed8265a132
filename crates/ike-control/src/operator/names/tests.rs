//! Look-ups by resolvers of tests.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use super::*;

const LONG: Duration = Duration::from_secs(20);

fn peer(name: &str) -> Hosts {
    Hosts { local: Vec::new(), remote: vec![HostSpec::Name(name.to_owned())] }
}

fn at(address: &str) -> Vec<AddressSpec> {
    vec![AddressSpec::single(address.parse().unwrap())]
}

fn silence() -> Found {
    Err(Unresolved::Failed(io::ErrorKind::TimedOut.into()))
}

/// Names of this resolver, which blocks.
fn by(resolver: impl Fn(&str) -> Found + Send + Sync + 'static) -> Names {
    let resolver = Arc::new(resolver);
    Names::by(move |name, done| {
        let (name, resolver) = (name.to_owned(), Arc::clone(&resolver));
        std::thread::spawn(move || done(resolver(&name)));
    })
}

fn one() -> Found {
    Ok(vec!["192.0.2.1".parse().unwrap()])
}

async fn until(what: impl Fn() -> bool) {
    let wait = async {
        while !what() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LONG, wait).await.expect("it comes");
}

/// Fault: in `Shared::begin`, look the name up although a look-up is under way.
#[tokio::test]
async fn all_that_wait_for_a_name_share_one_look_up() {
    let (go, gate) = mpsc::channel::<()>();
    let (gate, count) = (Mutex::new(gate), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&count);
    let names = by(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        gate.lock().unwrap().recv_timeout(LONG).unwrap();
        Ok(vec!["192.0.2.1".parse().unwrap()])
    });
    let asks: Vec<_> = (0..400)
        .map(|_| {
            let names = names.clone();
            tokio::spawn(async move { names.look_up(&peer("gw.example")).await })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(50)).await;
    go.send(()).unwrap();
    for ask in asks {
        assert_eq!(ask.await.unwrap().unwrap().remote, at("192.0.2.1"));
    }
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

/// Fault: in `Shared::answered`, clear the addresses where the look-up has failed.
#[tokio::test]
async fn a_failed_look_up_leaves_what_was_known_and_is_tried_again() {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let names = by(move |_| match counted.fetch_add(1, Ordering::SeqCst) {
        0 => Ok(vec!["192.0.2.1".parse().unwrap()]),
        1 => silence(),
        _ => Ok(vec!["192.0.2.2".parse().unwrap()]),
    });
    let peer = peer("gw.example");
    assert_eq!(names.known(&peer).remote, []);
    assert_eq!(names.look_up(&peer).await.unwrap().remote, at("192.0.2.1"));
    assert!(names.renew([&peer].into_iter()) > REFRESH / 2);
    assert_eq!(count.load(Ordering::SeqCst), 1, "it is not due");
    assert_eq!(names.look_up(&peer).await.unwrap().remote, at("192.0.2.1"));
    assert!(names.renew([&peer].into_iter()) <= BACK_OFF, "it is tried again soon");
    until(|| {
        names.renew([&peer].into_iter());
        names.known(&peer).remote == at("192.0.2.2")
    })
    .await;
    assert_eq!(count.load(Ordering::SeqCst), 3);
}

/// Fault: in `Names::look_up`, wait `RESOLVING` for each name.
#[tokio::test]
async fn a_known_address_is_used_while_name_servers_are_silent() {
    let (_never, gate) = mpsc::channel::<()>();
    let (gate, count) = (Mutex::new(gate), AtomicUsize::new(0));
    let names = by(move |_| {
        if count.fetch_add(1, Ordering::SeqCst) > 0 {
            _ = gate.lock().unwrap().recv_timeout(LONG);
        }
        Ok(vec!["192.0.2.1".parse().unwrap()])
    });
    let peer = peer("gw.example");
    names.look_up(&peer).await.unwrap();
    let begun = Instant::now();
    assert_eq!(names.look_up(&peer).await.unwrap().remote, at("192.0.2.1"));
    assert!(begun.elapsed() < RESOLVING / 2);
}

/// Fault: in `Names::look_up`, await each look-up before the next one is begun; or let one look-up at a time.
#[tokio::test]
async fn silent_names_hold_no_other_one_and_take_few_threads() {
    let (most, now) = (Arc::new(AtomicUsize::new(0)), AtomicUsize::new(0));
    let ended = Arc::new(AtomicUsize::new(0));
    let (seen, counted) = (Arc::clone(&most), Arc::clone(&ended));
    let names = by(move |name| {
        seen.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        if name.starts_with("silent") {
            std::thread::sleep(Duration::from_millis(500));
        }
        now.fetch_sub(1, Ordering::SeqCst);
        counted.fetch_add(1, Ordering::SeqCst);
        if name.starts_with("silent") { silence() } else { one() }
    });
    let silent: Vec<_> = (0..AT_A_TIME[0] - 1).map(|n| peer(&format!("silent{n}"))).collect();
    names.renew(silent.iter());
    let begun = Instant::now();
    assert_eq!(names.look_up(&peer("gw")).await.unwrap().remote, at("192.0.2.1"));
    assert!(begun.elapsed() < Duration::from_millis(400), "{:?}", begun.elapsed());
    let more: Vec<_> = (0..100).map(|n| peer(&format!("silent-too{n}"))).collect();
    names.renew(more.iter());
    assert!(!more.iter().any(|hosts| names.is_backing_off(hosts)), "they are under way");
    until(|| ended.load(Ordering::SeqCst) == AT_A_TIME[0] + more.len()).await;
    assert_eq!(most.load(Ordering::SeqCst), AT_A_TIME[0]);
}

/// Names that had answers turn silent, and stay so. New names are asked meanwhile, and at the end one of the old ones.
///
/// Fault: let `AT_A_TIME` be `[10; 3]`; in `UnderWay::drop`, leave `slow` alone.
#[tokio::test]
async fn names_that_are_slow_again_hold_no_others() {
    let gate = Arc::new((Mutex::new(true), std::sync::Condvar::new()));
    let (open, begun) = (Arc::clone(&gate), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&begun);
    let names = by(move |name| {
        if name.starts_with("silent") {
            counted.fetch_add(1, Ordering::SeqCst);
            let open = gate.0.lock().unwrap();
            if !*open {
                drop(gate.1.wait_timeout_while(open, LONG, |open| !*open).unwrap());
                return silence();
            }
        }
        one()
    });
    let set = |now: bool| {
        *open.0.lock().unwrap() = now;
        open.1.notify_all();
    };
    let silent: Vec<_> = (0..100).map(|n| peer(&format!("silent{n}"))).collect();
    let old = peer("old");
    for hosts in silent.iter().chain([&old]) {
        names.look_up(hosts).await.unwrap();
    }
    let again =
        || silent.iter().for_each(|hosts| drop(names.0.begin(names_of(hosts).next().unwrap())));
    let count = || begun.load(Ordering::SeqCst) - silent.len();
    set(false);
    again();
    until(|| count() == AT_A_TIME[1]).await;
    let quick = async |name: &str| {
        let begun = Instant::now();
        assert_eq!(names.look_up(&peer(name)).await.unwrap().remote, at("192.0.2.1"));
        begun.elapsed() < RENEWING / 2
    };
    assert!(quick("new").await, "a new name waits for none that was answered");
    tokio::time::sleep(SLOW).await;
    set(true);
    let under_way = |hosts: &Hosts| {
        let state = names.0.lock();
        names_of(hosts).any(|name| state.names[name].asked.is_some())
    };
    until(|| !silent.iter().any(under_way)).await;
    // Eight of them were slow.
    set(false);
    let before = begun.load(Ordering::SeqCst);
    for hosts in &silent[..AT_A_TIME[1]] {
        names.0.begin(names_of(hosts).next().unwrap());
    }
    until(|| begun.load(Ordering::SeqCst) - before == AT_A_TIME[2]).await;
    assert!(quick("old").await && quick("newer").await, "slow names leave threads to the others");
    assert_eq!(begun.load(Ordering::SeqCst) - before, AT_A_TIME[2]);
    set(true);
    until(|| !silent.iter().any(under_way)).await;
}

/// Fault: in `Shared::answered`, clear the addresses at the first `NoSuchName`; or never; let time count in which the
/// last outcome was another one, or more than `GAP` of it.
#[test]
fn no_such_name_replaces_what_was_known_after_an_hour() {
    let (names, peer) = (by(|_| silence()), peer("gw.example"));
    let begun = Instant::now();
    let minutes = std::cell::Cell::new(0);
    let after = |more: u64, found| {
        minutes.set(minutes.get() + more);
        let now = begun + Duration::from_secs(60 * minutes.get());
        names.0.answered("gw.example", found, now);
        names.known(&peer).remote
    };
    let denied = || Err(Unresolved::NoSuchName);
    assert_eq!(after(0, one()), at("192.0.2.1"));
    for _ in 0..60 {
        assert_eq!(after(1, denied()), at("192.0.2.1"));
    }
    assert_eq!(after(1, one()), at("192.0.2.1"), "59 minutes between the first and the last one");
    assert_eq!(after(1, denied()), at("192.0.2.1"));
    assert_eq!(after(1, silence()), at("192.0.2.1"));
    assert_eq!(after(70, denied()), at("192.0.2.1"), "nobody has said so meanwhile");
    assert_eq!(after(1000, denied()), at("192.0.2.1"), "the host has slept");
    for _ in 0..57 {
        assert_eq!(after(1, denied()), at("192.0.2.1"));
    }
    assert_eq!(after(100, silence()), at("192.0.2.1"), "a failure says nothing");
    assert_eq!(after(1, denied()), at("192.0.2.1"));
    assert_eq!(after(1, denied()), []);
    assert!(std::mem::take(&mut names.0.lock().changed), "the engine hears of it");
    assert_eq!(after(1, one()), at("192.0.2.1"));
}

/// A resolver that drops what it is asked, and one that has an outcome at once, of very many names.
///
/// Fault: in `Shared::begin_waiting`, let `beginning` be false from the start: the stack overflows. In `UnderWay::drop`,
/// return where nothing was found.
#[tokio::test]
async fn a_look_up_that_is_lost_has_failed_and_many_that_fail_at_once_end() {
    let names = Names::by(|name, done| match name.starts_with("lost") {
        true => drop(done),
        false => done(silence()),
    });
    let many: Vec<_> = (0..20_000).map(|n| peer(&format!("name{n}"))).collect();
    names.0.lock().beginning = true;
    names.renew(many.iter());
    names.0.lock().beginning = false;
    let lost = names.look_up(&peer("lost")).await;
    assert!(matches!(lost, Err(OperatorError::NoAddress(_))), "{lost:?}");
    assert!(many.iter().chain([&peer("lost")]).all(|hosts| names.is_backing_off(hosts)));
    assert_eq!(names.0.lock().busy, [0; 3]);
}

/// Fault: in `UnderWay::drop`, do not write; in `Names::keep_in`, do not read; or leave out `notify_one` there.
#[tokio::test]
async fn the_last_addresses_are_known_after_a_restart() {
    let path = std::env::temp_dir().join(format!("ike-names-{}", std::process::id()));
    _ = std::fs::remove_file(&path);
    let (peer, other) = (peer("gw.example"), peer("other.example"));
    let names = by(|_| one());
    names.keep_in(path.clone());
    names.look_up(&peer).await.unwrap();
    names.look_up(&other).await.unwrap();
    let all = "gw.example 192.0.2.1\nother.example 192.0.2.1\n";
    until(|| std::fs::read_to_string(&path).is_ok_and(|text| text == all)).await;
    let (_never, gate) = mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let names = by(move |_| {
        _ = gate.lock().unwrap().recv_timeout(LONG);
        silence()
    });
    names.keep_in(path.clone());
    let heard = tokio::time::timeout(LONG, names.changed()).await;
    assert_eq!(heard, Ok(true), "the engine hears of it");
    assert!(!names.is_backing_off(&peer));
    names.renew([&peer].into_iter());
    let begun = Instant::now();
    assert_eq!(names.look_up(&peer).await.unwrap().remote, at("192.0.2.1"));
    assert!(begun.elapsed() < RESOLVING / 2);
    assert_eq!(names.known(&other).remote, at("192.0.2.1"), "a control client may load it");
    std::fs::remove_file(&path).unwrap();
}

/// Fault: in `Shared::write`, leave `unwritten` alone after an error.
#[test]
fn a_file_that_could_not_be_written_is_written_after_the_next_look_up() {
    let folder = std::env::temp_dir().join(format!("ike-names-late-{}", std::process::id()));
    _ = std::fs::remove_dir_all(&folder);
    let (names, path) = (by(|_| silence()), folder.join("names"));
    names.0.answered("gw.example", one(), Instant::now());
    names.0.write(&path);
    std::fs::create_dir(&folder).unwrap();
    names.0.answered("gw.example", one(), Instant::now());
    names.0.write(&path);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "gw.example 192.0.2.1\n");
    std::fs::remove_dir_all(folder).unwrap();
}

/// Fault: in `Names::renew`, keep what is in `kept` for ever.
#[test]
fn addresses_of_an_earlier_run_are_forgotten_if_nobody_needs_them() {
    let names = by(|_| silence());
    let past = Instant::now();
    let known = Name { addresses: one().unwrap(), kept: Some(past), ..Name::default() };
    names.0.lock().names.insert("old.example".to_owned(), known);
    names.renew(std::iter::empty());
    assert_eq!(names.known(&peer("old.example")).remote, []);
}

/// A pipe that nobody reads stands where the new file is written.
///
/// Fault: in `UnderWay::drop`, write the file there.
#[tokio::test]
async fn a_disk_that_does_not_answer_holds_no_look_up() {
    let folder = std::env::temp_dir().join(format!("ike-names-slow-{}", std::process::id()));
    _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir(&folder).unwrap();
    let (path, pipe) = (folder.join("names"), folder.join("names.new"));
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let names = by(|_| one());
    names.keep_in(path.clone());
    for n in 0..2 * AT_A_TIME[0] {
        let begun = Instant::now();
        names.look_up(&peer(&format!("name{n}"))).await.unwrap();
        assert!(begun.elapsed() < RENEWING);
    }
    assert!(names.0.lock().writing);
    // The pipe takes what is written and cannot be synchronized, which is an error of the disk.
    let read = tokio::task::spawn_blocking(move || std::fs::read_to_string(pipe).unwrap());
    assert!(read.await.unwrap().starts_with("name"));
    until(|| !names.0.lock().writing).await;
    std::fs::remove_file(folder.join("names.new")).unwrap();
    names.look_up(&peer("last")).await.unwrap();
    let all = 2 * AT_A_TIME[0] + 1;
    until(|| std::fs::read_to_string(&path).is_ok_and(|text| text.lines().count() == all)).await;
    std::fs::remove_dir_all(folder).unwrap();
}
