//! Judges public suites of certificate paths, which nobody of this project made. `pack.py` packs them.
//!
//! `NAME.txt` has a line for each case that is judged otherwise than its suite expects:
//!
//! ```text
//! CASE POLICY[,POLICY] VERDICT SECTION SENTENCE
//! ```
//!
//! A changed verdict fails, and so does a line that is no longer needed.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ike_proto::wire::payload::{Cert, IdData};
use ike_proto::wire::registry::{CertEncoding, IdType};
use pki::{
    Certificate, CertificatePolicy, PeerPolicy, Revocation, RevocationPolicy, TrustStore,
    verify_peer,
};

/// What a path is judged as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Valid,
    Invalid,
}

/// A case of a suite.
struct Case<'a> {
    name: &'a str,
    expected: Verdict,
    time: SystemTime,
    id: Option<IdData>,
    policies: Vec<CertificatePolicy>,
    anchors: Vec<&'a [u8]>,
    cas: Vec<&'a [u8]>,
    lists: Vec<&'a [u8]>,
    peer: Option<&'a [u8]>,
}

/// Cuts the first DER element off.
fn cut<'a>(ders: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (_, rest) = ders.split_first()?;
    let (&short, _) = rest.split_first()?;
    let (begin, length) = match short {
        0..0x80 => (2, usize::from(short)),
        _ => {
            let octets = ders.get(2..2 + usize::from(short & 0x7f))?;
            (2 + octets.len(), octets.iter().fold(0, |sum, octet| sum << 8 | usize::from(*octet)))
        }
    };
    let (first, after) = ders.split_at_checked(begin + length)?;
    *ders = after;
    Some(first)
}

/// The cases of a suite.
fn cases<'a>(text: &'a str, mut ders: &'a [u8]) -> Vec<Case<'a>> {
    let objects: Vec<&[u8]> = std::iter::from_fn(|| cut(&mut ders)).collect();
    assert!(ders.is_empty(), "{} octets are no DER element", ders.len());
    let numbered = |numbers: &str| -> Vec<&[u8]> {
        numbers.split(' ').map(|number| objects[number.parse::<usize>().unwrap()]).collect()
    };
    let mut cases: Vec<Case<'_>> = Vec::new();
    for line in text.lines() {
        let (word, value) = line.trim_start().split_once(' ').unwrap();
        if word == "case" {
            let (name, expected) = value.split_once(' ').unwrap();
            let expected = match expected {
                "valid" => Verdict::Valid,
                "invalid" => Verdict::Invalid,
                _ => panic!("{line}"),
            };
            cases.push(Case {
                name,
                expected,
                time: UNIX_EPOCH,
                id: None,
                policies: Vec::new(),
                anchors: Vec::new(),
                cas: Vec::new(),
                lists: Vec::new(),
                peer: None,
            });
            continue;
        }
        let case = cases.last_mut().unwrap();
        match word {
            "time" => case.time += Duration::from_secs(value.parse().unwrap()),
            "policy" => case.policies.push(CertificatePolicy::parse(value).unwrap()),
            "name" => case.id = Some(identity(value)),
            "anchor" => case.anchors = numbered(value),
            "ca" => case.cas = numbered(value),
            "list" => case.lists = numbered(value),
            "peer" => case.peer = Some(numbered(value)[0]),
            _ => panic!("{line}"),
        }
    }
    cases
}

fn identity(text: &str) -> IdData {
    match text.split_once(' ') {
        Some(("dns", name)) => IdData::fqdn(name),
        Some(("email", name)) => IdData::email(name),
        Some(("ip", name)) => IdData::ip(name.parse().unwrap()),
        _ => panic!("{text}"),
    }
}

/// A CERT payload with an X.509 certificate.
fn certificate(data: &[u8]) -> Cert<'_> {
    Cert { encoding: CertEncoding::X509_SIGNATURE, data }
}

