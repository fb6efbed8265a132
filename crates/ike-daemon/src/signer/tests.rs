use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use ike_proto::crypto::{CryptoError, SchemeRegister, SignatureScheme};
use landlock::{Compatible, RulesetAttr};
use pq_kem::sign::KeyType;
use tracing::Dispatch;
use tracing::subscriber::NoSubscriber;

use super::*;

/// A signer on a thread, and what hears of its end.
fn signer() -> (Signer, mpsc::Receiver<()>, UnixStream) {
    let (ours, its) = UnixStream::pair().unwrap();
    let cut = its.try_clone().unwrap();
    thread::spawn(move || server::serve(&its, Local::default(), || Ok(())));
    let (tell, told) = mpsc::channel();
    let lost = move || {
        let _ = tell.send(());
    };
    let mut ours = Some(ours);
    let first = move || ours.take().ok_or_else(|| io::Error::other("there is only one"));
    (Signer::over(SchemeRegister::built_in(), first, lost).unwrap(), told, cut)
}

/// Bounds that the kernel does not see to.
pub(super) fn unbounded() -> Bounds {
    let sandbox = SandboxOptions { landlock: false, seccomp: false, ..SandboxOptions::default() };
    Bounds { folders: Vec::new(), sandbox }
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("ike-signer-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn key_file(folder: &Path, name: &str, kind: KeyType) -> PathBuf {
    let path = folder.join(name);
    let key = pq_kem::sign::generate(kind).unwrap();
    std::fs::write(&path, key.as_slice()).unwrap();
    path
}

fn file<'a>(path: &'a Path, holds: Holds) -> LoadRequest<'a> {
    LoadRequest::File { path, holds, passphrase: None }
}

