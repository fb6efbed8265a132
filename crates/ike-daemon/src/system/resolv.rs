//! Name servers that peers assign, where this host looks for them.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::net::IpAddr;
use std::path::Path;

use super::hooks::Job;
use crate::config::Resolve;

/// Ends the lines that are ours.
const MARK: &str = "   # by ike-daemon";

/// Those in use, each with the number of assignments that name it, in the order they came.
#[derive(Debug, Default)]
pub(super) struct NameServers(Vec<(IpAddr, usize)>);

impl NameServers {
    /// Counts `servers` in or out; what is to be done about it.
    pub(super) fn change(
        &mut self,
        servers: impl Iterator<Item = IpAddr>,
        up: bool,
        resolve: &Resolve,
    ) -> Vec<Job> {
        let mut changed = Vec::new();
        for server in servers {
            match (self.0.iter_mut().find(|(known, _)| *known == server), up) {
                (Some((_, count)), true) => *count += 1,
                (None, true) => {
                    self.0.push((server, 1));
                    changed.push((server, true));
                }
                (Some((_, count)), false) => {
                    *count -= 1;
                    if *count == 0 {
                        self.0.retain(|(known, _)| *known != server);
                        changed.push((server, false));
                    }
                }
                (None, false) => {}
            }
        }
        self.jobs(&changed, resolve)
    }

    /// There are none any more.
    pub(super) fn forget_all(&mut self, resolve: &Resolve) -> Vec<Job> {
        let gone: Vec<_> = self.0.drain(..).map(|(server, _)| (server, false)).collect();
        self.jobs(&gone, resolve)
    }

    fn jobs(&self, changed: &[(IpAddr, bool)], resolve: &Resolve) -> Vec<Job> {
        match resolve {
            _ if changed.is_empty() => Vec::new(),
            Resolve::File(path) => {
                let all = self.0.iter().map(|(server, _)| *server).collect();
                vec![Job::ResolvConf(path.clone(), all)]
            }
            Resolve::Resolvconf { path, iface } => {
                let job = |(server, up): &(IpAddr, bool)| Job::Resolvconf {
                    path: path.clone(),
                    name: format!("{iface}.{server}"),
                    server: up.then_some(*server),
                };
                changed.iter().map(job).collect()
            }
        }
    }
}

/// Puts `servers` in front of what else is in the file, in the place of ours. It is replaced as a whole, or written
/// where it is if its folder lets no file be added or replaced. If there is no room for it, it stays as it was.
pub(super) fn write(path: &Path, servers: &[IpAddr]) -> io::Result<()> {
    // It may be a link to where another program keeps it.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let old = match fs::read_to_string(&path) {
        Ok(old) => old,
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error),
    };
    let ours = servers.iter().map(|server| format!("nameserver {server}{MARK}\n"));
    let theirs = old.split_inclusive('\n').filter(|line| !line.trim_end().ends_with(MARK.trim()));
    let new: String = ours.chain(theirs.map(str::to_owned)).collect();
    if new == old {
        return Ok(());
    }
    let beside = path.with_extension("ike-new");
    let replaced = fs::write(&beside, &new)
        .and_then(|()| match fs::metadata(&path) {
            Ok(meta) => fs::set_permissions(&beside, meta.permissions()),
            Err(_) => Ok(()),
        })
        .and_then(|()| fs::rename(&beside, &path));
    let Err(error) = replaced else { return Ok(()) };
    // What was written is of no use.
    let _ = fs::remove_file(&beside);
    if !is_of_the_folder(&error) {
        return Err(error);
    }
    in_place(&path, &new).inspect_err(|_| {
        // As before: that had room.
        let _ = in_place(&path, &old);
    })
}

/// True if a folder is not this process's to change, or the file in it is a mount of its own, as in containers.
fn is_of_the_folder(error: &io::Error) -> bool {
    use ErrorKind::{CrossesDevices, PermissionDenied, ReadOnlyFilesystem, ResourceBusy};
    matches!(error.kind(), PermissionDenied | ReadOnlyFilesystem | ResourceBusy | CrossesDevices)
}

/// Writes over what a file has. It becomes shorter last, because its octets are the only copy.
fn in_place(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
    file.write_all(text.as_bytes())?;
    file.set_len(text.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_wrote_stays_and_ours_goes() {
        let folder = std::env::temp_dir().join(format!("ike-resolv-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("resolv.conf");
        let theirs = "# mine\nnameserver 192.0.2.53\nsearch example.org";
        fs::write(&path, theirs).unwrap();
        write(&path, &["10.1.0.53".parse().unwrap(), "fec1::53".parse().unwrap()]).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("nameserver 10.1.0.53   # by"), "{text}");
        assert!(text.contains("\nnameserver fec1::53 ") && text.ends_with(theirs), "{text}");
        write(&path, &["10.1.0.54".parse().unwrap()]).unwrap();
        assert!(!fs::read_to_string(&path).unwrap().contains("10.1.0.53"));
        write(&path, &[]).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), theirs);
        fs::remove_dir_all(&folder).unwrap();
    }

    /// Fault: in `write`, write where the file is after every failure.
    #[test]
    fn a_file_that_cannot_be_replaced_stays_as_it_is_unless_its_folder_is_the_reason() {
        let folder = std::env::temp_dir().join(format!("ike-resolv-full-{}", std::process::id()));
        let path = folder.join("resolv.conf");
        // No file can be made beside it, and it is not a permission that is missing.
        fs::create_dir_all(folder.join("resolv.ike-new").join("x")).unwrap();
        let theirs = "nameserver 192.0.2.53\n";
        fs::write(&path, theirs).unwrap();
        assert!(write(&path, &["10.1.0.53".parse().unwrap()]).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), theirs);
        for why in [ErrorKind::StorageFull, ErrorKind::QuotaExceeded, ErrorKind::Other] {
            assert!(!is_of_the_folder(&why.into()), "{why}");
        }
        for why in [ErrorKind::PermissionDenied, ErrorKind::ResourceBusy] {
            assert!(is_of_the_folder(&why.into()), "{why}");
        }
        fs::remove_dir_all(&folder).unwrap();
    }

    /// Fault: in `in_place`, leave out `set_len`, or truncate first.
    #[test]
    fn what_is_written_in_place_is_all_there_is() {
        let folder = std::env::temp_dir().join(format!("ike-resolv-place-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("resolv.conf");
        for text in ["a longer text\n", "short\n", "", "once more a longer text\n"] {
            in_place(&path, text).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_server_stays_while_one_assignment_names_it() {
        let resolve =
            Resolve::Resolvconf { path: "/sbin/resolvconf".into(), iface: "lo.ipsec".to_owned() };
        let server: IpAddr = "10.1.0.53".parse().unwrap();
        let mut servers = NameServers::default();
        let mut change = |up| servers.change([server].into_iter(), up, &resolve).len();
        assert_eq!([change(true), change(true), change(false), change(false)], [1, 0, 0, 1]);
        assert_eq!(change(false), 0);
    }
}
