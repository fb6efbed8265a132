//! The program, and a daemon that it runs.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

pub(crate) fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_ike-daemon"))
}

/// The child of a process that is this program by `command`, a word; empty if there is none.
pub(crate) fn child_of(process: &str, command: &str) -> String {
    let children = format!("/proc/{process}/task/{process}/children");
    let children = std::fs::read_to_string(children).expect("read");
    let is_meant = |child: &&str| {
        let line = std::fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
        line.split(|octet| *octet == 0).nth(1) == Some(command.as_bytes())
    };
    children.split_whitespace().find(is_meant).unwrap_or_default().to_owned()
}

/// A daemon in a process of its own, without a data plane. Killed when dropped.
pub(crate) struct Running {
    process: Child,
    pub(crate) socket: PathBuf,
    lines: mpsc::Receiver<String>,
}

impl Running {
    /// By a command that lacks where the configuration is, and the control socket.
    pub(crate) fn start_by(mut command: Command, folder: &Path, name: &str, config: &Path) -> Self {
        let socket = folder.join(format!("{name}.sock"));
        let mut process = command
            .arg("--config")
            .arg(config)
            .arg("--control")
            .arg(&socket)
            .env("IKE_LOG", "info")
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program runs");
        let (sender, lines) = mpsc::channel();
        let stderr = process.stderr.take().expect("standard error");
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                // The test may be over.
                let _ = sender.send(line);
            }
        });
        let running = Self { process, socket, lines };
        running.wait_for("listening");
        let deadline = Instant::now() + Duration::from_secs(10);
        while !running.list().status.success() {
            assert!(Instant::now() < deadline, "no control socket");
        }
        running
    }

    /// Waits for a log line that contains `what`.
    pub(crate) fn wait_for(&self, what: &str) -> String {
        loop {
            let line = self.next_line(Duration::from_secs(10));
            let line = line.unwrap_or_else(|| panic!("no log line with {what:?}"));
            if line.contains(what) {
                return line;
            }
        }
    }

    /// The next log line, if it comes in time.
    pub(crate) fn next_line(&self, within: Duration) -> Option<String> {
        self.lines.recv_timeout(within).ok()
    }

    pub(crate) fn ask(&self, arguments: &[&str]) -> Output {
        program().args(arguments).arg("--control").arg(&self.socket).output().expect("it runs")
    }

    pub(crate) fn list(&self) -> Output {
        self.ask(&["list", "--json"])
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn signal(&self, name: &str) {
        let command = format!("kill -{name} {}", self.pid());
        assert!(Command::new("sh").args(["-c", &command]).status().expect("sh").success());
    }

    pub(crate) fn end(mut self) -> Option<i32> {
        self.signal("TERM");
        self.process.wait().expect("it ends").code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
