//! `[charon.session_resumption]`: the keys with which a gateway seals tickets (RFC 5723), and their files.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ike_proto::config::{ResumptionConfig, TicketKey};
use ike_proto::crypto::{Secret, SecureRandom};
use zeroize::Zeroizing;

use super::diagnostic::Report;
use super::secrets::hex;
use super::section::{Section, join};
use super::units;
use crate::files::paths;

/// The first word of a file.
const FORMAT: &str = "ike-ticket-key-1";
/// Octets of a file at the most.
const LONGEST_FILE: u64 = 1024;
/// Keys at the most: each ticket that is none of ours is looked for among those of its id alone, but nobody
/// needs more.
const MOST_KEYS: usize = 64;
/// A month: what is longer says nothing about a session any more.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 3600);

/// Reads it from `[charon]`, and where void tickets are kept. Files are looked for in `folder`.
pub(crate) fn read(
    charon: &mut Section<'_>,
    folder: &Path,
    report: &mut Report<'_>,
) -> (ResumptionConfig, Option<PathBuf>) {
    let mut config = ResumptionConfig::default();
    let Some(mut s) = charon.section("session_resumption", report) else { return (config, None) };
    let what = "files made by `ike-daemon ticket-key`, or folders of them";
    let path = join(&s.path, "keys");
    for item in s.list("keys", what, report).unwrap_or_default() {
        let files = paths::resolve(folder, item.text).and_then(|path| files(&path));
        let keys = files.and_then(|files| files.iter().map(|file| load(file, report)).collect());
        match keys {
            Ok(keys) => config.keys.extend::<Vec<_>>(keys),
            Err(why) => _ = report.add(item.offset, format!("`{path}`: {why}")),
        }
    }
    if config.keys.len() > MOST_KEYS {
        let message = format!("`{path}` has more than {MOST_KEYS} keys");
        report.add(s.place("keys"), message);
    }
    let what = format!("{}, longer than 0, 30d at the most", units::DURATION);
    let lifetime = s.parsed("lifetime", &what, report, |text| {
        units::duration(text).filter(|time| !time.is_zero() && *time <= LONGEST)
    });
    config.lifetime = lifetime.unwrap_or(config.lifetime);
    let void = s.parsed("void_tickets", "an absolute path", report, |text| {
        let path = Path::new(text);
        path.is_absolute().then(|| path.to_path_buf())
    });
    if void.is_some() && config.keys.is_empty() {
        let message = format!("`{}` changes nothing without `keys`", join(&s.path, "void_tickets"));
        report.warn(Some(s.place("void_tickets")), message);
    }
    s.finish(&[], report);
    (config, void)
}

/// The key of a daemon that is given none: its tickets are of no use to others, nor to the next run.
pub(crate) fn of_this_run() -> Arc<TicketKey> {
    static KEY: OnceLock<Arc<TicketKey>> = OnceLock::new();
    Arc::clone(KEY.get_or_init(|| Arc::new(random())))
}

fn random() -> TicketKey {
    let mut rng = pq_kem::os_random();
    let mut id = [0; TicketKey::ID_LEN];
    rng.fill(&mut id);
    let mut secret = Zeroizing::new(vec![0; TicketKey::SECRET_LEN]);
    rng.fill(&mut secret);
    TicketKey { id, secret: Secret::copy_from(&secret) }
}

/// The file, or those of the folder: the last by name first, so that names may be dates.
fn files(path: &Path) -> Result<Vec<PathBuf>, String> {
    if !path.is_dir() {
        return Ok(vec![path.to_path_buf()]);
    }
    let cannot = |error: io::Error| format!("cannot read {path:?}: {error}");
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(cannot)? {
        let file = entry.map_err(cannot)?.path();
        if file.extension().is_some_and(|extension| extension == "key") {
            files.push(file);
        }
    }
    files.sort_unstable_by(|a, b| b.cmp(a));
    match files.is_empty() {
        true => Err(format!("there is no file *.key in {path:?}")),
        false => Ok(files),
    }
}

fn load(file: &Path, report: &mut Report<'_>) -> Result<Arc<TicketKey>, String> {
    let cannot = |error: io::Error| format!("cannot read {file:?}: {error}");
    let meta = fs::metadata(file).map_err(cannot)?;
    if !meta.is_file() || meta.len() > LONGEST_FILE {
        return Err(format!("{file:?} is no ticket key"));
    }
    let mode = meta.permissions().mode();
    if mode & 0o007 != 0 {
        return Err(format!("{file:?}: a ticket key that others may read or write"));
    }
    if mode & 0o077 != 0 {
        let message = format!("{}: a ticket key that its group may read", file.display());
        report.warn(None, message);
    }
    let text = Zeroizing::new(fs::read(file).map_err(cannot)?);
    let key = parse(&text).ok_or_else(|| format!("{file:?} is no ticket key"))?;
    Ok(Arc::new(key))
}

