//! This host, as the readers of a configuration ask for it.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use ike_config::{Content, Host, Metadata};
use ike_proto::config::{AuthConfig, AuthParseError, ProposalConfig};
use ike_proto::crypto::CryptoProvider;
use zeroize::Zeroizing;

/// The files, groups, processors and cryptography of this host.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ThisHost<'a> {
    pub(crate) crypto: &'a CryptoProvider,
}

/// The algorithms of ike-pq-kem alone.
pub(crate) fn built_in() -> &'static Arc<CryptoProvider> {
    static BUILT_IN: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| Arc::new(pq_kem::provider()));
    &BUILT_IN
}

impl Host for ThisHost<'_> {
    fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        let meta = fs::metadata(path)?;
        Ok(Metadata {
            is_file: meta.is_file(),
            is_folder: meta.is_dir(),
            len: meta.len(),
            mode: meta.permissions().mode() & 0o7777,
        })
    }

    fn read(&self, path: &Path, limit: u64) -> io::Result<Content> {
        let file = File::open(path)?;
        let len = file.metadata()?.len().min(limit);
        // The buffer has its size from the start: one that grows leaves copies behind.
        let mut content = Zeroizing::new(Vec::with_capacity(len as usize + 1));
        file.take(limit.saturating_add(1)).read_to_end(&mut content)?;
        Ok(content)
    }

    fn entries(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        fs::read_dir(path)?.map(|entry| entry.map(|entry| entry.path())).collect()
    }

    fn included(&self, folder: &Path, pattern: &str) -> Result<Vec<PathBuf>, String> {
        if pattern.is_empty() {
            return Err("expected a file, or a pattern of files".to_owned());
        }
        let wild = pattern.contains(['*', '?', '[']);
        let full = folder.join(pattern);
        if !wild {
            return Ok(vec![full]);
        }
        // What is in the name of the folder is no wildcard.
        let full = match Path::new(pattern).is_absolute() {
            true => pattern.to_owned(),
            false => {
                let folder = folder.to_str().ok_or("the folder's name is not UTF-8 text")?;
                let folder = if folder.is_empty() { "." } else { folder };
                format!("{}/{pattern}", glob::Pattern::escape(folder))
            }
        };
        let options =
            glob::MatchOptions { require_literal_leading_dot: true, ..glob::MatchOptions::new() };
        let found = glob::glob_with(&full, options).map_err(|why| why.msg.to_owned())?;
        let files = found.map(|file| file.map_err(|why| why.to_string()));
        let files = files.filter(|file| file.as_ref().map_or(true, |file| file.is_file()));
        files.collect()
    }

    fn real_path(&self, path: &Path) -> PathBuf {
        path.canonicalize().unwrap_or_else(|_| path.to_path_buf())
    }

    fn credentials(&self) -> Option<PathBuf> {
        super::paths::given_credentials()
    }

    fn group(&self, name: &str) -> Option<u32> {
        nix::unistd::Group::from_name(name).ok().flatten().map(|group| group.gid.as_raw())
    }

    fn processors(&self) -> usize {
        std::thread::available_parallelism().map_or(1, |count| count.get())
    }

    fn auth(&self, text: &str) -> Result<AuthConfig, AuthParseError> {
        AuthConfig::parse_with(&self.crypto.schemes, text)
    }

    fn supported(&self, proposal: &ProposalConfig) -> Option<ProposalConfig> {
        proposal.supported_by(self.crypto)
    }
}
