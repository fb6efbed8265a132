//! Key derivation agrees with NIST's vectors and with what other implementations test against.

use crate::vectors::{key_lengths, octets, prf, secret, spi};
use ike_proto::crypto::{Prf, Secret};
use ike_proto::keys::{ChildKeys, IkeKeys, Nonces, OldKeys, Seed, Spis, prf_plus};
use ike_proto::wire::registry::PrfId;
use serde_json::Value;

const NIST: &str = include_str!("../data/keys/nist_cavs_ikev2.json");
const LIBRESWAN: &str = include_str!("../data/keys/libreswan_acvp_ikev2.json");
const FREE5GC: &str = include_str!("../data/keys/free5gc_keys.json");
const FORMULAS: &str = include_str!("../data/keys/formulas.json");

/// One case of the CAVS kind.
struct Case {
    ni: Vec<u8>,
    nr: Vec<u8>,
    spi_i: u64,
    spi_r: u64,
    g_ir: Secret,
    g_ir_new: Secret,
    skeyseed: Vec<u8>,
    dkm: Vec<u8>,
    child: Vec<u8>,
    child_dh: Vec<u8>,
    skeyseed_rekey: Vec<u8>,
}

#[test]
fn nist_cavs_all_54_cases() {
    let file: Value = serde_json::from_str(NIST).unwrap();
    let mut cases = 0;
    for group in file["groups"].as_array().unwrap() {
        let prf = prf(match group["params"]["hash"].as_str().unwrap() {
            "SHA-1" => PrfId::HMAC_SHA1,
            "SHA-256" => PrfId::HMAC_SHA2_256,
            "SHA-384" => PrfId::HMAC_SHA2_384,
            "SHA-512" => PrfId::HMAC_SHA2_512,
            other => panic!("no PRF for {other}"),
        });
        for test in group["tests"].as_array().unwrap() {
            let case = Case {
                ni: octets(&test["Ni"]),
                nr: octets(&test["Nr"]),
                spi_i: spi(&test["SPIi"]),
                spi_r: spi(&test["SPIr"]),
                g_ir: secret(&test["g^ir"]),
                g_ir_new: secret(&test["g^ir (new)"]),
                skeyseed: octets(&test["SKEYSEED"]),
                dkm: octets(&test["DKM"]),
                child: octets(&test["DKM(Child SA)"]),
                child_dh: octets(&test["DKM(Child SA D-H)"]),
                skeyseed_rekey: octets(&test["SKEYSEED(Rekey)"]),
            };
            check(&format!("{} case {}", group["params"], test["count"]), prf, &case);
            cases += 1;
        }
    }
    assert_eq!(cases, 54);
}

#[test]
fn libreswan_acvp_case() {
    let test: Value = serde_json::from_str(LIBRESWAN).unwrap();
    assert_eq!(test["hashAlg"], "SHA-1");
    let case = Case {
        ni: octets(&test["nInit"]),
        nr: octets(&test["nResp"]),
        spi_i: spi(&test["spiInit"]),
        spi_r: spi(&test["spiResp"]),
        g_ir: secret(&test["gir"]),
        g_ir_new: secret(&test["girNew"]),
        skeyseed: octets(&test["sKeySeed"]),
        dkm: octets(&test["derivedKeyingMaterial"]),
        child: octets(&test["derivedKeyingMaterialChild"]),
        child_dh: octets(&test["derivedKeyingMaterialDh"]),
        skeyseed_rekey: octets(&test["sKeySeedReKey"]),
    };
    check("libreswan", prf(PrfId::HMAC_SHA1), &case);
}

