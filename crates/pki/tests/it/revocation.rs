//! Revocation lists and OCSP, the policies, and that nothing is fetched before trust.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ike_proto::wire::payload::IdData;
use pki::{
    Authority, Certificate, Crl, FetchKind, FetchRequest, LoadError, PeerPolicy, PkiError,
    Revocation, RevocationPolicy, TrustStore, TrustedPeer, verify_peer,
};

use crate::common::{certificate, fixture, id, now, shared, trusting, verdict, verdict_at, x509};

fn policy(revocation: RevocationPolicy) -> PeerPolicy {
    PeerPolicy { revocation, ..PeerPolicy::default() }
}

fn with_crls(cas: &[&str], crls: &[&str]) -> TrustStore {
    let mut trust = trusting(cas);
    for crl in crls {
        trust.revocation.add_crl(&fixture(&format!("{crl}.crl"))).unwrap();
    }
    trust
}

/// What NAME.pem gets: `Ok(true)` if settled, `Ok(false)` if there is something to fetch.
fn outcome(name: &str, revocation: RevocationPolicy, trust: &TrustStore) -> Result<bool, PkiError> {
    let peer = verdict(&format!("{name}.example.org"), &[name], &policy(revocation), trust)?;
    Ok(matches!(peer.revocation, Revocation::Settled))
}

fn pending(peer: TrustedPeer) -> Vec<FetchRequest> {
    match peer.revocation {
        Revocation::Settled => Vec::new(),
        Revocation::Pending(requests) => requests,
    }
}

#[test]
fn a_revoked_certificate_is_refused_under_every_policy() {
    use RevocationPolicy::{IfUri, Relaxed, Strict};
    let trust = with_crls(&["root"], &["root"]);
    for policy in [Relaxed, IfUri, Strict] {
        let refusal = outcome("revoked", policy, &trust);
        assert!(matches!(refusal, Err(PkiError::Revoked { .. })), "{policy:?}");
        assert_eq!(outcome("moon", policy, &trust), Ok(true), "{policy:?}");
    }
}

#[test]
fn a_revoked_ca_takes_everything_below_with_it() {
    let trust = with_crls(&["root"], &["root", "inter"]);
    let peer = |trust: &TrustStore| {
        verdict("chained.example.org", &["chained", "inter"], &policy(Default::default()), trust)
    };
    let refusal = peer(&trust).unwrap_err();
    let subject = "C=CH, O=pq-ike, CN=Intermediate".to_owned();
    assert_eq!(refusal, PkiError::Revoked { subject });
    assert!(peer(&with_crls(&["root"], &["empty", "inter"])).is_ok());
}

#[test]
fn policies_differ_in_what_they_make_of_not_knowing() {
    use RevocationPolicy::{IfUri, Relaxed, Strict};
    let nothing = trusting(&["root"]);
    assert_eq!(outcome("moon", Relaxed, &nothing), Ok(true));
    assert_eq!(outcome("moon", IfUri, &nothing), Ok(true));
    assert!(matches!(outcome("moon", Strict, &nothing), Err(PkiError::RevocationUnknown { .. })));
    for policy in [Relaxed, IfUri, Strict] {
        // There is an address to ask.
        assert_eq!(outcome("cdp", policy, &nothing), Ok(false));
    }
    // Every certificate of the path counts, not only the peer's own.
    let strict = |crls: &[&str]| {
        let trust = with_crls(&["root"], crls);
        verdict("chained.example.org", &["chained", "inter"], &policy(Strict), &trust).map(|_| ())
    };
    assert_eq!(strict(&["empty", "inter"]), Ok(()));
    assert!(matches!(strict(&["empty"]), Err(PkiError::RevocationUnknown { .. })));
    assert!(matches!(strict(&["inter"]), Err(PkiError::RevocationUnknown { .. })));
}

#[test]
fn policy_words_are_strongswans() {
    for (word, policy) in [
        ("strict", Some(RevocationPolicy::Strict)),
        ("ifuri", Some(RevocationPolicy::IfUri)),
        ("relaxed", Some(RevocationPolicy::Relaxed)),
        ("Strict", None),
        ("", None),
    ] {
        assert_eq!(RevocationPolicy::parse(word), policy);
    }
}

