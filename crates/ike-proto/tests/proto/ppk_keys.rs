//! What a post-quantum preshared key does to the keys of an IKE SA, and what AUTH covers with downgrade
//! prevention: the formulas of RFC 8784, RFC 9867 and draft-ietf-ipsecme-ikev2-downgrade-prevention,
//! computed a second time by other code.

use crate::vectors::{key_lengths, octets, prf, secret, spi};
use ike_proto::crypto::Secret;
use ike_proto::keys::{
    ChildKeys, IkeKeys, SignedOctets, Transcript, ppk_confirmation, psk_auth, verify_psk,
};
use ike_proto::wire::payload::Id;
use ike_proto::wire::registry::{IdType, PrfId};
use serde_json::Value;

const FORMULAS: &str = include_str!("../data/keys/formulas.json");
const PPK: &str = include_str!("../data/keys/ppk_formulas.json");

/// The inputs, the initial keys made of them, and what the other code says.
struct Vectors {
    inputs: Value,
    wanted: Value,
    ppk: Secret,
    ni: Vec<u8>,
    nr: Vec<u8>,
    spis: (u64, u64),
    initial: IkeKeys,
}

impl Vectors {
    fn read() -> Self {
        let inputs: Value = serde_json::from_str(FORMULAS).unwrap();
        let wanted: Value = serde_json::from_str(PPK).unwrap();
        let (ni, nr) = (octets(&inputs["ni"]), octets(&inputs["nr"]));
        let spis = (spi(&inputs["spi_i"]), spi(&inputs["spi_r"]));
        let sk0 = secret(&inputs["sk0"]);
        let lengths = key_lengths(36, 0);
        let prf = prf(PrfId::HMAC_SHA2_384);
        let initial = IkeKeys::initial(prf, &[&sk0], &ni, &nr, spis.0, spis.1, &lengths);
        let ppk = secret(&wanted["ppk"]);
        Self { inputs, wanted, ppk, ni, nr, spis, initial }
    }

    fn expect_all(&self, keys: &IkeKeys, name: &str) {
        let wanted = &self.wanted[name];
        for (key, part) in
            [(&keys.d, "d"), (&keys.ei, "ei"), (&keys.er, "er"), (&keys.pi, "pi"), (&keys.pr, "pr")]
        {
            assert_eq!(key.expose(), octets(&wanted[part]), "SK_{part} of {name}");
        }
    }
}

#[test]
fn rfc_8784_section_3_three_keys_change_and_no_other() {
    let v = Vectors::read();
    let prf = prf(PrfId::HMAC_SHA2_384);
    let (ei, er) = (v.initial.ei.duplicate(), v.initial.er.duplicate());
    let mixed = v.initial.mixed_in_auth(prf, &v.ppk);
    let mut keys = v.initial;
    let before = keys.replace_auth_keys(mixed);
    for (key, part) in [(&keys.d, "d"), (&keys.pi, "pi"), (&keys.pr, "pr")] {
        assert_eq!(key.expose(), octets(&v.wanted["auth"][part]), "SK_{part}");
    }
    assert!(keys.ei.ct_eq(ei.expose()) && keys.er.ct_eq(er.expose()));
    // What the peer may fall back on is given back as it was.
    keys.replace_auth_keys(before);
    for (key, part) in [(&keys.d, "d"), (&keys.pi, "pi"), (&keys.pr, "pr")] {
        assert_eq!(key.expose(), octets(&v.inputs["initial"][part]), "SK_{part} without PPK");
    }
}

#[test]
fn rfc_9867_section_3_1_1_all_keys_after_an_intermediate() {
    let v = Vectors::read();
    let prf = prf(PrfId::HMAC_SHA2_384);
    let lengths = key_lengths(36, 0);
    let (i, r) = v.spis;
    let mixed = v.initial.mixed_in_intermediate(prf, &v.ppk, &v.ni, &v.nr, i, r, &lengths);
    v.expect_all(&mixed, "intermediate");
    // With a key exchange in the same IKE_INTERMEDIATE the PPK comes last.
    let sk1 = secret(&v.inputs["sk1"]);
    let next = v.initial.next(prf, &sk1, &v.ni, &v.nr, i, r, &lengths);
    let mixed = next.mixed_in_intermediate(prf, &v.ppk, &v.ni, &v.nr, i, r, &lengths);
    v.expect_all(&mixed, "intermediate_after_ke");
}

