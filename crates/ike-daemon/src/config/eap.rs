//! EAP in the configuration: `auth = "eap-…"`, `eap_id`, `aaa_id`, `[secrets.eap-<suffix>]`, and the options of
//! the plugins `eap-tls`, `eap-ttls` and `eap-radius`.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ::eap::EapType;
use ike_proto::config::{AuthConfig, IdRegex};
use ike_proto::crypto::Secret;
use zeroize::Zeroizing;

use super::connection::Rounds;
use super::diagnostic::Report;
use super::secrets::secret;
use super::section::{Section, Text, join, list};
use crate::eap::accounting::AccountingConfig;
use crate::eap::dae::DaeConfig;
use crate::eap::grants::GroupSources;
use crate::eap::radius::{RadiusConfig, Server};
use crate::eap::{EapBook, EapId, EapSecret, EapSecrets, Round, TlsOptions, Way};

/// What `auth` may say of EAP, for messages.
pub(crate) const WAYS: &str = "\"eap-mschapv2\", \"eap-tls\", \"eap-ttls\", \"eap-md5\", \"eap-gtc\", \"eap-radius\" or \"eap-dynamic\"";

/// What `auth = "eap…"` means at this end (`local`) or at the peer.
pub(crate) fn way(text: Text<'_>, local: bool, path: &str, report: &mut Report<'_>) -> Option<Way> {
    let kind = |kind| Some(Way::One(kind));
    let found = match (text.text, local) {
        ("eap", _) => Some(Way::Any),
        ("eap-mschapv2", _) => kind(EapType::MSCHAPV2),
        ("eap-md5", _) => kind(EapType::MD5),
        ("eap-gtc", _) => kind(EapType::GTC),
        ("eap-tls", _) => kind(EapType::TLS),
        ("eap-ttls", _) => kind(EapType::TTLS),
        ("eap-radius", false) => Some(Way::Radius),
        ("eap-dynamic", false) => Some(Way::Dynamic),
        _ => None,
    };
    if found.is_none() {
        let message = match text.text {
            "eap-radius" | "eap-dynamic" => format!("`{path}`: {} is for the peer", text.text),
            other => format!("`{path} = {other:?}` is not supported yet"),
        };
        let expected = if local { format!("\"eap\" (any), {WAYS}") } else { WAYS.to_owned() };
        report.expected(text.offset, message, expected);
    }
    found
}

/// True if it would be a regular expression elsewhere.
fn is_regex(text: &str) -> bool {
    IdRegex::is_meant_by(text) && text.ends_with('$')
}

/// `eap_id` or `aaa_id`.
pub(crate) fn id(s: &mut Section<'_>, key: &'static str, report: &mut Report<'_>) -> Option<EapId> {
    let what =
        "an identity without `*` and not in `^…$`, for there are no patterns here, or \"%any\"";
    s.parsed(key, what, report, |text| match text {
        "" => None,
        text if text.contains('*') || is_regex(text) => None,
        "%any" | "%identity" => Some(EapId::Any),
        text if text.len() > 253 => None,
        text => Some(EapId::Exact(text.to_owned())),
    })
}

