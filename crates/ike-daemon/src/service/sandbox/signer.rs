//! What a signer gives up once the configuration is read.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetStatus,
    Scope, path_beneath_rules,
};
use nix::libc;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

use super::read_only::calls;
use super::{LINKS, SHARED, UNKNOWN, filter, folder};

/// What a signer that is sealed may still do.
#[derive(Debug)]
pub(crate) struct SealedSigner<'a> {
    /// The files and folders that it reads; the folders with all that is in them.
    pub(crate) places: Vec<&'a PathBuf>,
    /// It reads nothing else, and writes nothing.
    pub(crate) landlock: bool,
    /// It makes no sockets, starts no programs, changes no files, and signals no other process.
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
        // The threads of modules are there already.
        let apply = match sealed.modules {
            true => seccompiler::apply_filter_all_threads,
            false => seccompiler::apply_filter,
        };
        let programs = match sealed.modules {
            true => vec![filter(true)],
            false => vec![calls(false), without_network()],
        };
        let programs = programs.into_iter().collect::<Result<Vec<_>, _>>();
        let programs = programs.map_err(io::Error::other)?;
        let mut applied = programs.iter().try_for_each(|one| apply(one));
        applied = applied.and_then(|()| apply(&UNKNOWN));
        match applied {
            Ok(()) => tracing::info!(modules = sealed.modules, "sandbox: signer: seccomp"),
            Err(error) => {
                tracing::warn!(%error, "sandbox: signer: this kernel has no seccomp filters");
            }
        }
    }
    Ok(())
}

/// What must be readable so that `path`, a file or a folder, can be read, also after the file or a link on the way to it has
/// been replaced. Of a folder that has files of very many programs, the file alone: another one in its place needs a restart.
pub(crate) fn places_of(path: &Path) -> Vec<PathBuf> {
    let mut places = Vec::new();
    let is_folder = fs::metadata(path).is_ok_and(|there| there.is_dir());
    let mut at = path.to_path_buf();
    for _ in 0..LINKS {
        places.push(folder(&at));
        for link in at.ancestors().filter(|one| one.is_symlink()) {
            places.push(folder(link));
            // The next folder may lie beside the one that the link leads to now.
            places.extend(fs::canonicalize(link).ok().as_deref().map(folder));
        }
        match fs::read_link(&at) {
            Ok(target) => at = folder(&at).join(target),
            Err(_) => break,
        }
    }
    if is_folder {
        places.clear();
    }
    let is_crowded = |place: &PathBuf| {
        let place = fs::canonicalize(place);
        let mut crowded = SHARED.iter().chain(CROWDED);
        place.map_or(true, |place| crowded.any(|folder| place == Path::new(folder)))
    };
    places.retain(|place| !is_crowded(place));
    if places.is_empty() {
        places.push(path.to_path_buf());
    }
    places
}

/// Folders of very many programs, beside those of [`SHARED`].
const CROWDED: &[&str] = &["/etc", "/home", "/opt", "/root", "/srv", "/usr", "/var/tmp"];

fn restrict_files(places: &[&PathBuf]) -> Result<RulesetStatus, landlock::RulesetError> {
    let all: BitFlags<AccessFs> = AccessFs::from_all(ABI::V5);
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let ruleset = Ruleset::default().handle_access(all)?.scope(Scope::from_all(ABI::V6))?;
    let ruleset = ruleset.create()?.add_rules(path_beneath_rules(places, read))?;
    Ok(ruleset.restrict_self()?.ruleset)
}

/// Refuses sockets.
fn without_network() -> Result<BpfProgram, seccompiler::Error> {
    let rules: BTreeMap<i64, Vec<_>> = NETWORK.iter().map(|call| (*call, Vec::new())).collect();
    let eperm = SeccompAction::Errno(libc::EPERM as u32);
    let arch = std::env::consts::ARCH.try_into()?;
    Ok(SeccompFilter::new(rules, SeccompAction::Allow, eperm, arch)?.try_into()?)
}

const NETWORK: &[i64] =
    &[libc::SYS_socket, libc::SYS_socketpair, libc::SYS_connect, libc::SYS_bind];