/// The verdict on a case, and why the path is invalid. Nothing can be fetched.
fn judge(case: &Case<'_>, revocation: RevocationPolicy) -> (Verdict, String) {
    let mut trust = TrustStore::new();
    let mut why = String::new();
    let unusable = |what: &str, fault: &dyn std::fmt::Display| format!("{what}: {fault}; ");
    for anchor in &case.anchors {
        match Certificate::from_der(anchor).map(|anchor| trust.add_ca(anchor)) {
            Ok(Ok(())) => {}
            Ok(Err(fault)) => why += &unusable("anchor", &fault),
            Err(fault) => why += &unusable("anchor", &fault),
        }
    }
    for list in &case.lists {
        if let Err(fault) = trust.revocation.add_crl(list) {
            why += &unusable("list", &fault);
        }
    }
    let Some(peer) = case.peer else { return (Verdict::Invalid, why + "no certificate") };
    let id = match (&case.id, Certificate::from_der(peer)) {
        (_, Err(fault)) => return (Verdict::Invalid, why + &unusable("peer", &fault)),
        (Some(id), Ok(_)) => id.clone(),
        (None, Ok(peer)) => peer
            .identities()
            .first()
            .cloned()
            .unwrap_or(IdData { kind: IdType::DER_ASN1_DN, data: vec![0x30, 0] }),
    };
    let policy =
        PeerPolicy { revocation, cert_policies: case.policies.clone(), ..PeerPolicy::default() };
    let payloads: Vec<Cert<'_>> =
        std::iter::once(peer).chain(case.cas.iter().copied()).map(certificate).collect();
    // Each round leaves fewer URLs.
    loop {
        match verify_peer(&id, &payloads, &policy, &trust, case.time) {
            Err(fault) => return (Verdict::Invalid, why + &fault.to_string()),
            Ok(peer) => match peer.revocation {
                Revocation::Settled => return (Verdict::Valid, why),
                Revocation::Pending(requests) => {
                    for request in &requests {
                        let _no_list = trust.revocation.deliver(request, None, case.time);
                    }
                }
            },
        }
    }
}

/// Judges all cases of a suite, those with lists under both policies, and compares with what it expects and with the exceptions.
///
/// # Errors
/// A line for each difference.
pub fn compare(text: &str, ders: &[u8], exceptions: &str) -> Result<usize, String> {
    let mut excepted: BTreeMap<(&str, &str), Verdict> = BTreeMap::new();
    for line in exceptions.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let mut words = line.splitn(4, ' ');
        let mut word = || words.next().ok_or_else(|| format!("a word is missing: {line}"));
        let (case, policies) = (word()?, word()?);
        let verdict = match word()? {
            "valid" => Verdict::Valid,
            "invalid" => Verdict::Invalid,
            _ => return Err(format!("no verdict: {line}")),
        };
        if !word()?.starts_with("RFC ") {
            return Err(format!("no section of an RFC: {line}"));
        }
        for policy in policies.split(',') {
            if excepted.insert((case, policy), verdict).is_some() {
                return Err(format!("twice: {line}"));
            }
        }
    }
    let mut faults = String::new();
    let mut judged = 0;
    for case in cases(text, ders) {
        for (name, revocation) in
            [("relaxed", RevocationPolicy::Relaxed), ("strict", RevocationPolicy::Strict)]
        {
            // Without a list `strict` refuses everybody.
            if name == "strict" && case.lists.is_empty() {
                continue;
            }
            judged += 1;
            let (verdict, why) = judge(&case, revocation);
            let exception = excepted.remove(&(case.name, name));
            if verdict != exception.unwrap_or(case.expected) {
                writeln!(faults, "{} {name}: {verdict:?} {why}", case.name).unwrap();
            } else if exception == Some(case.expected) {
                writeln!(faults, "{} {name}: the exception says what is expected", case.name)
                    .unwrap();
            }
        }
    }
    for (case, policy) in excepted.keys() {
        writeln!(faults, "{case} {policy}: there is no such case").unwrap();
    }
    if faults.is_empty() { Ok(judged) } else { Err(faults) }
}