/// Hands the rounds of connection `name` that are by EAP to `book`, and names what cannot be done.
pub(crate) fn collect(rounds: &Rounds, name: &str, book: &mut EapBook, report: &mut Report<'_>) {
    let own = rounds.local.iter().find_map(|round| round.eap.as_ref());
    let theirs = rounds.remote.iter().find_map(|round| round.eap.as_ref());
    let (local, remote) = (rounds.local.len(), rounds.remote.len());
    let mut wrong: Vec<(usize, String, &str)> = Vec::new();
    for (index, round) in rounds.local.iter().enumerate() {
        let Some(eap) = &round.eap else { continue };
        if index + 1 != local || remote > local {
            wrong.push((
                eap.offset,
                "EAP must be in the last round".to_owned(),
                "no round after it",
            ));
        }
        let name_in_eap = match (&eap.eap_id, &round.auth.id) {
            (Some(EapId::Exact(id)), _) => Some(id.clone()),
            (_, id) => id.as_ref().map(ToString::to_string),
        };
        // A gateway that has EAP alone says so in `local`, too, and needs none.
        let by_password = ![Way::One(EapType::TLS), Way::Any].contains(&eap.way);
        if by_password
            && theirs.is_none()
            && name_in_eap.is_none_or(|id| book.secrets.find(id.as_bytes(), true).is_none())
        {
            let why = "no [secrets.eap-<suffix>] has the eap_id of its `local`";
            report.warn(None, format!("connection {name}: {why}"));
        }
        let judged_by = rounds.remote.first().map(|round| round.auth.name.clone());
        let round_name = round.auth.name.clone();
        let found = Round {
            way: eap.way,
            eap_id: eap.eap_id.clone(),
            aaa_id: eap.aaa_id.clone(),
            credentials: round.credentials.clone(),
            groups: Vec::new(),
            judged_by: judged_by.unwrap_or_default(),
        };
        book.rounds.insert((name.to_owned(), round_name), Arc::new(found));
    }
    for (index, round) in rounds.remote.iter().enumerate() {
        let (offset, groups) = &round.groups;
        let by_radius = round.eap.as_ref().is_some_and(|eap| eap.way == Way::Radius);
        let told = book.radius.as_ref().is_none_or(|radius| radius.groups.any());
        if !(groups.is_empty() || by_radius && told) {
            let message = "nothing tells which of these `groups` a peer is in".to_owned();
            let expected = "`auth = \"eap-radius\"` beside it, and `class_group` or `filter_id` in [charon.plugins.eap-radius]";
            wrong.push((*offset, message, expected));
        }
        let Some(eap) = &round.eap else { continue };
        if index + 1 != remote || local > remote {
            wrong.push((
                eap.offset,
                "EAP must be in the last round".to_owned(),
                "no round after it",
            ));
        }
        let way = match (eap.way, own) {
            (Way::Any, Some(own)) => own.way,
            (Way::Any, None) => {
                let message = "`eap` does not say which method to ask for".to_owned();
                wrong.push((eap.offset, message, WAYS));
                continue;
            }
            (way, _) => way,
        };
        let credentials: Vec<_> =
            rounds.local.iter().flat_map(|round| &round.credentials).cloned().collect();
        let tls = [Way::One(EapType::TLS), Way::One(EapType::TTLS)].contains(&way);
        if tls && own.is_none() && credentials.is_empty() {
            let message = "TLS needs a certificate of this end".to_owned();
            wrong.push((eap.offset, message, "`auth = \"pubkey\"` and a certificate in `local`"));
        }
        if way == Way::Radius && book.radius.is_none() {
            let message = "there is no RADIUS server".to_owned();
            wrong.push((eap.offset, message, "a section [charon.plugins.eap-radius]"));
        }
        let found = Round {
            way,
            eap_id: eap.eap_id.clone(),
            aaa_id: None,
            credentials,
            groups: round.groups.1.clone(),
            judged_by: round.auth.name.clone(),
        };
        book.rounds.insert((name.to_owned(), round.auth.name.clone()), Arc::new(found));
    }
    if let (Some(own), Some(theirs)) = (own, theirs) {
        // Both ends must be authenticated, by a key, and withstand guessing (RFC 5998 §4).
        let safe = |way| match way {
            Way::One(kind) => kind.is_safe_alone(),
            Way::Any | Way::Dynamic | Way::Radius => true,
        };
        if !(safe(own.way) && safe(theirs.way)) {
            let message = "EAP at both ends leaves the gateway without other authentication, and this method \
                           does not authenticate it well enough";
            let expected = "\"eap-tls\" or \"eap-ttls\", or `auth = \"pubkey\"` for the gateway";
            wrong.push((own.offset, message.to_owned(), expected));
        }
    }
    let signs = |auth: &AuthConfig| matches!(auth, AuthConfig::Pubkey(_));
    let (signed, place) = match own {
        Some(_) => {
            let signed = rounds.remote.iter().any(|round| signs(&round.auth.auth));
            (signed, "`auth = \"pubkey\"` in `remote`")
        }
        None => {
            let signed = rounds.local.iter().any(|round| signs(&round.auth.auth));
            (signed, "`auth = \"pubkey\"` in `local`")
        }
    };
    if let (Some(eap), None) | (None, Some(eap)) = (own, theirs)
        && !signed
    {
        // RFC 7296 §2.16.
        let message =
            "EAP needs a gateway that authenticates by public key, or EAP alone at both ends";
        wrong.push((eap.offset, message.to_owned(), place));
    }
    for (offset, message, expected) in wrong {
        report.expected(offset, format!("connection {name}: {message}"), expected);
    }
}

