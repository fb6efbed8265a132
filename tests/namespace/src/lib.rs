//! Tests that need something of the machine: network namespaces, devices, a kernel with ESP, another program.
//!
//! A machine without it cannot show what such a test shows. libtest has no way to say so while it runs, so these tests
//! are in programs of their own, with `harness = false` and [`harness!`] as their `main`: a test whose [`Need`] is
//! not met is reported as ignored, with the reason. Where the machine must have it, as in CI, the test fails.
//!
//! Tests that change the network run in a namespace of their own: the program starts itself again there, by `unshare`,
//! as root of a user namespace where that is allowed.
#![forbid(unsafe_code)]

use std::process::{Child, Command, ExitCode};
use std::time::Duration;

use libtest_mimic::{Arguments, Completion, Failed, Trial};

/// Set in the copy of the test program that runs inside.
const INSIDE: &str = "IKE_TEST_INSIDE_NAMESPACE";
/// The variable that makes the lack of namespaces, devices or programs a failure when it is `must`.
pub const MUST: &str = "IKE_KERNEL_TESTS";

/// What a test needs of the machine.
#[derive(Debug, Clone, Copy)]
pub struct Need {
    /// Looks whether it is there.
    pub met: fn() -> Result<Place, Lack>,
}

/// Where a test runs.
#[derive(Debug, Clone, Copy)]
pub enum Place {
    /// In this process.
    Here,
    /// In a process and a namespace of its own, made with these options of `unshare`.
    Namespace(&'static [&'static str]),
}

/// What a machine lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lack {
    /// What is missing, and if known why.
    pub what: String,
    /// Whether that is a failure.
    pub fails: bool,
}

impl Lack {
    /// A failure if the environment variable `variable` is `must`.
    pub fn of(what: impl Into<String>, variable: &str) -> Self {
        let fails = std::env::var_os(variable).is_some_and(|value| value == "must");
        Self { what: what.into(), fails }
    }
}

/// A namespace with pairs of virtual Ethernet devices.
pub const VETH: Need = Need {
    met: || namespace("veth", &["ip", "link", "add", "p0", "type", "veth", "peer", "name", "p1"]),
};

/// A namespace with TUN devices.
pub const TUN: Need =
    Need { met: || namespace("TUN", &["ip", "tuntap", "add", "dev", "probe0", "mode", "tun"]) };

/// A namespace in which `probe`, a command, succeeds; `name` says what it needs.
///
/// # Errors
///
/// If there is none.
pub fn namespace(name: &str, probe: &[&str]) -> Result<Place, Lack> {
    const WAYS: [&[&str]; 2] = [&["--user", "--map-root-user", "--net"], &["--net"]];
    let able = |way: &&[&str]| unshare(way, probe).output().is_ok_and(|done| done.status.success());
    let lack = || Lack::of(format!("no unshare, namespaces, ip or {name}"), MUST);
    WAYS.into_iter().find(able).map(Place::Namespace).ok_or_else(lack)
}

fn unshare(way: &[&str], command: &[&str]) -> Command {
    let mut unshare = Command::new("unshare");
    unshare.args(way).args(command);
    unshare
}

