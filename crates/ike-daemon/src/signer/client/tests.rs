use std::sync::mpsc;

use super::super::protocol::{Request, Response, receive, send};
use super::super::tests::unbounded;
use super::super::{Holds, Passphrase, TokenKey};
use super::*;

/// A signer that refuses every token, and counts.
fn refusing(asked: mpsc::Sender<Option<u64>>) -> UnixStream {
    let (ours, mut its) = UnixStream::pair().unwrap();
    thread::spawn(move || {
        while let Ok(Some(Request { number, what })) = receive(&mut its) {
            if let Ask::Token { key, .. } = what {
                asked.send(key.slot).unwrap();
                let what = Told::Loaded(Err(Refused::Pin("wrong PIN".to_owned())));
                send(&mut its, &Response { number, what }).unwrap();
            }
        }
    });
    ours
}

/// Faults, each by itself: in `Line::replace`, ask whatever `keeps` says; in `PinOf::is_of`, leave out the slot.
#[test]
fn another_signer_tries_a_pin_once_with_a_token() {
    let (tell, asked) = mpsc::channel();
    let signer =
        Signer::over(SchemeRegister::built_in(), move || Ok(refusing(tell.clone())), || {})
            .unwrap();
    signer.seal(unbounded()).unwrap();
    let origin = |number: u64, slot: u64, pin: &[u8]| {
        let key = TokenKey { module: "/a.so".into(), slot: Some(slot), handle: vec![1] };
        let source = Source::Token { key, pin: Some(Wiped::new(pin)) };
        let keys = vec![(number, Vec::new())];
        Origin { source, name: String::new(), keys, tried: None }
    };
    let same = (0..3).map(|number| origin(number, 7, b"1"));
    lock(&signer.0.held).origins = same.chain([origin(3, 8, b"1"), origin(4, 7, b"2")]).collect();
    assert_eq!(signer.0.replace().unwrap(), (0, 5));
    let asked: Vec<_> = asked.try_iter().collect();
    assert_eq!(asked, [Some(7), Some(8), Some(7)], "a token locks itself after three");
}

/// Fault: in `KeySource::load`, keep the slot of the request.
#[test]
fn a_pin_goes_again_to_the_token_that_has_taken_it_alone() {
    let (ours, mut its) = UnixStream::pair().unwrap();
    thread::spawn(move || {
        while let Ok(Some(Request { number, .. })) = receive(&mut its) {
            let (keys, certificates) = (vec![(0, vec![1])], Vec::new());
            let found = Found { keys, certificates, readable_by_others: false, slot: Some(9) };
            send(&mut its, &Response { number, what: Told::Loaded(Ok(found)) }).unwrap();
        }
    });
    let mut ours = Some(ours);
    let first = move || ours.take().ok_or_else(gone);
    let signer = Signer::over(SchemeRegister::built_in(), first, || {}).unwrap();
    let key = TokenKey { module: "/a.so".into(), slot: None, handle: vec![1] };
    let pin = Passphrase::copy_from(b"1");
    let _loaded = signer.load(&LoadRequest::Token { key, pin: Some(&pin) }).unwrap();
    let again = lock(&signer.0.held).again();
    assert!(matches!(&again[0].ask, Some(Ask::Token { key, pin: Some(_) }) if key.slot == Some(9)));
}

/// Fault: in `Line::replace`, do not call `lose`.
#[test]
fn the_end_of_the_spawner_is_that_of_the_signer() {
    let (ours, _its) = UnixStream::pair().unwrap();
    let (tell, lost) = mpsc::channel();
    let mut ours = Some(ours);
    let first = move || ours.take().ok_or_else(gone);
    let signer =
        Signer::over(SchemeRegister::built_in(), first, move || tell.send(()).unwrap()).unwrap();
    signer.seal(unbounded()).unwrap();
    assert!(signer.0.replace().is_err());
    lost.try_recv().unwrap();
}

/// Faults, each by itself: in `Link::answer_here`, take the first answer; in `Line::ask`, note no failure.
#[test]
fn before_the_seal_a_late_answer_is_nobodys_and_the_failure_is_remembered() {
    let (ours, mut its) = UnixStream::pair().unwrap();
    thread::spawn(move || {
        let mut late = Vec::new();
        while let Ok(Some(Request { number, what })) = receive(&mut its) {
            let Ask::Names(folder) = what else { continue };
            let what = Told::Names(Ok(vec![folder.display().to_string()]));
            late.push(Response { number, what });
            if late.len() > 1 {
                late.drain(..).for_each(|answer| send(&mut its, &answer).unwrap());
            }
        }
    });
    let mut ours = Some(ours);
    let first = move || ours.take().ok_or_else(gone);
    let signer = Signer::over(SchemeRegister::built_in(), first, || {}).unwrap();
    signer.answer_within(Duration::from_millis(100));
    assert!(!signer.has_failed());
    assert_eq!(signer.names(Path::new("/a")).unwrap_err().kind(), io::ErrorKind::TimedOut);
    assert!(signer.has_failed());
    signer.answer_within(Duration::from_secs(20));
    assert_eq!(signer.names(Path::new("/b")).unwrap(), ["/b"]);
}

