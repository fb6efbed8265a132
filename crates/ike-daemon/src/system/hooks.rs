//! Programs that are run for events: a few at a time, each for a limited time, in order where order means
//! something.

use std::collections::HashMap;
use std::io::{ErrorKind, PipeReader, Read, Write};
use std::net::IpAddr;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use super::environment::Environment;
use super::resolv;

/// Programs that run at a time; those of one child run one after the other.
const LANES: usize = 4;
/// What may wait before more is left out.
const WAITING: usize = 4096;
/// Of these, what may wait for one IKE SA.
const WAITING_OF_ONE: usize = 128;
/// A program that takes longer is killed.
const LONGEST: Duration = Duration::from_secs(30);
/// What is waited for at the end.
const FAREWELL: Duration = Duration::from_secs(3);
/// How often to look whether a program has ended.
const LOOK: Duration = Duration::from_millis(5);
/// Octets of its output that are logged.
const MOST_OUTPUT: usize = 8 << 10;

/// Something to be done in its lane.
#[derive(Debug)]
pub(super) enum Job {
    /// Run `updown`.
    Hook {
        /// As configured.
        program: Arc<str>,
        /// What it is told.
        environment: Environment,
        /// Whether the child has come up, or ended.
        up: bool,
    },
    /// Write these name servers into a file in the manner of resolv.conf(5), instead of ours that are there.
    ResolvConf(PathBuf, Vec<IpAddr>),
    /// Tell resolvconf(8) of a name server under a name, or that there is none by that name any more.
    Resolvconf {
        /// The program.
        path: PathBuf,
        /// The name.
        name: String,
        /// The name server.
        server: Option<IpAddr>,
    },
}

/// The lanes; their threads begin with the first job.
#[derive(Default)]
pub(super) struct Lanes {
    lanes: OnceLock<Vec<mpsc::Sender<Waiting>>>,
    pending: Arc<Pending>,
}

/// A job, and the IKE SA that it is for.
type Waiting = (Option<u64>, Job);

/// Jobs that are not done yet.
#[derive(Default)]
struct Pending {
    all: AtomicUsize,
    by_owner: Mutex<HashMap<u64, usize>>,
}

impl Pending {
    fn by_owner(&self) -> MutexGuard<'_, HashMap<u64, usize>> {
        self.by_owner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, owner: Option<u64>) {
        self.all.fetch_add(1, Ordering::SeqCst);
        if let Some(owner) = owner {
            *self.by_owner().entry(owner).or_default() += 1;
        }
    }

    fn end(&self, owner: Option<u64>) {
        self.all.fetch_sub(1, Ordering::SeqCst);
        let Some(owner) = owner else { return };
        let mut by_owner = self.by_owner();
        if let Some(count) = by_owner.get_mut(&owner) {
            *count -= 1;
            if *count == 0 {
                by_owner.remove(&owner);
            }
        }
    }
}

impl Lanes {
    /// Puts a job, for IKE SA `owner` or for none, into one of the lanes; those with the same number go into the same.
    /// Never waits. False if so much waits already that it is left out.
    pub(super) fn put(&self, lane: u64, owner: Option<u64>, job: Job) -> bool {
        let own = owner.and_then(|owner| self.pending.by_owner().get(&owner).copied());
        let full = self.pending.all.load(Ordering::SeqCst) >= WAITING;
        if full || own.is_some_and(|own| own >= WAITING_OF_ONE) {
            tracing::error!(ike = owner, "too many programs wait to be run: one is left out");
            return false;
        }
        self.put_anyway(lane, owner, job)
    }

    /// As [`put`](Self::put), for what undoes something that was put: it is never left out.
    pub(super) fn put_anyway(&self, lane: u64, owner: Option<u64>, job: Job) -> bool {
        let lanes = self.lanes.get_or_init(|| self.start());
        let at = usize::try_from(lane % LANES as u64).unwrap_or(0);
        self.pending.begin(owner);
        let sent = lanes.get(at).is_some_and(|line| line.send((owner, job)).is_ok());
        if !sent {
            self.pending.end(owner);
            tracing::error!("a program is not run: its thread has ended");
        }
        sent
    }

