//! The authentication rounds of a connection, with the keys and certificates that they name.

use std::sync::Arc;

use ::pki::{
    Answerer, Certificate, CertificatePolicy, Credential, ExtendedKeyUsagePolicy, PeerPolicy,
    RawKey, RevocationPolicy,
};
use aws_lc_rs::digest::{SHA256, digest};
use ike_config::{
    EapId, EapRound, NamedFile, NamedFiles, OcspOptions, Place, Report, Revocation, Way,
};
use ike_proto::config::{
    AuthConfig, CertRequest, ConnectionConfig, IdMatch, LocalAuth, RemoteAuth, SchemeConstraints,
};
use ike_proto::crypto::SigningKey;
use ike_proto::wire::registry::CertEncoding;

use super::credentials::{CA, Credentials, X509, X509CA, loose as loose_text};

/// The authentication rounds of a connection.
#[derive(Debug)]
pub(super) struct Rounds {
    pub(super) local: Vec<LocalRound>,
    pub(super) remote: Vec<RemoteRound>,
}

/// A round of this end, and what it shows and signs with.
#[derive(Debug)]
pub(super) struct LocalRound {
    pub(super) auth: LocalAuth,
    /// In order of preference; none unless `auth` is a public key, or EAP that may need one.
    pub(super) credentials: Vec<Credential>,
    /// What it is if it is by EAP.
    pub(super) eap: Option<EapRound>,
}

/// A round of the peer, and what its certificate is judged by.
#[derive(Debug)]
pub(super) struct RemoteRound {
    pub(super) auth: RemoteAuth,
    /// `groups`.
    pub(super) groups: Vec<String>,
    pub(super) policy: PeerPolicy,
    /// What it is if it is by EAP.
    pub(super) eap: Option<EapRound>,
}

impl Rounds {
    /// Loads what the rounds name.
    pub(super) fn load(
        local: Vec<ike_config::LocalRound>,
        remote: Vec<ike_config::RemoteRound>,
        store: &Credentials,
        report: &mut Report,
    ) -> Self {
        let local = local.into_iter().map(|round| local_round(round, store, report)).collect();
        let remote = remote.into_iter().map(|round| remote_round(round, store, report)).collect();
        Self { local, remote }
    }

    /// The private keys of this end's rounds.
    pub(super) fn keys(&self) -> impl Iterator<Item = &Arc<dyn SigningKey>> {
        let credentials = self.local.iter().flat_map(|round| &round.credentials);
        credentials.map(|credential| credential.key())
    }

    /// Hands credentials and policies to `answerer`, and takes from it what to ask the peer for.
    pub(super) fn tell(
        self,
        answerer: &mut Answerer,
        connection: &mut ConnectionConfig,
        send_certreq: bool,
        ocsp: OcspOptions,
    ) {
        let name = connection.name.clone();
        for LocalRound { auth, credentials, .. } in self.local {
            for credential in credentials {
                answerer.add_credential(&name, &auth.name, credential);
            }
        }
        // An end that asks is taken to be asked.
        if ocsp.replies {
            answerer.reply_by_ocsp(&name, ocsp.requests);
        }
        for RemoteRound { auth, mut policy, .. } in self.remote {
            let by_key = matches!(auth.auth, AuthConfig::Pubkey(_));
            if by_key {
                (policy.ocsp, policy.ocsp_max_age) = (ocsp.requests, ocsp.max_age);
            }
            answerer.set_policy(&name, &auth.name, policy);
            if let Some(round) = connection.remote.iter_mut().find(|round| round.name == auth.name)
                && by_key
            {
                round.certreqs = answerer.certreqs(&name, &auth.name);
                // As in strongSwan, `ocsp` asks by itself.
                let wanted = |one: &CertRequest| send_certreq || one.encoding == CertEncoding::OCSP;
                round.certreqs.retain(wanted);
            }
        }
    }
}

