//! Where commands run: a folder of their own, with a responder on ports of its own.

use std::fs;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::root;

/// Longer than any command takes here on a busy machine.
const LIMIT: &str = "180";
const PATIENCE: Duration = Duration::from_secs(180);

/// The folder of a section.
pub struct Place {
    pub folder: PathBuf,
    /// UDP port of the responder, and TCP port of its counts.
    ports: [u16; 2],
    responder: Option<Child>,
}

/// A program of this build: `ike-bench` is always there, others are built by `cargo test --workspace`.
fn built(name: &str) -> Result<PathBuf, String> {
    let bench = Path::new(env!("CARGO_BIN_EXE_ike-bench"));
    let path = bench.with_file_name(name);
    match path.exists() {
        true => Ok(path),
        false => {
            let package =
                if name == "ike-daemon" { "-p ike-daemon" } else { "--workspace --examples" };
            Err(format!("no {}; `cargo build {package}` builds it", path.display()))
        }
    }
}

impl Place {
    pub fn new(document: &str, section: usize) -> Self {
        let name = format!("documented-{}-{section}", document.replace('/', "-"));
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let ports = [udp.local_addr().unwrap().port(), tcp.local_addr().unwrap().port()];
        Self { folder, ports, responder: None }
    }

    /// Runs a program here to its end.
    fn finish(
        &self,
        program: &Path,
        arguments: &[String],
        variables: &[(&str, &str)],
    ) -> Result<(), String> {
        let mut command = Command::new("timeout");
        command.args(["-k", "5", LIMIT]).arg(program).args(arguments).current_dir(&self.folder);
        // What CI is told about the lab is not for the lab's scripts here.
        command
            .env_remove("IKE_LAB")
            .env("RUST_BACKTRACE", "0")
            .envs(variables.iter().copied())
            .stdin(Stdio::null());
        let output = command.output().map_err(|error| format!("timeout: {error}"))?;
        if output.status.success() {
            return Ok(());
        }
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        let lines: Vec<_> = said.lines().collect();
        // An error stands at the start, before a usage, or at the end.
        let (start, end) = lines.split_at(lines.len().min(4));
        let end = &end[end.len().saturating_sub(6)..];
        let ended = match output.status.code() {
            Some(124) => format!("not at its end after {LIMIT} s"),
            _ => output.status.to_string(),
        };
        let (name, arguments) = (program.display(), arguments.join(" "));
        Err(format!("{name} {arguments}: {ended}:\n{}", [start, end].concat().join("\n")))
    }

    /// `ike-bench`, which must write the files that it is told to.
    pub fn bench(&self, arguments: &[String]) -> Result<(), String> {
        let files = arguments.windows(2).filter_map(|pair| {
            let is_written =
                ["--csv", "--svg", "--json", "--handshakes"].contains(&pair[0].as_str());
            let is_file = pair[1].ends_with(".csv") || pair[1].ends_with(".svg");
            (is_written && is_file).then(|| self.folder.join(&pair[1]))
        });
        let files: Vec<PathBuf> = files.collect();
        for folder in files.iter().filter_map(|file| file.parent()) {
            fs::create_dir_all(folder).map_err(|error| error.to_string())?;
        }
        self.finish(&built("ike-bench")?, arguments, &[])?;
        let is_empty = |file: &&PathBuf| fs::metadata(file).is_ok_and(|found| found.len() > 0);
        match files.iter().find(|file| !is_empty(file)) {
            Some(file) => Err(format!("{}: nothing was written", file.display())),
            None => Ok(()),
        }
    }

    /// `ike-bench serve`, on ports of its own.
    pub fn serve(&mut self, arguments: &[String]) -> Result<(), String> {
        let [port, counts] = self.ports.map(|port| port.to_string());
        let ports = ["--port", &port, "--counts-port", &counts].map(str::to_owned);
        self.start("ike-bench", &[arguments, &ports].concat())?;
        let counts = ("127.0.0.1", self.ports[1]);
        self.until("the responder", |_| TcpStream::connect(counts).is_ok())
    }

