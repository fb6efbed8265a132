//! The CAs of `[authorities]`.

use std::collections::BTreeMap;

use ::pki::{Authority, Certificate};
use ike_config::Report;

use super::credentials::{CA, Credentials, X509CA};

/// Loads all authorities into `store`. Their CAs are trusted if they are self-signed, or named as trust anchors.
pub(super) fn load(
    all: Vec<ike_config::Authority>,
    store: &mut Credentials,
    report: &mut Report,
) -> BTreeMap<String, Authority> {
    let mut found = BTreeMap::new();
    for ike_config::Authority { name, cacert, crl_uris, ocsp_uris, cert_uri_base, trust_anchor } in
        all
    {
        let named = store.certificates_named(&cacert, X509CA, report);
        let Some(ca) = named.and_then(|chain| chain.into_iter().next()) else { continue };
        let taken = Certificate::clone(&ca);
        let authority = Authority { ca, crl_uris, ocsp_uris, cert_uri_base };
        let added = match trust_anchor {
            true => store.trust.add_ca(taken),
            false => store.add_ca(taken),
        };
        // The reader takes the same URLs.
        let added = added.and(store.trust.revocation.add_authority(authority.clone()));
        if let Err(why) = added {
            let message = format!("`{}`, {:?}: {why}", cacert.option, cacert.name);
            report.expected(cacert.place, message, CA);
        }
        found.insert(name, authority);
    }
    found
}
