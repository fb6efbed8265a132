//! AUTH payloads of a pre-shared key (RFC 7296 §2.15).

use crate::vectors::{octets, prf, secret};
use ike_proto::crypto::Secret;
use ike_proto::keys::{AuthFailure, SignedOctets, Transcript, psk_auth, verify_psk};
use ike_proto::wire::payload::Id;
use ike_proto::wire::registry::{IdType, PrfId};
use serde_json::Value;

const FORMULAS: &str = include_str!("../data/keys/formulas.json");

/// Everything an AUTH of the initiator depends on.
struct Parts {
    psk: Secret,
    sk_p: Secret,
    message: Vec<u8>,
    peer_nonce: Vec<u8>,
    id_type: IdType,
    id_reserved: [u8; 3],
    id_data: Vec<u8>,
    int_auth: Option<Vec<u8>>,
}

type Change = fn(&mut Parts);

impl Parts {
    fn of_vector(v: &Value) -> Self {
        Self {
            psk: secret(&v["psk"]),
            sk_p: secret(&v["initial"]["pi"]),
            message: octets(&v["message"]),
            peer_nonce: octets(&v["nr"]),
            id_type: IdType(u8::try_from(v["id_type"].as_u64().unwrap()).unwrap()),
            id_reserved: [0; 3],
            id_data: octets(&v["id_data"]),
            int_auth: None,
        }
    }

    fn signed(&self) -> SignedOctets {
        SignedOctets::new(
            prf(PrfId::HMAC_SHA2_384),
            &self.sk_p,
            Transcript::RealMessage(&self.message),
            &self.peer_nonce,
            Id { kind: self.id_type, reserved: self.id_reserved, data: &self.id_data },
            self.int_auth.as_deref(),
        )
    }

    fn auth(&self) -> Secret {
        psk_auth(prf(PrfId::HMAC_SHA2_384), &self.psk, &self.signed())
    }

    fn accepts(&self, auth: &[u8]) -> bool {
        verify_psk(prf(PrfId::HMAC_SHA2_384), &self.psk, &self.signed(), auth).is_ok()
    }
}

#[test]
fn auth_is_what_the_formula_says() {
    let v: Value = serde_json::from_str(FORMULAS).unwrap();
    let mut parts = Parts::of_vector(&v);
    assert_eq!(parts.auth().expose(), octets(&v["auth"]));
    assert!(parts.accepts(&octets(&v["auth"])));
    assert!(!parts.accepts(&octets(&v["auth_with_int_auth"])));
    parts.int_auth = Some(octets(&v["int_auth"]));
    assert_eq!(parts.auth().expose(), octets(&v["auth_with_int_auth"]));
    assert!(parts.accepts(&octets(&v["auth_with_int_auth"])));
}

#[test]
fn every_part_counts() {
    let v: Value = serde_json::from_str(FORMULAS).unwrap();
    let auth = octets(&v["auth"]);
    let changes: [(&str, Change); 8] = [
        ("psk", |p| p.psk = Secret::new(b"another".to_vec())),
        ("SK_p", |p| p.sk_p = Secret::new(vec![0; 48])),
        ("message", |p| p.message.push(0)),
        ("nonce", |p| p.peer_nonce[0] ^= 1),
        ("ID type", |p| p.id_type = IdType::KEY_ID),
        // RFC 7296 §2.15: RestOfInitIDPayload = IDType | RESERVED | InitIDData
        ("RESERVED of ID", |p| p.id_reserved[1] = 1),
        ("ID data", |p| p.id_data[0] ^= 1),
        ("IntAuth", |p| p.int_auth = Some(vec![0])),
    ];
    for (name, change) in changes {
        let mut parts = Parts::of_vector(&v);
        change(&mut parts);
        assert!(!parts.accepts(&auth), "{name}");
    }
}

#[test]
fn every_bit_and_the_length_of_auth_count() {
    let v: Value = serde_json::from_str(FORMULAS).unwrap();
    let parts = Parts::of_vector(&v);
    let auth = octets(&v["auth"]);
    for bit in 0..auth.len() * 8 {
        let mut forged = auth.clone();
        forged[bit / 8] ^= 1 << (bit % 8);
        assert!(!parts.accepts(&forged), "bit {bit}");
    }
    for len in 0..auth.len() {
        assert!(!parts.accepts(&auth[..len]), "{len} octets");
    }
    assert!(!parts.accepts(&[&auth[..], &[0]].concat()));
    let octets = parts.signed();
    let refused = verify_psk(prf(PrfId::HMAC_SHA2_384), &parts.psk, &octets, &[]);
    assert_eq!(refused, Err(AuthFailure));
    assert_eq!(format!("{octets:?}"), format!("SignedOctets({} octets)", octets.as_bytes().len()));
}