/// `[secrets.eap-<suffix>]`.
pub(crate) fn secrets(s: &mut Section<'_>, folder: &Path, report: &mut Report<'_>) -> EapSecrets {
    let mut found = EapSecrets::default();
    // A secret of one is that of the other.
    let mut sections = s.with_prefix("eap");
    sections.extend(s.with_prefix("xauth"));
    for (name, value) in sections {
        let Some(mut section) = s.sub(name.get_ref(), value, report) else { continue };
        let mut ids = Vec::new();
        for (name, value) in section.with_prefix("id") {
            let path = join(&section.path, name.get_ref());
            let what = "EAP identities: user names";
            for item in list(&path, value, what, report).unwrap_or_default() {
                if is_regex(item.text) {
                    let message =
                        format!("`{path}` cannot be {:?}: a regular expression", item.text);
                    report.expected(item.offset, message, what);
                }
                ids.push(item.text.as_bytes().to_vec());
            }
        }
        let password = secret(&mut section, folder, report);
        section.finish(&[], report);
        if let Some(password) = password {
            let password = Zeroizing::new(password.expose().to_vec());
            found.0.push(EapSecret { ids, password });
        }
    }
    found
}

/// The options of the TLS methods in `[charon]` and its plugins.
pub(crate) fn tls(
    charon_tls: Option<Section<'_>>,
    plugins: Option<&mut Section<'_>>,
    report: &mut Report<'_>,
) -> TlsOptions {
    let mut options = TlsOptions::default();
    if let Some(mut s) = charon_tls {
        let versions = [("1.2", 2), ("1.3", 3)];
        let min = s.choice("version_min", &versions, report).unwrap_or(2);
        let max = s.choice("version_max", &versions, report).unwrap_or(3);
        if min > max {
            let message = format!("`{}` is above `version_max`", join(&s.path, "version_min"));
            report.add(s.place("version_min"), message);
        }
        (options.no_tls12, options.no_tls13) = (min > 2, max < 3);
        s.finish(&[("cipher", None), ("ke_group", None), ("suites", None)], report);
    }
    let Some(plugins) = plugins else { return options };
    if let Some(mut s) = plugins.section("eap-tls", report) {
        limits(&mut s, &mut options.tls, report);
        s.finish(&[("load", Some("yes")), ("include_length", Some("yes"))], report);
    }
    if let Some(mut s) = plugins.section("eap-ttls", report) {
        limits(&mut s, &mut options.ttls, report);
        let methods =
            [("md5", EapType::MD5), ("mschapv2", EapType::MSCHAPV2), ("gtc", EapType::GTC)];
        options.phase2 = s.choice("phase2_method", &methods, report);
        let fixed = [
            ("load", Some("yes")),
            ("include_length", Some("yes")),
            ("phase2_piggyback", Some("no")),
            ("phase2_tnc", Some("no")),
            ("request_peer_auth", Some("no")),
        ];
        s.finish(&fixed, report);
    }
    options
}

fn limits(s: &mut Section<'_>, limits: &mut ::eap::TlsLimits, report: &mut Report<'_>) {
    if let Some(size) = s.number("fragment_size", 64, 8192, report) {
        limits.fragment_size = size;
    }
    if let Some(count) = s.number("max_message_count", 0, 128, report) {
        limits.max_messages = count;
    }
}

/// `[charon.plugins.eap-radius]`.
pub(crate) fn radius(
    mut s: Section<'_>,
    folder: &Path,
    report: &mut Report<'_>,
) -> Option<RadiusConfig> {
    let port = s.number("auth_port", 1, u16::MAX, report);
    let port = port.or(s.number("port", 1, u16::MAX, report)).unwrap_or(1812);
    let acct = s.number("acct_port", 1, u16::MAX, report).unwrap_or(1813);
    let name = s.text("nas_identifier", "text", report).map_or("strongSwan", |text| text.text);
    let nas_identifier = name.to_owned();
    let mut servers: Vec<(u32, Server)> = Vec::new();
    // strongSwan has `server` here and `address` in `servers`.
    let single = ["server", "address"];
    if single.iter().any(|key| s.has(key)) || !s.has("servers") {
        let address = address(&mut s, &single, report);
        let server =
            server(&mut s, "server", address, folder, (port, acct), &nas_identifier, report);
        servers.extend(server.map(|server| (0, server)));
    }
    if let Some(mut all) = s.section("servers", report) {
        for (name, mut section) in all.subsections(report) {
            let port = section.number("auth_port", 1, u16::MAX, report).unwrap_or(port);
            let acct = section.number("acct_port", 1, u16::MAX, report).unwrap_or(acct);
            let given = section.text("nas_identifier", "text", report);
            let nas = given.map_or(nas_identifier.clone(), |text| text.text.to_owned());
            let preference = section.number("preference", 0, u32::MAX, report).unwrap_or(0);
            let address = address(&mut section, &["address"], report);
            let server =
                server(&mut section, name.text, address, folder, (port, acct), &nas, report);
            servers.extend(server.map(|server| (preference, server)));
            section.finish(&[("sockets", Some("1")), ("source", None)], report);
        }
        all.finish(&[], report);
    }
    servers.sort_by_key(|(preference, _)| std::cmp::Reverse(*preference));
    let tries = s.number("retransmit_tries", 0, 16, report).unwrap_or(4);
    let timeout = s.duration("retransmit_timeout", report).unwrap_or(Duration::from_secs(2));
    let base = s.parsed("retransmit_base", "a number from 1 to 10", report, |text| {
        text.parse().ok().filter(|base| (1.0..=10.0).contains(base))
    });
    let prefix = s.text("id_prefix", "text", report).map_or("", |text| text.text).to_owned();
    let accounting = accounting(&mut s, report);
    let groups = GroupSources {
        class: s.switch("class_group", report).unwrap_or(false),
        filter_id: s.switch("filter_id", report).unwrap_or(false),
    };
    let dae = dae(&mut s, folder, report);
    let fixed = [
        ("load", Some("yes")),
        ("close_all_on_timeout", Some("no")),
        ("eap_start", Some("no")),
        ("sockets", Some("1")),
        ("source", None),
        ("station_id_with_port", Some("yes")),
        ("forward", None),
        ("xauth", None),
    ];
    s.finish(&fixed, report);
    Some(RadiusConfig {
        servers: servers.into_iter().map(|(_, server)| server).collect(),
        retransmit_tries: tries,
        retransmit_timeout: timeout,
        retransmit_base: base.unwrap_or(1.4),
        id_prefix: prefix,
        accounting,
        groups,
        dae,
        ..RadiusConfig::default()
    })
}