    /// `ike-bench links --to`, to the responder of this section.
    pub fn links_to(&self, arguments: &[String]) -> Result<(), String> {
        let [port, counts] = self.ports.map(|port| port.to_string());
        let ports = ["--port", &port, "--counts-port", &counts].map(str::to_owned);
        self.bench(&[&here(arguments), ports.as_slice()].concat())
    }

    /// `ike-bench load`, to the daemon of this section.
    pub fn load(&mut self, arguments: &[String]) -> Result<(), String> {
        if self.responder.is_none() {
            // The page says elsewhere how to start it: as in benches/README.md.
            let suites = arguments.iter().skip_while(|word| *word != "--suite").take(2).cloned();
            let make = ["serve", "--only-bundle", "--initiators", "2"].map(str::to_owned);
            self.bench(&make.into_iter().chain(suites).collect::<Vec<_>>())?;
            let run =
                ["run", "--data-plane", "none", "--config", "links.bundle/responder/ike.toml"];
            self.daemon(&run.map(str::to_owned))?;
        }
        let pid = self.responder.as_ref().map(|child| child.id().to_string()).unwrap_or_default();
        let arguments = here(arguments).into_iter();
        let arguments = arguments.map(|word| if word == "PID" { pid.clone() } else { word });
        let port = ["--port".to_owned(), self.ports[0].to_string()];
        self.bench(&arguments.chain(port).collect::<Vec<_>>())
    }

    /// `ike-daemon run`, on a port and with a control socket of its own.
    pub fn daemon(&mut self, arguments: &[String]) -> Result<(), String> {
        let at = arguments.iter().position(|word| word == "--config").ok_or("no --config")?;
        let file = self.folder.join(arguments.get(at + 1).ok_or("no file after --config")?);
        let text = fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
        let moved = text.replace("port_nat_t = 4500", &format!("port_nat_t = {}", self.ports[0]));
        if moved == text {
            return Err(format!("{}: the port is not 4500", file.display()));
        }
        fs::write(&file, moved).map_err(|error| format!("{}: {error}", file.display()))?;
        let socket = self.folder.join("control");
        let control = ["--control".to_owned(), socket.display().to_string()];
        self.start("ike-daemon", &[&control, arguments].concat())?;
        self.until("the daemon", |_| socket.exists())
    }

    fn start(&mut self, name: &str, arguments: &[String]) -> Result<(), String> {
        self.stop();
        let log = fs::File::create(self.folder.join("responder.log")).unwrap();
        let mut command = Command::new(built(name)?);
        command.args(arguments).current_dir(&self.folder).stdin(Stdio::null()).stderr(log);
        let child = command.stdout(Stdio::null()).spawn();
        self.responder = Some(child.map_err(|error| format!("{name}: {error}"))?);
        Ok(())
    }

