//! What the resolver, the process that looks host names up, gives up: always all capabilities. Unless `[charon.sandbox]`
//! turns Landlock or seccomp off, also files other than those of the C library's resolver, writing, programs and processes.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

use ike_tokio::net::resolver::FILES;
use landlock::{Access, RulesetStatus, Scope};

use super::read_only::calls;
use super::*;

/// What the C library's resolver loads, and what its plugins read.
const LIBRARIES: &[&str] = &[
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/nix/store",
    "/gnu/store",
    "/etc/ld.so.cache",
    "/etc/mdns.allow",
    "/etc/samba",
    "/run/systemd/machines",
    "/var/lib/libvirt/dnsmasq",
    // Where /etc has none.
    "/usr/etc/nsswitch.conf",
    "/usr/etc/host.conf",
    "/usr/etc/gai.conf",
];

/// The files of the system's resolver, as they were when this process gave up all others.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Admitted(Vec<Option<(u64, u64)>>);

impl Admitted {
    /// None are known where they are not all that can be read.
    fn present(restricted: bool) -> Self {
        let files = RESOLVER.iter().chain(&FILES).filter(|_| restricted);
        let of = |file: &&str| fs::metadata(file).ok().map(|found| (found.dev(), found.ino()));
        Self(files.map(of).collect())
    }

    /// True if there are others in their place. This process cannot read these.
    pub(crate) fn are_replaced(&self) -> bool {
        !self.0.is_empty() && *self != Self::present(true)
    }
}

/// What the process that starts resolvers gives up. They need no more than it has.
///
/// # Errors
///
/// What should have worked did not.
pub(crate) fn enter_spawner() -> io::Result<()> {
    drop_capabilities(&[]).map_err(io::Error::other)?;
    nix::sys::prctl::set_no_new_privs()?;
    nix::sys::prctl::set_dumpable(false)?;
    Ok(())
}

/// Gives privileges up, Landlock and seccomp if `[charon.sandbox]` has not turned these off. Returns the files that are left.
///
/// # Errors
///
/// What should have worked did not. A kernel without Landlock or seccomp is no error.
pub(crate) fn enter(landlock: bool, seccomp: bool) -> io::Result<Admitted> {
    enter_spawner()?;
    let before = Admitted::present(true);
    let status = if landlock { restrict() } else { Ok(RulesetStatus::NotEnforced) };
    let restricted = status.as_ref().is_ok_and(|status| *status != RulesetStatus::NotEnforced);
    if landlock && !restricted {
        tracing::warn!(
            ?status,
            "sandbox: resolver: not limited by Landlock, which this kernel lacks: it can read all files of its user"
        );
    }
    if seccomp {
        let program = calls(false).map_err(io::Error::other)?;
        let applied = seccompiler::apply_filter(&program);
        if let Err(error) = applied.and_then(|()| seccompiler::apply_filter(&UNKNOWN)) {
            tracing::warn!(%error, "sandbox: resolver: this kernel has no seccomp filters");
        }
    }
    Ok(if restricted { before } else { Admitted::present(false) })
}

