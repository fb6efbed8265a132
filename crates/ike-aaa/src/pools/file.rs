//! Leases that outlive the daemon: a file of JSON, one lease a line, replaced as a whole by a thread of its
//! own some time after a change, and at the end.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::net::IpAddr;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use ike_proto::wire::payload::IdData;
use ike_proto::wire::registry::IdType;
use serde::{Deserialize, Serialize};

use super::Inner;

/// How long changes are collected. Who crashes within that forgets them: a peer may get another address then.
const COLLECT: Duration = Duration::from_secs(1);

/// The file has names of users, so its owner alone may read it, whatever the umask is.
const MODE: u32 = 0o600;

/// One line.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    address: IpAddr,
    /// Identification type (RFC 7296 §3.5).
    id_type: u8,
    /// Its data, in hexadecimal.
    id: String,
    /// The same for people.
    #[serde(default)]
    name: String,
}

/// Where leases are kept.
pub(super) struct LeaseFile {
    path: PathBuf,
    bell: mpsc::Sender<()>,
    dirty: bool,
}

impl LeaseFile {
    pub(super) fn new(path: PathBuf, inner: Weak<Mutex<Inner>>) -> Self {
        let (bell, rung) = mpsc::channel();
        let writer = thread::Builder::new().name("ike-leases".into());
        if let Err(error) = writer.spawn(move || write_when_rung(&rung, &inner)) {
            tracing::error!(%error, "leases are written at the end only");
        }
        Self { path, bell, dirty: false }
    }

    /// Leases have changed. Only new ones do: who has gone keeps his.
    pub(super) fn changed(&mut self) {
        if !std::mem::replace(&mut self.dirty, true) {
            // Without the thread it is written at the end.
            let _ = self.bell.send(());
        }
    }
}

fn write_when_rung(rung: &mpsc::Receiver<()>, inner: &Weak<Mutex<Inner>>) {
    while rung.recv().is_ok() {
        // The end does not wait for this.
        loop {
            match rung.recv_timeout(COLLECT) {
                Ok(()) => {}
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
        let Some(inner) = inner.upgrade() else { return };
        let (path, lines) = {
            let mut inner = inner.lock().unwrap_or_else(PoisonError::into_inner);
            let lines = inner.lines();
            let Some(file) = &mut inner.file else { return };
            file.dirty = false;
            (file.path.clone(), lines)
        };
        // Not under the lock: a disk may be slow.
        save(&path, &lines);
    }
}

impl Inner {
    fn lines(&self) -> Vec<Line> {
        let leases = self.pools.iter().flat_map(|pool| pool.leases.views());
        let leases = leases.map(|lease| (lease.address, lease.identity));
        // The next run may have their pool again.
        let outside = self.outside.iter();
        let outside = outside.map(|(address, lease)| (*address, lease.identity.clone()));
        leases
            .chain(outside)
            .filter_map(|(address, id)| {
                let id = id?;
                Some(Line {
                    address,
                    id_type: id.kind.0,
                    name: id.to_string(),
                    id: id.data.iter().map(|octet| format!("{octet:02x}")).collect(),
                })
            })
            .collect()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(file) = self.file.as_ref().filter(|file| file.dirty) {
            save(&file.path, &self.lines());
        }
    }
}

fn save(path: &Path, lines: &[Line]) {
    if let Err(error) = write(path, lines) {
        tracing::error!(file = %path.display(), %error, "leases not written");
    }
}

/// The file is the old one or the new one, whatever happens meanwhile.
fn write(path: &Path, lines: &[Line]) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let new = path.with_extension("new");
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(MODE).open(&new)?;
    // A file that a crash left may have another mode.
    file.set_permissions(fs::Permissions::from_mode(MODE))?;
    let mut out = BufWriter::new(file);
    for line in lines {
        serde_json::to_writer(&mut out, line)?;
        out.write_all(b"\n")?;
    }
    let file = out.into_inner().map_err(std::io::IntoInnerError::into_error)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    // The name of the file is in its folder, which a crash of the host may take back otherwise.
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

/// The leases at `path`. Lines that are not understood are left out.
pub(super) fn load(path: &Path) -> Vec<(IpAddr, IdData)> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) => {
            if error.kind() != std::io::ErrorKind::NotFound {
                tracing::error!(file = %path.display(), %error, "leases not read");
            }
            return Vec::new();
        }
    };
    let mut kept = Vec::new();
    let mut bad = 0_usize;
    for line in BufReader::new(file).lines() {
        let Ok(line) = line else { break };
        let parsed = serde_json::from_str::<Line>(&line).ok();
        match parsed.and_then(|line| Some((line.address, IdType(line.id_type), octets(&line.id)?)))
        {
            Some((address, kind, data)) => kept.push((address, IdData { kind, data })),
            None => bad += 1,
        }
    }
    tracing::info!(file = %path.display(), leases = kept.len(), bad, "leases of earlier runs");
    kept
}

fn octets(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let octet = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    if rest.is_empty() { pairs.iter().map(octet).collect() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Faults, each by itself: in `write`, leave out the mode; there, leave out the permissions.
    #[test]
    fn who_has_which_address_is_for_the_owner_of_the_file_alone() {
        let folder = std::env::temp_dir().join(format!("ike-leases-mode-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("leases.json");
        let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        write(&path, &[]).unwrap();
        assert_eq!(mode(), 0o600);
        let left = path.with_extension("new");
        fs::write(&left, "half a li").unwrap();
        fs::set_permissions(&left, fs::Permissions::from_mode(0o644)).unwrap();
        write(&path, &[]).unwrap();
        assert_eq!(mode(), 0o600);
        fs::remove_dir_all(&folder).unwrap();
    }
}