fn local_round(
    settings: ike_config::LocalRound,
    store: &Credentials,
    report: &mut Report,
) -> LocalRound {
    let ike_config::LocalRound { auth, is_auth_known, is_id_known, eap, files, .. } = settings;
    let (path, place) = (settings.path, settings.place);
    let named = Named::load(files, store, report);
    let mut round = LocalRound { auth, credentials: Vec::new(), eap };
    let by_key = match &round.auth.auth {
        AuthConfig::Pubkey(_) => true,
        // Its key is for TLS. Without a name there may be none, and then the identity is as it stands.
        AuthConfig::Eap => {
            !named.is_empty() || round.eap.as_ref().is_some_and(EapRound::needs_certificate)
        }
        AuthConfig::Psk | AuthConfig::Null => false,
    };
    if by_key && is_auth_known && is_id_known && !named.wrong {
        choose_credentials(&mut round, &named, &path, place, store, report);
    }
    if let Some(place) = settings.cert_bundle {
        bundle(&mut round, &path, place, store, report);
    }
    round
}

/// Has peers fetch the certificates of `round` as bundles: `cert_bundle`.
fn bundle(
    round: &mut LocalRound,
    path: &str,
    place: Place,
    store: &Credentials,
    report: &mut Report,
) {
    let credentials = std::mem::take(&mut round.credentials);
    match credentials.into_iter().map(Credential::with_bundle).collect() {
        Ok(bundled) => {
            round.credentials = bundled;
            let told = |one: &Credential| one.announces_bundle(&store.trust);
            if !round.credentials.iter().any(told) {
                let why = "no `cert_uri_base` in [authorities] says where peers find it";
                report.warn(Some(place), format!("`{path}.cert_bundle` changes nothing: {why}"));
            }
        }
        Err(why) => {
            report.add(place, format!("`{path}.cert_bundle`: {why}"));
        }
    }
}

/// What this end signs with: the certificates and public keys that are named, or else all certificates
/// that have the identity.
fn choose_credentials(
    round: &mut LocalRound,
    named: &Named,
    path: &str,
    place: Place,
    store: &Credentials,
    report: &mut Report,
) {
    let before = round.credentials.len();
    for file in &named.certs {
        let Some(first) = file.chain.first() else { continue };
        let others = file.chain.get(1..).unwrap_or_default();
        match store.credential(first, others) {
            Some(credential) => round.credentials.push(credential),
            None => no_key(&file.file, report),
        }
    }
    for key in &named.pubkeys {
        match store.raw_credential(&key.spki) {
            Some(credential) => round.credentials.push(credential),
            None => no_key(&key.file, report),
        }
    }
    // A key may come later where sections are loaded one by one: the identity is known already.
    if round.credentials.len() == before && round.auth.id.is_none() {
        let first = named.certs.iter().find_map(|file| file.chain.first());
        round.auth.id = first.and_then(|first| first.identities().into_iter().next());
    }
    let something_named = !(named.certs.is_empty() && named.pubkeys.is_empty());
    if something_named && round.credentials.len() == before {
        // A client has unloaded the key. A certificate that was renewed has another one.
        let id = round.auth.id.clone();
        let mut others = store.all();
        let fits =
            |one: &Credential| one.identity(id.as_ref()).is_ok() && may_sign(&round.auth, one);
        others.retain(|credential| id.is_some() && fits(credential));
        if others.is_empty() || !report.may_lack(place) {
            return;
        }
        let message = "names a certificate or public key without a private key; another certificate with the same identity is used";
        report.warn(None, format!("`{path}` {message}"));
        round.credentials = others;
    }
    if !something_named {
        let Some(id) = &round.auth.id else {
            let message = format!("`{path}` does not say which certificate is this end's");
            let expected = "`certs`, `pubkeys`, or an `id` that a certificate in x509/ has";
            report.expected(place, message, expected);
            return;
        };
        round.credentials = store.all();
        round.credentials.retain(|credential| credential.identity(Some(id)).is_ok());
        if report.may_lack(place) {
            // The key of the right type may come later, as above.
            let auth = &round.auth;
            round.credentials.retain(|credential| may_sign(auth, credential));
        }
        if round.credentials.is_empty() {
            let message = format!("`{path}.id`: no certificate with a private key has it");
            let expected = "`certs`, or the certificate in x509/ and its key in private/";
            report.lack(place, message, expected);
            return;
        }
    }
    identity(round, path, place, report);
    constraints(round, path, place, report);
}