fn parse(text: &[u8]) -> Option<TicketKey> {
    let mut words = std::str::from_utf8(text).ok()?.split_ascii_whitespace();
    if words.next()? != FORMAT {
        return None;
    }
    let id = hex(words.next()?)?.as_slice().try_into().ok()?;
    let secret = hex(words.next()?).filter(|octets| octets.len() == TicketKey::SECRET_LEN)?;
    words.next().is_none().then(|| TicketKey { id, secret: Secret::copy_from(&secret) })
}

/// Makes a file with a new key, which nobody but its owner may read.
///
/// # Errors
///
/// It is there already, or cannot be written.
pub fn make_ticket_key(path: &Path) -> io::Result<()> {
    use std::fmt::Write as _;
    let key = random();
    let mut text = Zeroizing::new(String::with_capacity(LONGEST_FILE as usize));
    text.push_str(FORMAT);
    for part in [&key.id[..], key.secret.expose()] {
        text.push(' ');
        for octet in part {
            let _ = write!(text, "{octet:02x}");
        }
    }
    text.push('\n');
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_is_read_and_nothing_else() {
        let folder = tempfile("made");
        let file = folder.join("a.key");
        make_ticket_key(&file).unwrap();
        assert!(make_ticket_key(&file).is_err(), "nothing is overwritten");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let text = fs::read(&file).unwrap();
        let key = parse(&text).unwrap();
        assert_eq!(key.secret.len(), 32);
        let cut = &text[..text.len() - 2];
        let more = [&text[..], b"x"].concat();
        for bad in [&b""[..], b"ike-ticket-key-1", b"ike-ticket-key-2 00 11", cut, &more] {
            assert!(parse(bad).is_none());
        }
        // The last by name seals.
        make_ticket_key(&folder.join("b.key")).unwrap();
        fs::write(folder.join("README"), "no key").unwrap();
        let names: Vec<_> = files(&folder).unwrap();
        assert_eq!(names, [folder.join("b.key"), file]);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_key_that_others_may_read_is_refused() {
        let folder = tempfile("mode");
        let file = folder.join("a.key");
        make_ticket_key(&file).unwrap();
        for (mode, good, warnings) in [(0o600, true, 0), (0o640, true, 1), (0o604, false, 0)] {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            let mut report = Report::new("");
            assert_eq!(load(&file, &mut report).is_ok(), good, "{mode:o}");
            assert_eq!(report.take_warnings().len(), warnings, "{mode:o}");
        }
        fs::remove_dir_all(&folder).unwrap();
    }

    fn tempfile(name: &str) -> PathBuf {
        let name = format!("ike-tickets-{}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        folder
    }

    #[test]
    fn the_section_and_its_mistakes() {
        let folder = tempfile("section");
        make_ticket_key(&folder.join("1.key")).unwrap();
        let connection = "[connections.c]\nsession_resumption = true\n\
                          local = { auth = 'psk', id = 'a' }\nremote = { auth = 'psk', id = 'b' }\n\
                          children.net = {}\n[secrets.ike]\nsecret = 'x'\n";
        let read = |charon: &str| {
            super::super::parse(&format!("{charon}\n{connection}"), &folder).map(|c| c.endpoint)
        };
        let given = read("[charon.session_resumption]\nkeys = ['1.key']\nlifetime = '8h'").unwrap();
        assert!(given.connections[0].session_resumption);
        assert_eq!(given.resumption.keys.len(), 1);
        assert_eq!(given.resumption.lifetime, Duration::from_secs(8 * 3600));
        // Without one, that of this run, also after a reload.
        let (one, other) = (read("").unwrap(), read("").unwrap());
        assert_eq!(one.resumption.keys[0].id, other.resumption.keys[0].id);
        assert_ne!(one.resumption.keys[0].id, given.resumption.keys[0].id);
        assert!(read("[charon.session_resumption]\nkeys = ['1.key']\nvoid_tickets = '/x'").is_ok());
        assert!(read("[charon.session_resumption]\nvoid_tickets = 'x'").is_err(), "not absolute");
        for wrong in ["keys = ['2.key']", "lifetime = '0s'", "lifetime = '31d'", "key = '1.key'"] {
            assert!(read(&format!("[charon.session_resumption]\n{wrong}")).is_err(), "{wrong}");
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