/// Leaves the files of the resolver, and each where its link leads to. Not their folders: these have others' files.
fn restrict() -> Result<RulesetStatus, landlock::RulesetError> {
    let all: BitFlags<AccessFs> = AccessFs::from_read(LANDLOCK) | AccessFs::from_write(LANDLOCK);
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let files = RESOLVER.iter().chain(&FILES).chain(LIBRARIES);
    // Links are followed.
    let files = files.filter(|file| Path::new(file).exists());
    let ruleset = Ruleset::default().handle_access(all)?.scope(Scope::from_all(ABI::V6))?;
    let ruleset = ruleset.create()?.add_rules(path_beneath_rules(files, read))?;
    Ok(ruleset.restrict_self()?.ruleset)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    /// What `run` returns under the filters, `calls` with or without programs.
    fn filtered<T: Send>(programs: bool, run: impl FnOnce() -> T + Send) -> T {
        let run = || {
            nix::sys::prctl::set_no_new_privs().unwrap();
            seccompiler::apply_filter(&calls(programs).unwrap()).unwrap();
            seccompiler::apply_filter(&UNKNOWN).unwrap();
            run()
        };
        std::thread::scope(|scope| scope.spawn(run).join().unwrap())
    }

    /// Faults, each by itself: in `calls`, leave out `programs`; leave out the loop; in `when`, take `O_RDONLY` for the
    /// mask; leave `SYS_ptrace` out of `REFUSED`.
    #[test]
    fn the_resolver_runs_no_program_writes_no_file_and_traces_nobody() {
        let file = std::env::temp_dir().join(format!("ike-resolver-{}", std::process::id()));
        fs::write(&file, "x").unwrap();
        let refused = Some(libc::EPERM);
        let error = |done: io::Result<()>| done.unwrap_err().raw_os_error();
        let open = |options: &mut fs::OpenOptions| error(options.open(&file).map(drop));
        filtered(false, || {
            assert_eq!(fs::read_to_string(&file).unwrap(), "x", "it reads");
            assert_eq!(open(fs::OpenOptions::new().write(true)), refused);
            assert_eq!(open(fs::OpenOptions::new().read(true).write(true)), refused);
            assert_eq!(open(fs::OpenOptions::new().append(true)), refused);
            assert_eq!(error(fs::remove_file(&file)), refused);
            assert_eq!(error(fs::rename(&file, file.with_extension("new"))), refused);
            assert_eq!(error(fs::create_dir(file.with_extension("new"))), refused);
            assert_eq!(error(Command::new("true").status().map(drop)), refused);
            let listening = std::net::TcpListener::bind("127.0.0.1:0");
            assert_eq!(error(listening.map(drop)), refused);
        });
        let traced = format!("print syscall({}, 0, 0, 0, 0), ' ', $! + 0", libc::SYS_ptrace);
        let perl = || Command::new("perl").args(["-e", &traced]).output().unwrap().stdout;
        assert_eq!(filtered(true, perl), format!("-1 {}", libc::EPERM).into_bytes());
        assert!(perl().starts_with(b"0 "), "and without the filter it may");
        fs::remove_file(file).unwrap();
    }

    /// Faults, each by itself: leave a line out of `TO_OTHERS`, or `SYS_setpriority` out of `CHANGES`; have the kernel compare
    /// another argument; refuse `SYS_prlimit64` whatever its arguments are.
    #[test]
    fn the_resolver_has_nobody_signalled_and_changes_no_limits_of_others() {
        let others = [
            format!("{}, 0, 8, $$", libc::SYS_fcntl),
            format!("{}, 0, 10, 0", libc::SYS_fcntl),
            format!("{}, 0, 15, 0", libc::SYS_fcntl),
            format!("{}, 0, 0x8901, 0", libc::SYS_ioctl),
            format!("{}, 0, 0x8902, 0", libc::SYS_ioctl),
            format!("{}, $$, 7, 0, 0", libc::SYS_prlimit64),
            format!("{}, $$, 0, 0", libc::SYS_sched_setaffinity),
            format!("{}, $$, 0, 0", libc::SYS_sched_setattr),
            format!("{}, $$, 0", libc::SYS_sched_setparam),
            format!("{}, $$, 0, 0", libc::SYS_sched_setscheduler),
            format!("{}, $$, 0, 0, 0", libc::SYS_migrate_pages),
            format!("{}, $$, 0, 0, 0, 0, 0", libc::SYS_move_pages),
            format!("{}, 0, 0, 0", libc::SYS_setpriority),
            format!("{}, 1, 0, 0", libc::SYS_ioprio_set),
        ];
        let own =
            [format!("{}, 0, 1", libc::SYS_fcntl), format!("{}, 0, 7, 0, 0", libc::SYS_prlimit64)];
        let calls = others.iter().chain(&own);
        let script: String =
            calls.map(|call| format!("$! = 0; syscall({call}); print $! + 0, ' ';")).collect();
        let perl = || {
            let done = Command::new("perl").args(["-e", &script]).stdin(Stdio::null()).output();
            String::from_utf8(done.unwrap().stdout).unwrap()
        };
        let refused = format!("{} ", libc::EPERM);
        assert_eq!(filtered(true, perl), refused.repeat(others.len()) + "0 0 ");
        assert!(!perl().contains(&refused), "and without the filter it may: {}", perl());
    }

    /// Fault: in `calls`, refuse `SYS_openat` whatever its flags are.
    #[test]
    fn the_resolver_looks_names_up_under_its_filter() {
        let found = filtered(false, || ike_tokio::net::resolver::of_system("localhost"));
        assert!(found.unwrap().iter().all(std::net::IpAddr::is_loopback));
    }
}
