//! `[charon.session_resumption]`: the keys with which a gateway seals tickets (RFC 5723), and their files.

use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ike_proto::config::{ResumptionConfig, TicketKey};
use ike_proto::crypto::Secret;
use zeroize::Zeroizing;

use super::secrets::hex;
use crate::diagnostic::Report;
use crate::host::{Files, Host};
use crate::tree::{Section, join};
use crate::units;

/// The first word of a file.
const FORMAT: &str = "ike-ticket-key-1";
/// Octets of a file at the most.
const LONGEST_FILE: u64 = 1024;
/// Keys at the most: each ticket that is none of ours is looked for among those of its id alone, but nobody
/// needs more.
const MOST_KEYS: usize = 64;
/// A month: after a longer time a ticket says nothing about a session any more.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 3600);

/// Reads it from `[charon]`, and where void tickets are kept.
pub(crate) fn read(
    charon: &mut Section<'_>,
    files: Files<'_>,
    report: &mut Report,
) -> (ResumptionConfig, Option<PathBuf>) {
    let mut config = ResumptionConfig::default();
    let Some(mut s) = charon.section("session_resumption", report) else { return (config, None) };
    let what = "files made by `ike-daemon ticket-key`, or folders of them";
    let path = join(&s.path, "keys");
    for item in s.list("keys", what, report).unwrap_or_default() {
        let host = files.host;
        let found = files.resolve(item.text).and_then(|path| self::files(host, &path));
        let keys = found.and_then(|all| all.iter().map(|file| load(host, file, report)).collect());
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

/// The file, or those of the folder: the last by name first, so that names may be dates.
fn files(host: &dyn Host, path: &Path) -> Result<Vec<PathBuf>, String> {
    if !host.metadata(path).is_ok_and(|meta| meta.is_folder) {
        return Ok(vec![path.to_path_buf()]);
    }
    let cannot = |error: io::Error| format!("cannot read {path:?}: {error}");
    let mut files = host.entries(path).map_err(cannot)?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "key"));
    files.sort_unstable_by(|a, b| b.cmp(a));
    match files.is_empty() {
        true => Err(format!("there is no file *.key in {path:?}")),
        false => Ok(files),
    }
}

fn load(host: &dyn Host, file: &Path, report: &mut Report) -> Result<Arc<TicketKey>, String> {
    let cannot = |error: io::Error| format!("cannot read {file:?}: {error}");
    let meta = host.metadata(file).map_err(cannot)?;
    if !meta.is_file || meta.len > LONGEST_FILE {
        return Err(format!("{file:?} is no ticket key"));
    }
    if meta.mode & 0o007 != 0 {
        return Err(format!("{file:?}: a ticket key that others may read or write"));
    }
    if meta.mode & 0o077 != 0 {
        let message = format!("{}: a ticket key that its group may read", file.display());
        report.warn(None, message);
    }
    let text = host.read(file, LONGEST_FILE).map_err(cannot)?;
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

/// The text of a file with `key`, which `keys` of `[charon.session_resumption]` takes.
pub fn ticket_key_text(key: &TicketKey) -> Zeroizing<String> {
    let mut text = Zeroizing::new(String::with_capacity(LONGEST_FILE as usize));
    text.push_str(FORMAT);
    for part in [&key.id[..], key.secret.expose()] {
        text.push(' ');
        for octet in part {
            // A string takes every text.
            let _ = write!(text, "{octet:02x}");
        }
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_else() {
        let (id, secret) = ([7; TicketKey::ID_LEN], Secret::copy_from(&[9; TicketKey::SECRET_LEN]));
        let text = ticket_key_text(&TicketKey { id, secret });
        let key = parse(text.as_bytes()).unwrap();
        assert_eq!((key.id, key.secret.expose()), (id, &[9; TicketKey::SECRET_LEN][..]));
        let cut = &text.as_bytes()[..text.len() - 2];
        let more = [text.as_bytes(), b"x"].concat();
        for bad in [&b""[..], b"ike-ticket-key-1", b"ike-ticket-key-2 00 11", cut, &more] {
            assert!(parse(bad).is_none());
        }
    }
}
