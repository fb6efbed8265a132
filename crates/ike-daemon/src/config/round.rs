//! The authentication rounds of a connection: its `local<suffix>` and `remote<suffix>` sections.

use std::sync::Arc;

use ::eap::EapType;
use ::pki::{
    Certificate, Credential, ExtendedKeyUsagePolicy, PeerPolicy, RawKey, RevocationPolicy,
};
use aws_lc_rs::digest::{SHA256, digest};
use ike_proto::config::{AuthConfig, IdMatch, LocalAuth, RemoteAuth};

use super::credentials::{CA, Credentials, X509, X509CA, loose as loose_text};
use super::diagnostic::Report;
use super::eap;
use super::section::{Section, Text, Unsupported, join};
use super::values;
use crate::eap::{EapId, Way};

mod path;

/// Options of a `local` section that do nothing here yet.
const UNSUPPORTED_LOCAL: &[Unsupported] = &[("xauth_id", None)];

/// A round of this end, and what it shows and signs with.
#[derive(Debug)]
pub(crate) struct LocalRound {
    pub(crate) auth: LocalAuth,
    /// In order of preference; none unless `auth` is a public key, or EAP that may need one.
    pub(crate) credentials: Vec<Credential>,
    /// What it is if it is by EAP.
    pub(crate) eap: Option<EapRound>,
}

/// A round of the peer, and what its certificate is judged by.
#[derive(Debug)]
pub(crate) struct RemoteRound {
    pub(crate) auth: RemoteAuth,
    /// Where `groups` stands, and what it says.
    pub(crate) groups: (usize, Vec<String>),
    pub(crate) policy: PeerPolicy,
    /// What it is if it is by EAP.
    pub(crate) eap: Option<EapRound>,
}

/// Reads the rounds of this end, in order.
pub(crate) fn local(
    s: &mut Section<'_>,
    store: &Credentials,
    report: &mut Report<'_>,
) -> Vec<LocalRound> {
    rounds(s, "local", report, |name, section, report| local_round(name, section, store, report))
}

/// Reads the rounds of the peer, in order.
pub(crate) fn remote(
    s: &mut Section<'_>,
    store: &Credentials,
    report: &mut Report<'_>,
) -> Vec<RemoteRound> {
    rounds(s, "remote", report, |name, section, report| remote_round(name, section, store, report))
}