/// Fault: in `Link::ask`, count each question that ends without an answer.
#[test]
fn a_signer_that_answers_others_is_not_replaced_for_a_slow_token() {
    let (ours, mut its) = UnixStream::pair().unwrap();
    thread::spawn(move || {
        while let Ok(Some(Request { number, what })) = receive(&mut its) {
            if let Ask::Names(_) = what {
                send(&mut its, &Response { number, what: Told::Names(Ok(Vec::new())) }).unwrap();
            }
        }
    });
    let link = Arc::new(Link::new(ours));
    link.start(|| {}).unwrap();
    let slow = |number| {
        let link = Arc::clone(&link);
        let ask = Ask::Sign { key: 0, scheme: Vec::new(), message: Vec::new() };
        thread::spawn(move || link.ask(number, ask, Duration::from_millis(400)).is_err())
    };
    let asked = [slow(1), slow(2)];
    thread::sleep(Duration::from_millis(100));
    link.ask(3, Ask::Names("/".into()), Duration::from_secs(20)).unwrap();
    for one in asked {
        assert!(one.join().unwrap());
    }
    assert!(!link.is_silent(1));
    assert!(slow(4).join().unwrap());
    assert!(link.is_silent(1), "now it answers nobody");
}

/// Makes signers that give the answers of `answer`.
fn signers(
    answer: impl Fn(Ask) -> Option<Told> + Send + Sync + 'static,
) -> impl FnMut() -> io::Result<UnixStream> + Send {
    let answer = Arc::new(answer);
    move || {
        let (ours, mut its) = UnixStream::pair()?;
        let answer = Arc::clone(&answer);
        thread::spawn(move || {
            while let Ok(Some(Request { number, what })) = receive(&mut its) {
                if let Some(what) = answer(what) {
                    send(&mut its, &Response { number, what }).unwrap();
                }
            }
        });
        Ok(ours)
    }
}

fn found(key: u64, spki: u8) -> Option<Told> {
    let (keys, certificates) = (vec![(key, vec![spki])], Vec::new());
    Some(Told::Loaded(Ok(Found { keys, certificates, readable_by_others: false, slot: None })))
}

/// A key of this number, which was loaded from `source`.
fn remote(signer: &Signer, key: u64, source: Source) -> RemoteKey {
    let (name, spki) = (key.to_string(), vec![u8::try_from(key).unwrap()]);
    let keys = vec![(key, spki.clone())];
    let origin = Origin { source, name: name.clone(), keys, tried: None };
    lock(&signer.0.held).origins.push(origin);
    let schemes = schemes_of(&signer.0.schemes, &spki);
    RemoteKey { line: Arc::clone(&signer.0), key, name, spki, schemes }
}

fn token(module: &str) -> Source {
    let key = TokenKey { module: module.into(), slot: None, handle: vec![1] };
    Source::Token { key, pin: None }
}

fn file() -> Source {
    Source::File { path: "/key".into(), holds: Holds::AnyKey, passphrase: None }
}