    fn start(&self) -> Vec<mpsc::Sender<Waiting>> {
        let lane = |number: usize| {
            let (line, jobs) = mpsc::channel::<Waiting>();
            let pending = Arc::clone(&self.pending);
            let thread = thread::Builder::new().name(format!("ike-hook-{number}"));
            let begun = thread.spawn(move || {
                for (owner, job) in jobs {
                    job.run();
                    pending.end(owner);
                }
            });
            if let Err(error) = begun {
                tracing::error!(%error, "no thread for programs");
            }
            line
        };
        (0..LANES).map(lane).collect()
    }

    /// Waits until all is done, but not for ever.
    pub(super) async fn finish(&self) {
        let end = Instant::now() + FAREWELL;
        while self.pending.all.load(Ordering::SeqCst) > 0 && Instant::now() < end {
            tokio::time::sleep(LOOK).await;
        }
    }
}

impl Job {
    fn run(self) {
        match self {
            Self::Hook { program, environment, up } => {
                let mut command = command(&program);
                command.env_clear().envs(environment.variables(up));
                if let Some(path) = std::env::var_os("PATH") {
                    command.env("PATH", path);
                }
                run(&program, command, None);
            }
            Self::ResolvConf(path, servers) => {
                if let Err(error) = resolv::write(&path, &servers) {
                    tracing::error!(file = %path.display(), %error, "name servers not written");
                }
            }
            Self::Resolvconf { path, name, server } => {
                let mut command = Command::new(&path);
                command.arg(if server.is_some() { "-a" } else { "-d" }).arg(&name);
                let input = server.map(|server| format!("nameserver {server}\n"));
                run(&path.display().to_string(), command, input);
            }
        }
    }
}

/// `program` itself, or if it is more than a path, the shell with it as a line: what is told goes by the
/// environment alone, so that nothing of a peer's is ever part of that line.
fn command(program: &str) -> Command {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@,".contains(c);
    if program.chars().all(plain) {
        return Command::new(program);
    }
    let mut shell = Command::new("/bin/sh");
    shell.arg("-c").arg(program);
    shell
}

/// Runs to the end or to the end of patience. What it writes is logged.
fn run(name: &str, mut command: Command, input: Option<String>) {
    let begun = (|| -> std::io::Result<(Child, PipeReader)> {
        let (reader, writer) = std::io::pipe()?;
        rustix::io::ioctl_fionbio(&reader, true)?;
        // Of a group of its own: it can be killed with what it has begun.
        command.process_group(0).stdout(writer.try_clone()?).stderr(writer);
        command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
        Ok((command.spawn()?, reader))
    })();
    // The other end of the pipe goes with it.
    drop(command);
    let (mut child, mut reader) = match begun {
        Ok(begun) => begun,
        Err(error) => return tracing::error!(program = name, %error, "program not run"),
    };
    if let (Some(input), Some(mut stdin)) = (input, child.stdin.take()) {
        // Shorter than any pipe; who does not read it does not want it.
        let _ = stdin.write_all(input.as_bytes());
    }
    let end = Instant::now() + LONGEST;
    let mut output = Vec::new();
    let status = loop {
        read(&mut reader, &mut output);
        match child.try_wait() {
            Ok(Some(status)) => break Some(status),
            Ok(None) if Instant::now() < end => thread::sleep(LOOK),
            _ => break None,
        }
    };
    if status.is_none() {
        let group = rustix::process::Pid::from_child(&child);
        // It may have ended just now.
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let _ = child.wait();
    }
    read(&mut reader, &mut output);
    tell(name, status, &output);
}