fn rounds<T>(
    s: &mut Section<'_>,
    side: &'static str,
    report: &mut Report<'_>,
    read: impl Fn(Text<'_>, Section<'_>, &mut Report<'_>) -> T,
) -> Vec<T> {
    let sections = s.rounds(side);
    if sections.is_empty() {
        s.missing(side, format!("a section [{}] with `auth`", join(&s.path, side)), report);
    }
    let mut found = Vec::new();
    for (name, value) in sections {
        let Some(mut section) = s.sub(name.get_ref(), value, report) else { continue };
        let round = section.number("round", 0, u32::MAX, report).unwrap_or(0);
        let name = Text { text: name.get_ref(), offset: name.span().start };
        found.push((round, read(name, section, report)));
    }
    found.sort_by_key(|(round, _)| *round);
    found.into_iter().map(|(_, round)| round).collect()
}

fn local_round(
    name: Text<'_>,
    mut s: Section<'_>,
    store: &Credentials,
    report: &mut Report<'_>,
) -> LocalRound {
    let (auth, eap) = auth(&mut s, true, report);
    let path = join(&s.path, "id");
    let text = s.text("id", values::IDENTITY, report);
    let id = text.and_then(|text| values::identity(text, &path, report));
    let named = Named::read(&mut s, store, false, report);
    let bundled = s.switch("cert_bundle", report).unwrap_or(false);
    let bundle_place = s.place("cert_bundle");
    let wrong = auth.is_none();
    let auth = LocalAuth::new(name.text, auth.unwrap_or_default());
    let mut round = LocalRound { auth, credentials: Vec::new(), eap };
    round.auth.id = id;
    let id_is_wrong = text.is_some() && round.auth.id.is_none();
    match &round.auth.auth {
        _ if wrong => {}
        AuthConfig::Pubkey(_) => {
            if !id_is_wrong && !named.wrong {
                let place = text.map_or(s.offset, |text| text.offset);
                choose_credentials(&mut round, &named, &s.path, place, store, report);
            }
        }
        // Its key is for TLS. Without a name there may be none, and then the identity is as it stands.
        AuthConfig::Eap if named.is_empty() && !needs_certificate(&round.eap) => {}
        AuthConfig::Eap => {
            if !id_is_wrong && !named.wrong {
                let place = text.map_or(s.offset, |text| text.offset);
                choose_credentials(&mut round, &named, &s.path, place, store, report);
            }
        }
        AuthConfig::Psk | AuthConfig::Null => named.refuse(&s.path, report),
    }
    if bundled {
        let credentials = std::mem::take(&mut round.credentials);
        match credentials.into_iter().map(Credential::with_bundle).collect() {
            Ok(bundled) => {
                round.credentials = bundled;
                let told = |one: &Credential| one.announces_bundle(&store.trust);
                if !round.credentials.iter().any(told) {
                    let option = join(&s.path, "cert_bundle");
                    let why = "no `cert_uri_base` in [authorities] says where peers find it";
                    report.warn(Some(bundle_place), format!("`{option}` changes nothing: {why}"));
                }
            }
            Err(why) => {
                report.add(bundle_place, format!("`{}`: {why}", join(&s.path, "cert_bundle")));
            }
        }
    }
    s.finish(UNSUPPORTED_LOCAL, report);
    round
}

/// What this end signs with: the certificates and public keys that are named, or else all certificates
/// that have the identity.
fn choose_credentials(
    round: &mut LocalRound,
    named: &Named,
    path: &str,
    place: usize,
    store: &Credentials,
    report: &mut Report<'_>,
) {
    let before = round.credentials.len();
    for file in &named.certs {
        let Some(first) = file.chain.first() else { continue };
        let others = file.chain.get(1..).unwrap_or_default();
        match store.credential(first, others) {
            Some(credential) => round.credentials.push(credential),
            None => no_key(file.offset, &file.option, &file.shown, report),
        }
    }
    for key in &named.pubkeys {
        match store.raw_credential(&key.spki) {
            Some(credential) => round.credentials.push(credential),
            None => no_key(key.offset, &key.option, &key.shown, report),
        }
    }
    // A key may come later where sections are loaded one by one: the identity is known already.
    if round.credentials.len() == before && round.auth.id.is_none() {
        let first = named.certs.iter().find_map(|file| file.chain.first());
        round.auth.id = first.and_then(|first| first.identities().into_iter().next());
    }
    let something_named = !(named.certs.is_empty() && named.pubkeys.is_empty());
    if something_named && round.credentials.len() == before {
        return;
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
fn identity(round: &mut LocalRound, path: &str, place: usize, report: &mut Report<'_>) {
    let mut chosen = None;
    for credential in &round.credentials {
        match credential.identity(round.auth.id.as_ref()) {
            Ok(id) => chosen = chosen.or(Some(id)),
            Err(_) if credential.certificate().is_none() => {
                let message = format!("`{path}.id` is missing, and a raw public key has none");
                report.expected(place, message, values::IDENTITY);
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

fn constraints(round: &LocalRound, path: &str, place: usize, report: &mut Report<'_>) {
    let AuthConfig::Pubkey(wanted) = &round.auth.auth else { return };
    let fits = |credential: &Credential| wanted.ike.allows_key(credential.key().public_key());
    if !round.credentials.iter().any(fits) {
        let message = format!("`{path}.auth`: the private key makes no such signatures");
        let keys =
            round.credentials.iter().flat_map(|credential| credential.key().schemes().first());
        let keys: Vec<String> = keys.map(ToString::to_string).collect();
        report.expected(place, message, format!("what it makes: {}", keys.join(", ")));
    }
}

fn no_key(offset: usize, option: &str, shown: &str, report: &mut Report<'_>) {
    let message = format!("`{option}`, {shown:?}: there is no private key for it");
    report.lack(offset, message, "its key in private/, rsa/, ecdsa/, pkcs8/ or pkcs12/");
}

fn remote_round(
    name: Text<'_>,
    mut s: Section<'_>,
    store: &Credentials,
    report: &mut Report<'_>,
) -> RemoteRound {
    let (auth, eap) = auth(&mut s, false, report);
    let path = join(&s.path, "id");
    let text = s.text("id", values::IDENTITY, report);
    let id = text.and_then(|text| values::id_match(text, &path, report));
    let named = Named::read(&mut s, store, true, report);
    let chain = path::read(&mut s, report);
    let words = [
        ("strict", RevocationPolicy::Strict),
        ("ifuri", RevocationPolicy::IfUri),
        ("relaxed", RevocationPolicy::Relaxed),
    ];
    let revocation = s.choice("revocation", &words, report);
    let ike_usage = s.switch("ike_usage", report).unwrap_or(false);
    let wrong = auth.is_none();
    let auth = RemoteAuth::new(name.text, auth.unwrap_or_default());
    let groups = s.list("groups", "names of groups", report).unwrap_or_default();
    let groups = groups.iter().map(|group| group.text.to_owned()).collect();
    let groups = (s.place("groups"), groups);
    let mut round = RemoteRound { auth, groups, policy: PeerPolicy::default(), eap };
    round.policy.revocation = revocation.unwrap_or_default();
    if ike_usage {
        round.policy.extended_key_usage = ExtendedKeyUsagePolicy::Ike;
    }
    round.auth.id = id.unwrap_or(IdMatch::Any);
    // In TTLS it is the other end's server that shows one; by `eap-dynamic` the peer may.
    let may_show = matches!(
        round.eap.as_ref().map(|eap| eap.way),
        Some(Way::One(EapType::TTLS) | Way::Dynamic | Way::Any)
    ) && !named.cacerts.is_empty();
    let shows = needs_certificate(&round.eap) || may_show;
    if matches!(round.auth.auth, AuthConfig::Pubkey(_)) || shows {
        let place = text.map_or(s.offset, |text| text.offset);
        path::refuse_raw_keys(&s, !named.pubkeys.is_empty(), report);
        trusted(&mut round, named, &s.path, place, store, report);
    } else if !wrong {
        named.refuse(&s.path, report);
        path::refuse(&s, report);
    }
    (round.policy.ca_id, round.policy.cert_policies) = chain;
    round.auth.eap = round.eap.as_ref().map(|eap| eap.terms(&round.groups.1)).unwrap_or_default();
    s.finish(&[], report);
    round
}

/// What the peer's key or certificate must be or come from.
fn trusted(
    round: &mut RemoteRound,
    named: Named,
    path: &str,
    place: usize,
    store: &Credentials,
    report: &mut Report<'_>,
) {
    let firsts = |files: &[NamedChain]| -> Vec<Arc<Certificate>> {
        files.iter().filter_map(|file| file.chain.first().cloned()).collect()
    };
    for file in &named.cacerts {
        for ca in file.chain.iter().filter(|ca| !ca.is_ca() || !ca.may_sign_certificates()) {
            let message =
                format!("`{}`, {:?}: {:?} is no CA", file.option, file.shown, ca.subject_text());
            report.expected(file.offset, message, CA);
        }
    }
    round.policy.cacerts = firsts(&named.cacerts);
    for file in &named.cacerts {
        let loose = store.trust.loose(&round.policy.cacerts);
        let ca = file.chain.first().filter(|ca| loose.contains(ca));
        if let Some(ca) = ca {
            let message = format!("`{}`, {:?}: {}", file.option, file.shown, loose_text(ca));
            report.warn(Some(file.offset), message);
        }
    }
    round.policy.certs = firsts(&named.certs);
    for key in named.pubkeys {
        let IdMatch::Exact(id) = &round.auth.id else {
            let message = format!("`{path}.id` must say whose public key it is");
            report.expected(place, message, "one identity, without `*` or %any");
            break;
        };
        round.policy.pubkeys.push(RawKey { id: id.clone(), spki: key.spki });
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

/// The files a round names.
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
    shown: String,
    option: String,
    offset: usize,
}

/// A file with a public key.
#[derive(Debug)]
struct NamedKey {
    spki: Vec<u8>,
    shown: String,
    option: String,
    offset: usize,
}

impl Named {
    fn read(s: &mut Section<'_>, store: &Credentials, cas: bool, report: &mut Report<'_>) -> Self {
        let mut this = Self::default();
        this.certs = this.chains(s, "certs", "cert", X509, store, report);
        if cas {
            this.cacerts = this.chains(s, "cacerts", "cacert", X509CA, store, report);
        }
        let option = join(&s.path, "pubkeys");
        for file in s.list("pubkeys", "names of files in pubkey/", report).unwrap_or_default() {
            match store.public_key_named(file, &option, report) {
                Some(spki) => this.pubkeys.push(NamedKey {
                    spki,
                    shown: file.text.to_owned(),
                    option: option.clone(),
                    offset: file.offset,
                }),
                None => this.wrong = true,
            }
        }
        this
    }

    /// The files of the list `plural` and of the sections `singular<suffix>`.
    fn chains(
        &mut self,
        s: &mut Section<'_>,
        plural: &'static str,
        singular: &'static str,
        folder: &'static str,
        store: &Credentials,
        report: &mut Report<'_>,
    ) -> Vec<NamedChain> {
        let what = format!("names of files in {folder}/");
        let option = join(&s.path, plural);
        let list = s.list(plural, &what, report).unwrap_or_default();
        let mut files: Vec<_> = list.into_iter().map(|file| (option.clone(), file)).collect();
        for (name, value) in s.tables(singular) {
            let Some(mut section) = s.sub(name.get_ref(), value, report) else { continue };
            match section.text("file", &what, report) {
                Some(file) => files.push((join(&section.path, "file"), file)),
                None => {
                    section.missing("file", what.clone(), report);
                    self.wrong = true;
                }
            }
            section.finish(&[("handle", None), ("module", None), ("slot", None)], report);
        }
        let mut chains = Vec::new();
        for (option, file) in files {
            match store.certificates_named(file, &option, folder, report) {
                Some(chain) => chains.push(NamedChain {
                    chain,
                    shown: file.text.to_owned(),
                    option,
                    offset: file.offset,
                }),
                None => self.wrong = true,
            }
        }
        chains
    }

    /// True if no file is named.
    fn is_empty(&self) -> bool {
        self.certs.is_empty() && self.pubkeys.is_empty()
    }

    /// Reports files that `auth` has no use for.
    fn refuse(&self, path: &str, report: &mut Report<'_>) {
        let chains = self.certs.iter().chain(&self.cacerts).map(|file| (&file.option, file.offset));
        let keys = self.pubkeys.iter().map(|key| (&key.option, key.offset));
        for (option, offset) in chains.chain(keys) {
            let message = format!("`{option}` is of no use with this `{path}.auth`");
            report.expected(offset, message, "`auth = \"pubkey\"`");
        }
    }
}

/// True if somebody shows a certificate in it.
fn needs_certificate(eap: &Option<EapRound>) -> bool {
    eap.as_ref().is_some_and(|eap| eap.way == Way::One(EapType::TLS))
}

/// `auth`, by default `pubkey`; `None` if it is wrong. With it what is said of EAP.
fn auth(
    round: &mut Section<'_>,
    local: bool,
    report: &mut Report<'_>,
) -> (Option<AuthConfig>, Option<EapRound>) {
    let text = round.text("auth", AUTH, report);
    let Some(text) = text.filter(|text| text.text.starts_with("eap")) else {
        for key in ["eap_id", "aaa_id"] {
            // Of no use, and no harm: a connection may be tried without EAP.
            if (local || key == "eap_id")
                && let Some(id) = round.text(key, "an identity", report)
            {
                let message = format!("`{}` is of no use without EAP", join(&round.path, key));
                report.warn(Some(id.offset), message);
            }
        }
        return (without_eap(round, text, report), None);
    };
    let path = join(&round.path, "auth");
    let eap_id = eap::id(round, "eap_id", report);
    let aaa_id = if local { eap::id(round, "aaa_id", report) } else { None };
    match eap::way(text, local, &path, report) {
        Some(way) => {
            let offset = text.offset;
            (Some(AuthConfig::Eap), Some(EapRound { way, eap_id, aaa_id, offset }))
        }
        None => (None, None),
    }
}

/// What a section says of EAP.
#[derive(Debug, Clone)]
pub(crate) struct EapRound {
    pub(crate) way: Way,
    pub(crate) eap_id: Option<EapId>,
    pub(crate) aaa_id: Option<EapId>,
    /// Where it stands.
    pub(crate) offset: usize,
}

impl EapRound {
    /// How it is to be done and whom it must show, as the engine compares it ([`RemoteAuth::eap`]).
    fn terms(&self, groups: &[String]) -> String {
        let way = match self.way {
            Way::Any => "any".to_owned(),
            Way::One(kind) => kind.to_string(),
            Way::Dynamic => "dynamic".to_owned(),
            Way::Radius => "radius".to_owned(),
        };
        let mut terms = match &self.eap_id {
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
}

fn without_eap(
    round: &Section<'_>,
    text: Option<Text<'_>>,
    report: &mut Report<'_>,
) -> Option<AuthConfig> {
    let Some(text) = text else { return Some(AuthConfig::pubkey()) };
    let path = join(&round.path, "auth");
    match AuthConfig::parse(text.text) {
        Ok(auth) => return Some(auth),
        Err(_) if text.text.starts_with("xauth") => {
            let message = format!("`{path} = {:?}` is not supported yet", text.text);
            report.expected(text.offset, message, AUTH);
        }
        Err(why) => {
            let message = format!("`{path}` cannot be {:?}: {why}", text.text);
            report.expected(text.offset, message, AUTH);
        }
    }
    None
}

/// What `auth` takes, for messages.
const AUTH: &str = "\"pubkey\", \"psk\", \"null\", or key types such as \"rsa-3072\", \"ecdsa-sha384\" \
                    or \"ike:mldsa65\"";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_of_doing_eap_has_words_of_its_own() {
        let of = |way, eap_id, groups: &[&str]| {
            let groups: Vec<_> = groups.iter().map(ToString::to_string).collect();
            EapRound { way, eap_id, aaa_id: None, offset: 0 }.terms(&groups)
        };
        let terms = |way, eap_id| of(way, eap_id, &[]);
        let carol = || Some(EapId::Exact("carol".to_owned()));
        let all = [
            terms(Way::One(EapType::MSCHAPV2), None),
            terms(Way::One(EapType::MSCHAPV2), carol()),
            terms(Way::One(EapType::TLS), None),
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
