//! What a post-quantum preshared key does to the keys of an IKE SA, and what AUTH covers with downgrade
//! prevention: the formulas of RFC 8784, RFC 9867 and draft-ietf-ipsecme-ikev2-downgrade-prevention,
//! computed a second time by other code.

use crate::vectors::{key_lengths, octets, prf, secret, spi};
use ike_proto::crypto::Secret;
use ike_proto::keys::{
    AuthKeys, ChildKeys, IkeKeys, Nonces, OldKeys, Seed, SignedOctets, Spis, Transcript,
    mixed_in_create_child, ppk_confirmation, psk_auth, verify_psk,
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
        let (nonces, both) = (Nonces { i: &ni, r: &nr }, Spis::new(spis.0, spis.1));
        let seed = Seed::new(nonces, both);
        let initial = IkeKeys::initial(prf, &[&sk0], &seed, &lengths);
        let ppk = secret(&wanted["ppk"]);
        Self { inputs, wanted, ppk, ni, nr, spis, initial }
    }

    fn nonces(&self) -> Nonces<'_> {
        Nonces { i: &self.ni, r: &self.nr }
    }

    fn seed(&self) -> Seed<'_> {
        Seed::new(self.nonces(), Spis::new(self.spis.0, self.spis.1))
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
fn rfc_8784_section_3_the_keys_of_ike_auth() {
    let v = Vectors::read();
    let prf = prf(PrfId::HMAC_SHA2_384);
    let IkeKeys { d, pi, pr, .. } = &v.initial;
    let mixed = AuthKeys::mixed(prf, &v.ppk, [d, pi, pr]);
    for (key, part) in [(&mixed.d, "d"), (&mixed.pi, "pi"), (&mixed.pr, "pr")] {
        assert_eq!(key.expose(), octets(&v.wanted["auth"][part]), "SK_{part}");
    }
}

#[test]
fn rfc_9867_section_3_1_1_all_keys_after_an_intermediate() {
    let v = Vectors::read();
    let prf = prf(PrfId::HMAC_SHA2_384);
    let lengths = key_lengths(36, 0);
    let seed = v.seed();
    let mixed = IkeKeys::mixed_in_intermediate(prf, &v.initial.d, &v.ppk, &seed, &lengths);
    v.expect_all(&mixed, "intermediate");
    // With a key exchange in the same IKE_INTERMEDIATE the PPK comes last.
    let sk1 = secret(&v.inputs["sk1"]);
    let next = IkeKeys::next(prf, &v.initial.d, &sk1, &seed, &lengths);
    let mixed = IkeKeys::mixed_in_intermediate(prf, &next.d, &v.ppk, &seed, &lengths);
    v.expect_all(&mixed, "intermediate_after_ke");
}

#[test]
fn rfc_9867_section_3_2_1_children_and_rekeyed_ike_sas() {
    let v = Vectors::read();
    let prf = prf(PrfId::HMAC_SHA2_384);
    let sk_d = mixed_in_create_child(prf, &v.initial.d, &v.ppk);
    assert_eq!(sk_d.expose(), octets(&v.wanted["create_child_sk_d"]));
    let child = ChildKeys::derive(prf, &sk_d, &[], v.nonces(), &key_lengths(36, 0));
    let keymat = [child.initiator.encr.expose(), child.responder.encr.expose()].concat();
    assert_eq!(keymat, octets(&v.wanted["child_without_ke"]));
    let shared = ["sk0", "sk1", "sk2"].map(|name| secret(&v.inputs[name]));
    let shared: Vec<&Secret> = shared.iter().collect();
    let lengths = key_lengths(36, 0);
    let old = OldKeys::new(prf, &sk_d);
    let keys = IkeKeys::rekeyed(old, &shared, &v.seed(), prf, &lengths);
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
