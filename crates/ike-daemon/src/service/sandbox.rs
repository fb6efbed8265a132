//! The privileges that the daemon drops before it opens a socket and cannot regain: capabilities, files and
//! system calls. Threads inherit the restrictions, so the daemon drops them while it has one thread.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use caps::{CapSet, Capability, CapsHashSet};
use ike_config::SandboxOptions;
use landlock::{
    ABI, AccessFs, BitFlags, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreatedAttr,
    path_beneath_rules,
};
use nix::libc;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, sock_filter,
};

use crate::files::paths;

pub(crate) mod names;
mod read_only;
mod signer;

pub(crate) use signer::{SealedSigner, places_of, seal_signer};

/// What sockets, ports below 1024 and data planes need.
const KEPT: [Capability; 3] =
    [Capability::CAP_NET_ADMIN, Capability::CAP_NET_RAW, Capability::CAP_NET_BIND_SERVICE];

/// Files of the system that are read: those of the configuration, time zones, libraries, the kernel's figures.
const READ: &[&str] = &["/etc", "/usr", "/lib", "/lib64", "/proc", "/sys"];

/// Files of the C library's resolver. Network managers make links of them to folders of their own. The daemon does not
/// call it, but programs do that the daemon starts.
const RESOLVER: &[&str] =
    &["/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/host.conf", "/etc/gai.conf"];

/// Folders of very many programs: of these a link opens its file alone.
const SHARED: &[&str] = &["/", "/run", "/var", "/var/lib", "/tmp", "/mnt"];

/// The most links in a row that are followed, as the kernel does.
const LINKS: usize = 40;

/// Programs of other people and what they are made of, with `programs`.
const RUN: &[&str] = &["/bin", "/sbin", "/etc", "/usr", "/lib", "/lib64"];

/// Devices.
const DEVICES: &[&str] = &["/dev/net/tun", "/dev/null", "/dev/urandom", "/dev/random"];

/// Rights of this version of Landlock; what later ones have added is left as it is.
const LANDLOCK: ABI = ABI::V4;

/// Files of this run.
#[derive(Debug, Clone, Default)]
pub struct Files {
    /// The configuration file: the folder it lies in is read.
    pub config: PathBuf,
    /// Sockets and files that are made and replaced: the folders they lie in are written to.
    pub written: Vec<PathBuf>,
}

impl Files {
    /// Whether files can be made in the folders of [`Self::written`].
    fn are_writable(&self) -> bool {
        use rustix::fs::{Access, AtFlags, CWD, accessat};
        self.written
            .iter()
            .all(|file| accessat(CWD, folder(file), Access::WRITE_OK, AtFlags::EACCESS).is_ok())
    }
}

/// The privileges to be dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    capabilities: bool,
    /// A capability for files of other users, kept beside [`KEPT`].
    files_of_others: Option<Capability>,
    landlock: bool,
    seccomp: bool,
    programs: bool,
    /// Each step must succeed.
    demanded: bool,
}

impl Plan {
    /// Makes the plan of `options`. `programs` is true if the configuration starts other programs.
    pub fn new(options: SandboxOptions, programs: bool) -> Self {
        Self {
            capabilities: options.capabilities,
            files_of_others: None,
            // Nothing is known of the files that an administrator's program opens.
            landlock: options.landlock && (options.demanded || !programs),
            seccomp: options.seccomp,
            programs: options.programs.unwrap_or(programs),
            demanded: options.demanded,
        }
    }

    /// The strictest variant of a plan that is not demanded under which `works` succeeds, or this plan if none does.
    ///
    /// A configuration that names files in unusual places, or files of another user, works without
    /// `[charon.sandbox]`. Each variant is tried in a thread of its own, because a thread cannot regain privileges.
    pub fn relaxed_until<E: Send>(
        self,
        files: &Files,
        works: impl Fn() -> Result<(), E> + Sync,
    ) -> Self {
        if self.demanded {
            return self;
        }
        let capabilities =
            [None, Some(Capability::CAP_DAC_READ_SEARCH), Some(Capability::CAP_DAC_OVERRIDE)];
        let mut variants = capabilities.into_iter().flat_map(|files_of_others| {
            let same = Self { files_of_others, ..self };
            [same, Self { landlock: false, ..same }]
        });
        let holds = |plan: &Self| {
            let attempt = || {
                plan.restrict_thread(files, Level::Trial).is_ok()
                    && files.are_writable()
                    && works().is_ok()
            };
            std::thread::scope(|scope| scope.spawn(attempt).join().unwrap_or(false))
        };
        variants.find(holds).unwrap_or(self)
    }