/// The identity to send is that of the certificate, bit by bit.
fn identity(round: &mut LocalRound, path: &str, place: Place, report: &mut Report) {
    let mut chosen = None;
    for credential in &round.credentials {
        match credential.identity(round.auth.id.as_ref()) {
            Ok(id) => chosen = chosen.or(Some(id)),
            Err(_) if credential.certificate().is_none() => {
                let message = format!("`{path}.id` is missing, and a raw public key has none");
                report.expected(place, message, IDENTITY);
                return;
            }
            Err(_) => {
                let names: Vec<String> = credential
                    .certificate()
                    .iter()
                    .flat_map(|certificate| certificate.identities())
                    .map(|name| format!("{:?}", name.to_string()))
                    .collect();
                let message = format!("`{path}.id` is not in the certificate");
                report.expected(place, message, names.join(" or "));
                return;
            }
        }
    }
    let missing = |credential: &&Credential| {
        chosen.as_ref().is_some_and(|id| credential.identity(Some(id)).is_err())
    };
    for credential in round.credentials.iter().filter(missing) {
        let certificate = credential.certificate();
        let subject = certificate.map(|certificate| certificate.subject_text()).unwrap_or_default();
        let message = format!(
            "`{path}`: certificate {subject:?} is never used: it does not have the identity of the first"
        );
        report.warn(Some(place), message);
    }
    round.auth.id = chosen;
}

fn constraints(round: &LocalRound, path: &str, place: Place, report: &mut Report) {
    if !round.credentials.iter().any(|credential| may_sign(&round.auth, credential)) {
        let message = format!("`{path}.auth`: the private key makes no such signatures");
        let keys =
            round.credentials.iter().flat_map(|credential| credential.key().schemes().first());
        let keys: Vec<String> = keys.map(ToString::to_string).collect();
        report.expected(place, message, format!("what it makes: {}", keys.join(", ")));
    }
}

/// True if the key makes signatures that `auth` allows. For EAP each does.
fn may_sign(auth: &LocalAuth, credential: &Credential) -> bool {
    match &auth.auth {
        AuthConfig::Pubkey(wanted) => wanted.ike.allows_key(credential.key().public_key()),
        AuthConfig::Eap | AuthConfig::Psk | AuthConfig::Null => true,
    }
}

fn no_key(file: &NamedFile, report: &mut Report) {
    let message = format!("`{}`, {:?}: there is no private key for it", file.option, file.name);
    report.lack(file.place, message, "its key in private/, rsa/, ecdsa/, pkcs8/ or pkcs12/");
}

/// What `id` takes, for messages.
const IDENTITY: &str = ike_config::IDENTITY;