/// `accounting` and what belongs to it.
fn accounting(s: &mut Section<'_>, report: &mut Report<'_>) -> Option<AccountingConfig> {
    let wanted = s.switch("accounting", report).unwrap_or(false);
    for option in [
        "accounting_interval",
        "accounting_close_on_timeout",
        "accounting_requires_vip",
        "accounting_send_class",
    ] {
        if !wanted && s.has(option) {
            let message =
                format!("`{}` changes nothing without `accounting`", join(&s.path, option));
            report.warn(Some(s.place(option)), message);
        }
    }
    let interval = s.duration("accounting_interval", report).filter(|pause| !pause.is_zero());
    let close = s.switch("accounting_close_on_timeout", report);
    let requires_vip = s.switch("accounting_requires_vip", report).unwrap_or(false);
    let send_class = s.switch("accounting_send_class", report).unwrap_or(false);
    wanted.then_some(AccountingConfig {
        interval,
        close_on_timeout: close.unwrap_or(true),
        requires_vip,
        send_class,
    })
}

/// `[charon.plugins.eap-radius.dae]`.
fn dae(s: &mut Section<'_>, folder: &Path, report: &mut Report<'_>) -> Option<DaeConfig> {
    let mut s = s.section("dae", report)?;
    let enabled = s.switch("enable", report).unwrap_or(false);
    let what = "an address of this host, or \"0.0.0.0\"";
    let listen: Option<IpAddr> = s.parsed("listen", what, report, |text| text.parse().ok());
    let port = s.number("port", 1, u16::MAX, report).unwrap_or(3799);
    let demanded = s.switch("require_message_authenticator", report).unwrap_or(true);
    let stamped = s.switch("require_event_timestamp", report).unwrap_or(false);
    let clients = s.parsed("clients", "IP addresses with commas between them", report, |text| {
        text.split(',').map(|one| one.trim().parse().ok()).collect::<Option<Vec<IpAddr>>>()
    });
    let given = s.has("secret") || s.has("secret_file");
    let secret = if enabled || given { secret(&mut s, folder, report) } else { None };
    s.finish(&[], report);
    let clients = clients.unwrap_or_default();
    let listen = SocketAddr::new(listen.unwrap_or_else(|| [0, 0, 0, 0].into()), port);
    let secret = secret.filter(|_| enabled)?;
    Some(DaeConfig { listen, secret, clients, demanded, stamped })
}

/// The address of a server, in one of `keys`.
fn address(s: &mut Section<'_>, keys: &[&'static str], report: &mut Report<'_>) -> Option<IpAddr> {
    const ADDRESS: &str = "the IP address of a RADIUS server";
    let mut found = None;
    for key in keys {
        let here: Option<IpAddr> = s.parsed(key, ADDRESS, report, |text| text.parse().ok());
        if here.is_some() && found.is_some() {
            let message = format!("`{}` says what another option says", join(&s.path, key));
            report.add(s.place(key), message);
        }
        found = found.or(here);
    }
    if !keys.iter().any(|key| s.has(key)) {
        s.missing("address", ADDRESS, report);
    }
    found
}

