//! Detects changes of a connection's credentials. The part that the engine cannot see becomes one number
//! (`ConnectionConfig::credentials`).

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::OnceLock;

use ike_proto::config::AuthConfig;

use super::Credentials;
use crate::config::rounds::Rounds;
use ike_aaa::EapSecrets;

/// Of the private keys and certificates of `rounds`, the CAs if the peer has to show a certificate, and EAP's
/// settings and passwords if a round is by EAP. It says nothing outside this run, nor of what it was made of:
/// the key of the hash is drawn when the daemon starts.
pub(crate) fn fingerprint(rounds: &Rounds, store: &Credentials, secrets: &EapSecrets) -> u64 {
    static KEY: OnceLock<RandomState> = OnceLock::new();
    let mut hasher = KEY.get_or_init(RandomState::new).build_hasher();
    for round in &rounds.local {
        for credential in &round.credentials {
            credential.key().public_key().hash(&mut hasher);
            for certificate in credential.chain() {
                certificate.der().hash(&mut hasher);
            }
        }
    }
    let ways = rounds.local.iter().map(|round| &round.eap);
    let ways = ways.chain(rounds.remote.iter().map(|round| &round.eap)).flatten();
    let mut by_eap = false;
    for eap in ways {
        // Where it stands in the file does not matter.
        (eap.way, &eap.eap_id, &eap.aaa_id).hash(&mut hasher);
        by_eap = true;
    }
    for secret in secrets.0.iter().filter(|_| by_eap) {
        secret.ids.hash(&mut hasher);
        secret.password.hash(&mut hasher);
    }
    let shows = |auth: &AuthConfig| matches!(auth, AuthConfig::Pubkey(_));
    if by_eap || rounds.remote.iter().any(|round| shows(&round.auth.auth)) {
        let mut cas: Vec<_> = store.trust.cas().iter().map(|ca| ca.der()).collect();
        cas.sort_unstable();
        cas.hash(&mut hasher);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    /// What stands for a client's credentials, of a connection with this local round and these passwords.
    fn of(local: &str, secret: &str, more: &str) -> u64 {
        let text = format!(
            "[connections.c]\nsession_resumption = true\n{more}\n\
             local = {{ {local} }}\nremote = {{ auth = 'pubkey', id = 'b' }}\nchildren.net = {{}}\n\
             [secrets.ike]\nsecret = 'x'\n[secrets.eap-a]\nid = 'carol'\nsecret = '{secret}'\n"
        );
        let config = crate::config::parse(&text, &std::env::temp_dir());
        config.unwrap_or_else(|wrong| panic!("{wrong:?}")).endpoint.connections[0].credentials
    }

    #[test]
    fn what_a_client_has_to_authenticate_by_it_does_not_resume_without() {
        let eap = "auth = 'eap-mschapv2', eap_id = 'carol'";
        let then = of(eap, "open sesame", "");
        assert_eq!(then, of(eap, "open sesame", "dpd_delay = '1m'"), "nothing has changed");
        assert_ne!(then, of(eap, "another one", ""));
        assert_ne!(then, of("auth = 'eap-mschapv2', eap_id = 'dave'", "open sesame", ""));
        assert_ne!(then, of("auth = 'eap-md5', eap_id = 'carol'", "open sesame", ""));
        // Passwords of others are none of its business.
        let psk = "auth = 'psk', id = 'a'";
        assert_eq!(of(psk, "open sesame", ""), of(psk, "another one", ""));
    }
}