/// Faults, each by itself: in `Line::replace`, forgive nothing; in `Line::number_of`, load nothing.
#[test]
fn a_token_that_hangs_costs_a_new_signer_no_other_key_and_may_come_back() {
    let hangs = Arc::new(AtomicBool::new(true));
    let gate = Arc::clone(&hangs);
    let another = signers(move |what| match what {
        Ask::File { .. } => found(10, 0),
        Ask::Token { key, .. } if key.module == Path::new("/works.so") => found(11, 1),
        Ask::Token { .. } => found(12, 2).filter(|_| !gate.load(Ordering::SeqCst)),
        Ask::Sign { key, .. } => Some(Told::Signed(Ok(vec![u8::try_from(key).unwrap()]))),
        _ => None,
    });
    let signer = Signer::over(SchemeRegister::built_in(), another, || {}).unwrap();
    signer.answer_within(Duration::from_secs(2));
    signer.seal(unbounded()).unwrap();
    let sources = [(2, token("/hangs.so")), (1, token("/works.so")), (0, file())];
    let keys = sources.map(|(key, source)| remote(&signer, key, source));
    assert_eq!(signer.0.replace().unwrap(), (2, 1));
    let sign = |key: &RemoteKey| key.sign(&SignatureScheme::BUILT_IN[0], b"message");
    assert_eq!(sign(&keys[2]), Ok(vec![10]));
    assert_eq!(sign(&keys[1]), Ok(vec![11]));
    assert_eq!(sign(&keys[0]), Err(CryptoError::Backend), "it is asked for, and hangs");
    hangs.store(false, Ordering::SeqCst);
    let end = Instant::now() + Duration::from_secs(20);
    while sign(&keys[0]) != Ok(vec![12]) {
        assert!(Instant::now() < end, "the key does not come back");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Fault: in `Line::hangs`, forget nothing.
#[test]
fn a_token_hangs_once_it_leaves_questions_in_a_row_unanswered() {
    let signer = Signer::over(SchemeRegister::built_in(), signers(|_| None), || {}).unwrap();
    let unanswered = |times| (0..times).filter(|_| signer.0.hangs("key", false)).count();
    for _ in 0..3 {
        assert_eq!(unanswered(2 * PATIENCE - 1), 0);
        assert!(!signer.0.hangs("key", true), "it answers");
    }
    assert_eq!(unanswered(2 * PATIENCE), 1);
}

/// Fault: in `Line::ask`, leave `hangs` out.
#[test]
fn a_token_that_hangs_while_others_answer_gets_a_new_signer() {
    let started = Arc::new(AtomicU64::new(0));
    let (count, before) = (Arc::clone(&started), Arc::clone(&started));
    let mut one = signers(move |what| match what {
        Ask::File { .. } => found(10, 0),
        Ask::Token { .. } => found(11, 1),
        Ask::Sign { key: 11, .. } if before.load(Ordering::SeqCst) < 2 => None,
        Ask::Sign { key, .. } => Some(Told::Signed(Ok(vec![u8::try_from(key).unwrap()]))),
        _ => None,
    });
    let another = move || {
        count.fetch_add(1, Ordering::SeqCst);
        one()
    };
    let signer = Signer::over(SchemeRegister::built_in(), another, || {}).unwrap();
    signer.answer_within(Duration::from_millis(300));
    signer.seal(unbounded()).unwrap();
    let [token, file] =
        [(1, token("/hangs.so")), (0, file())].map(|(key, source)| remote(&signer, key, source));
    let link = signer.0.link();
    assert_eq!([link.learn(1, 11), link.learn(0, 10)], [None, None]);
    let sign = |key: &RemoteKey| key.sign(&SignatureScheme::BUILT_IN[0], b"message");
    let end = Instant::now() + Duration::from_secs(20);
    // What is asked for while the signers change may fail.
    let mut answers = 0;
    while sign(&token) != Ok(vec![11]) {
        answers += u32::from(sign(&file) == Ok(vec![10]));
        assert!(Instant::now() < end, "no new signer");
    }
    assert!(answers > 0, "the signer is not silent");
    assert_eq!(started.load(Ordering::SeqCst), 2);
}

/// Faults, each by itself: in `Line::load_again`, do not ask `has`; say no `Drop`.
#[test]
fn a_key_that_is_dropped_while_a_new_signer_loads_it_is_dropped_there() {
    let ((tell, asked), (go, gone_on)) = (mpsc::channel(), mpsc::channel::<()>());
    let (gone_on, (drops, dropped)) = (Mutex::new(gone_on), mpsc::channel());
    let another = signers(move |what| match what {
        Ask::File { .. } => {
            tell.send(()).unwrap();
            lock(&gone_on).recv().unwrap();
            found(10, 0)
        }
        Ask::Drop { key } => {
            drops.send(key).unwrap();
            None
        }
        _ => None,
    });
    let signer = Signer::over(SchemeRegister::built_in(), another, || {}).unwrap();
    signer.seal(unbounded()).unwrap();
    let key = remote(&signer, 0, file());
    let line = Arc::clone(&signer.0);
    let replaced = thread::spawn(move || line.replace().unwrap());
    asked.recv().unwrap();
    drop(key);
    go.send(()).unwrap();
    assert_eq!(replaced.join().unwrap(), (1, 0), "nobody misses it");
    assert_eq!(dropped.recv_timeout(Duration::from_secs(10)), Ok(10));
}

/// Fault: in `KeySource::load`, do not compare the links.
#[test]
fn a_key_that_the_former_signer_has_loaded_is_loaded_by_the_new_one() {
    let ((tell, asked), count) = (mpsc::channel(), AtomicU64::new(10));
    let another = signers(move |what| match what {
        Ask::Octets(_) => {
            tell.send(()).unwrap();
            found(count.fetch_add(1, Ordering::SeqCst), 0)
        }
        Ask::Sign { key, .. } => Some(Told::Signed(Ok(vec![u8::try_from(key).unwrap()]))),
        _ => None,
    });
    let signer = Signer::over(SchemeRegister::built_in(), another, || {}).unwrap();
    signer.seal(unbounded()).unwrap();
    let held = lock(&signer.0.held);
    let asker = signer.clone();
    let loading = thread::spawn(move || {
        asker.load(&LoadRequest::Octets(&Passphrase::copy_from(b"key"))).unwrap().keys.remove(0)
    });
    asked.recv().unwrap();
    let link = Arc::new(Link::new((lock(&signer.0.another))().unwrap()));
    signer.0.watch(&link).unwrap();
    *lock(&signer.0.link) = link;
    drop(held);
    let key = loading.join().unwrap();
    assert_eq!(key.sign(&SignatureScheme::BUILT_IN[0], b"message"), Ok(vec![11]));
}
