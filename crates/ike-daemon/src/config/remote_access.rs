//! Remote access beyond pools: virtual IPs of this host, name servers, hooks, and the files of leases.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use ike_proto::config::ConnectionConfig;

use super::diagnostic::Report;
use super::section::{Section, join};

/// Settings of the whole daemon about what peers assign to it; taken at the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteAccess {
    /// `install_virtual_ip`.
    pub install_virtual_ip: bool,
    /// `install_virtual_ip_on`: the interface; `None` for the one that the IKE SA goes by.
    pub install_virtual_ip_on: Option<String>,
    /// `leases`: the file that leases are kept in; `None` forgets them at the end.
    pub leases: Option<PathBuf>,
    /// `[charon.plugins.resolve]`: what is done about name servers; nothing without the section.
    pub resolve: Option<Resolve>,
}

/// `[charon.plugins.resolve]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolve {
    /// `file`: they are written in front of what is in it.
    File(PathBuf),
    /// `resolvconf.path`: that program is told; `resolvconf.iface` is the prefix of the names it gets.
    Resolvconf {
        /// The program.
        path: PathBuf,
        /// Prefix of interface names.
        iface: String,
    },
}

impl Default for RemoteAccess {
    fn default() -> Self {
        Self { install_virtual_ip: true, install_virtual_ip_on: None, leases: None, resolve: None }
    }
}

const ABSOLUTE: &str = "an absolute path";
const INTERFACE: &str = "the name of an interface";

/// Reads what is in `[charon]` itself.
pub(crate) fn read(s: &mut Section<'_>, access: &mut RemoteAccess, report: &mut Report<'_>) {
    if let Some(install) = s.switch("install_virtual_ip", report) {
        access.install_virtual_ip = install;
    }
    access.install_virtual_ip_on = s.parsed("install_virtual_ip_on", INTERFACE, report, |name| {
        let good = (1..16).contains(&name.len()) && !name.contains(['/', ' ']);
        good.then(|| name.to_owned())
    });
    access.leases = s.parsed("leases", ABSOLUTE, report, absolute);
}

/// Reads `[charon.plugins.resolve]`.
pub(crate) fn resolve(plugins: &mut Section<'_>, report: &mut Report<'_>) -> Option<Resolve> {
    let mut s = plugins.section("resolve", report)?;
    let file = s.parsed("file", ABSOLUTE, report, absolute);
    let resolvconf = s.section("resolvconf", report).and_then(|mut s| {
        let iface = s.parsed("iface", INTERFACE, report, |name| Some(name.to_owned()));
        let path = s.parsed("path", ABSOLUTE, report, absolute);
        s.finish(&[], report);
        let iface = iface.unwrap_or_else(|| "lo.ipsec".to_owned());
        Some(Resolve::Resolvconf { path: path?, iface })
    });
    let load = s.switch("load", report).unwrap_or(true);
    s.finish(&[], report);
    let file = file.unwrap_or_else(|| PathBuf::from("/etc/resolv.conf"));
    load.then(|| resolvconf.unwrap_or(Resolve::File(file)))
}

/// `vips` and `pools` of a connection.
pub(crate) fn connection(s: &mut Section<'_>, c: &mut ConnectionConfig, report: &mut Report<'_>) {
    const VIPS: &str = "addresses; \"0.0.0.0\" and \"::\" ask for any";
    for item in s.list("vips", VIPS, report).unwrap_or_default() {
        match item.text {
            "%config" | "%config4" | "%any" | "%any4" => c.vips.push([0, 0, 0, 0].into()),
            "%config6" | "%any6" => c.vips.push([0_u16; 8].into()),
            text => match text.parse::<IpAddr>() {
                Ok(address) => c.vips.push(address),
                Err(_) => {
                    let message = format!("`{}` cannot be {text:?}", join(&s.path, "vips"));
                    report.expected(item.offset, message, VIPS);
                }
            },
        }
    }
    let pools = s.list("pools", "names of [pools.<name>]", report).unwrap_or_default();
    c.pools = pools.iter().map(|item| item.text.to_owned()).collect();
}

fn absolute(text: &str) -> Option<PathBuf> {
    let path = Path::new(text);
    path.is_absolute().then(|| path.to_path_buf())
}