    /// Drops the capabilities and files of this thread, and those of threads that it starts from now on.
    fn restrict_thread(&self, files: &Files, level: Level) -> io::Result<()> {
        if self.capabilities {
            let kept: Vec<_> = KEPT.iter().copied().chain(self.files_of_others).collect();
            let left = drop_capabilities(&kept).map_err(io::Error::other)?;
            if level == Level::Real {
                tracing::info!(?left, "sandbox: capabilities");
            }
        }
        // Without it a program could regain privileges by a set-user-ID bit. Seccomp and Landlock require it.
        nix::sys::prctl::set_no_new_privs()?;
        if self.landlock {
            match (restrict_files(self.programs, files), level) {
                (_, Level::Trial) => {}
                (Ok(()), Level::Real) => {
                    tracing::info!(
                        config = %files.config.display(),
                        "sandbox: Landlock: the daemon opens no files elsewhere, at a reload either"
                    );
                    for file in RESOLVER.iter().filter(|_| self.programs) {
                        if let Some(folder) = later(&linked(Path::new(file))) {
                            tracing::warn!(
                                file,
                                folder = %folder.display(),
                                "sandbox: the file leads to what is not there yet: programs of the daemon read all of this folder"
                            );
                        }
                    }
                }
                (Err(error), Level::Real) => {
                    tracing::warn!(%error, "sandbox: this kernel has no such Landlock");
                }
            }
        }
        Ok(())
    }

    /// Says why this plan is less strict than the `strictest` one.
    fn explain(&self, strictest: bool) {
        if strictest && !self.landlock {
            tracing::info!(
                "sandbox: no Landlock: the configuration starts programs or names files outside its folder; \
                 `landlock = true` in [charon.sandbox] demands it"
            );
        }
        if let Some(kept) = self.files_of_others {
            tracing::warn!(
                %kept,
                "sandbox: capability kept, because files of the configuration belong to another user: make the user of this process their owner"
            );
        }
    }
}

/// Whether privileges are dropped for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    /// By a thread that tries something and ends.
    Trial,
    /// By the process.
    Real,
}

/// Drops the privileges of `plan`, in a process with one thread. The log tells each step.
///
/// From then on nobody traces this process or reads its memory but a process with CAP_SYS_PTRACE, and it leaves no core.
///
/// # Errors
///
/// A step failed that this kernel supports, or that `[charon.sandbox]` demands.
pub fn enter(plan: Plan, files: &Files) -> io::Result<()> {
    nix::sys::prctl::set_dumpable(false)?;
    plan.restrict_thread(files, Level::Real)?;
    plan.explain(!plan.demanded);
    if plan.seccomp {
        let program = filter(plan.programs).map_err(io::Error::other)?;
        let applied = seccompiler::apply_filter(&program);
        match applied.and_then(|()| seccompiler::apply_filter(&UNKNOWN)) {
            Ok(()) => tracing::info!(programs = plan.programs, "sandbox: seccomp"),
            Err(error) if plan.demanded => return Err(io::Error::other(error)),
            Err(error) => tracing::warn!(%error, "sandbox: this kernel has no seccomp filters"),
        }
    }
    Ok(())
}

/// What the signer gives up, always: it has no business but to read keys, also those of other users, which
/// [`enter`] has kept the daemon from.
///
/// # Errors
///
/// What should have worked did not.
pub(crate) fn enter_signer() -> io::Result<()> {
    drop_capabilities(&[Capability::CAP_DAC_READ_SEARCH]).map_err(io::Error::other)?;
    nix::sys::prctl::set_no_new_privs()?;
    // Nobody but root with CAP_SYS_PTRACE looks into its memory, or has its core.
    nix::sys::prctl::set_dumpable(false)?;
    Ok(())
}

/// Drops the privileges that the process that starts signers does not need. Signers inherit the others, also if the user is
/// not root.
///
/// # Errors
///
/// What should have worked did not.
pub(crate) fn enter_spawner() -> io::Result<()> {
    enter_signer()?;
    let read = Capability::CAP_DAC_READ_SEARCH;
    let raise = || {
        if caps::has_cap(None, CapSet::Permitted, read)? {
            caps::raise(None, CapSet::Inheritable, read)?;
            caps::raise(None, CapSet::Ambient, read)?;
        }
        Ok(())
    };
    raise().map_err(|error: caps::errors::CapsError| io::Error::other(error))
}

