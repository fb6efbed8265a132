//! Remote access beyond pools: virtual IPs of this host, name servers, hooks, and the files of leases.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use ike_proto::config::ConnectionConfig;

use crate::diagnostic::Report;
use crate::settings::{RemoteAccess, Resolve};
use crate::tree::{Section, join};

const ABSOLUTE: &str = "an absolute path";
const INTERFACE: &str = "the name of an interface";

/// Reads what is in `[charon]` itself.
pub(crate) fn read(s: &mut Section<'_>, access: &mut RemoteAccess, report: &mut Report) {
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
pub(crate) fn resolve(plugins: &mut Section<'_>, report: &mut Report) -> Option<Resolve> {
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
pub(crate) fn connection(s: &mut Section<'_>, c: &mut ConnectionConfig, report: &mut Report) {
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