    fn until(&mut self, what: &str, is_ready: impl Fn(&Self) -> bool) -> Result<(), String> {
        let begun = Instant::now();
        while !is_ready(self) {
            let ended =
                self.responder.as_mut().is_none_or(|child| !matches!(child.try_wait(), Ok(None)));
            if ended || begun.elapsed() > PATIENCE {
                let log = fs::read_to_string(self.folder.join("responder.log"));
                return Err(format!("{what} does not answer: {}", log.unwrap_or_default()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn stop(&mut self) {
        if let Some(mut child) = self.responder.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// `scp -r a:FOLDER .`
    pub fn copy(&self, arguments: &[String]) -> Result<(), String> {
        let [_, from, to] = arguments else {
            return Err("not as `scp -r HOST:FOLDER .`".to_owned());
        };
        let from = from.split_once(':').map_or(from.as_str(), |(_, path)| path);
        let copy = ["-r", from, to].map(str::to_owned);
        self.finish(Path::new("cp"), &copy, &[])
    }

    /// A script of the repository, with the programs of this build.
    pub fn script(
        &self,
        words: &[String],
        variables: &[String],
        sizes: &[(&str, &str)],
    ) -> Result<(), String> {
        let script = root().join(&words[0]);
        let given = variables.iter().filter_map(|variable| variable.split_once('='));
        let mut all: Vec<(&str, String)> = given.map(|(n, v)| (n, v.to_owned())).collect();
        for (name, value) in sizes {
            let value = match *name {
                "DAEMON" => built(value)?.display().to_string(),
                _ => (*value).to_owned(),
            };
            all.push((name, value));
        }
        let all: Vec<_> = all.iter().map(|(name, value)| (*name, value.as_str())).collect();
        // Ports that scripts choose are free in a network namespace.
        let apart = ["--user", "--map-root-user", "--net"];
        let can =
            Command::new("unshare").args(apart).args(["ip", "link", "set", "lo", "up"]).output();
        if sizes.is_empty() || !can.is_ok_and(|output| output.status.success()) {
            return self.finish(&script, &words[1..], &all);
        }
        let inside = ["sh", "-c", "ip link set lo up && exec \"$@\"", "-"];
        let script = script.display().to_string();
        let arguments = apart.iter().chain(&inside).map(|word| (*word).to_owned()).chain([script]);
        let arguments: Vec<String> = arguments.chain(words[1..].iter().cloned()).collect();
        self.finish(Path::new("unshare"), &arguments, &all)
    }

    /// A script of the lab, with the programs of this build.
    pub fn in_the_lab(&self, words: &[String], variables: &[String]) -> Result<(), String> {
        let programs = [("IKE_BENCH", built("ike-bench")?), ("IKE_DAEMON", built("ike-daemon")?)];
        let logs = ("IKE_LAB_OUT", self.folder.join("logs"));
        let all = programs.into_iter().chain([logs]);
        let all = all.map(|(name, path)| format!("{name}={}", path.display()));
        self.script(words, &variables.iter().cloned().chain(all).collect::<Vec<_>>(), &[])
    }

    /// An example, at the smallest size that it has.
    pub fn example(&self, name: &str) -> Result<(), String> {
        self.finish(&built(&format!("examples/{name}"))?, &["1".to_owned()], &[])
    }

    /// A program tells its usage.
    pub fn named(&self, words: &[String]) -> Result<(), String> {
        let program = match words[0].as_str() {
            "taskset" => PathBuf::from("taskset"),
            name => built(name)?,
        };
        self.finish(&program, &[&words[1..], &["--help".to_owned()]].concat(), &[])
    }

    /// `docs/links/run.sh`, on a copy of its folder: what it builds is there, and each row has one handshake.
    pub fn pictures(&self) -> Result<(), String> {
        let [copy, target, programs] =
            ["copy", "target", "programs"].map(|name| self.folder.join(name));
        if copy.exists() {
            // The section names it twice.
            return Ok(());
        }
        for folder in [copy.join("docs"), target.join("release"), programs.clone()] {
            fs::create_dir_all(folder).map_err(|error| error.to_string())?;
        }
        let links = root().join("docs/links").display().to_string();
        let to = copy.join("docs/links").display().to_string();
        self.finish(Path::new("cp"), &["-r".to_owned(), links, to], &[])?;
        let bench = built("ike-bench")?;
        program(&programs.join("cargo"), "[ \"$*\" = 'build --release -p ike-bench' ]")?;
        // An option may be given once only.
        let once = format!(
            "exec {} $(printf '%s ' \"$@\" | sed 's/--runs [0-9]* //') --runs 1",
            bench.display()
        );
        program(&target.join("release/ike-bench"), &once)?;
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{path}", programs.display());
        let target = target.display().to_string();
        self.finish(
            &copy.join("docs/links/run.sh"),
            &[],
            &[("PATH", &path), ("CARGO_TARGET_DIR", &target)],
        )
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.stop();
    }
}

fn program(path: &Path, line: &str) -> Result<(), String> {
    let wrong = |error| format!("{}: {error}", path.display());
    fs::write(path, format!("#!/bin/sh\n{line}\n")).map_err(wrong)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).map_err(wrong)
}

/// The host named `a` is this one.
fn here(arguments: &[String]) -> Vec<String> {
    let mut arguments = arguments.to_vec();
    if let Some(at) = arguments.iter().position(|word| word == "--to")
        && let Some(host) = arguments.get_mut(at + 1)
    {
        *host = "127.0.0.1".to_owned();
    }
    arguments
}