/// Keeps `kept` alone, of those there are.
fn drop_capabilities(kept: &[Capability]) -> Result<Vec<String>, caps::errors::CapsError> {
    let kept: CapsHashSet = kept.iter().copied().collect();
    // What a program that is started could have, be it root's. To change that set takes a capability.
    if caps::has_cap(None, CapSet::Effective, Capability::CAP_SETPCAP)? {
        for other in caps::read(None, CapSet::Bounding)?.difference(&kept) {
            caps::drop(None, CapSet::Bounding, *other)?;
        }
    }
    let left: CapsHashSet =
        caps::read(None, CapSet::Permitted)?.intersection(&kept).copied().collect();
    caps::clear(None, CapSet::Ambient)?;
    caps::set(None, CapSet::Effective, &left)?;
    caps::set(None, CapSet::Permitted, &left)?;
    caps::set(None, CapSet::Inheritable, &CapsHashSet::new())?;
    let mut names: Vec<_> = left.into_iter().map(|capability| capability.to_string()).collect();
    names.sort();
    Ok(names)
}

fn restrict_files(programs: bool, files: &Files) -> Result<(), landlock::RulesetError> {
    let all: BitFlags<AccessFs> = AccessFs::from_read(LANDLOCK) | AccessFs::from_write(LANDLOCK);
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let device = AccessFs::ReadFile | AccessFs::WriteFile;
    let mut readable: Vec<PathBuf> = READ.iter().map(PathBuf::from).collect();
    readable.push(folder(&files.config));
    readable.extend(paths::credentials());
    for place in RESOLVER.iter().filter(|_| programs).map(|file| linked(Path::new(file))) {
        readable.extend(later(&place).map(Path::to_path_buf));
        readable.push(place);
    }
    let written = files.written.iter().map(|file| folder(file));
    let mut ruleset = Ruleset::default()
        // Sockets are renamed into their place, which the first Landlock forbids whatever one asks for.
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::Refer)?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)?
        .create()?
        .add_rules(path_beneath_rules(readable, read))?
        .add_rules(path_beneath_rules(DEVICES, device))?
        .add_rules(path_beneath_rules(written, all & !AccessFs::Execute))?;
    if programs {
        ruleset = ruleset.add_rules(path_beneath_rules(RUN, read | AccessFs::Execute))?;
    }
    ruleset.restrict_self().map(drop)
}

/// The path that must be readable so that `file` can be read, also after the target of its link has been replaced: the
/// folder of the target, or the target itself in a folder that others share.
fn linked(file: &Path) -> PathBuf {
    let mut file = file.to_path_buf();
    for _ in 0..LINKS {
        match std::fs::read_link(&file) {
            Ok(target) => file = folder(&file).join(target),
            Err(_) => break,
        }
    }
    // Folders may be links, too: /var/run is one. The file may not be there yet.
    let folder = folder(&file);
    let folder = std::fs::canonicalize(&folder).unwrap_or(folder);
    let file = file.file_name().map_or(file.clone(), |name| folder.join(name));
    if SHARED.iter().any(|shared| folder == Path::new(shared)) { file } else { folder }
}

/// The nearest folder that is there, if `place` is not. Early in the boot network managers have not made theirs, and a rule
/// is for what is there. Never the root folder, which has all.
fn later(place: &Path) -> Option<&Path> {
    let is_there = |path: &&Path| path.exists();
    let there = place.ancestors().find(is_there).filter(|there| *there != place);
    there.filter(|there| *there != Path::new("/"))
}

/// The folder that a file lies in.
pub(crate) fn folder(file: &Path) -> PathBuf {
    match file.parent() {
        Some(parent) if parent.as_os_str().is_empty() => PathBuf::from("."),
        Some(parent) => parent.to_path_buf(),
        None => PathBuf::from("/"),
    }
}

/// Refuses what this program never calls, and who has taken it over would: other programs, other processes'
/// memory, namespaces, mounts, modules, the clock, and parts of the kernel that are known for their holes.
fn filter(programs: bool) -> Result<BpfProgram, seccompiler::Error> {
    let programs = if programs { &[][..] } else { PROGRAMS };
    let refused = REFUSED.iter().chain(PORTS).chain(programs);
    let mut rules: BTreeMap<i64, Vec<_>> = refused.map(|call| (*call, Vec::new())).collect();
    // The same call makes threads, without this flag.
    let user = libc::CLONE_NEWUSER as u64;
    let flags = SeccompCmpOp::MaskedEq(user);
    let made = SeccompCondition::new(0, SeccompCmpArgLen::Qword, flags, user)?;
    rules.insert(libc::SYS_clone, vec![SeccompRule::new(vec![made])?]);
    let eperm = SeccompAction::Errno(libc::EPERM as u32);
    let arch = std::env::consts::ARCH.try_into()?;
    Ok(SeccompFilter::new(rules, SeccompAction::Allow, eperm, arch)?.try_into()?)
}

