use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use ike_tokio::net::resolver::Found;
use ike_tokio::{Resolver, Unresolved};

use super::*;
use crate::signer::protocol::receive;

const LONG: Duration = Duration::from_secs(20);

/// Lookups by resolvers on threads, and what tells the stream of each.
fn lookups(
    look_up: impl Fn(&str) -> Found + Send + Sync + 'static,
    is_outdated: impl Fn() -> bool + Send + Sync + 'static,
) -> (Lookups, Receiver<UnixStream>) {
    let (tell, told) = channel();
    let (look_up, is_outdated) = (Arc::new(look_up), Arc::new(is_outdated));
    let lookups = Lookups::over(move || {
        let (ours, its) = UnixStream::pair()?;
        tell.send(its.try_clone()?).unwrap();
        let (look_up, is_outdated) = (Arc::clone(&look_up), Arc::clone(&is_outdated));
        thread::spawn(move || server::serve(&its, move |name| look_up(name), || is_outdated()));
        Ok(ours)
    });
    lookups.start().unwrap();
    (lookups, told)
}

fn one() -> Found {
    Ok(vec!["192.0.2.1".parse().unwrap()])
}

/// Closed at first.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    fn wait(&self) {
        let closed = self.0.0.lock().unwrap();
        drop(self.0.1.wait_timeout_while(closed, LONG, |open| !*open).unwrap());
    }
}

/// A look-up is under way when the resolver ends. The caller hears of it, and the next look-up is by a new one.
///
/// Faults, each by itself: in `Line::keep`, leave out `fail_all`; let the loop end with `End::Lost`.
#[test]
fn a_resolver_that_ends_fails_its_look_ups_and_is_replaced() {
    let gate = Gate::default();
    let closed = gate.clone();
    let (lookups, resolvers) = lookups(
        move |name| {
            if name == "silent.example" {
                closed.wait();
            }
            one()
        },
        || false,
    );
    let (tell, told) = channel();
    lookups.ask("silent.example", Box::new(move |found| tell.send(found).unwrap()));
    // It is asked by now.
    assert!(lookups.look_up("gw.example", LONG).is_ok());
    resolvers.recv_timeout(LONG).unwrap().shutdown(std::net::Shutdown::Both).unwrap();
    let lost = told.recv_timeout(LONG).unwrap();
    assert!(matches!(lost, Err(Unresolved::Failed(_))), "{lost:?}");
    assert!(lookups.look_up("gw.example", LONG).is_ok(), "the first new one comes at once");
    gate.open();
}

/// Resolvers that end as soon as they are asked.
///
/// Faults, each by itself: in `Line::keep`, let `wait` be zero; let the link be `Starting` while it waits.
#[test]
fn resolvers_that_end_again_and_again_are_started_with_back_off() {
    let (tell, started) = channel();
    let lookups = Lookups::over(move || {
        tell.send(Instant::now()).unwrap();
        Ok(UnixStream::pair()?.0)
    });
    lookups.start().unwrap();
    let [_, second, third] = [(); 3].map(|()| started.recv_timeout(LONG).unwrap());
    assert!(third.duration_since(second) >= Duration::from_secs(1));
    // While none is there, a question fails at once, on this thread: nobody waits for the next one.
    until("a question fails at once", || {
        let (tell, told) = channel();
        lookups.ask("gw.example", Box::new(move |found| _ = tell.send(found)));
        told.try_recv().is_ok_and(|found| found.is_err())
    });
}