#[test]
fn only_a_current_list_of_the_issuer_says_that_all_is_well() {
    use RevocationPolicy::Strict;
    for (crl, known) in [
        ("empty", true),
        ("root", true),
        ("forged", false),
        ("stale", false),
        ("future", false),
        ("inter", false),
        ("elsewhere", false),
        ("here", false),
        ("cas", false),
    ] {
        match outcome("moon", Strict, &with_crls(&["root"], &[crl])) {
            Ok(true) => assert!(known, "{crl}"),
            Err(PkiError::RevocationUnknown { .. }) => assert!(!known, "{crl}"),
            other => panic!("{crl}: {other:?}"),
        }
    }
    // A partition counts for the certificates that point at it.
    let partition = with_crls(&["root"], &["here"]);
    assert_eq!(outcome("cdp", Strict, &partition), Ok(true));
    for other in ["elsewhere", "cas"] {
        let other = with_crls(&["root"], &[other]);
        assert_eq!(outcome("cdp", Strict, &other), Ok(false));
    }
}

#[test]
fn the_newest_list_decides_and_an_old_revocation_lasts() {
    use RevocationPolicy::Relaxed;
    for crls in [&["empty", "root"][..], &["root", "empty"], &["stale"], &["older"]] {
        let refusal = outcome("revoked", Relaxed, &with_crls(&["root"], crls));
        assert!(matches!(refusal, Err(PkiError::Revoked { .. })), "{crls:?}");
    }
    // Off hold again: the newer list does not have it.
    let trust = with_crls(&["root"], &["older", "empty"]);
    assert_eq!(outcome("revoked", Relaxed, &trust), Ok(true));
    // A list from the future may revoke, and ends nothing. A stranger's says nothing.
    let trust = with_crls(&["root"], &["future"]);
    assert!(matches!(outcome("revoked", Relaxed, &trust), Err(PkiError::Revoked { .. })));
    let trust = with_crls(&["root"], &["forged"]);
    assert_eq!(outcome("revoked", Relaxed, &trust), Ok(true));
}

#[test]
fn what_is_no_list_is_not_taken() {
    let mut trust = trusting(&["root"]);
    for bad in [&b"x"[..], &[0x30, 0], &fixture("moon.pem"), &fixture("moon.der")] {
        assert!(trust.revocation.add_crl(bad).is_err());
    }
}

/// The forms of RFC 4945 §6: its own delimiters, every end of line, blanks around lines.
#[test]
fn lists_come_in_every_form_of_pem() {
    let openssls = String::from_utf8(fixture("root.crl")).unwrap();
    let rfc4945 = openssls.replace("X509 CRL", "CRL");
    for pem in [
        rfc4945.replace('\n', "\r\n"),
        rfc4945.replace('\n', "\r"),
        rfc4945.replace('\n', " \n\t "),
        rfc4945,
    ] {
        let crl = Crl::load(pem.as_bytes());
        assert_eq!(crl.expect(&pem).der(), Some(&*pem_content("root.crl")));
    }
}

#[test]
fn a_list_may_be_signed_with_ml_dsa() {
    let trust = with_crls(&["mldsa65-root"], &["mldsa65"]);
    assert_eq!(outcome("mldsa65", RevocationPolicy::Strict, &trust), Ok(true));
}

/// The rule that a URL in a certificate is worth nothing before the certificate is: whatever is wrong
/// with a certificate that names URLs, the answer is an error and never a request.
#[test]
fn fetch_before_trust_never() {
    let cdp = certificate("cdp");
    let moon = id("moon.example.org");
    let own = id("cdp.example.org");
    let strangers = trusting(&["rsa-root"]);
    let ours = trusting(&["root"]);
    let late = certificate("cdp").not_after() + Duration::from_secs(1);
    let wants = |ca: &str| PeerPolicy { cacerts: vec![shared(ca)], ..PeerPolicy::default() };
    let ask = |identity: &IdData, trust: &TrustStore, policy: &PeerPolicy, now: SystemTime| {
        verify_peer(identity, &[x509(cdp.der())], policy, trust, now)
            .map(|peer| pending(peer).len())
    };
    let any = PeerPolicy::default();
    assert!(matches!(ask(&own, &strangers, &any, now()), Err(PkiError::UnknownCa { .. })));
    let impostor = ask(&own, &trusting(&["impostor"]), &any, now());
    assert!(matches!(impostor, Err(PkiError::BadSignature { .. })));
    let other = ask(&moon, &ours, &any, now());
    assert!(matches!(other, Err(PkiError::IdentityNotInCertificate { .. })));
    assert!(matches!(ask(&own, &ours, &any, late), Err(PkiError::Expired { .. })));
    let ca = ask(&own, &ours, &wants("rsa-root"), now());
    assert!(matches!(ca, Err(PkiError::CaNotAllowed { .. })));
    // Only then.
    assert_eq!(ask(&own, &ours, &any, now()), Ok(1));
    // Nor does a pin without a CA lead anywhere.
    let pinned = PeerPolicy { certs: vec![shared("cdp")], ..PeerPolicy::default() };
    assert_eq!(ask(&own, &TrustStore::new(), &pinned, now()), Ok(0));
}