/// What the signer signs by many threads at once verifies under the public key that it told.
#[test]
fn signatures_are_those_of_the_key() {
    let folder = folder("sign");
    let kinds = [
        KeyType::Scheme(SignatureScheme::EcdsaP256Sha256),
        KeyType::Scheme(SignatureScheme::Ed25519),
        KeyType::Scheme(SignatureScheme::MlDsa65),
    ];
    let (signer, _lost, _) = signer();
    let provider = pq_kem::provider();
    let mut threads = Vec::new();
    signer.seal(unbounded()).unwrap();
    for (n, kind) in kinds.into_iter().enumerate() {
        let path = key_file(&folder, &format!("{n}.der"), kind);
        let loaded = signer.load(&file(&path, Holds::AnyKey)).unwrap();
        let key = Arc::clone(&loaded.keys[0]);
        assert!(key.is_elsewhere());
        let here = Local::default().load(&file(&path, Holds::AnyKey)).unwrap();
        assert_eq!(key.public_key(), here.keys[0].public_key());
        assert_eq!(key.schemes(), here.keys[0].schemes());
        for m in 0_u8..4 {
            let key = Arc::clone(&key);
            threads.push(thread::spawn(move || {
                let message = [&octets::tests::signed_octets()[..], &[m; 100]].concat();
                let scheme = key.schemes()[0].clone();
                let signature = key.sign(&scheme, &message).unwrap();
                (scheme, key.public_key().to_vec(), message, signature)
            }));
        }
    }
    for thread in threads {
        let (scheme, spki, message, signature) = thread.join().unwrap();
        let verifier =
            provider.verifiers.iter().find(|one| one.schemes().contains(&scheme)).unwrap();
        verifier.verify(&scheme, &spki, &message, &signature).unwrap();
    }
    assert_eq!(signer.names(&folder).unwrap(), ["0.der", "1.der", "2.der"]);
    assert!(signer.names(&folder.join("none")).unwrap().is_empty());
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn what_cannot_be_loaded_says_why() {
    let folder = folder("refuse");
    let (signer, _lost, _) = signer();
    let path = key_file(&folder, "ec.der", KeyType::Scheme(SignatureScheme::EcdsaP256Sha256));
    let none = folder.join("none");
    let rubbish = folder.join("rubbish");
    std::fs::write(&rubbish, "rubbish").unwrap();
    for request in [
        file(&none, Holds::AnyKey),
        file(&folder, Holds::AnyKey),
        file(&rubbish, Holds::AnyKey),
        file(&path, Holds::Rsa),
        file(&path, Holds::Pkcs12),
        LoadRequest::Token {
            key: TokenKey { module: none.clone(), slot: None, handle: vec![1] },
            pin: None,
        },
    ] {
        let (there, here) = (signer.load(&request), Local::default().load(&request));
        assert_eq!(there.unwrap_err(), here.unwrap_err(), "{request:?}");
    }
    let loaded = signer.load(&file(&path, Holds::Ecdsa)).unwrap();
    let wrong = loaded.keys[0].sign(&SignatureScheme::MlDsa65, b"message");
    assert_eq!(wrong, Err(CryptoError::Unsupported));
    std::fs::remove_dir_all(folder).unwrap();
}

/// Once the daemon has its configuration, no other library gets into the signer.
#[test]
fn a_sealed_signer_loads_no_new_module() {
    let (signer, _lost, _) = signer();
    let token = |module: &str| {
        let key = TokenKey { module: module.into(), slot: None, handle: vec![1] };
        signer.load(&LoadRequest::Token { key, pin: None }).unwrap_err().to_string()
    };
    let before = token("/none/before.so");
    signer.admit(Path::new("/none/admitted.so")).unwrap();
    signer.seal(unbounded()).unwrap();
    signer.admit(Path::new("/none/after.so")).unwrap();
    assert!(!token("/none/admitted.so").contains("restart"), "it is tried");
    assert_eq!(token("/none/before.so"), before, "the same as ever");
    assert!(token("/none/after.so").contains("restart"));
}

/// Faults, each by itself: in `Held::is_for`, return true; in `Held::admit_tls`, admit after the seal; in `Signer::seal`, name no
/// limits to the spawner, or to the first signer.
#[test]
fn a_sealed_signer_signs_an_auth_and_for_tls_where_eap_uses_the_key() {
    let folder = folder("uses");
    let kind = KeyType::Scheme(SignatureScheme::Ed25519);
    let paths = ["ike.der", "eap.der"].map(|name| key_file(&folder, name, kind.clone()));
    let (signer, _lost, _) = signer();
    let loaded = || paths.each_ref().map(|path| signer.load(&file(path, Holds::AnyKey)).unwrap());
    let [ike, eap] = loaded();
    let spki = |loaded: &Loaded| loaded.keys[0].public_key().to_vec();
    let tls = [&[0x20; 64][..], b"TLS 1.3, server CertificateVerify\0", &[4; 32]].concat();
    let certificate = [&[0x30, 0x82, 1, 0][..], &[5; 256]].concat();
    let auth = octets::tests::signed_octets();
    let signs = |loaded: &Loaded, message: &[u8]| {
        loaded.keys[0].sign(&SignatureScheme::Ed25519, message).is_ok()
    };
    assert!(signer.admit_tls(Some(&spki(&eap))));
    signer.seal(unbounded()).unwrap();
    assert!(!signer.admit_tls(Some(&spki(&ike))), "too late");
    assert!(!signer.admit_tls(None), "too late");
    assert!(signer.admit_tls(Some(&spki(&eap))), "as before");
    for [ike, eap] in [[ike, eap], loaded()] {
        assert_eq!([&auth, &tls, &certificate].map(|one| signs(&ike, one)), [true, false, false]);
        assert_eq!([&auth, &tls, &certificate].map(|one| signs(&eap, one)), [true, true, false]);
    }
    let octets = Passphrase::copy_from(&std::fs::read(&paths[0]).unwrap());
    let brought = signer.load(&LoadRequest::Octets(&octets)).unwrap();
    assert!(signs(&brought, &certificate), "the daemon has the key itself");
    std::fs::remove_dir_all(folder).unwrap();
}

/// Without Landlock in this kernel it shows nothing; so it asks for that first. Faults, each by itself: in `Held::read`, note
/// nothing; in `restrict_files` of `sandbox/signer.rs`, add a rule for `/`; begin the threads for files before the seal; in
/// `places_of`, leave out the folders of `links`.
#[test]
fn a_sealed_signer_reads_no_other_folders() {
    let has_landlock = landlock::Ruleset::default()
        .set_compatibility(landlock::CompatLevel::HardRequirement)
        .handle_access(landlock::AccessFs::ReadFile)
        .and_then(landlock::Ruleset::create);
    if has_landlock.is_err() {
        assert_ne!(std::env::var("IKE_KERNEL_TESTS").as_deref(), Ok("must"), "no Landlock");
        return;
    }
    let [named, read, linked, versions, other] =
        ["named", "read", "linked", "versions", "other"].map(folder);
    let kind = KeyType::Scheme(SignatureScheme::Ed25519);
    let first = key_file(&read, "first.der", kind.clone());
    // A key file that is a link to a link of a folder, as Kubernetes has them.
    let [old, new] = ["old", "new"].map(|version| versions.join(version));
    for version in [&old, &new] {
        std::fs::create_dir_all(version).unwrap();
        key_file(version, "key.der", kind.clone());
    }
    let (current, link) = (versions.join("current"), linked.join("key.der"));
    std::os::unix::fs::symlink(&old, &current).unwrap();
    std::os::unix::fs::symlink(current.join("key.der"), &link).unwrap();
    let (signer, _lost, _) = signer();
    let loads = |path: &Path| signer.load(&file(path, Holds::AnyKey)).is_ok();
    assert!(loads(&first) && loads(&link));
    signer.seal(Bounds { folders: vec![named.clone()], ..Bounds::default() }).unwrap();
    for folder in [&named, &read] {
        assert!(loads(&key_file(folder, "later.der", kind.clone())), "{folder:?}");
        assert!(signer.names(folder).is_ok());
    }
    std::fs::remove_file(&current).unwrap();
    std::os::unix::fs::symlink(&new, &current).unwrap();
    assert!(loads(&link), "the folder was replaced");
    assert!(!loads(&key_file(&other, "other.der", kind)));
    assert!(signer.names(&other).is_err());
    for folder in [named, read, linked, versions, other] {
        std::fs::remove_dir_all(folder).unwrap();
    }
}

/// A key file in a folder that is a link to one elsewhere, as agenix has them: the next one lies beside that.
///
/// Fault: in `places_of`, leave out the folder of what a link leads to.
#[test]
fn a_signer_reads_the_folders_beside_the_one_that_a_link_leads_to() {
    let [named, links, versions] = ["agenix", "agenix-run", "agenix-versions"].map(folder);
    let (old, current) = (versions.join("1"), links.join("current"));
    std::fs::create_dir_all(&old).unwrap();
    std::fs::write(old.join("key.pem"), "").unwrap();
    std::os::unix::fs::symlink(&old, &current).unwrap();
    let link = named.join("key.pem");
    std::os::unix::fs::symlink(current.join("key.pem"), &link).unwrap();
    let places = crate::service::sandbox::places_of(&link);
    for folder in [&named, &links, &versions] {
        assert!(places.contains(folder), "{places:?}");
    }
    for folder in [named, links, versions] {
        std::fs::remove_dir_all(folder).unwrap();
    }
}

/// Who waits for a signer that ends is told, and so is who listens for that.
#[test]
fn the_end_of_the_signer_is_noticed() {
    let folder = folder("end");
    let (signer, lost, cut) = signer();
    let path = key_file(&folder, "ec.der", KeyType::Scheme(SignatureScheme::EcdsaP256Sha256));
    let loaded = signer.load(&file(&path, Holds::AnyKey)).unwrap();
    signer.seal(unbounded()).unwrap();
    assert!(lost.try_recv().is_err());
    cut.shutdown(std::net::Shutdown::Both).unwrap();
    lost.recv_timeout(Duration::from_secs(10)).unwrap();
    let key = &loaded.keys[0];
    assert_eq!(key.sign(&key.schemes()[0], b"message"), Err(CryptoError::Backend));
    assert!(matches!(signer.load(&file(&path, Holds::AnyKey)), Err(Refused::Unreadable(_))));
    std::fs::remove_dir_all(folder).unwrap();
}

/// A message that moves while it is written leaves a copy of its secret behind. Fault: in `frame`, begin with
/// `Vec::new()`.
#[test]
fn a_message_with_a_secret_is_written_in_one_place() {
    use protocol::{Ask, Request, Wiped, frame, receive};
    for length in [0, 1, 127, 128, 5000, 100_000] {
        let octets = vec![7; length];
        let request = Request { number: 300, what: Ask::Octets(Wiped::new(&octets)) };
        let framed = frame(&request).unwrap();
        assert_eq!(framed.capacity(), framed.len(), "it has the size that was foreseen");
        let Some(Request { number: 300, what: Ask::Octets(read) }) =
            receive(&mut framed.as_slice()).unwrap()
        else {
            panic!("another message")
        };
        assert_eq!(read.octets(), octets);
    }
}

/// Neither requests nor keys show what they hold.
#[test]
fn nothing_secret_is_printed() {
    let passphrase = Passphrase::copy_from(b"open sesame");
    let path = Path::new("/x");
    let request = LoadRequest::File { path, holds: Holds::AnyKey, passphrase: Some(&passphrase) };
    assert!(!format!("{request:?}").contains("sesame"));
}

/// A signer that answers until it is told to hang.
fn gated() -> (UnixStream, Arc<AtomicBool>) {
    let (ours, near) = UnixStream::pair().unwrap();
    let (far, its) = UnixStream::pair().unwrap();
    thread::spawn(move || server::serve(&its, Local::default(), || Ok(())));
    let hangs = Arc::new(AtomicBool::new(false));
    let gate = Arc::clone(&hangs);
    let (mut from, mut to) = (near.try_clone().unwrap(), far.try_clone().unwrap());
    thread::spawn(move || {
        let mut octets = [0; 4096];
        while let Ok(count @ 1..) = from.read(&mut octets) {
            while gate.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(5));
            }
            to.write_all(&octets[..count]).unwrap();
        }
    });
    let (mut from, mut to) = (far, near);
    thread::spawn(move || io::copy(&mut from, &mut to));
    (ours, hangs)
}

