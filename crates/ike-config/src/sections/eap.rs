//! EAP in the configuration: `auth = "eap-…"`, `eap_id`, `aaa_id`, `[secrets.eap-<suffix>]`, and the options of
//! the plugins `eap-tls`, `eap-ttls` and `eap-radius`.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ike_proto::config::{AuthConfig, IdRegex};
use ike_proto::crypto::Secret;
use zeroize::Zeroizing;

use super::secrets::secret;
use crate::diagnostic::{Place, Report};
use crate::host::Files;
use crate::settings::{
    AccountingConfig, Connection, DaeConfig, EapId, EapMethod, EapSecret, GroupSources,
    RadiusOptions, RadiusServer, TlsLimits, TlsOptions, Way,
};
use crate::tree::{Section, Text, cannot_be, join, list};

/// What `auth` may say of EAP, for messages.
pub(crate) const WAYS: &str = "\"eap-mschapv2\", \"eap-tls\", \"eap-ttls\", \"eap-md5\", \"eap-gtc\", \"eap-radius\" or \"eap-dynamic\"";

/// What `auth = "eap…"` means at this end (`local`) or at the peer.
pub(crate) fn way(text: Text<'_>, local: bool, path: &str, report: &mut Report) -> Option<Way> {
    let kind = |kind| Some(Way::One(kind));
    let found = match (text.text, local) {
        ("eap", _) => Some(Way::Any),
        ("eap-mschapv2", _) => kind(EapMethod::Mschapv2),
        ("eap-md5", _) => kind(EapMethod::Md5),
        ("eap-gtc", _) => kind(EapMethod::Gtc),
        ("eap-tls", _) => kind(EapMethod::Tls),
        ("eap-ttls", _) => kind(EapMethod::Ttls),
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
pub(crate) fn id(s: &mut Section<'_>, key: &'static str, report: &mut Report) -> Option<EapId> {
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

/// Reports settings of `connection` that EAP cannot do.
pub(crate) fn check(connection: &Connection, radius: Option<&RadiusOptions>, report: &mut Report) {
    let Connection { config, local, remote, .. } = connection;
    let own = local.iter().find_map(|round| round.eap.as_ref());
    let theirs = remote.iter().find_map(|round| round.eap.as_ref());
    let mut wrong: Vec<(Place, &str, &str)> = Vec::new();
    const NOT_LAST: (&str, &str) = ("EAP must be in the last round", "no round after it");
    for (index, round) in local.iter().enumerate() {
        let Some(eap) = &round.eap else { continue };
        if index + 1 != local.len() || remote.len() > local.len() {
            wrong.push((eap.place, NOT_LAST.0, NOT_LAST.1));
        }
    }
    for (index, round) in remote.iter().enumerate() {
        let by_radius = round.eap.as_ref().is_some_and(|eap| eap.way == Way::Radius);
        let told = radius.is_none_or(|radius| radius.groups.any());
        if !(round.groups.is_empty() || by_radius && told) {
            let message = "nothing tells which of these `groups` a peer is in";
            let expected = "`auth = \"eap-radius\"` beside it, and `class_group` or `filter_id` in [charon.plugins.eap-radius]";
            wrong.push((round.groups_place, message, expected));
        }
        let Some(eap) = &round.eap else { continue };
        if index + 1 != remote.len() || local.len() > remote.len() {
            wrong.push((eap.place, NOT_LAST.0, NOT_LAST.1));
        }
        match eap.way_of_peer(own) {
            None => {
                wrong.push((eap.place, "`eap` does not say which method to ask for", WAYS));
            }
            Some(Way::Radius) if radius.is_none() => {
                let expected = "a section [charon.plugins.eap-radius]";
                wrong.push((eap.place, "there is no RADIUS server", expected));
            }
            Some(_) => {}
        }
    }
    if let (Some(own), Some(theirs)) = (own, theirs) {
        // Both ends must be authenticated, by a key, and withstand guessing (RFC 5998 §4).
        let safe = |way| match way {
            Way::One(method) => EapMethod::is_safe_alone(method),
            Way::Any | Way::Dynamic | Way::Radius => true,
        };
        if !(safe(own.way) && safe(theirs.way)) {
            let message = "EAP at both ends leaves the gateway without other authentication, and this method \
                           does not authenticate it well enough";
            let expected = "\"eap-tls\" or \"eap-ttls\", or `auth = \"pubkey\"` for the gateway";
            wrong.push((own.place, message, expected));
        }
    }
    let signs = |auth: &AuthConfig| matches!(auth, AuthConfig::Pubkey(_));
    let (signed, place) = match own {
        Some(_) => {
            let signed = remote.iter().any(|round| signs(&round.auth.auth));
            (signed, "`auth = \"pubkey\"` in `remote`")
        }
        None => {
            let signed = local.iter().any(|round| signs(&round.auth.auth));
            (signed, "`auth = \"pubkey\"` in `local`")
        }
    };
    if let (Some(eap), None) | (None, Some(eap)) = (own, theirs)
        && !signed
    {
        // RFC 7296 §2.16.
        let message =
            "EAP needs a gateway that authenticates by public key, or EAP alone at both ends";
        wrong.push((eap.place, message, place));
    }
    for (place, message, expected) in wrong {
        report.expected(place, format!("connection {}: {message}", config.name), expected);
    }
}

/// `[secrets.eap-<suffix>]`.
pub(crate) fn secrets(
    s: &mut Section<'_>,
    files: Files<'_>,
    report: &mut Report,
) -> Vec<EapSecret> {
    let mut found = Vec::new();
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
                    let message = format!("{}: a regular expression", cannot_be(&path, item.text));
                    report.expected(item.offset, message, what);
                }
                ids.push(item.text.as_bytes().to_vec());
            }
        }
        let password = secret(&mut section, files, report);
        section.finish(&[], report);
        if let Some(password) = password {
            let password = Zeroizing::new(password.expose().to_vec());
            found.push(EapSecret { ids, password });
        }
    }
    found
}