fn remote_round(
    settings: ike_config::RemoteRound,
    store: &Credentials,
    report: &mut Report,
) -> RemoteRound {
    let named = Named::load(settings.files, store, report);
    let policy = PeerPolicy {
        revocation: match settings.revocation {
            Revocation::Relaxed => RevocationPolicy::Relaxed,
            Revocation::IfUri => RevocationPolicy::IfUri,
            Revocation::Strict => RevocationPolicy::Strict,
        },
        extended_key_usage: match settings.ike_usage {
            true => ExtendedKeyUsagePolicy::Ike,
            false => ExtendedKeyUsagePolicy::default(),
        },
        // The engine sends it with each question. What is judged later, such as lists about live SAs, has the policy alone.
        chain: match &settings.auth.auth {
            AuthConfig::Pubkey(pubkey) => pubkey.chain.clone(),
            AuthConfig::Eap | AuthConfig::Psk | AuthConfig::Null => SchemeConstraints::default(),
        },
        ..PeerPolicy::default()
    };
    let ike_config::RemoteRound { auth, eap, groups, .. } = settings;
    let mut round = RemoteRound { auth, groups, policy, eap };
    if settings.judges {
        trusted(&mut round, named, &settings.path, settings.place, store, report);
    }
    round.policy.ca_id = settings.ca_id;
    for oid in &settings.cert_policies {
        // The reader takes the same object identifiers. A requirement that got lost would let peers in.
        match CertificatePolicy::parse(oid) {
            Some(policy) => round.policy.cert_policies.push(policy),
            None => {
                let message = format!("`{}.cert_policy` cannot be {oid:?}", settings.path);
                report.add(settings.place, message);
            }
        }
    }
    round.auth.eap = round.eap.as_ref().map(|eap| terms(eap, &round.groups)).unwrap_or_default();
    round
}

/// What the peer's key or certificate must be or come from.
fn trusted(
    round: &mut RemoteRound,
    named: Named,
    path: &str,
    place: Place,
    store: &Credentials,
    report: &mut Report,
) {
    let firsts = |files: &[NamedChain]| -> Vec<Arc<Certificate>> {
        files.iter().filter_map(|file| file.chain.first().cloned()).collect()
    };
    for file in &named.cacerts {
        for ca in &file.chain {
            if let Err(why) = ca.check_ca() {
                let NamedFile { option, name, place } = &file.file;
                let message = format!("`{option}`, {name:?}: {:?}: {why}", ca.subject_text());
                report.expected(*place, message, CA);
            }
        }
    }
    round.policy.cacerts = firsts(&named.cacerts);
    for file in &named.cacerts {
        let loose = store.trust.loose(&round.policy.cacerts);
        let ca = file.chain.first().filter(|ca| loose.contains(ca));
        if let Some(ca) = ca {
            let NamedFile { option, name, place } = &file.file;
            report.warn(Some(*place), format!("`{option}`, {name:?}: {}", loose_text(ca)));
        }
    }
    round.policy.certs = firsts(&named.certs);
    for file in &named.certs {
        // Each login by it would be refused.
        if let Some(Err(why)) = file.chain.first().map(|certificate| certificate.check_peer()) {
            let NamedFile { option, name, place } = &file.file;
            let expected = "the certificate of a peer, or the peer's key in `pubkeys`";
            report.expected(*place, format!("`{option}`, {name:?}: {why}"), expected);
        }
    }
    for key in named.pubkeys {
        // The reader has reported it if it is a pattern.
        let IdMatch::Exact(id) = &round.auth.id else { break };
        round.policy.pubkeys.push(RawKey { id: id.clone(), spki: key.spki });
        round.policy.key_certificates.extend(key.certificate);
    }
    let nobody = store.trust.cas().is_empty()
        && round.policy.cacerts.is_empty()
        && round.policy.certs.is_empty()
        && round.policy.pubkeys.is_empty();
    if nobody && !named.wrong {
        let message = format!(
            "`{path}`: no certificate is trusted: no CA in x509ca/, no `cacerts`, `certs` or `pubkeys`"
        );
        report.warn(Some(place), message);
    }
}

/// The files that a round names, loaded.
#[derive(Debug, Default)]
struct Named {
    certs: Vec<NamedChain>,
    cacerts: Vec<NamedChain>,
    pubkeys: Vec<NamedKey>,
    /// True if one could not be loaded; that is reported.
    wrong: bool,
}

/// A file with certificates.
#[derive(Debug)]
struct NamedChain {
    chain: Vec<Arc<Certificate>>,
    file: NamedFile,
}

