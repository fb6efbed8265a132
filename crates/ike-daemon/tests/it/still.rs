//! What stands still: a log that nobody reads, a signer that does not answer, a program that sleeps.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, ErrorKind, PipeReader, PipeWriter, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::tempdir;
use crate::program::write_config;
use crate::running::{Running, child_of, program};

/// How long to wait for what should come at once.
const PATIENCE: Duration = Duration::from_secs(20);

/// A program that is killed when the test is over.
struct Killed(Child);

impl Killed {
    /// Its status, if it ends in time.
    fn ends_within(&mut self, limit: Duration) -> Option<i32> {
        let end = Instant::now() + limit;
        while Instant::now() < end {
            if let Some(status) = self.0.try_wait().expect("waited for") {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        None
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Writes to the pipe behind `descriptor` until it is full, by a description of its own.
fn fill(descriptor: &impl AsRawFd) {
    let path = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().try_into().expect("a flag");
    let mut pipe = OpenOptions::new().write(true).custom_flags(nonblocking).open(path).expect("it");
    while pipe.write(b"\n").map_err(|error| error.kind()) != Err(ErrorKind::WouldBlock) {}
}

fn signal(name: &str, process: &str) {
    let kill = format!("kill -{name} {process}");
    assert!(Command::new("sh").args(["-c", &kill]).status().expect("sh").success());
}

/// Whether a process has not ended; its parent may not have asked yet.
fn is_alive(process: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    status.lines().any(|line| line.starts_with("State:") && !line.contains('Z'))
}

/// A daemon whose standard error nobody reads any more.
struct Unread {
    daemon: Killed,
    socket: PathBuf,
    /// Both ends stay open.
    _pipe: (BufReader<PipeReader>, PipeWriter),
}

impl Unread {
    fn start(folder: &Path, address: &str) -> Self {
        let config = write_config(folder, "left", address, "right", "127.0.0.52");
        let socket = folder.join("left.sock");
        let (reader, writer) = std::io::pipe().expect("a pipe");
        let mut command = program();
        command.args(["run", "--data-plane", "none", "--listen", address, "--config"]);
        command.arg(config).arg("--control").arg(&socket).env("IKE_LOG", "info");
        command.stderr(writer.try_clone().expect("another"));
        let daemon = Killed(command.spawn().expect("it runs"));
        let mut reader = BufReader::new(reader);
        let mut line = String::new();
        while !line.contains("listening") {
            line.clear();
            assert!(reader.read_line(&mut line).expect("read") > 0, "it ends");
        }
        let unread = Self { daemon, socket, _pipe: (reader, writer) };
        let end = Instant::now() + PATIENCE;
        while unread.ask("list") != Some(0) {
            assert!(Instant::now() < end, "no control socket");
        }
        fill(&unread._pipe.1);
        unread
    }

    fn ask(&self, command: &str) -> Option<i32> {
        let mut asking = program();
        asking.arg(command).arg("--control").arg(&self.socket).stdout(Stdio::null());
        Killed(asking.spawn().expect("it runs")).ends_within(PATIENCE)
    }
}

/// Fault: in `put` of src/log/mod.rs, always write to standard error.
#[test]
fn a_daemon_whose_standard_error_is_a_full_pipe_answers_and_ends() {
    let folder = tempdir("still-log");
    let mut unread = Unread::start(&folder, "127.0.0.51");
    for _ in 0..3 {
        assert_eq!(unread.ask("reload"), Some(0), "it reloads");
    }
    assert_eq!(unread.ask("list"), Some(0), "it answers");
    signal("TERM", &unread.daemon.0.id().to_string());
    assert_eq!(unread.daemon.ends_within(Duration::from_secs(10)), Some(0), "a signal ends it");
}

/// Fault: in `run` of src/commands/run.rs, say errors by `eprintln!`.
#[test]
fn the_last_words_of_a_daemon_do_not_wait_for_a_full_pipe() {
    let folder = tempdir("still-words");
    let mut unread = Unread::start(&folder, "127.0.0.53");
    signal("KILL", &child_of(&unread.daemon.0.id().to_string(), "signer"));
    assert_eq!(unread.daemon.ends_within(Duration::from_secs(10)), Some(1), "it has failed");
}

fn wait_until(what: &str, is: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The number of seccomp's filters in the status of a thread.
fn filters(status: &str) -> u32 {
    let line = status.lines().find_map(|line| line.strip_prefix("Seccomp_filters:"));
    line.expect("Linux 5.10").trim().parse().expect("a number")
}

/// How many filters each thread of a process has at least, beside those of this test. `None` if the process has ended.
fn added_filters(id: &str) -> Option<u32> {
    let own = std::fs::read_to_string("/proc/thread-self/status").expect("this thread");
    let tasks = std::fs::read_dir(format!("/proc/{id}/task")).ok()?;
    // A thread may end at any time.
    let there =
        tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("status")).ok());
    there.map(|status| filters(&status)).min()?.checked_sub(filters(&own))
}

/// True if a signer has its three filters.
fn is_filtered(id: &str) -> bool {
    added_filters(id) >= Some(3)
}

/// Faults, each by itself: in `Lookups::seal`, give the spawner `Limits::default()`; in `serve_stdin` of src/names/server.rs, let
/// the sandbox be with seccomp always.
#[test]
fn the_resolver_has_the_filters_that_the_configuration_leaves() {
    let folder = tempdir("still-resolver");
    for (options, count) in [("", 2), ("sandbox = { landlock = false, seccomp = false }\n", 0)] {
        let config = write_config(&folder, "left", "127.0.0.57", "right", "127.0.0.52");
        let text = std::fs::read_to_string(&config).expect("read");
        let text = text.replace("[charon]\n", &format!("[charon]\n{options}"));
        std::fs::write(&config, text).expect("written");
        let daemon = Running::start(&folder, "left", &config, "127.0.0.57");
        let spawner = child_of(&daemon.pid().to_string(), "resolver");
        // It begins a thread for its log after that.
        wait_until("a resolver with two threads", || {
            let resolver = child_of(&spawner, "resolver");
            let tasks = std::fs::read_dir(format!("/proc/{resolver}/task"));
            !resolver.is_empty() && tasks.is_ok_and(|tasks| tasks.count() > 1)
        });
        assert_eq!(added_filters(&child_of(&spawner, "resolver")), Some(count), "{options}");
        assert_eq!(daemon.end(), Some(0));
    }
}

/// Faults, each by itself: in `Link::ask`, wait for ever; in `Line::ask`, never replace; in `Line::drop`, wait for
/// ever; in `Signer::seal`, give the spawner, or the first signer, `Limits::default()`.
#[test]
fn a_signer_that_does_not_answer_costs_a_reload_and_is_replaced() {
    let folder = tempdir("still-signer");
    let config = write_config(&folder, "left", "127.0.0.54", "right", "127.0.0.52");
    let text = std::fs::read_to_string(&config).expect("read");
    let text = text.replace("[charon]\n", "[charon]\nsigner_timeout = 1\n");
    std::fs::write(&config, text).expect("written");
    let daemon = Running::start(&folder, "left", &config, "127.0.0.54");
    let spawner = child_of(&daemon.pid().to_string(), "signer");
    let first = child_of(&spawner, "signer");
    wait_until("the first signer is sealed", || is_filtered(&first));
    signal("STOP", &first);
    let begun = Instant::now();
    assert_eq!(daemon.ask(&["reload"]).status.code(), Some(3), "it fails");
    daemon.wait_for("the signer does not answer");
    assert_eq!(daemon.ask(&["list"]).status.code(), Some(0), "it answers");
    // A reload does not wait for a silent signer. Each one that fails counts, until the signer is replaced.
    while daemon.ask(&["reload"]).status.code() != Some(0) {
        assert!(begun.elapsed() < PATIENCE, "it is not replaced");
        std::thread::sleep(Duration::from_millis(100));
    }
    daemon.wait_for("the new signer has the keys");
    let second = child_of(&spawner, "signer");
    assert_ne!(first, second);
    assert!(!is_alive(&first), "the first one is gone");
    wait_until("the second one is sealed, too", || is_filtered(&second));
    // Nor does the end wait for one.
    signal("STOP", &second);
    signal("STOP", &spawner);
    let begun = Instant::now();
    assert_eq!(daemon.end(), Some(0));
    assert!(begun.elapsed() < Duration::from_secs(10));
    while is_alive(&second) {
        assert!(begun.elapsed() < PATIENCE, "it ends with the daemon");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Faults, each by itself: in `Daemon::shutdown_unless`, end the tasks after the system; in `finish` of
/// src/system/hooks.rs, do not listen to `hurry`.
#[test]
fn an_end_that_waits_for_a_program_is_over_by_a_second_signal_and_names_it() {
    let folder = tempdir("still-hook");
    let left = write_config(&folder, "left", "127.0.0.55", "right", "127.0.0.56");
    let right = write_config(&folder, "right", "127.0.0.56", "left", "127.0.0.55");
    let updown = "updown = 'test $PLUTO_VERB = up-client || exec sleep 50'\n[secrets";
    let text = std::fs::read_to_string(&left).expect("read").replace("[secrets", updown);
    std::fs::write(&left, text).expect("written");
    let left = Running::start(&folder, "left", &left, "127.0.0.55");
    let right = Running::start(&folder, "right", &right, "127.0.0.56");
    assert_eq!(left.ask(&["up", "net", "--timeout", "20s"]).status.code(), Some(0));
    left.signal("TERM");
    left.wait_for("the end waits for programs");
    right.wait_for("deleted by the peer");
    assert!(!left.socket.exists(), "another daemon can have it");
    let begun = Instant::now();
    left.signal("TERM");
    let line = left.wait_for("program still runs: the daemon ends");
    assert!(line.contains("net") && line.contains("down"), "{line}");
    assert_eq!(left.end(), Some(0));
    assert!(begun.elapsed() < Duration::from_secs(5));
}
