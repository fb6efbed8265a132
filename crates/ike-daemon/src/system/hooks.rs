//! Programs that are run for events: a few at a time, each for a limited time, in order where order means
//! something.

use std::collections::{BTreeMap, HashMap};
use std::io::{ErrorKind, PipeReader, Read, Write};
use std::net::IpAddr;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use super::environment::Environment;
use super::resolv;

/// `updown` programs that run at a time; those of one child run one after the other. Jobs of name servers have a lane of
/// their own, so that no `updown` program delays them.
const LANES: usize = 4;
/// What may wait before more is left out.
const WAITING: usize = 4096;
/// Of these, what may wait for one IKE SA.
const WAITING_OF_ONE: usize = 128;
/// A program that takes longer is killed.
const LONGEST: Duration = Duration::from_secs(30);
/// How long the end waits for all programs.
const FAREWELL: Duration = Duration::from_secs(60);
/// How long the end waits for the jobs of name servers, even in a hurry.
const SETTLED: Duration = Duration::from_secs(3);
/// When the log says that the end waits.
const SOON: Duration = Duration::from_secs(1);
/// How many programs that were not run the log names.
const NAMED: usize = 32;
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

/// A job, its number, and the IKE SA that it is for.
type Waiting = (u64, Option<u64>, Job);

/// Jobs that are not done yet.
#[derive(Default)]
struct Pending(Mutex<Jobs>);

#[derive(Default)]
struct Jobs {
    all: BTreeMap<u64, Shown>,
    number: u64,
    by_owner: HashMap<u64, usize>,
    /// No further job begins.
    over: bool,
}

/// A job as the log names it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Shown {
    program: String,
    child: String,
    verb: &'static str,
    begun: bool,
}

impl Jobs {
    fn end(&mut self, number: u64, owner: Option<u64>) {
        self.all.remove(&number);
        let Some(owner) = owner else { return };
        if let Some(count) = self.by_owner.get_mut(&owner) {
            *count -= 1;
            if *count == 0 {
                self.by_owner.remove(&owner);
            }
        }
    }
}

impl Pending {
    fn jobs(&self) -> MutexGuard<'_, Jobs> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if a job for which `counts` is true is left.
    fn any(&self, counts: fn(&Shown) -> bool) -> bool {
        self.jobs().all.values().any(counts)
    }

    fn add(&self, owner: Option<u64>, job: &Job) -> u64 {
        let mut jobs = self.jobs();
        let number = jobs.number;
        jobs.number += 1;
        jobs.all.insert(number, job.shown());
        if let Some(owner) = owner {
            *jobs.by_owner.entry(owner).or_default() += 1;
        }
        number
    }

    /// True if the job is to be run.
    fn begin(&self, number: u64) -> bool {
        let mut jobs = self.jobs();
        let over = jobs.over;
        if let Some(shown) = jobs.all.get_mut(&number).filter(|_| !over) {
            shown.begun = true;
        }
        !over
    }

    /// Waits until no job for which `counts` is true is left.
    async fn done(&self, counts: fn(&Shown) -> bool) {
        while self.any(counts) {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Lets no further job begin. Returns the jobs that are left.
    fn give_up(&self) -> Vec<Shown> {
        let mut jobs = self.jobs();
        jobs.over = true;
        jobs.all.values().cloned().collect()
    }
}

impl Lanes {
    /// Puts a job, for IKE SA `owner` or for none, into one of the lanes; those with the same number go into the same.
    /// Never waits. False if so much waits already that it is left out.
    pub(super) fn put(&self, lane: u64, owner: Option<u64>, job: Job) -> bool {
        let full = {
            let jobs = self.pending.jobs();
            let own = owner.and_then(|owner| jobs.by_owner.get(&owner).copied());
            jobs.all.len() >= WAITING || own.is_some_and(|own| own >= WAITING_OF_ONE)
        };
        if full {
            tracing::error!(ike = owner, "too many programs wait to be run: one is left out");
            return false;
        }
        self.put_anyway(lane, owner, job)
    }

    /// As [`put`](Self::put), for what undoes something that was put: it is never left out.
    pub(super) fn put_anyway(&self, lane: u64, owner: Option<u64>, job: Job) -> bool {
        let lanes = self.lanes.get_or_init(|| self.start());
        let at = match &job {
            Job::Hook { .. } => usize::try_from(lane % LANES as u64).unwrap_or(0),
            Job::ResolvConf(..) | Job::Resolvconf { .. } => LANES,
        };
        let number = self.pending.add(owner, &job);
        let sent = lanes.get(at).is_some_and(|line| line.send((number, owner, job)).is_ok());
        if !sent {
            self.pending.jobs().end(number, owner);
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
                for (number, owner, job) in jobs {
                    if pending.begin(number) {
                        job.run();
                        pending.jobs().end(number, owner);
                    }
                }
            });
            if let Err(error) = begun {
                tracing::error!(%error, "no thread for programs");
            }
            line
        };
        (0..=LANES).map(lane).collect()
    }

