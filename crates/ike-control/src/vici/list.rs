//! SAs and connections as VICI shows them.

use std::net::Ipv4Addr;
use std::time::Duration;

use ike_config::{HostSpec, Hosts};
use ike_proto::config::{AddressSpec, AuthConfig, ConnectionConfig, IdMatch, TsSpec};
use ike_proto::dataplane::Mode;
use ike_tokio::IkeView;
use serde_json::Value as Json;
use vici::{Section, Value};

use crate::program::Program;
use crate::views::{IkeSa, Waiting};

/// An IKE SA without its children: `<name> = { … }` of `list-sa`.
pub(super) fn ike_sa(view: &IkeView) -> Section {
    let mut section = Section::new();
    let Ok(Json::Object(fields)) = serde_json::to_value(IkeSa::new(view)) else { return section };
    for (name, value) in &fields {
        // The name is that of the section; the others have more than VICI knows.
        if !["name", "child-sas", "local-auth", "remote-auth"].contains(&name.as_str()) {
            put(&mut section, name, value);
        }
    }
    section
}

/// The `child-sas` of an IKE SA that `wanted` names by configuration and number.
pub(super) fn child_sas(view: &IkeView, wanted: impl Fn(&str, u64) -> bool) -> Section {
    let mut children = Section::new();
    for child in IkeSa::new(view).child_sas {
        if !wanted(&child.name, child.uniqueid) {
            continue;
        }
        let name = key(&format!("{}-{}", child.name, child.uniqueid));
        let mut section = Section::new();
        if let Ok(Json::Object(fields)) = serde_json::to_value(child) {
            fields.iter().for_each(|(name, value)| put(&mut section, name, value));
        }
        children.push(name, Value::Section(section));
    }
    children
}

/// A configured name as the name of a section, which is short, and printable ASCII.
pub(super) fn key(name: &str) -> String {
    // An attempt whose peer has no connection yet has no name.
    if name.is_empty() {
        return "(unnamed)".to_owned();
    }
    name.escape_default().to_string().chars().take(255).collect()
}

/// What is false or not there is left out, as clients take a key that is there for a yes.
fn put(section: &mut Section, name: &str, value: &Json) {
    let text = |text: &str| Value::Text(text.as_bytes().to_vec());
    match value {
        Json::Bool(true) if name == "esn" => section.push(name, text("1")),
        Json::Bool(true) => section.push(name, text("yes")),
        Json::Number(number) => section.push(name, text(&number.to_string())),
        Json::String(string) => section.push(name, text(string)),
        Json::Array(items) if name == "ke" => {
            for (number, method) in (1..).zip(items.iter().filter_map(Json::as_str)) {
                section.push(format!("ake{number}"), text(method));
            }
        }
        Json::Array(items) => {
            let items = items.iter().filter_map(Json::as_str);
            section.push(name, Value::List(items.map(|item| item.as_bytes().to_vec()).collect()));
        }
        Json::Bool(false) | Json::Null | Json::Object(_) => {}
    }
}

/// A connection: `<name> = { … }` of `list-conn`. Its addresses are those of the file; `program` knows the groups, and
/// `waiting` the children that wait for a way to the peer.
pub(super) fn connection(
    connection: &ConnectionConfig,
    program: &dyn Program,
    hosts: &Hosts,
    waiting: &[Waiting],
) -> Section {
    let seconds = |time: Duration| time.as_secs().to_string();
    let mut section = Section::new()
        .list("local_addrs", hosts.local.iter().map(host))
        .list("remote_addrs", hosts.remote.iter().map(host))
        .text("local_port", connection.local_port.to_string())
        .text("remote_port", connection.remote_port.to_string())
        .text("version", "IKEv2")
        .text("reauth_time", seconds(connection.reauth_time))
        .text("rekey_time", seconds(connection.rekey_time))
        .text("dpd_delay", seconds(connection.dpd_delay));
    for (number, round) in (1..).zip(&connection.local) {
        let mut auth = Section::new().text("class", class(&round.auth));
        if let Some(id) = &round.id {
            auth = auth.text("id", id.to_string());
        }
        section.push(format!("local-{number}"), Value::Section(auth));
    }
    for (number, round) in (1..).zip(&connection.remote) {
        let mut auth = Section::new().text("class", class(&round.auth));
        match &round.id {
            IdMatch::Any => {}
            IdMatch::Exact(id) | IdMatch::Suffix(id) | IdMatch::DnPattern(id) => {
                auth = auth.text("id", id.to_string());
            }
            IdMatch::Regex(regex) => auth = auth.text("id", regex.as_str()),
        }
        let groups = program.groups(&connection.name, &round.name);
        if !groups.is_empty() {
            auth = auth.list("groups", groups.iter().map(String::as_str));
        }
        section.push(format!("remote-{number}"), Value::Section(auth));
    }
    let mut children = Section::new();
    for child in &connection.children {
        let mut described = Section::new()
            .text("mode", mode(child.mode))
            .text("rekey_time", seconds(child.rekey_time))
            .text("rekey_bytes", child.limits.soft_bytes.to_string())
            .text("rekey_packets", child.limits.soft_packets.to_string())
            .list("local-ts", child.local_ts.iter().map(selector))
            .list("remote-ts", child.remote_ts.iter().map(selector));
        let waits =
            waiting.iter().find(|one| one.connection == connection.name && one.child == child.name);
        if let Some(one) = waits {
            described = described.text("waits-for", &*one.waits_for);
        }
        children.push(key(&child.name), Value::Section(described));
    }
    section.section("children", children)
}

