//! Reading the files of a folder.

use std::io;
use std::path::{Path, PathBuf};

use ::pki::{Certificate, LoadError, files};

use ike_config::{Content, Report};

use crate::files::{list, load_file};

/// A file of one of the folders.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) path: PathBuf,
    /// Folder and name, as messages show it.
    pub(super) shown: String,
}

impl Entry {
    /// The file's content; reports if it cannot be read.
    pub(super) fn read(&self, report: &mut Report) -> Option<Content> {
        match load_file(&self.path, LARGEST) {
            Ok(content) => Some(content),
            Err(why) => {
                report.about_file(why);
                None
            }
        }
    }

    /// The certificates in it; none, and a report, if it has not one or a bad one.
    pub(super) fn certificates(&self, report: &mut Report) -> Vec<Certificate> {
        let Some(content) = self.read(report) else { return Vec::new() };
        match files::load_certificates(&content) {
            Ok(certificates) => certificates,
            Err(why) => {
                self.wrong(why, "X.509 certificates, PEM or DER", report);
                Vec::new()
            }
        }
    }

    /// Reports that the content is not what it should be.
    pub(super) fn wrong(&self, why: LoadError, expected: &str, report: &mut Report) {
        report.about_file(format!("{}: {why}", self.shown)).expected = Some(expected.to_owned());
    }
}

/// The files of a folder by name; none if there is no such folder. Hidden ones are left out, as
/// editors leave such behind.
pub(super) fn entries(parent: &Path, folder: &str, report: &mut Report) -> Vec<Entry> {
    let path = parent.join(folder);
    match list(&path) {
        Ok(names) => names
            .into_iter()
            .map(|name| Entry { path: path.join(&name), shown: format!("{folder}/{name}") })
            .collect(),
        Err(why) if why.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(why) => {
            report.about_file(format!("cannot read the folder {folder}: {why}"));
            Vec::new()
        }
    }
}

/// The names in a folder, as far as they can be read.
pub(super) fn names(parent: &Path, folder: &str) -> Vec<String> {
    list(&parent.join(folder)).unwrap_or_default()
}

/// Octets of a file with certificates or keys.
pub(super) const LARGEST: usize = 1 << 20;
