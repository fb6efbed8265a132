//! Keys with which a gateway seals tickets (RFC 5723): made for a run, or in a file.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use ike_proto::config::TicketKey;
use ike_proto::crypto::{Secret, SecureRandom};
use zeroize::Zeroizing;

/// The key of a daemon that is given none: its tickets are of no use to others, nor to the next run.
pub(super) fn of_this_run() -> Arc<TicketKey> {
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

/// Makes a file with a new key, which nobody but its owner may read.
///
/// # Errors
///
/// It is there already, or cannot be written.
pub fn make_ticket_key(path: &Path) -> io::Result<()> {
    let text = ike_config::ticket_key_text(&random());
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;
    use std::time::Duration;

    use super::*;
    use crate::config::Config;

    /// A configuration with `keys` of `[charon.session_resumption]`.
    fn read(folder: &Path, keys: &str) -> Result<Config, String> {
        let text = format!("[charon.session_resumption]\nkeys = ['{keys}']\n");
        crate::config::parse(&text, folder).map_err(|wrong| format!("{wrong:?}"))
    }

    #[test]
    fn what_is_made_is_read() {
        let folder = tempfile("made");
        let file = folder.join("a.key");
        make_ticket_key(&file).unwrap();
        assert!(make_ticket_key(&file).is_err(), "nothing is overwritten");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let keys = |name: &str| read(&folder, name).map(|config| config.endpoint.resumption.keys);
        let first = keys("a.key").unwrap();
        assert_eq!((first.len(), first[0].secret.len()), (1, 32));
        // The last by name seals.
        make_ticket_key(&folder.join("b.key")).unwrap();
        fs::write(folder.join("README"), "no key").unwrap();
        let second = keys("b.key").unwrap();
        let ids: Vec<_> = keys(".").unwrap().iter().map(|key| key.id).collect();
        assert_eq!(ids, [second[0].id, first[0].id]);
        assert!(keys("README").is_err());
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_key_that_others_may_read_is_refused() {
        let folder = tempfile("mode");
        let file = folder.join("a.key");
        make_ticket_key(&file).unwrap();
        for (mode, group_is_told) in [(0o600, Some(false)), (0o640, Some(true)), (0o604, None)] {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            let told = |config: Config| config.warnings.iter().any(|w| w.contains("its group"));
            assert_eq!(read(&folder, "a.key").ok().map(told), group_is_told, "{mode:o}");
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
            crate::config::parse(&format!("{charon}\n{connection}"), &folder).map(|c| c.endpoint)
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