fn class(auth: &AuthConfig) -> &'static str {
    match auth {
        AuthConfig::Psk => "pre-shared key",
        AuthConfig::Pubkey(_) => "public key",
        AuthConfig::Null => "any",
        AuthConfig::Eap => "EAP",
    }
}

fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Tunnel => "TUNNEL",
        Mode::Transport => "TRANSPORT",
        Mode::Beet => "BEET",
        Mode::Iptfs => "IPTFS",
    }
}

fn host(host: &HostSpec) -> String {
    match host {
        HostSpec::Name(name) => name.clone(),
        HostSpec::Address(AddressSpec::Any(None)) => "%any".to_owned(),
        HostSpec::Address(AddressSpec::Any(Some(false))) => "%any4".to_owned(),
        HostSpec::Address(AddressSpec::Any(Some(true))) => "%any6".to_owned(),
        HostSpec::Address(AddressSpec::Range(first, last)) if first == last => first.to_string(),
        HostSpec::Address(AddressSpec::Range(first, last)) => format!("{first}-{last}"),
    }
}

fn selector(ts: &TsSpec) -> String {
    match ts {
        TsSpec::Fixed(ts) => ts.to_string(),
        TsSpec::Dynamic { .. } => {
            let of_some_host = ts.resolve(Ipv4Addr::UNSPECIFIED.into()).to_string();
            of_some_host.replacen("0.0.0.0/32", "dynamic", 1)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ike_proto::config::{ChildConfig, RemoteAuth};

    use super::*;

    /// Knows groups of one round alone.
    struct Grouped;

    impl Program for Grouped {
        fn groups(&self, connection: &str, round: &str) -> Vec<String> {
            match (connection, round) {
                ("sales", "remote") => vec!["sales".to_owned(), "research".to_owned()],
                _ => Vec::new(),
            }
        }
    }

    #[test]
    fn groups_tell_connections_apart() {
        let mut connection = ConnectionConfig::new("sales");
        connection.remote = vec![RemoteAuth::new("remote", AuthConfig::Eap)];
        let hosts = Hosts { local: Vec::new(), remote: Vec::new() };
        let listed = |program: &dyn Program| {
            let described = super::connection(&connection, program, &hosts, &[]);
            let Some(Value::Section(round)) = described.get("remote-1") else { panic!() };
            round.get("groups").cloned()
        };
        assert_eq!(listed(&()), None);
        let groups = vec![b"sales".to_vec(), b"research".to_vec()];
        assert_eq!(listed(&Grouped), Some(Value::List(groups)));
    }

    /// Fault: in `connection`, leave out `waits-for`.
    #[test]
    fn a_child_that_waits_says_for_what() {
        let mut connection = ConnectionConfig::new("site");
        connection.children = ["net", "lab"].map(|name| Arc::new(ChildConfig::new(name))).to_vec();
        let hosts = Hosts { local: Vec::new(), remote: Vec::new() };
        let waiting = |connection: &str, child: &str| Waiting {
            connection: connection.to_owned(),
            child: child.to_owned(),
            waits_for: "no route to 192.0.2.1".to_owned(),
        };
        let all = [waiting("site", "net"), waiting("other", "lab")];
        let described = super::connection(&connection, &(), &hosts, &all);
        let Some(Value::Section(children)) = described.get("children") else { panic!() };
        let says = |child: &str| match children.get(child) {
            Some(Value::Section(child)) => child.str("waits-for").map(str::to_owned),
            _ => panic!("{child}"),
        };
        assert_eq!(says("net").as_deref(), Some("no route to 192.0.2.1"));
        assert_eq!(says("lab"), None);
    }

    #[test]
    fn selectors_read_as_strongswan_prints_them() {
        assert_eq!(selector(&TsSpec::DYNAMIC), "dynamic");
        let web = TsSpec::Dynamic { protocol: 6, start_port: 80, end_port: 80 };
        assert_eq!(selector(&web), "dynamic[tcp/80]");
        let net = TsSpec::Fixed("10.1.0.0/16".parse().unwrap());
        assert_eq!(selector(&net), "10.1.0.0/16");
    }

    #[test]
    fn what_is_false_is_left_out_and_what_is_true_is_yes() {
        let json = serde_json::json!({
            "encap": false, "esn": true, "initiator": true, "uniqueid": 7, "state": "INSTALLED",
            "ke": ["ML_KEM_768", "ML_KEM_1024"], "local-ts": ["10.1.0.0/16"], "cpu": null,
        });
        let mut section = Section::new();
        for (name, value) in json.as_object().unwrap() {
            put(&mut section, name, value);
        }
        assert_eq!(section.get("encap"), None);
        assert_eq!(section.get("cpu"), None);
        assert_eq!(section.str("esn"), Some("1"));
        assert_eq!(section.str("initiator"), Some("yes"));
        assert_eq!(section.str("uniqueid"), Some("7"));
        assert_eq!(section.str("ake1"), Some("ML_KEM_768"));
        assert_eq!(section.str("ake2"), Some("ML_KEM_1024"));
        assert_eq!(section.get("local-ts"), Some(&Value::List(vec![b"10.1.0.0/16".to_vec()])));
    }
}
