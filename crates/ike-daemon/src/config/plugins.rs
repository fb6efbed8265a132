//! `[charon.plugins]`: the VICI socket, PKCS#11 modules, EAP, and name servers.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::credentials::Modules;
use super::diagnostic::Report;
use super::eap;
use super::remote_access::{self, RemoteAccess};
use super::section::Section;
use crate::eap::EapBook;

/// Where `swanctl` looks unless told otherwise.
const SOCKET: &str = "/run/charon.vici";

/// What `[charon.plugins]` says.
#[derive(Debug, Default)]
pub(crate) struct Plugins {
    /// Where the VICI socket is to be, if there is its section.
    pub(crate) vici: Option<PathBuf>,
    /// The group that may use it beside its owner.
    pub(crate) vici_group: Option<u32>,
    /// Connections that clients load may have an `updown`.
    pub(crate) vici_updown: bool,
    /// PKCS#11 modules.
    pub(crate) modules: Modules,
    /// `bypass-lan`: own networks stay reachable beside a full tunnel, if it says.
    pub(crate) bypass_lan: Option<bool>,
}

/// Reads it from `[charon]`.
pub(crate) fn read(
    charon: &mut Section<'_>,
    folder: &Path,
    book: &mut EapBook,
    access: &mut RemoteAccess,
    report: &mut Report<'_>,
) -> Plugins {
    let tls = charon.section("tls", report);
    let Some(mut plugins) = charon.section("plugins", report) else {
        book.options = eap::tls(tls, None, report);
        return Plugins::default();
    };
    book.options = eap::tls(tls, Some(&mut plugins), report);
    let radius = plugins.section("eap-radius", report);
    book.radius = radius.and_then(|s| eap::radius(s, folder, report)).map(Arc::new);
    access.resolve = remote_access::resolve(&mut plugins, report);
    let socket = plugins.section("vici", report).map(|mut vici| {
        let what = "unix:// and an absolute path, as in \"unix:///run/charon.vici\"";
        let socket = vici.parsed("socket", what, report, |text| {
            let path = Path::new(text.strip_prefix("unix://")?);
            path.is_absolute().then(|| path.to_path_buf())
        });
        let group = vici.parsed("group", "a group of this system", report, |text| {
            nix::unistd::Group::from_name(text).ok().flatten().map(|group| group.gid.as_raw())
        });
        let updown = vici.switch("allow_updown", report).unwrap_or(false);
        vici.finish(&[("load", Some("yes"))], report);
        (socket.unwrap_or_else(|| PathBuf::from(SOCKET)), group, updown)
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
    let bypass_lan = plugins.section("bypass-lan", report).and_then(|mut bypass| {
        let load = bypass.switch("load", report);
        bypass.finish(&[("interfaces_ignore", None), ("interfaces_use", None)], report);
        load
    });
    plugins.finish(&[], report);
    let modules = modules.unwrap_or_default();
    let mut read = Plugins { modules, bypass_lan, ..Plugins::default() };
    if let Some((socket, group, updown)) = socket {
        (read.vici, read.vici_group, read.vici_updown) = (Some(socket), group, updown);
    }
    read
}