    /// Waits until all jobs are done, for [`FAREWELL`] at the most, and not after `hurry` is ready. The log names the jobs
    /// that were not run.
    pub(super) async fn finish(&self, hurry: impl Future<Output = ()>) {
        let pending = &*self.pending;
        // A job that takes longer is named below.
        let _ = tokio::time::timeout(SETTLED, pending.done(Shown::is_of_the_host)).await;
        let wait = async {
            if tokio::time::timeout(SOON, pending.done(|_| true)).await.is_err() {
                let programs = pending.jobs().all.len();
                tracing::info!(programs, limit = ?FAREWELL, "the end waits for programs: another signal ends the daemon at once");
                pending.done(|_| true).await;
            }
        };
        tokio::select! {
            biased;
            () = wait => return,
            () = tokio::time::sleep(FAREWELL) => {}
            () = hurry => {}
        }
        let left = pending.give_up();
        for Shown { program, child, verb, begun } in left.iter().take(NAMED) {
            let what = if *begun { "program still runs" } else { "program not run" };
            tracing::error!(program, child, verb, "{what}: the daemon ends");
        }
        if let Some(more @ 1..) = left.len().checked_sub(NAMED) {
            tracing::error!(more, "other programs not run: the daemon ends");
        }
    }
}

impl Shown {
    fn is_of_the_host(&self) -> bool {
        self.child.is_empty()
    }
}

impl Job {
    fn shown(&self) -> Shown {
        let host = |program: &PathBuf| (program.display().to_string(), String::new(), "write");
        let (program, child, verb) = match self {
            Self::Hook { program, environment, up } => {
                (program.to_string(), environment.child(), if *up { "up" } else { "down" })
            }
            Self::ResolvConf(path, _) | Self::Resolvconf { path, .. } => host(path),
        };
        Shown { program, child, verb, begun: false }
    }

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
        while lanes.pending.any(|_| true) {
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
        assert!(lanes.pending.jobs().by_owner.is_empty());
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

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap()
    }

    /// Fault: in `put_anyway`, let all jobs go into the lane of their number.
    #[test]
    fn name_servers_go_back_while_every_program_sleeps() {
        let folder = std::env::temp_dir().join(format!("ike-hooks-lane-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("resolv.conf");
        let lanes = Lanes::default();
        for lane in 0..LANES as u64 {
            lanes.put(lane, None, hook("exec sleep 3"));
        }
        let server = "10.1.0.53".parse().unwrap();
        lanes.put(0, None, Job::ResolvConf(file.clone(), vec![server]));
        runtime().block_on(lanes.finish(std::future::ready(())));
        assert!(std::fs::read_to_string(&file).unwrap().contains("10.1.0.53"));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    /// Faults, each by itself: let `FAREWELL` be 3 s; in `Lanes::start`, run what has been given up.
    #[test]
    fn the_end_waits_for_every_program_unless_it_is_in_a_hurry() {
        let folder = std::env::temp_dir().join(format!("ike-hooks-end-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let count = || std::fs::read_dir(&folder).unwrap().count();
        let run = format!("sleep 0.9; touch {}/$$", folder.display());
        let lanes = Lanes::default();
        for _ in 0..4 {
            lanes.put(1, Some(1), hook(&run));
        }
        runtime().block_on(lanes.finish(std::future::pending()));
        assert_eq!(count(), 4);

        lanes.put(1, Some(1), hook(&run));
        lanes.put_anyway(1, Some(1), hook("the last one"));
        let begun = Instant::now();
        let hurry = async { tokio::time::sleep(Duration::from_millis(100)).await };
        runtime().block_on(lanes.finish(hurry));
        assert!(begun.elapsed() < Duration::from_millis(800));
        let left = lanes.pending.give_up();
        let shown: Vec<_> = left.iter().map(|one| (&*one.program, one.begun)).collect();
        assert_eq!(shown, [(&*run, true), ("the last one", false)]);
        let end = Instant::now() + Duration::from_secs(20);
        while lanes.pending.any(|shown| shown.begun) {
            assert!(Instant::now() < end, "the first one does not end");
            thread::sleep(LOOK);
        }
        thread::sleep(LOOK * 4);
        assert_eq!(lanes.pending.give_up().len(), 1, "the other one is never run");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
