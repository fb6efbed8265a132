//! Quick crash detection (RFC 6290): where the secret of this host is kept.

use std::path::{Path, PathBuf};

use crate::diagnostic::Report;
use crate::tree::Section;

/// Reads what is in `[charon]` itself.
pub(crate) fn read(s: &mut Section<'_>, report: &mut Report) -> Option<PathBuf> {
    s.parsed("qcd_secret", "an absolute path", report, |text| {
        let path = Path::new(text);
        path.is_absolute().then(|| path.to_path_buf())
    })
}