fn ask(name: &str, trust: &TrustStore) -> Vec<FetchRequest> {
    let strict = policy(RevocationPolicy::Strict);
    pending(verdict(&format!("{name}.example.org"), &[name], &strict, trust).unwrap())
}

#[test]
fn what_was_fetched_settles_it() {
    let mut trust = trusting(&["root"]);
    let requests = ask("cdp", &trust);
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].url, "http://crl.example.org/root.crl");
    assert_eq!(requests[0].kind, FetchKind::Crl);
    trust.revocation.deliver(&requests[0], Some(&fixture("root.crl")), now()).unwrap();
    assert_eq!(outcome("cdp", RevocationPolicy::Strict, &trust), Ok(true));
    // The same list answers for others of the CA, too.
    let refusal = outcome("revoked", RevocationPolicy::Strict, &trust);
    assert!(matches!(refusal, Err(PkiError::Revoked { .. })));
    trust.revocation.purge();
    assert_eq!(outcome("cdp", RevocationPolicy::Strict, &trust), Ok(false));
}

#[test]
fn what_is_of_no_use_counts_as_nothing() {
    let long = vec![0; pki::MAX_BODY + 1];
    for (body, why) in [
        (None, LoadError::Nothing("response")),
        (Some(b"<html>".to_vec()), LoadError::Nothing("X509 CRL")),
        (Some(long), LoadError::TooLong { what: "response", most: pki::MAX_LIST }),
        (Some(fixture("forged.crl")), LoadError::Signature),
        (Some(fixture("inter.crl")), LoadError::Signature),
        (Some(fixture("elsewhere.crl")), LoadError::Irrelevant),
        (Some(fixture("stale.crl")), LoadError::Stale),
        (Some(fixture("future.crl")), LoadError::Stale),
    ] {
        let mut trust = trusting(&["root"]);
        let request = ask("cdp", &trust).remove(0);
        assert_eq!(trust.revocation.deliver(&request, body.as_deref(), now()), Err(why));
        // No address is left: the policy decides.
        for (policy, expected) in [
            (RevocationPolicy::Relaxed, true),
            (RevocationPolicy::IfUri, false),
            (RevocationPolicy::Strict, false),
        ] {
            match outcome("cdp", policy, &trust) {
                Ok(settled) => assert!(settled && expected, "{why}"),
                Err(PkiError::RevocationUnknown { .. }) => assert!(!expected, "{why}"),
                Err(other) => panic!("{other}"),
            }
        }
        // After a while it is worth another try.
        let later = now() + Duration::from_secs(3600);
        let again = verdict_at(
            "cdp.example.org",
            &["cdp"],
            &policy(RevocationPolicy::Strict),
            &trust,
            later,
        );
        assert_eq!(pending(again.unwrap()).len(), 1);
    }
}

#[test]
fn a_fetched_list_does_not_give_way_to_a_worse_one() {
    let mut trust = trusting(&["root"]);
    let request = ask("cdp", &trust).remove(0);
    trust.revocation.deliver(&request, Some(&fixture("root.crl")), now()).unwrap();
    // Replayed: properly signed, current, and from before the revocation.
    let replayed = trust.revocation.deliver(&request, Some(&fixture("empty.crl")), now());
    assert_eq!(replayed, Err(LoadError::Older));
    let refusal = outcome("revoked", RevocationPolicy::Relaxed, &trust);
    assert!(matches!(refusal, Err(PkiError::Revoked { .. })));
}

