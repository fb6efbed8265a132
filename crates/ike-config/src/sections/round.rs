//! The authentication rounds of a connection: its `local<suffix>` and `remote<suffix>` sections.

use ike_proto::config::{AuthConfig, IdMatch, LocalAuth, RemoteAuth};

use super::{eap, values};
use crate::Host;
use crate::diagnostic::{Place, Report};
use crate::settings::{
    EapMethod, EapRound, LocalRound, NamedFile, NamedFiles, RemoteRound, Revocation, Way,
};
use crate::tree::{Section, Text, Unsupported, join};

mod path;

/// Options of a `local` section that do nothing here yet.
const UNSUPPORTED_LOCAL: &[Unsupported] = &[("xauth_id", None)];

/// Reads the rounds of this end, in order.
pub(crate) fn local(s: &mut Section<'_>, host: &dyn Host, report: &mut Report) -> Vec<LocalRound> {
    rounds(s, "local", report, |name, s, report| local_round(name, s, host, report))
}

/// Reads the rounds of the peer, in order.
pub(crate) fn remote(
    s: &mut Section<'_>,
    host: &dyn Host,
    report: &mut Report,
) -> Vec<RemoteRound> {
    rounds(s, "remote", report, |name, s, report| remote_round(name, s, host, report))
}

fn rounds<T>(
    s: &mut Section<'_>,
    side: &'static str,
    report: &mut Report,
    read: impl Fn(Text<'_>, Section<'_>, &mut Report) -> T,
) -> Vec<T> {
    let sections = s.rounds(side);
    if sections.is_empty() {
        s.missing(side, format!("a section [{}] with `auth`", join(&s.path, side)), report);
    }
    let mut found = Vec::new();
    for (name, value) in sections {
        let Some(mut section) = s.sub(name.get_ref(), value, report) else { continue };
        let round = section.number("round", 0, u32::MAX, report).unwrap_or(0);
        let name = Text { text: name.get_ref(), offset: Place::of(name) };
        found.push((round, read(name, section, report)));
    }
    found.sort_by_key(|(round, _)| *round);
    found.into_iter().map(|(_, round)| round).collect()
}

fn local_round(
    name: Text<'_>,
    mut s: Section<'_>,
    host: &dyn Host,
    report: &mut Report,
) -> LocalRound {
    let (auth, eap) = auth(&mut s, true, host, report);
    let path = join(&s.path, "id");
    let text = s.text("id", values::IDENTITY, report);
    let id = text.and_then(|text| values::identity(text, &path, report));
    let files = files(&mut s, false, report);
    let bundled = s.switch("cert_bundle", report).unwrap_or(false);
    let cert_bundle = bundled.then(|| s.place("cert_bundle"));
    let is_auth_known = auth.is_some();
    let is_id_known = text.is_none() || id.is_some();
    let mut auth = LocalAuth::new(name.text, auth.unwrap_or_default());
    auth.id = id;
    if is_auth_known && matches!(auth.auth, AuthConfig::Psk | AuthConfig::Null) {
        refuse(&files, &s.path, report);
    }
    let (path, place) = (s.path.clone(), text.map_or(s.offset, |text| text.offset));
    s.finish(UNSUPPORTED_LOCAL, report);
    LocalRound { auth, is_auth_known, is_id_known, eap, files, cert_bundle, path, place }
}