fn tell(program: &str, status: Option<ExitStatus>, output: &[u8]) {
    let text = String::from_utf8_lossy(output);
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        tracing::info!(program, "{}", line.escape_debug());
    }
    match status {
        None => tracing::error!(program, limit = ?LONGEST, "program killed: it takes too long"),
        Some(status) if status.success() => tracing::debug!(program, "program done"),
        Some(status) => tracing::warn!(program, %status, "program failed"),
    }
}

/// Takes what there is, so that it need not wait to write; what is too much is dropped.
fn read(reader: &mut PipeReader, output: &mut Vec<u8>) {
    let mut buffer = [0; 4096];
    loop {
        match reader.read(&mut buffer) {
            Ok(0) => return,
            Ok(count) => {
                let room = MOST_OUTPUT.saturating_sub(output.len());
                output.extend(buffer.iter().take(count.min(room)));
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(lanes: &Lanes) {
        let end = Instant::now() + Duration::from_secs(20);
        while lanes.pending.all.load(Ordering::SeqCst) > 0 {
            assert!(Instant::now() < end, "the programs do not end");
            thread::sleep(LOOK);
        }
    }

    fn hook(program: &str) -> Job {
        let environment = Environment::with(Vec::new());
        Job::Hook { program: program.into(), environment, up: true }
    }

    #[test]
    fn one_ike_sa_does_not_fill_the_lanes_and_what_undoes_is_never_left_out() {
        let lanes = Lanes::default();
        assert!(lanes.put(0, Some(1), hook("exec sleep 1")));
        let taken = (0..500).filter(|_| lanes.put(0, Some(1), hook("/nonexistent"))).count();
        assert_eq!(taken, WAITING_OF_ONE - 1);
        assert!(lanes.put(0, Some(2), hook("/nonexistent")), "others wait behind it");
        assert!(lanes.put_anyway(0, Some(1), hook("/nonexistent")));
        done(&lanes);
        assert!(lanes.pending.by_owner().is_empty());
        assert!(lanes.put(0, Some(1), hook("/nonexistent")));
        // And there is a limit for all; nobody waits for these.
        assert!(lanes.put(0, None, hook("exec sleep 1")));
        for _ in 0..WAITING {
            assert!(lanes.put_anyway(0, Some(2), hook("/nonexistent")));
        }
        assert!(!lanes.put(0, Some(3), hook("/nonexistent")));
        assert!(!lanes.put(0, None, hook("/nonexistent")));
    }

    #[test]
    fn values_reach_the_program_and_never_the_shell() {
        let folder = std::env::temp_dir().join(format!("ike-hooks-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let out = folder.join("out");
        let lanes = Lanes::default();
        for number in 0..10 {
            let environment = vec![
                ("OUT".to_owned(), out.display().to_string()),
                (
                    "PLUTO_PEER_ID".to_owned(),
                    format!("$(touch {}/evil); `id` {number}", folder.display()),
                ),
            ];
            let program = "printf '%s\\n' \"$PLUTO_PEER_ID\" >> \"$OUT\"".into();
            let environment = Environment::with(environment);
            lanes.put(7, None, Job::Hook { program, environment, up: true });
        }
        done(&lanes);
        let text = std::fs::read_to_string(&out).unwrap();
        let last: Vec<_> = text.lines().map(|line| line.chars().last().unwrap()).collect();
        assert_eq!(last, ('0'..='9').collect::<Vec<_>>(), "in order");
        assert!(!folder.join("evil").exists());
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_cannot_run_or_writes_much_holds_nothing_up() {
        let lanes = Lanes::default();
        lanes.put(0, None, hook("/nonexistent/updown"));
        lanes.put(0, None, hook("exec 2>&1; i=0; while [ $i -lt 3000 ]; do echo 0123456789012345678901234567890123456789012345678901234567890123456789; i=$((i+1)); done"));
        lanes.put(0, None, hook("exit 3"));
        // What it leaves behind keeps the pipe open.
        lanes.put(0, None, hook("sleep 60 & exit 0"));
        done(&lanes);
    }
}