/// With one subscriber alone, tracing asks the thread that first comes by an event whether anybody wants it, and another
/// test's thread says no for all.
static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(NoSubscriber::default()));

/// What this thread logs while it does `what`.
///
/// Fault: leave `SECOND` out, and run all tests of the crate at once.
fn logged<T>(what: impl FnOnce() -> T) -> (T, String) {
    LazyLock::force(&SECOND);
    let (told, lines) = mpsc::channel();
    struct Lines(mpsc::Sender<Vec<u8>>);
    impl Write for Lines {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            self.0.send(line.to_vec()).unwrap();
            Ok(line.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let log = tracing_subscriber::fmt().with_ansi(false);
    let log = log.with_writer(move || Lines(told.clone())).finish();
    let done = tracing::subscriber::with_default(log, what);
    let text: Vec<u8> = lines.try_iter().flatten().collect();
    (done, String::from_utf8(text).unwrap())
}

/// Faults, each by itself: in `Link::ask`, wait for ever; in `Line::ask`, say no line; in `Signer::load`, have the
/// patience of signatures; in `Line::ask`, never replace; in `Line::replace`, load no keys, or do not retire the
/// former.
#[test]
fn a_question_ends_in_time_and_the_second_one_without_an_answer_brings_another_signer() {
    let folder = folder("hang");
    let path = key_file(&folder, "ec.der", KeyType::Scheme(SignatureScheme::EcdsaP256Sha256));
    let (first, hangs) = gated();
    let (made, count) = mpsc::channel();
    let mut first = Some(first);
    let another = move || {
        made.send(()).unwrap();
        Ok(first.take().unwrap_or_else(|| gated().0))
    };
    let (tell, lost) = mpsc::channel();
    let signer =
        Signer::over(SchemeRegister::built_in(), another, move || tell.send(()).unwrap()).unwrap();
    signer.answer_within(Duration::from_secs(1));
    signer.seal(unbounded()).unwrap();
    let loaded = signer.load(&file(&path, Holds::AnyKey)).unwrap();
    let octets = std::fs::read(&path).unwrap();
    let brought = signer.load(&LoadRequest::Octets(&Passphrase::copy_from(&octets))).unwrap();
    let (key, brought) = (&loaded.keys[0], &brought.keys[0]);
    let message = octets::tests::signed_octets();
    let sign = || key.sign(&key.schemes()[0], &message);
    sign().unwrap();
    brought.sign(&brought.schemes()[0], b"message").unwrap();

    hangs.store(true, Ordering::SeqCst);
    let (failed, line) = logged(sign);
    assert_eq!(failed, Err(CryptoError::Backend));
    assert!(line.contains("the signer does not answer") && line.contains("ec.der"), "{line}");
    let begun = Instant::now();
    let refused = signer.load(&file(&path, Holds::AnyKey)).unwrap_err();
    assert_eq!(refused.to_string(), "the signer: the signer does not answer");
    assert!(begun.elapsed() < Duration::from_millis(700), "a reload does not wait");
    assert_eq!(count.try_iter().count(), 1, "one question may be slow");

    assert_eq!(sign(), Err(CryptoError::Backend));
    let end = Instant::now() + Duration::from_secs(20);
    while sign().is_err() {
        assert!(Instant::now() < end, "no other signer");
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(count.try_iter().count(), 1, "another one");
    let gone = brought.sign(&brought.schemes()[0], b"message");
    assert_eq!(gone, Err(CryptoError::Backend), "no copy of it is kept here");
    assert!(signer.load(&file(&path, Holds::AnyKey)).is_ok());
    assert!(lost.try_recv().is_err(), "that is no loss");
    std::fs::remove_dir_all(folder).unwrap();
}

/// Faults, each by itself: in `Link::start`, let `out` have no thread; in `Signer::load`, keep a request before there is
/// an answer.
#[test]
fn nobody_waits_for_a_signer_that_does_not_read_and_a_refused_request_is_not_kept() {
    let (ours, its) = UnixStream::pair().unwrap();
    let mut ours = Some(ours);
    let first = move || ours.take().ok_or_else(|| io::Error::other("there is only one"));
    let signer = Signer::over(SchemeRegister::built_in(), first, || {}).unwrap();
    signer.seal(unbounded()).unwrap();
    let begun = Instant::now();
    for _ in 0..20_000 {
        signer.admit(Path::new("/none/that-fills-what-the-kernel-keeps-for-a-socket")).unwrap();
    }
    assert!(begun.elapsed() < Duration::from_secs(20));
    drop((signer, its));

    let (signer, _lost, _) = self::signer();
    signer.seal(unbounded()).unwrap();
    assert!(signer.load(&file(Path::new("/none"), Holds::AnyKey)).is_err());
    assert_eq!(signer.kept(), 0);
}