#[test]
fn ocsp_is_asked_first_and_lists_after_it() {
    let mut trust = trusting(&["root"]);
    let ocsp = ask("ocsp", &trust).remove(0);
    assert_eq!(ocsp.url, "http://ocsp.example.org/");
    let FetchKind::Ocsp { request } = &ocsp.kind else { panic!("{ocsp:?}") };
    assert_eq!(*request, fixture("ocsp-request.der"), "as OpenSSL makes it");
    trust.revocation.deliver(&ocsp, None, now()).unwrap_err();
    let crl = ask("ocsp", &trust).remove(0);
    assert_eq!((crl.url.as_str(), &crl.kind), ("http://crl.example.org/root.crl", &FetchKind::Crl));
    trust.revocation.deliver(&crl, Some(&fixture("root.crl")), now()).unwrap();
    assert_eq!(outcome("ocsp", RevocationPolicy::Strict, &trust), Ok(true));
}

/// Delivers one OCSP response and says how it was taken and what follows.
fn ocsp(response: &[u8], at: SystemTime) -> (Result<(), LoadError>, Result<usize, PkiError>) {
    let mut trust = trusting(&["root"]);
    let request = ask("ocsp", &trust).remove(0);
    let taken = trust.revocation.deliver(&request, Some(response), at);
    let strict = policy(RevocationPolicy::Strict);
    let verdict = verdict_at("ocsp.example.org", &["ocsp"], &strict, &trust, at);
    (taken, verdict.map(|peer| pending(peer).len()))
}

#[test]
fn an_ocsp_response_counts_if_the_ca_or_its_delegate_signed_it() {
    for name in ["ocsp-good", "ocsp-delegated"] {
        let (taken, verdict) = ocsp(&fixture(&format!("{name}.der")), now());
        assert_eq!((taken, verdict), (Ok(()), Ok(0)), "{name}");
    }
    let (taken, verdict) = ocsp(&fixture("ocsp-revoked.der"), now());
    assert_eq!(taken, Ok(()));
    assert!(matches!(verdict, Err(PkiError::Revoked { .. })));
    for (name, why) in [
        ("ocsp-not-delegated", LoadError::Signature),
        ("ocsp-forged", LoadError::Signature),
        ("ocsp-badsig", LoadError::Signature),
        ("ocsp-unknown", LoadError::Nothing("answer about this certificate")),
        ("ocsp-short", LoadError::Stale),
        ("ocsp-no-next", LoadError::Stale),
    ] {
        let (taken, verdict) = ocsp(&fixture(&format!("{name}.der")), now());
        assert_eq!(taken, Err(why), "{name}");
        assert_eq!(verdict, Ok(1), "{name}: the list is still to be asked");
    }
    // An answer from the future, and none at all.
    let early = UNIX_EPOCH + Duration::from_secs(1_600_000_000);
    assert_eq!(ocsp(&fixture("ocsp-good.der"), early).0, Err(LoadError::Stale));
    let try_later = [0x30, 3, 0x0a, 1, 3];
    assert_eq!(ocsp(&try_later, now()).0, Err(LoadError::Nothing("answer")));
    assert_eq!(ocsp(&fixture("root.crl"), now()).0, Err(LoadError::Malformed("OCSP response")));
}

fn authority(ca: &str, crl_uris: &[&str], ocsp_uris: &[&str]) -> Authority {
    let owned = |urls: &[&str]| urls.iter().map(|url| (*url).to_owned()).collect();
    let (crl_uris, ocsp_uris) = (owned(crl_uris), owned(ocsp_uris));
    Authority { ca: shared(ca), crl_uris, ocsp_uris, cert_uri_base: None }
}