fn check(name: &str, prf: &dyn Prf, case: &Case) {
    let Case { ni, nr, spi_i, spi_r, g_ir, g_ir_new, skeyseed, dkm, .. } = case;
    let (spi_i, spi_r) = (*spi_i, *spi_r);
    let seed: [&[u8]; 4] = [ni, nr, &spi_i.to_be_bytes(), &spi_r.to_be_bytes()];
    assert!(prf_plus(prf, skeyseed, &seed, dkm.len()).ct_eq(dkm), "{name}: prf+");

    // Lengths that use up all of the DKM: a stream the keys are cut from without gap.
    let sk = prf.output_len();
    let lengths = key_lengths(dkm.len() / 2, sk);
    let nonces = Nonces { i: ni, r: nr };
    let bound = Seed::new(nonces, Spis::new(spi_i, spi_r));
    let keys = IkeKeys::initial(prf, &[g_ir], &bound, &lengths);
    let stream = concat(&keys);
    assert_eq!(stream.get(..dkm.len()), Some(&dkm[..]), "{name}: SK_*");
    assert_eq!(keys.d.expose(), &dkm[..sk], "{name}: SK_d");

    let old = OldKeys::new(prf, &keys.d);
    let rekeyed = IkeKeys::rekeyed(old, &[g_ir_new], &bound, prf, &lengths);
    let expected = prf_plus(prf, &case.skeyseed_rekey, &seed, stream.len());
    assert!(expected.ct_eq(&concat(&rekeyed)), "{name}: rekey");

    for (shared, expected) in [(&[][..], &case.child), (&[g_ir_new][..], &case.child_dh)] {
        let lengths = key_lengths(expected.len() / 4, expected.len() / 4);
        let child = ChildKeys::derive(prf, &keys.d, shared, nonces, &lengths);
        let (i, r) = (&child.initiator, &child.responder);
        let stream = [&i.encr, &i.integ, &r.encr, &r.integ].map(Secret::expose).concat();
        assert_eq!(stream, *expected, "{name}: child with {} secrets", shared.len());
    }
}

fn concat(keys: &IkeKeys) -> Vec<u8> {
    let IkeKeys { d, ai, ar, ei, er, pi, pr } = keys;
    [d, ai, ar, ei, er, pi, pr].map(Secret::expose).concat()
}

#[test]
fn free5gc_keys() {
    let file: Value = serde_json::from_str(FREE5GC).unwrap();
    let (sa, prf) = (&file["ike_sa"], prf(PrfId::HMAC_SHA1));
    let lengths = key_lengths(32, 20);
    let (shared, nonces) = (secret(&sa["dh_shared"]), octets(&sa["ni_nr"]));
    let (spi_i, spi_r) = (spi(&sa["spi_i"]), spi(&sa["spi_r"]));
    let bound = Seed::new(Nonces { i: &nonces, r: &[] }, Spis::new(spi_i, spi_r));
    let keys = IkeKeys::initial(prf, &[&shared], &bound, &lengths);
    let names = ["SK_d", "SK_ai", "SK_ar", "SK_ei", "SK_er", "SK_pi", "SK_pr"];
    let expected = names.map(|name| octets(&sa["expected"][name]));
    let IkeKeys { d, ai, ar, ei, er, pi, pr } = &keys;
    assert_eq!([d, ai, ar, ei, er, pi, pr].map(|key| key.expose().to_vec()), expected);

    let child = &file["child_sa_empty_nonce"];
    let none = Nonces { i: &[], r: &[] };
    let keys = ChildKeys::derive(prf, &secret(&child["sk_d"]), &[], none, &lengths);
    assert_eq!(keys.initiator.encr.expose(), octets(&child["ei"]));
    assert_eq!(keys.initiator.integ.expose(), octets(&child["ai"]));
    assert_eq!(keys.responder.encr.expose(), octets(&child["er"]));
    assert_eq!(keys.responder.integ.expose(), octets(&child["ar"]));
}