/// The options of the TLS methods in `[charon]` and its plugins.
pub(crate) fn tls(
    charon_tls: Option<Section<'_>>,
    plugins: Option<&mut Section<'_>>,
    report: &mut Report,
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
            [("md5", EapMethod::Md5), ("mschapv2", EapMethod::Mschapv2), ("gtc", EapMethod::Gtc)];
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

fn limits(s: &mut Section<'_>, limits: &mut TlsLimits, report: &mut Report) {
    if let Some(size) = s.number("fragment_size", 64, 8192, report) {
        limits.fragment_size = size;
    }
    if let Some(count) = s.number("max_message_count", 0, 128, report) {
        limits.max_messages = count;
    }
}

/// `[charon.plugins.eap-radius]`.
pub(crate) fn radius(mut s: Section<'_>, files: Files<'_>, report: &mut Report) -> RadiusOptions {
    let port = s.number("auth_port", 1, u16::MAX, report);
    let port = port.or(s.number("port", 1, u16::MAX, report)).unwrap_or(1812);
    let acct = s.number("acct_port", 1, u16::MAX, report).unwrap_or(1813);
    let name = s.text("nas_identifier", "text", report).map_or("strongSwan", |text| text.text);
    let nas_identifier = name.to_owned();
    let mut servers: Vec<(u32, RadiusServer)> = Vec::new();
    // strongSwan has `server` here and `address` in `servers`.
    let single = ["server", "address"];
    if single.iter().any(|key| s.has(key)) || !s.has("servers") {
        let address = address(&mut s, &single, report);
        let server =
            server(&mut s, "server", address, files, (port, acct), &nas_identifier, report);
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
                server(&mut section, name.text, address, files, (port, acct), &nas, report);
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
    let dae = dae(&mut s, files, report);
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
    RadiusOptions {
        servers: servers.into_iter().map(|(_, server)| server).collect(),
        retransmit_tries: tries,
        retransmit_timeout: timeout,
        retransmit_base: base.unwrap_or(1.4),
        id_prefix: prefix,
        accounting,
        groups,
        dae,
    }
}

/// `accounting` and its options.
fn accounting(s: &mut Section<'_>, report: &mut Report) -> Option<AccountingConfig> {
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
fn dae(s: &mut Section<'_>, files: Files<'_>, report: &mut Report) -> Option<DaeConfig> {
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
    let secret = if enabled || given { secret(&mut s, files, report) } else { None };
    s.finish(&[], report);
    let clients = clients.unwrap_or_default();
    let listen = SocketAddr::new(listen.unwrap_or_else(|| [0, 0, 0, 0].into()), port);
    let secret = secret.filter(|_| enabled)?;
    Some(DaeConfig { listen, secret, clients, demanded, stamped })
}

/// The address of a server, in one of `keys`.
fn address(s: &mut Section<'_>, keys: &[&'static str], report: &mut Report) -> Option<IpAddr> {
    const ADDRESS: &str = "the IP address of a RADIUS server";
    let mut found = None;
    for key in keys {
        let here: Option<IpAddr> = s.parsed(key, ADDRESS, report, |text| text.parse().ok());
        if here.is_some() && found.is_some() {
            let message = format!("`{}` repeats another option", join(&s.path, key));
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
    files: Files<'_>,
    (port, accounting): (u16, u16),
    nas_identifier: &str,
    report: &mut Report,
) -> Option<RadiusServer> {
    let secret: Option<Secret> = secret(s, files, report);
    Some(RadiusServer {
        name: name.to_owned(),
        address: SocketAddr::new(address?, port),
        accounting: SocketAddr::new(address?, accounting),
        secret: secret?,
        nas_identifier: nas_identifier.to_owned(),
    })
}

#[cfg(test)]
mod tests {
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
            let config = crate::parse(text).expect("settings");
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
            let config = crate::parse(&text);
            let radius = config.map(|config| config.eap.radius.expect("servers"));
            let mistakes = |all: Vec<crate::Diagnostic>| all[0].to_string();
            radius.map(|radius| radius.servers[0].address.to_string()).map_err(mistakes)
        };
        let given = Ok("192.0.2.1:1812".to_owned());
        assert_eq!(read("server = '192.0.2.1'"), given);
        assert_eq!(read("address = '192.0.2.1'"), given);
        let defaults = "server = '192.0.2.1'\nsockets = 1\nstation_id_with_port = true";
        assert_eq!(read(defaults), given);
        for (wrong, why) in [
            ("server = 'aaa.example.org'", "server` has a value that is not accepted"),
            ("server = '192.0.2.1'\naddress = '192.0.2.2'", "address` repeats"),
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
            let config = crate::parse(&text).expect("settings");
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
