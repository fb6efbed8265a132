//! What a signer gives up once the configuration is read.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetStatus,
    path_beneath_rules,
};
use nix::libc;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

use super::{UNKNOWN, filter, linked};

/// What a signer that is sealed may still do.
#[derive(Debug)]
pub(crate) struct SealedSigner<'a> {
    /// The files and folders that it reads; the folders with all that is in them.
    pub(crate) places: Vec<&'a PathBuf>,
    /// It reads nothing else, and writes nothing.
    pub(crate) landlock: bool,
    /// It makes no sockets, starts no programs, and changes no files' owners and modes.
    pub(crate) seccomp: bool,
    /// It has loaded libraries of other people, which may do as their makers like.
    pub(crate) modules: bool,
}

/// Gives up all but what `sealed` says, for this thread and those that it starts from now on. What this kernel lacks is a
/// warning.
///
/// # Errors
///
/// What should have worked did not.
pub(crate) fn seal_signer(sealed: &SealedSigner<'_>) -> io::Result<()> {
    nix::sys::prctl::set_no_new_privs()?;
    if sealed.modules {
        tracing::warn!(
            "sandbox: signer: no Landlock, and other programs may be started, because PKCS#11 modules open files of their own"
        );
    }
    if sealed.landlock {
        match restrict_files(&sealed.places).map_err(io::Error::other)? {
            RulesetStatus::NotEnforced => {
                tracing::warn!("sandbox: signer: this kernel has no such Landlock");
            }
            RulesetStatus::PartiallyEnforced | RulesetStatus::FullyEnforced => {
                tracing::info!(places = ?sealed.places, "sandbox: signer: Landlock: no other files are read");
            }
        }
    }
    if sealed.seccomp {
        let mut programs = vec![filter(sealed.modules).map_err(io::Error::other)?];
        if !sealed.modules {
            programs.push(without_network().map_err(io::Error::other)?);
        }
        let mut applied = programs.iter().try_for_each(|one| seccompiler::apply_filter(one));
        applied = applied.and_then(|()| seccompiler::apply_filter(&UNKNOWN));
        match applied {
            Ok(()) => tracing::info!(modules = sealed.modules, "sandbox: signer: seccomp"),
            Err(error) => {
                tracing::warn!(%error, "sandbox: signer: this kernel has no seccomp filters");
            }
        }
    }
    Ok(())
}

/// The path that must be readable so that `path`, a file or a folder, can be read. The file can be replaced, unless its folder
/// has files of very many programs.
pub(crate) fn place_of(path: &Path) -> PathBuf {
    match fs::metadata(path) {
        Ok(there) if there.is_dir() => path.to_path_buf(),
        _ => match linked(path) {
            crowded if CROWDED.iter().any(|folder| crowded == Path::new(folder)) => {
                path.to_path_buf()
            }
            place => place,
        },
    }
}

/// Folders of very many programs, beside those that [`linked`] knows.
const CROWDED: &[&str] = &["/etc", "/home", "/opt", "/root", "/srv", "/usr", "/var/tmp"];

fn restrict_files(places: &[&PathBuf]) -> Result<RulesetStatus, landlock::RulesetError> {
    let all: BitFlags<AccessFs> = AccessFs::from_all(ABI::V5);
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let ruleset = Ruleset::default().handle_access(all)?;
    let ruleset = ruleset.create()?.add_rules(path_beneath_rules(places, read))?;
    Ok(ruleset.restrict_self()?.ruleset)
}

/// Refuses sockets, and changes of files that Landlock does not see.
fn without_network() -> Result<BpfProgram, seccompiler::Error> {
    let rules: BTreeMap<i64, Vec<_>> =
        NETWORK.iter().chain(FILES).chain(OLD).map(|call| (*call, Vec::new())).collect();
    let eperm = SeccompAction::Errno(libc::EPERM as u32);
    let arch = std::env::consts::ARCH.try_into()?;
    Ok(SeccompFilter::new(rules, SeccompAction::Allow, eperm, arch)?.try_into()?)
}

const NETWORK: &[i64] = &[
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
];

const FILES: &[i64] = &[
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    libc::SYS_mq_open,
    libc::SYS_shmget,
    libc::SYS_kill,
];

#[cfg(target_arch = "x86_64")]
const OLD: &[i64] = &[
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_futimesat,
    libc::SYS_fchmodat2,
];

#[cfg(not(target_arch = "x86_64"))]
const OLD: &[i64] = &[libc::SYS_fchmodat2];
