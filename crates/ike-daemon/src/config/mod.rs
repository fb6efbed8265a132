//! The configuration file: TOML in the vocabulary of swanctl.conf(5).
//!
//! All mistakes of a file are found in one reading, and a file with a mistake yields nothing.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use ike_proto::config::EndpointConfig;
use toml::de::DeTable;
use zeroize::Zeroizing;

mod charon;
mod child;
mod connection;
mod diagnostic;
mod hosts;
mod nearest;
mod secrets;
mod section;
mod units;
mod values;

pub use charon::Ports;
pub use diagnostic::{ConfigError, Diagnostic};
pub use hosts::{HostSpec, Hosts};

/// Reads a time as options write it: `30`, `30s`, `5m`, `4h`, `1d`.
pub use units::duration as parse_duration;
pub(crate) use units::seconds;

use diagnostic::Report;
use section::{Section, Unsupported};

/// Octets a configuration file may have at most.
const LARGEST: u64 = 16 << 20;

/// Sections of swanctl.conf(5) that do nothing here yet.
const UNSUPPORTED: &[Unsupported] = &[("authorities", None), ("include", None), ("pools", None)];

/// A configuration without a mistake.
#[derive(Debug, Clone)]
pub struct Config {
    /// What the engine gets. Host names are not in it until [`Config::hosts`] are resolved.
    pub endpoint: EndpointConfig,
    /// Ports to listen on.
    pub ports: Ports,
    /// The ends of each connection, by its name.
    pub hosts: BTreeMap<String, Hosts>,
    /// What is allowed but hardly meant.
    pub warnings: Vec<String>,
}

/// Reads the file at `path`.
pub fn load(path: &Path) -> Result<Config, ConfigError> {
    let text = read_text(path).map_err(|why| ConfigError::whole(path, why))?;
    let folder = path.parent().unwrap_or_else(|| Path::new(""));
    let mut config = parse(&text, folder)
        .map_err(|diagnostics| ConfigError { file: path.to_path_buf(), diagnostics })?;
    if readable_by_others(path) && text.contains("secret") {
        let warning = format!("{}: holds secrets and others may read it", path.display());
        config.warnings.push(warning);
    }
    Ok(config)
}

/// Reads `text`; a relative `secret_file` is looked for in `folder`.
pub fn parse(text: &str, folder: &Path) -> Result<Config, Vec<Diagnostic>> {
    let mut report = Report::new(text);
    let (document, syntax) = DeTable::parse_recoverable(text);
    let config = read(Section::new("", 0, document.get_ref()), folder, &mut report);
    let diagnostics = report.finish(&syntax);
    if diagnostics.is_empty() { Ok(config) } else { Err(diagnostics) }
}

fn read(mut root: Section<'_>, folder: &Path, report: &mut Report<'_>) -> Config {
    let mut endpoint = EndpointConfig::default();
    let mut hosts = BTreeMap::new();
    let ports = match root.section("charon", report) {
        Some(section) => charon::read(section, &mut endpoint, report),
        None => Ports::default(),
    };
    if ports.nat_t != 0 {
        endpoint.natt_port = ports.nat_t;
    }
    if let Some(mut connections) = root.section("connections", report) {
        for (name, section) in connections.subsections(report) {
            let (connection, ends) = connection::read(name, section, ports, report);
            hosts.insert(connection.name.clone(), ends);
            endpoint.connections.push(Arc::new(connection));
        }
        connections.finish(&[], report);
    }
    if let Some(section) = root.section("secrets", report) {
        (endpoint.secrets, endpoint.ppks) = secrets::read(section, folder, report);
    }
    root.finish(UNSUPPORTED, report);
    let warnings = warnings(&endpoint);
    Config { endpoint, ports, hosts, warnings }
}

fn warnings(endpoint: &EndpointConfig) -> Vec<String> {
    let mut warnings = Vec::new();
    if endpoint.connections.is_empty() {
        warnings.push("there is no [connections.<name>]".to_owned());
    }
    for connection in &endpoint.connections {
        let name = &connection.name;
        let keyed = endpoint.secrets.iter().any(|key| {
            key.ids.is_empty()
                || key.ids.iter().any(|id| connection::may_assert(connection.remote_id(), id))
        });
        if !keyed {
            warnings.push(format!(
                "connection {name}: no [secrets.ike-<suffix>] names the id of its remote"
            ));
        }
        let ppk = &connection.ppk;
        let found = endpoint.ppks.iter().flat_map(|key| &key.ids).any(|id| ppk.covers(id));
        if !ppk.ids.is_empty() && !found {
            warnings.push(format!(
                "connection {name}: no [secrets.ppk<suffix>] has an id that its ppk_id names"
            ));
        }
        if connection.children.is_empty() {
            warnings.push(format!("connection {name}: no [connections.{name}.children.<name>]"));
        }
    }
    warnings
}

fn read_text(path: &Path) -> Result<Zeroizing<String>, String> {
    let size =
        std::fs::metadata(path).map_err(|error| format!("cannot read the file: {error}"))?.len();
    if size > LARGEST {
        return Err(format!("the file has {size} bytes, more than {LARGEST}"));
    }
    let text =
        std::fs::read_to_string(path).map_err(|error| format!("cannot read the file: {error}"))?;
    Ok(Zeroizing::new(text))
}

fn readable_by_others(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).is_ok_and(|meta| meta.permissions().mode() & 0o004 != 0)
}