/// Answers ENOSYS to `clone3`, because a filter cannot read its flags (the C library then calls `clone`), and to what the other
/// filter does not list: calls that are newer than its list, from `setxattrat` on, and all x32 numbers of x86-64.
const UNKNOWN: [sock_filter; 5] = [
    // The data begins with the number of the call.
    step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
    step(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 1, 0, 463),
    step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, libc::SYS_clone3 as u32),
    step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32),
    step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
];

const fn step(code: u32, jt: u8, jf: u8, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt, jf, k }
}

const PROGRAMS: &[i64] = &[libc::SYS_execve, libc::SYS_execveat];

const REFUSED: &[i64] = &[
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_kcmp,
    libc::SYS_pidfd_getfd,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsmount,
    libc::SYS_fsconfig,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    libc::SYS_personality,
    libc::SYS_fanotify_init,
    libc::SYS_lookup_dcookie,
];

#[cfg(target_arch = "x86_64")]
const PORTS: &[i64] = &[
    libc::SYS_ioperm,
    libc::SYS_iopl,
    libc::SYS_modify_ldt,
    libc::SYS_uselib,
    libc::SYS_ustat,
    libc::SYS_sysfs,
    libc::SYS__sysctl,
];

#[cfg(not(target_arch = "x86_64"))]
const PORTS: &[i64] = &[];

#[cfg(test)]
mod tests {
    use super::*;

    /// Fault: `programs: options.programs == Some(true)` in `Plan::new`. An `updown` could not be run by default.
    #[test]
    fn without_a_section_programs_run_where_the_configuration_names_one() {
        let bare = SandboxOptions::default();
        let plan = Plan::new(bare, false);
        assert_eq!((plan.programs, plan.landlock, plan.demanded), (false, true, false));
        // The files that an administrator's program opens are not known.
        let plan = Plan::new(bare, true);
        assert_eq!((plan.programs, plan.landlock, plan.seccomp), (true, false, true));
        let section = SandboxOptions { demanded: true, ..bare };
        assert!(Plan::new(section, true).landlock);
        let refusing = SandboxOptions { programs: Some(false), ..section };
        assert!(!Plan::new(refusing, true).programs);
    }

    /// Fault: in `later`, take `place` itself.
    #[test]
    fn the_resolver_is_read_in_a_folder_that_is_made_after_the_start() {
        let there = std::env::temp_dir().join(format!("ike-later-{}", std::process::id()));
        let link = there.join("resolv.conf");
        std::fs::create_dir_all(&there).unwrap();
        std::os::unix::fs::symlink("run/manager/resolv.conf", &link).unwrap();
        let place = linked(&link);
        assert_eq!(place, there.join("run/manager"));
        assert_eq!(later(&place), Some(&*there));
        std::fs::create_dir_all(&place).unwrap();
        assert_eq!(later(&place), None);
        assert_eq!(later(Path::new("/not-there/resolv.conf")), None, "all of the host");
        std::fs::remove_dir_all(&there).unwrap();
    }

    /// The errors that a program gets, with both filters if `filtered`: of `clone` for a user namespace, of `clone3`, of the
    /// x32 number of `getpid`, and of `unshare`.
    fn errors(filtered: bool) -> String {
        let calls = [
            format!("{}, {}, 0, 0, 0, 0", libc::SYS_clone, libc::CLONE_NEWUSER | libc::SIGCHLD),
            format!("{}, 0, 0", libc::SYS_clone3),
            format!("{}", 0x4000_0000 + libc::SYS_getpid),
            format!("{}, {}", libc::SYS_unshare, libc::CLONE_NEWUSER),
        ];
        let calls =
            calls.map(|call| format!("$! = 0; exit if syscall({call}) == 0; print $! + 0, ' ';"));
        let run = || {
            if filtered {
                nix::sys::prctl::set_no_new_privs().unwrap();
                seccompiler::apply_filter(&filter(true).unwrap()).unwrap();
                seccompiler::apply_filter(&UNKNOWN).unwrap();
            }
            let output = std::process::Command::new("perl").args(["-e", &calls.concat()]).output();
            String::from_utf8(output.unwrap().stdout).unwrap()
        };
        std::thread::scope(|scope| scope.spawn(run).join().unwrap())
    }

    /// Faults, each by itself: in `filter`, leave out the rule for `clone`; in `UNKNOWN`, compare with another number.
    #[test]
    fn no_user_namespace_can_be_made_and_programs_and_threads_can() {
        let (eperm, enosys) = (libc::EPERM, libc::ENOSYS);
        assert_eq!(errors(true), format!("{eperm} {enosys} {enosys} {eperm} "));
        // On a host where this user may make a user namespace, the first call returns twice.
        let free = errors(false);
        assert!(!free.starts_with(&format!("{eperm} {enosys} ")), "{free}");
    }
}