/// RFC 9370 §2.2: generations of IKE_INTERMEDIATE, and secrets of IKE_FOLLOWUP_KE behind the nonces.
#[test]
fn additional_key_exchanges() {
    let v: Value = serde_json::from_str(FORMULAS).unwrap();
    let prf = prf(PrfId::HMAC_SHA2_384);
    let lengths = key_lengths(36, 0);
    let (ni, nr) = (octets(&v["ni"]), octets(&v["nr"]));
    let (spi_i, spi_r) = (spi(&v["spi_i"]), spi(&v["spi_r"]));
    let (sk0, sk1, sk2) = (secret(&v["sk0"]), secret(&v["sk1"]), secret(&v["sk2"]));

    let nonces = Nonces { i: &ni, r: &nr };
    let bound = Seed::new(nonces, Spis::new(spi_i, spi_r));
    let initial = IkeKeys::initial(prf, &[&sk0], &bound, &lengths);
    assert_keys(&initial, &v["initial"]);
    let first = IkeKeys::next(prf, &initial.d, &sk1, &bound, &lengths);
    assert_keys(&first, &v["after_one_intermediate"]);
    let second = IkeKeys::next(prf, &first.d, &sk2, &bound, &lengths);
    assert_keys(&second, &v["after_two_intermediates"]);

    let shared = [&sk0, &sk1, &sk2];
    let old = OldKeys::new(prf, &initial.d);
    let rekeyed = IkeKeys::rekeyed(old, &shared, &bound, prf, &lengths);
    assert_keys(&rekeyed, &v["rekeyed_with_followups"]);
    for (shared, expected) in [(&shared[..], "child_with_followups"), (&[], "child_without_ke")] {
        let child = ChildKeys::derive(prf, &initial.d, shared, nonces, &lengths);
        let stream = [child.initiator.encr.expose(), child.responder.encr.expose()].concat();
        assert_eq!(stream, octets(&v[expected]), "{expected}");
        assert!(child.initiator.integ.is_empty() && child.responder.integ.is_empty());
    }
}

fn assert_keys(keys: &IkeKeys, expected: &Value) {
    let IkeKeys { d, ai, ar, ei, er, pi, pr } = keys;
    let named = [("d", d), ("ai", ai), ("ar", ar), ("ei", ei), ("er", er), ("pi", pi), ("pr", pr)];
    for (name, key) in named {
        assert_eq!(key.expose(), octets(&expected[name]), "SK_{name}");
    }
}

/// RFC 7296 §2.18: the old SA's PRF makes SKEYSEED, the new SA's PRF makes the keys.
#[test]
fn a_rekey_may_change_the_prf() {
    let (old, new) = (prf(PrfId::HMAC_SHA2_256), prf(PrfId::HMAC_SHA2_512));
    let (ni, nr, lengths) = ([1; 32], [2; 32], key_lengths(36, 0));
    let (d, shared) = (Secret::new(vec![3; 32]), Secret::new(vec![4; 32]));
    let bound = Seed::new(Nonces { i: &ni, r: &nr }, Spis::new(5, 6));
    let before = OldKeys::new(old, &d);
    let keys = IkeKeys::rekeyed(before, &[&shared], &bound, new, &lengths);
    let skeyseed = old.prf(d.expose(), &[shared.expose(), &ni, &nr]);
    let seed: [&[u8]; 4] = [&ni, &nr, &5u64.to_be_bytes(), &6u64.to_be_bytes()];
    assert!(prf_plus(new, skeyseed.expose(), &seed, 3 * 64 + 2 * 36).ct_eq(&concat(&keys)));
    assert_eq!(keys.d.len(), 64);
}

#[test]
fn prf_plus_reaches_255_blocks() {
    let prf = prf(PrfId::HMAC_SHA2_256);
    let longest = prf_plus(prf, b"key", &[b"se", b"ed"], 255 * 32);
    assert_eq!(longest.len(), 255 * 32);
    assert!(prf_plus(prf, b"key", &[b"seed"], 33).ct_eq(&longest.expose()[..33]));
    assert!(prf_plus(prf, b"key", &[b"seed"], 0).is_empty());
}

#[test]
#[should_panic(expected = "prf+ of 8161 octets")]
fn prf_plus_stops_before_the_counter_wraps() {
    prf_plus(prf(PrfId::HMAC_SHA2_256), b"key", &[b"seed"], 255 * 32 + 1);
}

#[test]
fn keys_do_not_print() {
    let lengths = key_lengths(36, 0);
    let shared = Secret::new(vec![0x5a; 32]);
    let nonces = Nonces { i: &[1; 32], r: &[2; 32] };
    let bound = Seed::new(nonces, Spis::new(3, 4));
    let keys = IkeKeys::initial(prf(PrfId::HMAC_SHA2_256), &[&shared], &bound, &lengths);
    let printed = format!("{keys:?}");
    assert!(printed.contains("ei: Secret(36 octets)"), "{printed}");
    let octets: Vec<_> = keys.d.expose().iter().map(u8::to_string).collect();
    assert!(!printed.contains(&octets[..4].join(", ")), "{printed}");
}