fn server(
    s: &mut Section<'_>,
    name: &str,
    address: Option<IpAddr>,
    folder: &Path,
    (port, accounting): (u16, u16),
    nas_identifier: &str,
    report: &mut Report<'_>,
) -> Option<Server> {
    let secret: Option<Secret> = secret(s, folder, report);
    Some(Server {
        name: name.to_owned(),
        address: SocketAddr::new(address?, port),
        accounting: SocketAddr::new(address?, accounting),
        secret: secret?,
        nas_identifier: nas_identifier.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    /// `auth_port` and `acct_port` of the plugin are for the servers that have none of their own.
    #[test]
    fn ports_of_the_plugin_are_for_all_servers() {
        let text = "
[charon.plugins.eap-radius]
auth_port = 2812
acct_port = 2813
[charon.plugins.eap-radius.servers.a]
address = '192.0.2.1'
secret = 'x'
[charon.plugins.eap-radius.servers.b]
address = '192.0.2.2'
secret = 'x'
auth_port = 3812
acct_port = 3813
";
        let ports = |text: &str| -> Vec<(u16, u16)> {
            let config = crate::config::parse(text, Path::new("/")).expect("a configuration");
            let radius = config.eap.radius.expect("servers");
            let servers = radius.servers.iter();
            servers.map(|one| (one.address.port(), one.accounting.port())).collect()
        };
        assert_eq!(ports(text), [(2812, 2813), (3812, 3813)]);
        let plain = text.replace("auth_port = 2812\nacct_port = 2813\n", "");
        assert_eq!(ports(&plain), [(1812, 1813), (3812, 3813)]);
        let single =
            "[charon.plugins.eap-radius]\naddress = '192.0.2.1'\nsecret = 'x'\nacct_port = 9";
        assert_eq!(ports(single), [(1812, 9)]);
    }

    #[test]
    fn a_single_server_is_called_as_strongswan_calls_it() {
        let read = |options: &str| {
            let text = format!("[charon.plugins.eap-radius]\nsecret = 'x'\n{options}");
            let config = crate::config::parse(&text, Path::new("/"));
            let radius = config.map(|config| config.eap.radius.expect("servers"));
            let mistakes = |all: Vec<crate::config::Diagnostic>| all[0].to_string();
            radius.map(|radius| radius.servers[0].address.to_string()).map_err(mistakes)
        };
        let given = Ok("192.0.2.1:1812".to_owned());
        assert_eq!(read("server = '192.0.2.1'"), given);
        assert_eq!(read("address = '192.0.2.1'"), given);
        let defaults = "server = '192.0.2.1'\nsockets = 1\nstation_id_with_port = true";
        assert_eq!(read(defaults), given);
        for (wrong, why) in [
            ("server = 'aaa.example.org'", "server` cannot be"),
            ("server = '192.0.2.1'\naddress = '192.0.2.2'", "address` says what"),
            ("", "address` is missing"),
            ("server = '192.0.2.1'\nsource = '192.0.2.3'", "source` is not supported"),
            ("server = '192.0.2.1'\nstation_id_with_port = false", "station_id_with_port` "),
        ] {
            let mistake = read(wrong).expect_err(wrong);
            assert!(mistake.contains(why), "{mistake}");
        }
    }

    #[test]
    fn dynamic_authorization_is_off_unless_enabled_and_listens_where_strongswan_does() {
        let dae = |options: &str| {
            let text = format!(
                "[charon.plugins.eap-radius]\naddress = '192.0.2.1'\nsecret = 'x'\n\
                 [charon.plugins.eap-radius.dae]\n{options}"
            );
            let config = crate::config::parse(&text, Path::new("/")).expect("a configuration");
            let radius = config.eap.radius.expect("servers");
            radius
                .dae
                .as_ref()
                .map(|dae| (dae.listen.to_string(), dae.secret.expose().to_vec(), dae.demanded))
        };
        assert_eq!(dae("secret = 'y'"), None);
        let found = dae("enable = true\nsecret = 'y'");
        assert_eq!(found.clone(), Some(("0.0.0.0:3799".to_owned(), b"y".to_vec(), true)));
        let all = "enable = true\nsecret = '0x6162'\nlisten = '::1'\nport = 99\n\
                   require_message_authenticator = false";
        assert_eq!(dae(all), Some(("[::1]:99".to_owned(), b"ab".to_vec(), false)));
        let stamped = "enable = true\nsecret = 'y'\nrequire_event_timestamp = true";
        assert_eq!(dae(stamped), found);
    }
}
