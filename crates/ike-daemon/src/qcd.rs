//! The secret that tokens of quick crash detection are made from (RFC 6290): a file that outlives the daemon.
//!
//! One secret a line, 64 hexadecimal digits, the newest first; empty lines and those that begin with `#` are
//! skipped. The first start makes it, for its owner alone.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use ike_proto::crypto::{Secret, SecureRandom};
use zeroize::Zeroizing;

use ike_config::hex;

/// Octets of a secret (RFC 6290 §5.1).
const LENGTH: usize = 32;
/// Generations that are used.
const GENERATIONS: usize = 4;
/// Octets of the file at the most.
const LARGEST: u64 = 4096;

/// The secrets at `path`, which is made if there is none.
///
/// # Errors
/// The file cannot be read or made, is for others to read, or holds something else.
pub(crate) fn open(path: &Path, rng: &mut dyn SecureRandom) -> io::Result<Arc<[Secret]>> {
    match File::open(path) {
        Ok(file) => read(file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => make(path, rng),
        Err(error) => Err(error),
    }
}

/// What is at `path` now. Nothing is made.
///
/// # Errors
/// As for [`open`], and if there is none.
pub(crate) fn again(path: &Path) -> io::Result<Arc<[Secret]>> {
    File::open(path).and_then(read)
}

/// Whether [`open`] would take what is at `path`, which need not be there yet.
///
/// # Errors
/// As for that, but that nothing is made.
pub(crate) fn check(path: &Path) -> io::Result<()> {
    match File::open(path).and_then(read) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn read(file: File) -> io::Result<Arc<[Secret]>> {
    let bad = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why);
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(bad("not a file"));
    }
    if meta.permissions().mode() & 0o007 != 0 {
        return Err(bad("others may read or write it"));
    }
    // It has its size from the start: one that grows leaves copies behind.
    let mut text = Zeroizing::new(String::with_capacity(LARGEST as usize + 1));
    file.take(LARGEST + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LARGEST {
        return Err(bad("too large"));
    }
    let lines =
        text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let secrets: Option<Vec<_>> = lines.map(decode).collect();
    let secrets = secrets.ok_or_else(|| bad("a line that is not 64 hexadecimal digits"))?;
    match secrets.len() {
        0 => Err(bad("no secret in it")),
        1..=GENERATIONS => Ok(secrets.into()),
        _ => Err(bad("more than four secrets")),
    }
}

/// The file is there as a whole or not at all, whatever happens meanwhile.
fn make(path: &Path, rng: &mut dyn SecureRandom) -> io::Result<Arc<[Secret]>> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let mut octets = Zeroizing::new([0; LENGTH]);
    rng.fill(&mut *octets);
    let mut line = Zeroizing::new(String::with_capacity(2 * LENGTH + 1));
    for octet in octets.iter() {
        for digit in [octet >> 4, octet & 15] {
            line.extend(char::from_digit(digit.into(), 16));
        }
    }
    line.push('\n');
    let new = path.with_extension("new");
    // What a crash has left half-written.
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(line.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    if let Some(folder) = path.parent() {
        File::open(folder)?.sync_all()?;
    }
    Ok(Arc::from([Secret::copy_from(&*octets)]))
}

fn decode(line: &str) -> Option<Secret> {
    let octets = hex(line).filter(|octets| octets.len() == LENGTH)?;
    Some(Secret::copy_from(&octets))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> std::path::PathBuf {
        let folder = std::env::temp_dir().join(format!("ike-qcd-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        folder
    }

    #[test]
    fn the_first_start_makes_it_and_the_next_one_finds_it() {
        let folder = folder("first");
        let path = folder.join("state").join("qcd.secret");
        let mut rng = pq_kem::os_random();
        let made = open(&path, &mut rng).expect("made");
        let mode = std::fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let found = open(&path, &mut rng).expect("found");
        assert_eq!((made.len(), found.len(), found[0].len()), (1, 1, LENGTH));
        assert!(made[0].ct_eq(found[0].expose()));
        // A new secret in front, by hand.
        let old = std::fs::read_to_string(&path).expect("text");
        std::fs::write(&path, format!("# new\n{}\n\n{old}", "Ab".repeat(32))).expect("written");
        let both = open(&path, &mut rng).expect("both");
        assert!(both[0].ct_eq(&[0xab; 32]) && both[1].ct_eq(made[0].expose()));
        std::fs::remove_dir_all(folder).expect("removed");
    }

    #[test]
    fn what_is_no_secret_is_refused() {
        let folder = folder("refused");
        let path = folder.join("qcd.secret");
        let good = "5a".repeat(32);
        let five = format!("{good}\n").repeat(5);
        for (text, mode) in [
            ("", 0o600),
            ("# none\n", 0o600),
            (&good[1..], 0o600),
            (&good[2..], 0o600),
            (&format!("{good}00"), 0o600),
            (&good.replace('5', "g"), 0o600),
            (&five, 0o600),
            (&good, 0o644),
            (&format!("# {}\n{good}", "x".repeat(5000)), 0o600),
        ] {
            std::fs::write(&path, text).expect("written");
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("set");
            assert!(open(&path, &mut pq_kem::os_random()).is_err(), "{mode:o} {text:?}");
        }
        assert!(open(&folder, &mut pq_kem::os_random()).is_err(), "a folder");
        std::fs::remove_dir_all(folder).expect("removed");
    }
}
