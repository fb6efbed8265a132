//! Ed448, which no crate of the engine knows: `tests/schemes`.

use ike_proto::crypto::SchemeRegister;
use ike_proto::wire::registry::{HashId, NotifyType};
use ike_test_schemes::ed448;
use ike_tests::Setup;

use super::comes_up;
use super::outside::{announcement, both_with, key_of, used};

/// Both ends have a raw key of Ed448, and want `auth`.
fn both(auth: &str) -> Setup {
    let mut register = SchemeRegister::built_in();
    register.add(ed448()).unwrap();
    both_with([auth, auth], [&register; 2], [key_of(&register), key_of(&register)])
}

/// Faults: another hash in `Ed448::hash`; in `SchemeRegister::from_algorithm_identifier`, look among the built-in schemes
/// alone.
#[test]
fn raw_keys_of_ed448_authenticate_both_ends_by_the_identity_hash() {
    for auth in ["ed448", "ed25519-ed448", "pubkey-ed448"] {
        let pair = comes_up(both(auth));
        assert_eq!(used(&pair), ["ed448", "ed448"], "{auth}");
        for index in [0, 1] {
            let hashes = announcement(&pair, index, NotifyType::SIGNATURE_HASH_ALGORITHMS).unwrap();
            assert!(hashes.as_chunks().0.contains(&HashId::IDENTITY.0.to_be_bytes()), "{auth}");
        }
    }
}
