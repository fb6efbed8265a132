//! `[charon.plugins]`: the VICI socket, PKCS#11 modules, EAP, and name servers.

use std::path::{Path, PathBuf};

use super::eap;
use super::{charon::set, remote_access};
use crate::diagnostic::Report;
use crate::host::Files;
use crate::settings::{Modules, Settings, ViciOptions};
use crate::tree::Section;

/// Where `swanctl` looks unless told otherwise.
const SOCKET: &str = "/run/charon.vici";

/// Reads it from `[charon]`. `bypass-lan` goes to the options of the data plane.
pub(crate) fn read(
    charon: &mut Section<'_>,
    files: Files<'_>,
    all: &mut Settings,
    report: &mut Report,
) {
    let tls = charon.section("tls", report);
    let Some(mut plugins) = charon.section("plugins", report) else {
        all.eap.tls = eap::tls(tls, None, report);
        return;
    };
    all.eap.tls = eap::tls(tls, Some(&mut plugins), report);
    let radius = plugins.section("eap-radius", report);
    all.eap.radius = radius.map(|s| eap::radius(s, files, report));
    all.remote_access.resolve = remote_access::resolve(&mut plugins, report);
    all.vici = plugins.section("vici", report).map(|mut vici| {
        let what = "unix:// and an absolute path, as in \"unix:///run/charon.vici\"";
        let socket = vici.parsed("socket", what, report, |text| {
            let path = Path::new(text.strip_prefix("unix://")?);
            path.is_absolute().then(|| path.to_path_buf())
        });
        let group =
            vici.parsed("group", "a group of this system", report, |text| files.host.group(text));
        let allow_updown = vici.switch("allow_updown", report).unwrap_or(false);
        vici.finish(&[("load", Some("yes"))], report);
        let socket = socket.unwrap_or_else(|| PathBuf::from(SOCKET));
        ViciOptions { socket, group, allow_updown }
    });
    let modules = plugins.section("pkcs11", report).map(|mut pkcs11| {
        let modules = pkcs11.section("modules", report).map(|mut section| {
            let mut modules = Modules::new();
            for (name, mut module) in section.subsections(report) {
                let what = "the absolute path of a shared library";
                let path = module.parsed("path", what, report, |text| {
                    let path = Path::new(text);
                    path.is_absolute().then(|| path.to_path_buf())
                });
                if path.is_none() && module.place("path") == module.offset {
                    module.missing("path", what, report);
                }
                module.finish(&[("os_locking", Some("yes")), ("load_certs", Some("no"))], report);
                modules.extend(path.map(|path| (name.text.to_owned(), path)));
            }
            modules
        });
        pkcs11.finish(&[], report);
        modules.unwrap_or_default()
    });
    if let Some(mut bypass) = plugins.section("bypass-lan", report) {
        set(&mut all.plane.bypass_lan, bypass.switch("load", report));
        bypass.finish(&[("interfaces_ignore", None), ("interfaces_use", None)], report);
    }
    plugins.finish(&[], report);
    all.modules = modules.unwrap_or_default();
}