fn remote_round(
    name: Text<'_>,
    mut s: Section<'_>,
    host: &dyn Host,
    report: &mut Report,
) -> RemoteRound {
    let (auth, eap) = auth(&mut s, false, host, report);
    let path = join(&s.path, "id");
    let text = s.text("id", values::IDENTITY, report);
    let id = text.and_then(|text| values::id_match(text, &path, report));
    let files = files(&mut s, true, report);
    let (ca_id, cert_policies) = path::read(&mut s, report);
    let words = [
        ("strict", Revocation::Strict),
        ("ifuri", Revocation::IfUri),
        ("relaxed", Revocation::Relaxed),
    ];
    let revocation = s.choice("revocation", &words, report).unwrap_or_default();
    let ike_usage = s.switch("ike_usage", report).unwrap_or(false);
    let wrong = auth.is_none();
    let mut auth = RemoteAuth::new(name.text, auth.unwrap_or_default());
    let groups = s.list("groups", "names of groups", report).unwrap_or_default();
    let groups = groups.iter().map(|group| group.text.to_owned()).collect();
    let groups_place = s.place("groups");
    auth.id = id.unwrap_or(IdMatch::Any);
    // In TTLS it is the other end's server that shows one; by `eap-dynamic` the peer may.
    let may_show = matches!(
        eap.as_ref().map(|eap| eap.way),
        Some(Way::One(EapMethod::Ttls) | Way::Dynamic | Way::Any)
    ) && !files.cacerts.is_empty();
    let shows = may_show || eap.as_ref().is_some_and(EapRound::needs_certificate);
    let judges = shows || matches!(auth.auth, AuthConfig::Pubkey(_));
    let (section, place) = (s.path.clone(), text.map_or(s.offset, |text| text.offset));
    if judges {
        path::refuse_raw_keys(&s, !files.pubkeys.is_empty(), report);
        if !(files.pubkeys.is_empty() || matches!(auth.id, IdMatch::Exact(_))) {
            let message = format!("`{path}` must say whose public key it is");
            report.expected(place, message, "one identity, without `*` or %any");
        }
    } else if !wrong {
        refuse(&files, &s.path, report);
        path::refuse(&s, report);
    }
    s.finish(&[], report);
    RemoteRound {
        auth,
        eap,
        groups,
        groups_place,
        judges,
        revocation,
        ike_usage,
        ca_id,
        cert_policies,
        files,
        path: section,
        place,
    }
}

/// The files that a round names; also those of CAs if `cas`.
fn files(s: &mut Section<'_>, cas: bool, report: &mut Report) -> NamedFiles {
    let mut found = NamedFiles::default();
    found.certs = chains(s, ["certs", "cert", "x509"], &mut found.is_wrong, report);
    if cas {
        found.cacerts = chains(s, ["cacerts", "cacert", "x509ca"], &mut found.is_wrong, report);
    }
    let option = join(&s.path, "pubkeys");
    let keys = s.list("pubkeys", "names of files in pubkey/", report).unwrap_or_default();
    found.pubkeys = keys.into_iter().map(|file| named(file, option.clone())).collect();
    found
}

/// The files of the list `plural` and of the sections `singular<suffix>`.
fn chains(
    s: &mut Section<'_>,
    [plural, singular, folder]: [&'static str; 3],
    is_wrong: &mut bool,
    report: &mut Report,
) -> Vec<NamedFile> {
    let what = format!("names of files in {folder}/");
    let option = join(&s.path, plural);
    let list = s.list(plural, &what, report).unwrap_or_default();
    let mut files: Vec<_> = list.into_iter().map(|file| named(file, option.clone())).collect();
    for (name, value) in s.tables(singular) {
        let Some(mut section) = s.sub(name.get_ref(), value, report) else { continue };
        match section.text("file", &what, report) {
            Some(file) => files.push(named(file, join(&section.path, "file"))),
            None => {
                section.missing("file", what.clone(), report);
                *is_wrong = true;
            }
        }
        section.finish(&[("handle", None), ("module", None), ("slot", None)], report);
    }
    files
}

fn named(file: Text<'_>, option: String) -> NamedFile {
    NamedFile { name: file.text.to_owned(), option, place: file.offset }
}

/// Reports files that `auth` has no use for.
fn refuse(files: &NamedFiles, path: &str, report: &mut Report) {
    for file in files.all() {
        let message = format!("`{}` is of no use with this `{path}.auth`", file.option);
        report.expected(file.place, message, "`auth = \"pubkey\"`");
    }
}

/// `auth`, by default `pubkey`; `None` if it is wrong. With it what is said of EAP.
fn auth(
    round: &mut Section<'_>,
    local: bool,
    host: &dyn Host,
    report: &mut Report,
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
        return (without_eap(round, text, host, report), None);
    };
    let path = join(&round.path, "auth");
    let eap_id = eap::id(round, "eap_id", report);
    let aaa_id = if local { eap::id(round, "aaa_id", report) } else { None };
    match eap::way(text, local, &path, report) {
        Some(way) => {
            let place = text.offset;
            (Some(AuthConfig::Eap), Some(EapRound { way, eap_id, aaa_id, place }))
        }
        None => (None, None),
    }
}

fn without_eap(
    round: &Section<'_>,
    text: Option<Text<'_>>,
    host: &dyn Host,
    report: &mut Report,
) -> Option<AuthConfig> {
    let Some(text) = text else { return Some(AuthConfig::pubkey()) };
    let path = join(&round.path, "auth");
    match host.auth(text.text) {
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