/// A test: its name with its modules, and its body.
pub type Test = (&'static str, fn());

/// Makes the `main` of a program of such tests, from lists of paths to functions, each with its [`Need`].
///
/// A function that is not in a list is dead code, which the compiler reports.
#[macro_export]
macro_rules! harness {
    ($($need:expr => [$($test:path),+ $(,)?]),+ $(,)?) => {
        fn main() -> std::process::ExitCode {
            $crate::run_all(vec![$(($need, vec![$((stringify!($test), $test as fn())),+])),+])
        }
    };
}

/// Runs the tests that the command line chooses, which is that of libtest.
pub fn run_all(groups: Vec<(Need, Vec<Test>)>) -> ExitCode {
    let arguments = Arguments::from_args();
    let tests = groups.into_iter().flat_map(|(need, tests)| {
        tests
            .into_iter()
            .map(move |(name, body)| Trial::ignorable_test(name, move || run_one(name, need, body)))
    });
    libtest_mimic::run(&arguments, tests.collect()).exit_code()
}

fn run_one(name: &str, need: Need, body: fn()) -> Result<Completion, Failed> {
    if std::env::var_os(INSIDE).is_some() {
        body();
        return Ok(Completion::Completed);
    }
    match (need.met)() {
        Ok(Place::Here) => body(),
        Ok(Place::Namespace(way)) => run_inside(name, way)?,
        Err(Lack { what, fails: true }) => return Err(what.into()),
        Err(Lack { what, fails: false }) => return Ok(Completion::ignored_with(what)),
    }
    Ok(Completion::Completed)
}

/// Starts this program in a namespace, for the test called `name` alone.
fn run_inside(name: &str, way: &[&str]) -> Result<(), Failed> {
    let exe = std::env::current_exe()?;
    let exe = exe.to_str().ok_or("the program's path is not UTF-8")?;
    let output = unshare(way, &[exe, "--exact", name, "--nocapture"]).env(INSIDE, "1").output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    // A name that is not there would be no failure by itself.
    if output.status.success() && text.contains("1 passed") { Ok(()) } else { Err(text.into()) }
}

/// Runs `command`, words with a space between.
///
/// # Panics
///
/// If it fails.
pub fn run(command: &str) {
    let mut words = command.split(' ');
    let program = words.next().unwrap_or_default();
    let output = Command::new(program).args(words).output().expect("the program is there");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command}: {error}");
}

/// Another host: a network namespace beside this one, as long as this is kept.
#[derive(Debug)]
pub struct Host(Child);

impl Host {
    /// A host without any device that is up.
    ///
    /// # Panics
    ///
    /// If there is no `unshare`, or it may not.
    #[expect(clippy::new_without_default, reason = "it starts a process")]
    pub fn new() -> Self {
        let holder = Command::new("unshare").args(["--net", "sleep", "100"]).spawn();
        let host = Self(holder.expect("there is unshare"));
        // Until it has left this namespace.
        let ours = std::fs::read_link("/proc/self/ns/net").expect("there is a namespace");
        let theirs = format!("/proc/{}/ns/net", host.id());
        while std::fs::read_link(&theirs).is_ok_and(|theirs| theirs == ours) {
            std::thread::sleep(Duration::from_millis(5));
        }
        host
    }

    /// The process that keeps it.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// The command that runs `command` there.
    pub fn inside(&self, command: &str) -> String {
        format!("nsenter --target {} --net {command}", self.id())
    }

    /// Runs `command` there.
    ///
    /// # Panics
    ///
    /// If it fails.
    pub fn run(&self, command: &str) {
        run(&self.inside(command));
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs `ip` with these words; what it prints.
///
/// # Panics
///
/// If it fails.
pub fn ip(arguments: &str) -> String {
    let output = Command::new("ip").args(arguments.split(' ')).output().expect("ip is there");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {arguments}: {error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const IGNORED: Need = Need { met: || lack(false) };
    const MISSED: Need = Need { met: || lack(true) };

    fn lack(fails: bool) -> Result<Place, Lack> {
        Err(Lack { what: "no moon".to_owned(), fails })
    }

    /// Fault: in `run_one`, answer `Completion::Completed` where something is missing.
    #[test]
    fn a_test_whose_need_is_not_met_does_not_run_and_does_not_pass() {
        let body = || panic!("it runs");
        let Ok(Completion::Ignored { reason }) = run_one("a_test", IGNORED, body) else {
            panic!("it is not ignored")
        };
        assert_eq!(reason.as_deref(), Some("no moon"));
        let Err(failed) = run_one("a_test", MISSED, body) else { panic!("it does not fail") };
        assert_eq!(failed.message(), Some("no moon"));
    }
}
