//! Tickets of earlier formats.

use super::*;
use crate::crypto::SignatureScheme;
use crate::wire::payload::{Proposal, Spi, Transform};
use crate::wire::registry::{KeMethodId, ProtocolId};

/// A ticket of an SA in which both ends have signed by `scheme`.
fn ticket(scheme: &SignatureScheme) -> TicketState {
    let used = |name: &[u8]| UsedAuth {
        id: IdData { kind: IdType::FQDN, data: name.to_vec() },
        method: AuthMethod::DIGITAL_SIGNATURE,
        scheme: Some(scheme.clone()),
        certificate: None,
        eap: None,
        addresses: None,
    };
    let transforms = vec![Transform::ke(KeMethodId::CURVE_25519)];
    let proposal = Proposal { number: 1, protocol: ProtocolId::IKE, spi: Spi::None, transforms };
    let former = Former {
        spis: (1, 2),
        proposal,
        sk_d: Secret::copy_from(&[5; 32]),
        local: vec![used(b"a.example")],
        remote: vec![used(b"b.example")],
        ppk: None,
        full_transcript: true,
    };
    TicketState {
        connection: "ab".to_owned(),
        expires: 1000,
        reauth_by: None,
        ends_by: None,
        secrets: [3; DIGEST_LEN],
        eap: String::new(),
        former,
    }
}

/// The content of `ticket` in the format before schemes were open: a scheme is one octet, its place in the list of all.
fn by_place(ticket: &TicketState, scheme: &SignatureScheme) -> Vec<u8> {
    let mut content = ticket.encode().unwrap().to_vec();
    let place = SignatureScheme::BUILT_IN.iter().position(|one| one == scheme).unwrap();
    let identifier = scheme.algorithm_identifier();
    let named = [&[1, identifier.len() as u8], identifier].concat();
    for _ in 0..2 {
        let at = content.windows(named.len()).position(|part| part == named).unwrap();
        content.splice(at..at + named.len(), [1, place as u8]);
    }
    content
}

/// `content`, sealed under the number of a format.
fn sealed(crypto: &CryptoProvider, key: &TicketKey, version: u8, content: &[u8]) -> Vec<u8> {
    let salt = [9; SALT_LEN];
    let mut octets = [&[version][..], &key.id, &salt].concat();
    let (mut content, mut icv) = (content.to_vec(), [0; ICV_LEN]);
    let frame = Frame { iv: &[0; 8], aad: &octets, trailer: &[] };
    cipher(crypto, key, &salt).unwrap().seal(frame, &mut content, &mut icv).unwrap();
    octets.extend(content);
    octets.extend(icv);
    octets
}

/// Faults: in `unseal`, refuse only numbers above `VERSION`; in `Reader::used`, read one octet as a place in the list.
#[test]
fn tickets_of_the_format_with_places_are_refused_and_never_of_another_scheme() {
    let crypto = pq_kem::provider();
    let secret = Secret::copy_from(&[8; TicketKey::SECRET_LEN]);
    let key = Arc::new(TicketKey { id: [4; TicketKey::ID_LEN], secret });
    let config = ResumptionConfig { keys: vec![Arc::clone(&key)], ..ResumptionConfig::default() };
    let open = |octets: &[u8]| TicketState::open(&config, &crypto, octets, 10);
    for scheme in SignatureScheme::BUILT_IN {
        let ticket = ticket(scheme);
        let present = sealed(&crypto, &key, VERSION, &ticket.encode().unwrap());
        let read = open(&present).unwrap();
        let schemes = [&read.former.local, &read.former.remote].map(|all| all[0].scheme.clone());
        assert_eq!(schemes, [Some(scheme.clone()), Some(scheme.clone())]);
        // Formats 1 to 4 had places. 5 and 6 have identifiers.
        let former = by_place(&ticket, scheme);
        for version in 0..=VERSION {
            let octets = sealed(&crypto, &key, version, &former);
            assert_eq!(unseal(&config, &crypto, &octets).is_some(), version == VERSION);
            // The content alone is no present one either.
            let opened = open(&octets);
            assert_eq!(opened.unwrap_err(), Unusable::Foreign, "{scheme} {version}");
        }
    }
}