#[test]
fn an_authority_adds_addresses_for_what_its_ca_issues() {
    use RevocationPolicy::{IfUri, Relaxed, Strict};
    let mut trust = trusting(&["root", "rsa-root"]);
    let list = "http://ca.example.org/root.crl";
    let answer = "http://ca.example.org/ocsp";
    trust.revocation.add_authority(authority("root", &[list], &[answer])).unwrap();
    for policy in [Relaxed, IfUri, Strict] {
        assert_eq!(outcome("moon", policy, &trust), Ok(false), "{policy:?}");
    }
    // Of another CA it says nothing.
    assert_eq!(outcome("rsa", IfUri, &trust), Ok(true));

    let ask = |trust: &TrustStore| -> Vec<FetchRequest> {
        let moon = verdict("moon.example.org", &["moon"], &policy(IfUri), trust);
        pending(moon.unwrap())
    };
    let first = ask(&trust).remove(0);
    assert_eq!((first.url.as_str(), first.kind == FetchKind::Crl), (answer, false));
    assert!(trust.revocation.deliver(&first, None, now()).is_err());
    let second = ask(&trust).remove(0);
    assert_eq!((second.url.as_str(), &second.kind), (list, &FetchKind::Crl));
    let mut failing = trust.clone();
    assert!(failing.revocation.deliver(&second, Some(b"no list"), now()).is_err());
    assert!(matches!(outcome("moon", IfUri, &failing), Err(PkiError::RevocationUnknown { .. })));
    assert_eq!(outcome("moon", Relaxed, &failing), Ok(true));
    // A new configuration asks again.
    let mut again = trusting(&["root"]);
    again.revocation.add_authority(authority("root", &[list], &[])).unwrap();
    again.revocation.inherit(&failing.revocation);
    assert_eq!(outcome("moon", IfUri, &again), Ok(false));

    trust.revocation.deliver(&second, Some(&fixture("root.crl")), now()).unwrap();
    assert_eq!(outcome("moon", Strict, &trust), Ok(true));
    // What was fetched outlives a new configuration, which may have other addresses.
    let mut renewed = trusting(&["root"]);
    renewed.revocation.inherit(&trust.revocation);
    assert_eq!(outcome("moon", Strict, &renewed), Ok(true));
    assert!(matches!(outcome("revoked", Relaxed, &renewed), Err(PkiError::Revoked { .. })));
}

#[test]
fn a_certificates_own_addresses_come_first() {
    let mut trust = trusting(&["root"]);
    let own = ask("cdp", &trust).remove(0).url;
    let other = "http://ca.example.org/root.crl";
    trust.revocation.add_authority(authority("root", &[other], &[])).unwrap();
    let request = ask("cdp", &trust).remove(0);
    assert_eq!(request.url, own);
    assert!(trust.revocation.deliver(&request, None, now()).is_err());
    assert_eq!(ask("cdp", &trust).remove(0).url, other);
}

#[test]
fn an_address_that_is_not_about_one_certificate_is_still_asked_about_another() {
    let mut trust = trusting(&["root"]);
    let responder = "http://ca.example.org/ocsp";
    trust.revocation.add_authority(authority("root", &[], &[responder])).unwrap();
    let ask = |name: &str, trust: &TrustStore| {
        pending(
            verdict(&format!("{name}.example.org"), &[name], &policy(Default::default()), trust)
                .unwrap(),
        )
    };
    // An answer about another certificate.
    let request = ask("moon", &trust).remove(0);
    assert!(trust.revocation.deliver(&request, Some(&fixture("ocsp-good.der")), now()).is_err());
    assert!(ask("moon", &trust).is_empty());
    assert_eq!(ask("p384", &trust).remove(0).url, responder);
    // No answer at all: nobody waits for it again so soon.
    let request = ask("p384", &trust).remove(0);
    assert!(trust.revocation.deliver(&request, None, now()).is_err());
    assert!(ask("p521", &trust).is_empty());
}

#[test]
fn an_authority_has_http_addresses_only() {
    let long = format!("http://{}", "a".repeat(600));
    for url in [
        "https://ca.example.org/",
        "ldap://ca.example.org/",
        "file:///etc/passwd",
        "http://",
        "http://ca.example.org/a b",
        "http://ca.example.org/\n",
        "",
        &long,
    ] {
        assert!(!Authority::is_usable(url), "{url}");
        let mut trust = trusting(&["root"]);
        let refusal = trust.revocation.add_authority(authority("root", &[], &[url]));
        assert!(matches!(refusal, Err(LoadError::Unsupported(_))), "{url}");
    }
    assert!(Authority::is_usable("HTTP://ca.example.org"));
}

#[test]
fn an_ocsp_response_is_about_one_certificate_only() {
    // The good answer about ocsp.pem, delivered for a request about another certificate.
    let mut trust = trusting(&["root"]);
    let request = ask("cdp", &trust).remove(0);
    let mut about_ocsp = ask("ocsp", &trust).remove(0);
    about_ocsp.url = request.url.clone();
    trust.revocation.deliver(&about_ocsp, Some(&fixture("ocsp-good.der")), now()).unwrap();
    assert_eq!(outcome("cdp", RevocationPolicy::Strict, &trust), Ok(false));
    assert_eq!(outcome("ocsp", RevocationPolicy::Strict, &trust), Ok(true));
}