/// A file with a public key.
#[derive(Debug)]
struct NamedKey {
    spki: Vec<u8>,
    /// If the file has the key in a certificate.
    certificate: Option<Arc<Certificate>>,
    file: NamedFile,
}

impl Named {
    fn load(files: NamedFiles, store: &Credentials, report: &mut Report) -> Self {
        let NamedFiles { certs, cacerts, pubkeys, is_wrong } = files;
        let mut this = Self { wrong: is_wrong, ..Self::default() };
        this.certs = this.chains(certs, X509, store, report);
        this.cacerts = this.chains(cacerts, X509CA, store, report);
        for file in pubkeys {
            match store.public_key_named(&file, report) {
                Some((spki, certificate)) => {
                    this.pubkeys.push(NamedKey { spki, certificate, file });
                }
                None => this.wrong = true,
            }
        }
        this
    }

    fn chains(
        &mut self,
        files: Vec<NamedFile>,
        folder: &'static str,
        store: &Credentials,
        report: &mut Report,
    ) -> Vec<NamedChain> {
        let mut chains = Vec::new();
        for file in files {
            match store.certificates_named(&file, folder, report) {
                Some(chain) => chains.push(NamedChain { chain, file }),
                None => self.wrong = true,
            }
        }
        chains
    }

    /// True if no file is named.
    fn is_empty(&self) -> bool {
        self.certs.is_empty() && self.pubkeys.is_empty()
    }
}

/// How it is to be done and whom it must show, as the engine compares it ([`RemoteAuth::eap`]).
fn terms(eap: &EapRound, groups: &[String]) -> String {
    let way = match eap.way {
        Way::Any => "any".to_owned(),
        Way::One(method) => method.to_string(),
        Way::Dynamic => "dynamic".to_owned(),
        Way::Radius => "radius".to_owned(),
    };
    let mut terms = match &eap.eap_id {
        Some(EapId::Exact(id)) => format!("{way} {id}"),
        Some(EapId::Any) | None => way,
    };
    if !groups.is_empty() {
        // Who left a group, or is in none of those that there are now, is not let in by a ticket. There may be
        // many: a digest, the same at all gateways that take the ticket.
        let mut names: Vec<_> = groups.iter().map(|name| name.to_ascii_lowercase()).collect();
        names.sort();
        names.dedup();
        let digest = digest(&SHA256, names.join("\0").as_bytes());
        terms.push_str(" of ");
        terms.extend(digest.as_ref().iter().map(|octet| format!("{octet:02x}")));
    }
    terms
}

#[cfg(test)]
mod tests {
    use ike_config::EapMethod;

    use super::*;

    #[test]
    fn each_way_of_doing_eap_has_words_of_its_own() {
        let of = |way, eap_id, groups: &[&str]| {
            let groups: Vec<_> = groups.iter().map(ToString::to_string).collect();
            terms(&EapRound { way, eap_id, aaa_id: None, place: Place::default() }, &groups)
        };
        let terms = |way, eap_id| of(way, eap_id, &[]);
        let carol = || Some(EapId::Exact("carol".to_owned()));
        let all = [
            terms(Way::One(EapMethod::Mschapv2), None),
            terms(Way::One(EapMethod::Mschapv2), carol()),
            terms(Way::One(EapMethod::Tls), None),
            terms(Way::Radius, None),
            terms(Way::Dynamic, None),
            of(Way::Radius, None, &["sales"]),
            of(Way::Radius, None, &["research"]),
            of(Way::Radius, None, &["sales", "research"]),
        ];
        for (n, one) in all.iter().enumerate() {
            assert!(!one.is_empty() && !all[..n].contains(one), "{one}");
        }
        assert_eq!(terms(Way::Radius, Some(EapId::Any)), terms(Way::Radius, None));
        let (one, same) = (["Research", "sales"], ["sales", "research", "sales"]);
        assert_eq!(of(Way::Radius, None, &one), of(Way::Radius, None, &same));
    }
}
