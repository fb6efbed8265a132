//! `[charon.plugins.vici]`: the VICI socket.

use std::path::{Path, PathBuf};

use super::diagnostic::Report;
use super::section::Section;

/// Where `swanctl` looks unless told otherwise.
const SOCKET: &str = "/run/charon.vici";

/// Reads it from `[charon]`: where the socket is to be, if there is the section.
pub(crate) fn read(charon: &mut Section<'_>, report: &mut Report<'_>) -> Option<PathBuf> {
    let mut plugins = charon.section("plugins", report)?;
    let socket = plugins.section("vici", report).map(|mut vici| {
        let what = "unix:// and an absolute path, as in \"unix:///run/charon.vici\"";
        let socket = vici.parsed("socket", what, report, |text| {
            let path = Path::new(text.strip_prefix("unix://")?);
            path.is_absolute().then(|| path.to_path_buf())
        });
        vici.finish(&[("load", Some("yes"))], report);
        socket.unwrap_or_else(|| PathBuf::from(SOCKET))
    });
    plugins.finish(&[], report);
    socket
}
