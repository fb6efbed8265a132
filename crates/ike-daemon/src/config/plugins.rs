//! `[charon.plugins]`: the VICI socket, and PKCS#11 modules.

use std::path::{Path, PathBuf};

use super::credentials::Modules;
use super::diagnostic::Report;
use super::section::Section;

/// Where `swanctl` looks unless told otherwise.
const SOCKET: &str = "/run/charon.vici";

/// What `[charon.plugins]` says.
#[derive(Debug, Default)]
pub(crate) struct Plugins {
    /// Where the VICI socket is to be, if there is its section.
    pub(crate) vici: Option<PathBuf>,
    /// PKCS#11 modules.
    pub(crate) modules: Modules,
}

/// Reads it from `[charon]`.
pub(crate) fn read(charon: &mut Section<'_>, report: &mut Report<'_>) -> Plugins {
    let Some(mut plugins) = charon.section("plugins", report) else { return Plugins::default() };
    let socket = plugins.section("vici", report).map(|mut vici| {
        let what = "unix:// and an absolute path, as in \"unix:///run/charon.vici\"";
        let socket = vici.parsed("socket", what, report, |text| {
            let path = Path::new(text.strip_prefix("unix://")?);
            path.is_absolute().then(|| path.to_path_buf())
        });
        vici.finish(&[("load", Some("yes"))], report);
        socket.unwrap_or_else(|| PathBuf::from(SOCKET))
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
    plugins.finish(&[], report);
    Plugins { vici: socket, modules: modules.unwrap_or_default() }
}