#[test]
fn rfc_9867_section_3_2_1_children_and_rekeyed_ike_sas() {
    let v = Vectors::read();
    let prf = prf(PrfId::HMAC_SHA2_384);
    let sk_d = v.initial.mixed_in_create_child(prf, &v.ppk);
    assert_eq!(sk_d.expose(), octets(&v.wanted["create_child_sk_d"]));
    let child = ChildKeys::derive(prf, &sk_d, &[], &v.ni, &v.nr, &key_lengths(36, 0));
    let keymat = [child.initiator.encr.expose(), child.responder.encr.expose()].concat();
    assert_eq!(keymat, octets(&v.wanted["child_without_ke"]));
    let shared = ["sk0", "sk1", "sk2"].map(|name| secret(&v.inputs[name]));
    let shared: Vec<&Secret> = shared.iter().collect();
    let (i, r) = v.spis;
    let lengths = key_lengths(36, 0);
    let keys = IkeKeys::rekeyed(prf, &sk_d, &shared, &v.ni, &v.nr, i, r, prf, &lengths);
    v.expect_all(&keys, "rekeyed_with_followups");
}

#[test]
fn rfc_9867_confirmations_are_eight_octets_of_the_prf() {
    let v = Vectors::read();
    let prf = prf(PrfId::HMAC_SHA2_384);
    let (i, r) = (v.spis.0.to_be_bytes(), v.spis.1.to_be_bytes());
    let initial = ppk_confirmation(prf, &v.ppk, &[&v.ni, &v.nr, &i, &r]);
    assert_eq!(initial.expose(), octets(&v.wanted["confirmation"]));
    let later = ppk_confirmation(prf, &v.ppk, &[&v.ni, &i, &r]);
    assert_eq!(later.expose(), octets(&v.wanted["confirmation_create_child"]));
    assert_eq!(initial.len(), 8);
    let other = ppk_confirmation(prf, &Secret::copy_from(b"another"), &[&v.ni, &v.nr, &i, &r]);
    assert!(!other.ct_eq(initial.expose()));
}

#[test]
fn auth_over_both_messages() {
    let v = Vectors::read();
    let prf = prf(PrfId::HMAC_SHA2_384);
    let (own, peer) = (octets(&v.inputs["message"]), octets(&v.wanted["peer_message"]));
    let psk = secret(&v.inputs["psk"]);
    let id_data = octets(&v.inputs["id_data"]);
    let kind = IdType(u8::try_from(v.inputs["id_type"].as_u64().unwrap()).unwrap());
    let id = Id { kind, reserved: [0; 3], data: &id_data };
    let int_auth = octets(&v.inputs["int_auth"]);
    let signed = |transcript, int_auth: Option<&[u8]>| {
        SignedOctets::new(prf, &v.initial.pi, transcript, &v.nr, id, int_auth)
    };
    let both = Transcript::Full { own: &own, peer: &peer };
    let auth = psk_auth(prf, &psk, &signed(both, None));
    assert_eq!(auth.expose(), octets(&v.wanted["full_transcript_auth"]));
    let with = psk_auth(prf, &psk, &signed(both, Some(&int_auth)));
    assert_eq!(with.expose(), octets(&v.wanted["full_transcript_auth_with_int_auth"]));
    // Neither form passes for the other, nor for the other end's.
    for wrong in [
        Transcript::RealMessage(&own),
        Transcript::RealMessage(&peer),
        Transcript::Full { own: &peer, peer: &own },
        Transcript::Full { own: &own, peer: &own },
    ] {
        assert!(verify_psk(prf, &psk, &signed(wrong, None), auth.expose()).is_err());
    }
    assert!(verify_psk(prf, &psk, &signed(both, None), auth.expose()).is_ok());
}