#[test]
fn an_ocsp_answer_is_good_until_its_next_update() {
    let mut trust = trusting(&["root"]);
    let request = ask("ocsp", &trust).remove(0);
    trust.revocation.deliver(&request, Some(&fixture("ocsp-good.der")), now()).unwrap();
    let much_later = now() + Duration::from_secs(13 * 365 * 24 * 3600);
    let strict = policy(RevocationPolicy::Strict);
    let peer = verdict_at("ocsp.example.org", &["ocsp"], &strict, &trust, much_later).unwrap();
    assert_eq!(pending(peer).len(), 1);
}

#[test]
fn an_older_ocsp_answer_does_not_replace_a_newer() {
    let mut trust = trusting(&["root"]);
    let request = ask("ocsp", &trust).remove(0);
    trust.revocation.deliver(&request, Some(&fixture("ocsp-revoked.der")), now()).unwrap();
    // Made before the other, or in the same second.
    let replayed = trust.revocation.deliver(&request, Some(&fixture("ocsp-good.der")), now());
    assert_eq!(replayed, Err(LoadError::Stale));
    let refusal = outcome("ocsp", RevocationPolicy::Relaxed, &trust);
    assert!(matches!(refusal, Err(PkiError::Revoked { .. })));
}

/// Every octet of an OCSP response and of a revocation list matters or is outside what is looked at:
/// flipping one never turns a refusal into trust.
#[test]
fn changed_revocation_information_is_never_better() {
    let revoked = fixture("ocsp-revoked.der");
    for at in 0..revoked.len() {
        let mut changed = revoked.clone();
        changed[at] ^= 1;
        let (taken, verdict) = ocsp(&changed, now());
        if taken.is_ok() {
            assert!(matches!(verdict, Err(PkiError::Revoked { .. })), "octet {at}");
        }
    }
    let root = pem_content("root.crl");
    let certificates: Vec<Certificate> = vec![certificate("revoked")];
    for at in 0..root.len() {
        let mut changed = root.clone();
        changed[at] ^= 1;
        let mut trust = trusting(&["root"]);
        if trust.revocation.add_crl(&changed).is_err() {
            continue;
        }
        for certificate in &certificates {
            let strict = policy(RevocationPolicy::Strict);
            let shown = [x509(certificate.der())];
            let verdict = verify_peer(&id("revoked.example.org"), &shown, &strict, &trust, now());
            assert!(verdict.is_err(), "octet {at}");
        }
    }
}

fn pem_content(name: &str) -> Vec<u8> {
    Crl::load(&fixture(name)).unwrap().der().unwrap().to_vec()
}

/// Anybody on the way can send any list.
///
/// Fault: in `Lists::deliver`, keep the list before its signature is verified.
#[test]
fn a_fetched_list_with_a_wrong_signature_is_not_kept() {
    let mut list = pem_content("root.crl");
    // A version that is not understood.
    let version = list.windows(3).position(|octets| octets == [2, 1, 1]).unwrap();
    list[version + 2] = 5;
    assert!(!Crl::load(&list).unwrap().is_understood());
    let mut trust = trusting(&["root"]);
    let request = ask("cdp", &trust).remove(0);
    let refused = trust.revocation.deliver(&request, Some(&list), now());
    assert_eq!(refused, Err(LoadError::Signature));
    assert_eq!(trust.revocation.crls().count(), 0);
}

/// A CA need not have looked at the names in a certificate, and a peer may have thousands of them.
///
/// Fault: in the text of `IdentityNotInCertificate`, leave out `take`.
#[test]
fn the_text_about_a_certificate_with_many_names_is_short() {
    let name = |n: usize| IdData::fqdn(format!("{n}-{}.example.org", "x".repeat(2000)));
    let names = (0..2500).map(name).collect();
    let text = PkiError::IdentityNotInCertificate { id: name(9999), names }.to_string();
    assert!(text.len() < 4000, "{}", text.len());
    assert!(text.ends_with(" and 2492 more"), "{text}");
}