fn until(what: &str, is: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is() {
        assert!(begun.elapsed() < LONG, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Twenty names whose name server is silent. The daemon asks about 10, 4 and 2 at a time; here it asks about all.
///
/// Fault: let `THREADS` be 64.
#[test]
fn a_resolver_has_sixteen_threads_and_the_rest_waits() {
    let (gate, busy) = (Gate::default(), Arc::new(AtomicUsize::new(0)));
    let (closed, counted) = (gate.clone(), Arc::clone(&busy));
    let (lookups, _resolvers) = lookups(
        move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
            closed.wait();
            one()
        },
        || false,
    );
    let (tell, told) = channel();
    for n in 0..20 {
        let tell = tell.clone();
        lookups.ask(&format!("n{n}.example"), Box::new(move |found| _ = tell.send(found)));
    }
    until("sixteen are busy", || busy.load(Ordering::SeqCst) >= 16);
    // Files are handed over meanwhile. On a busy machine the first answer comes after the one who has asked is gone.
    let servers = ike_tokio::SystemResolver.name_servers();
    until("files are handed over", || lookups.name_servers() == servers);
    assert_eq!(busy.load(Ordering::SeqCst), 16);
    gate.open();
    for _ in 0..20 {
        assert!(told.recv_timeout(LONG).unwrap().is_ok());
    }
}

/// Faults, each by itself: in `State::put`, take a question although there are `MOST`; let `MOST` be 4096: there is no room
/// for so many in the socket.
#[test]
fn questions_to_a_resolver_that_does_not_read_are_few_and_do_not_block() {
    let (ours, its) = UnixStream::pair().unwrap();
    let mut ours = Some(ours);
    let lookups = Lookups::over(move || ours.take().ok_or_else(|| std::io::Error::other("one")));
    lookups.start().unwrap();
    let (tell, told) = channel();
    let this = thread::current().id();
    for _ in 0..2 * MOST {
        let tell = tell.clone();
        let done = move |found: Found| {
            if found.is_err() && thread::current().id() == this {
                tell.send(()).unwrap();
            }
        };
        lookups.ask(&"n".repeat(250), Box::new(done));
    }
    let refused = told.try_iter().count();
    assert!((MOST..=MOST + 1).contains(&refused), "{refused}");
    // A question that had no room in time would have ended the connection. One of them is for files.
    its.set_read_timeout(Some(LONG)).unwrap();
    for n in refused..=2 * MOST {
        assert!(matches!(receive::<Question>(&mut &its), Ok(Some(_))), "{n}");
    }
}

/// The first resolver may not read files that have been replaced. Both questions are answered by the second one.
///
/// Faults, each by itself: in `server::serve`, look the name up; in `Line::keep`, fail all questions.
#[test]
fn questions_go_on_where_a_resolver_is_replaced_because_its_files_were() {
    let gate = Gate::default();
    let (closed, started) = (gate.clone(), AtomicUsize::new(0));
    let outdated = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let is_outdated = Arc::clone(&outdated);
    let (lookups, resolvers) = lookups(
        move |_| {
            if started.fetch_add(1, Ordering::SeqCst) == 0 {
                closed.wait();
            }
            one()
        },
        move || is_outdated.swap(false, Ordering::SeqCst),
    );
    let (tell, told) = channel();
    lookups.ask("slow.example", Box::new(move |found| tell.send(found).unwrap()));
    resolvers.recv_timeout(LONG).unwrap();
    assert!(lookups.look_up("gw.example", LONG).is_ok());
    outdated.store(true, Ordering::SeqCst);
    assert!(lookups.look_up("gw.example", LONG).is_ok());
    assert!(told.recv_timeout(LONG).unwrap().is_ok());
    resolvers.recv_timeout(LONG).expect("a second one");
    gate.open();
}

/// Faults, each by itself: in `found`, leave `truncate` out, or `shrink_to_fit`; take the text as it is; let `LARGEST` be
/// 1 MiB.
#[test]
fn what_a_resolver_says_is_bounded() {
    let lookups = Lookups::over(move || {
        let (ours, its) = UnixStream::pair()?;
        thread::spawn(move || {
            while let Ok(Some(Question { number, what })) = receive::<Question>(&mut &its) {
                let what = match what {
                    Ask::Name(name) if name == "many" => {
                        Told::Addresses(one().unwrap().repeat(5000))
                    }
                    Ask::Name(name) if name == "none" => Told::Addresses(Vec::new()),
                    Ask::Name(name) if name == "long" => Told::Failed("x".repeat(128 << 10)),
                    Ask::Name(_) => Told::Failed("\u{1b}[31m\n".repeat(5000)),
                    Ask::Files => Told::Files(String::new()),
                };
                if crate::signer::protocol::send(&mut &its, &Answer { number, what }).is_err() {
                    break;
                }
            }
        });
        Ok(ours)
    });
    lookups.start().unwrap();
    let many = lookups.look_up("many", LONG).unwrap();
    assert_eq!((many.len(), many.capacity()), (256, 256));
    assert!(matches!(lookups.look_up("none", LONG), Err(Unresolved::NoSuchName)));
    let why = lookups.look_up("bad", LONG).unwrap_err().to_string();
    assert!(why.len() == 200 && why.bytes().all(|octet| octet.is_ascii_graphic()), "{why:?}");
    let why = lookups.look_up("long", LONG).unwrap_err().to_string();
    assert!(why.contains("too large"), "{why}");
    assert_eq!(lookups.look_up("many", LONG).unwrap().len(), 256, "another one answers");
}

/// The files are replaced, and nobody looks a name up. The first resolver may not read the new ones; and the second one reads
/// them in the moment when there are none.
///
/// Faults, each by itself: in `Line::take`, take the text that is empty; take one of empty lines.
#[test]
fn known_files_are_not_replaced_by_none() {
    let count = AtomicUsize::new(0);
    let lookups = Lookups::over(move || {
        let (ours, its) = UnixStream::pair()?;
        let which = count.fetch_add(1, Ordering::SeqCst);
        thread::spawn(move || {
            let mut asked = 0;
            while let Ok(Some(Question { number, .. })) = receive::<Question>(&mut &its) {
                asked += 1;
                let what = match (which, asked) {
                    (0, 1) => Told::Files("nameserver 192.0.2.53\n".to_owned()),
                    (0, _) => Told::Replace,
                    // Of two files that are empty.
                    _ => Told::Files(["", "\n\n"][asked % 2].to_owned()),
                };
                if crate::signer::protocol::send(&mut &its, &Answer { number, what }).is_err() {
                    break;
                }
            }
        });
        Ok(ours)
    });
    lookups.start().unwrap();
    let known = vec!["192.0.2.53:53".parse().unwrap()];
    // The first question is the one that each resolver is asked at its start.
    for _ in 0..3 {
        assert_eq!(lookups.name_servers(), known);
    }
}

/// Fault: in `server::serve`, ask `is_outdated` for names alone.
#[test]
fn a_resolver_whose_files_were_replaced_hands_none_over() {
    let (ours, its) = UnixStream::pair().unwrap();
    let serving = thread::spawn(move || server::serve(&its, |_| one(), || true));
    for what in [Ask::Files, Ask::Name("gw.example".to_owned())] {
        crate::signer::protocol::send(&mut &ours, &Question { number: 7, what }).unwrap();
        let told = receive::<Answer>(&mut &ours).unwrap();
        assert!(matches!(told, Some(Answer { number: 7, what: Told::Replace })), "{told:?}");
    }
    drop(ours);
    serving.join().unwrap().unwrap();
}
