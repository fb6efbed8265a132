//! From a text to settings.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};
use zeroize::Zeroizing;

use crate::conf;
use crate::diagnostic::{ConfigError, Diagnostic, Report};
use crate::host::{Files, Host, TextAlone, read_text};
use crate::sections;
use crate::settings::Settings;
use crate::tree::{Entry, Section, owned, wipe, wipe_value};

/// A configuration that was read: its settings, and the mistakes and warnings so far.
///
/// There are settings even if there are mistakes. So a second pass, which loads what the settings name, can add what
/// is wrong with that to the same report.
#[derive(Debug)]
pub struct Reading {
    /// The settings. An option with a mistake has its default.
    pub settings: Settings,
    /// The mistakes and warnings.
    pub report: Report,
    /// The sections themselves, if a file without a mistake was read.
    pub document: Option<Document>,
}

impl Reading {
    /// The settings and the warnings, if there is no mistake.
    ///
    /// # Errors
    /// All mistakes, in the order of the file.
    pub fn finish(mut self) -> Result<(Settings, Vec<String>), Vec<Diagnostic>> {
        let mut warnings = self.report.take_warnings();
        warnings.extend(self.settings.warnings());
        let mistakes = self.report.finish();
        if mistakes.is_empty() { Ok((self.settings, warnings)) } else { Err(mistakes) }
    }
}

/// Reads `text`, which is TOML and names no files.
///
/// # Errors
/// All mistakes, in the order of the text.
pub fn parse(text: &str) -> Result<Settings, Vec<Diagnostic>> {
    read_toml(text, Path::new(""), &TextAlone).finish().map(|(settings, _)| settings)
}

/// Reads the file at `path`: TOML, or the syntax of swanctl.conf(5) if its name ends in `.conf`.
///
/// # Errors
/// Only if the file cannot be read. The mistakes of its content are in the report.
pub fn read_file(path: &Path, host: &dyn Host) -> Result<Reading, ConfigError> {
    let text = read_text(host, path).map_err(|why| ConfigError::whole(path, why))?;
    let folder = path.parent().unwrap_or_else(|| Path::new(""));
    let shared = host.metadata(path).is_ok_and(|meta| meta.mode & 0o004 != 0);
    let secret = text.contains("secret");
    let mut reading = match path.extension().is_some_and(|extension| extension == "conf") {
        true => sections_of(conf::read(path, text, host), folder, host),
        false => toml(text, folder, host),
    };
    if shared && secret {
        let warning = format!(
            "{}: other users may read the secrets in this file; run chmod 600",
            path.display()
        );
        reading.report.warn(None, warning);
    }
    Ok(reading)
}

/// Reads `text`, which is TOML. Relative names of files begin in `folder`.
pub fn read_toml(text: &str, folder: &Path, host: &dyn Host) -> Reading {
    toml(Zeroizing::new(text.to_owned()), folder, host)
}

fn toml(text: Zeroizing<String>, folder: &Path, host: &dyn Host) -> Reading {
    let text = Arc::new(text);
    let mut report = Report::new(Arc::clone(&text));
    let (mut document, syntax) = DeTable::parse_recoverable(&text);
    report.add_syntax(syntax.iter().map(|error| {
        let offset = error.span().map_or(text.len(), |span| span.start);
        (offset, format!("not valid TOML: {}", error.message()))
    }));
    let files = Files { host, folder };
    let settings = sections::read(Section::root(document.get_ref()), files, &mut report);
    let kept = report.is_clean().then(|| Document::new(document.get_ref(), files, true));
    wipe(document.get_mut());
    Reading { settings, report, document: kept }
}

/// Reads `text` in the syntax of swanctl.conf(5) and strongswan.conf(5). Relative names of files begin in `folder`.
pub fn read_conf(text: &str, folder: &Path, host: &dyn Host) -> Reading {
    sections_of(conf::parse(text, folder, host), folder, host)
}

fn sections_of(read: conf::Sections, folder: &Path, host: &dyn Host) -> Reading {
    let conf::Sections { text, sources, mut table, mistakes } = read;
    let mut report = Report::of_files(Arc::new(text), sources);
    report.add_syntax(mistakes);
    let files = Files { host, folder };
    let settings = sections::read(Section::root(&table), files, &mut report);
    let kept = report.is_clean().then(|| Document::new(&table, files, false));
    wipe(&mut table);
    Reading { settings, report, document: kept }
}

/// The sections of a file. An [`Overlay`](crate::Overlay) reads them again, together with loaded sections. The value is
/// wiped when it is dropped, and secrets are never printed.
#[derive(Debug)]
pub struct Document {
    /// Everything, with the content of files in place of `secret_file`.
    pub(crate) all: Entry,
    /// All but connections, authorities and secrets.
    pub(crate) common: Entry,
    /// Relative names of files begin here.
    pub folder: PathBuf,
    /// The file is in this project's own format.
    pub(crate) own: bool,
}

impl Document {
    /// True if its format is swanctl.conf's, so that swanctl may read the same file.
    pub fn is_for_swanctl(&self) -> bool {
        !self.own
    }

    fn new(table: &DeTable<'_>, files: Files<'_>, own: bool) -> Self {
        let mut all = owned(table);
        let mut common = owned(table);
        for section in ["connections", "authorities", "secrets"] {
            let removed = common.remove(section);
            if let Some(mut removed) = removed {
                wipe_value(removed.get_mut());
            }
        }
        if let Some(DeValue::Table(secrets)) = all.get_mut("secrets").map(|s| s.get_mut()) {
            for (_, secret) in secrets.iter_mut() {
                if let DeValue::Table(secret) = secret.get_mut() {
                    take_file(secret, files);
                }
            }
        }
        let entry = |table| Entry::section("", 0, table);
        Self { all: entry(all), common: entry(common), folder: files.folder.into(), own }
    }
}

/// Puts the content of `secret_file` in its place: the file may be gone when it is read again.
fn take_file(secret: &mut DeTable<'static>, files: Files<'_>) {
    let Some(DeValue::String(file)) = secret.get("secret_file").map(|file| file.get_ref()) else {
        return;
    };
    let Ok(octets) = files.host.read(&files.folder.join(file.as_ref()), u64::MAX) else { return };
    let Ok(text) = std::str::from_utf8(&octets) else { return };
    let text = text.trim_end_matches(['\r', '\n']).to_owned();
    if let Some((name, _)) = secret.remove_entry("secret_file") {
        let span = name.span();
        let name = Spanned::new(span.clone(), Cow::Borrowed("secret"));
        secret.insert(name, Spanned::new(span, DeValue::String(Cow::Owned(text))));
    }
}
