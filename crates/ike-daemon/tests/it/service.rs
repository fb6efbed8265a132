//! The daemon as systemd runs it: what it tells, what it gives up, and its log.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::tempdir;
use crate::running::child_of;

/// How long to wait for what should come at once.
const PATIENCE: Duration = Duration::from_secs(20);

struct Service {
    process: Child,
    notify: UnixDatagram,
}

impl Service {
    /// Starts the program with a socket of systemd's and the credentials in `folder`.
    fn start(folder: &Path, config: &Path, log_format: &str) -> Self {
        let socket = folder.join("notify");
        let notify = UnixDatagram::bind(&socket).expect("bound");
        notify.set_read_timeout(Some(PATIENCE)).expect("set");
        let log = fs::File::create(folder.join("log")).expect("a log");
        let process = Command::new(env!("CARGO_BIN_EXE_ike-daemon"))
            .args(["run", "--data-plane", "none", "--listen", "127.0.0.1", "--config"])
            .arg(config)
            .args(["--log-format", log_format, "--control"])
            .arg(folder.join("control.sock"))
            .env("NOTIFY_SOCKET", &socket)
            .env("WATCHDOG_USEC", "400000")
            .env("CREDENTIALS_DIRECTORY", folder.join("credentials"))
            .stderr(Stdio::from(log))
            .spawn()
            .expect("the program runs");
        Self { process, notify }
    }

    /// Waits for a message with `what`.
    fn told(&self, what: &str) -> String {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            let mut octets = [0; 1024];
            let length = match self.notify.recv(&mut octets) {
                // This process was stopped, as by whoever shares the machine.
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                received => received.expect("a message in time"),
            };
            let text = String::from_utf8_lossy(&octets[..length]).into_owned();
            if text.lines().any(|line| line == what) {
                return text;
            }
        }
        panic!("systemd was never told {what}");
    }

    fn signal(&self, name: &str) {
        let command = format!("kill -{name} {}", self.process.id());
        assert!(Command::new("sh").args(["-c", &command]).status().expect("sh").success());
    }

    /// The numbers of its child processes.
    fn children(&self) -> Vec<String> {
        let main = self.process.id();
        let children = fs::read_dir("/proc").expect("processes").filter_map(|entry| {
            let path = entry.ok()?.path();
            let status = fs::read_to_string(path.join("status")).ok()?;
            let own = status.lines().any(|line| line == format!("PPid:\t{main}"));
            own.then(|| path.file_name()?.to_str().map(str::to_owned))?
        });
        children.collect()
    }

    /// A line of the status of every thread.
    fn of_threads(&self, key: &str) -> Vec<String> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.process.id())).expect("threads");
        let statuses = tasks.filter_map(|task| {
            let mut text = String::new();
            let file = fs::File::open(task.ok()?.path().join("status"));
            file.ok()?.read_to_string(&mut text).ok()?;
            text.lines()
                .find_map(|line| line.strip_prefix(key))
                .map(|value| value.trim().to_owned())
        });
        statuses.collect()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn write(path: &Path, charon: &str, secret: &str) {
    let text = format!(
        "[charon]\nport = 0\nport_nat_t = 0\n{charon}\n[connections.site]\nremote_addrs = '127.0.0.2'\n\
         local = {{ auth = 'psk', id = 'left' }}\nremote = {{ auth = 'psk', id = 'right' }}\n\
         children.net = {{}}\n[secrets.ike]\nsecret_file = '{secret}'\n"
    );
    fs::write(path, text).expect("written");
}

#[test]
fn systemd_hears_of_every_step_and_the_sandbox_holds() {
    let folder = tempdir("service");
    let elsewhere = tempdir("service-elsewhere");
    fs::create_dir(folder.join("credentials")).expect("made");
    fs::write(folder.join("credentials/psk"), "a secret of this test").expect("written");
    fs::write(elsewhere.join("psk"), "a secret of this test").expect("written");
    let config = folder.join("ike.toml");
    write(&config, "sandbox = {}", "credential:psk");
    let mut service = Service::start(&folder, &config, "json");
    let ready = service.told("READY=1");
    assert!(ready.contains("STATUS=listening on UDP ports"), "{ready}");
    service.told("WATCHDOG=1");
    service.told("WATCHDOG=1");

    // What the file says can still be read, a credential too. What is taken at the start is said to be.
    let voids = format!("session_resumption.void_tickets = '{}'", folder.join("void").display());
    write(&config, &format!("sandbox = {{}}\n{voids}"), "credential:psk");
    service.signal("HUP");
    let reloading = service.told("RELOADING=1");
    assert!(reloading.contains("MONOTONIC_USEC="), "{reloading}");
    assert!(service.told("READY=1").contains("STATUS=configuration reloaded"));
    let log = || fs::read_to_string(folder.join("log")).expect("a log");
    // Systemd may hear of it before the log does.
    let logs = |text: &str| {
        let end = Instant::now() + Duration::from_secs(10);
        while !log().contains(text) {
            assert!(Instant::now() < end, "{}", log());
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    logs("void_tickets takes effect at the next start");

    assert!(service.of_threads("Seccomp:").iter().all(|mode| mode == "2"));
    assert!(service.of_threads("NoNewPrivs:").iter().all(|set| set == "1"));
    // CAP_NET_BIND_SERVICE, CAP_NET_ADMIN and CAP_NET_RAW, or less where this test has less.
    let kept = 1_u64 << 10 | 1 << 12 | 1 << 13;
    for key in ["CapEff:", "CapPrm:"] {
        let all = service.of_threads(key);
        assert!(all.len() > 1, "threads were made after it");
        for held in all {
            let held = u64::from_str_radix(&held, 16).expect("hexadecimal");
            assert_eq!(held & !kept, 0, "{key} {held:x}");
        }
    }

    // A file elsewhere cannot, where the kernel has Landlock; the configuration stays as it was.
    write(&config, "sandbox = {}", elsewhere.join("psk").to_str().expect("UTF-8"));
    service.signal("HUP");
    service.told("RELOADING=1");
    let outcome = service.told("READY=1");
    if log().contains("sandbox: Landlock") {
        assert!(outcome.contains("configuration refused"), "{outcome}");
        logs("Permission denied");
    }

    service.signal("TERM");
    service.told("STOPPING=1");
    assert_eq!(service.process.wait().expect("it ends").code(), Some(0), "{}", log());
    for line in log().lines() {
        let event: serde_json::Value = serde_json::from_str(line).expect("JSON");
        assert!(event["level"].is_string() && event["message"].is_string(), "{line}");
        assert!(!line.contains("a secret of this test"));
    }
}

/// A command of this user with no more capabilities than the daemon keeps.
fn as_the_daemon(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    // What a program of root's gets when it starts is no more than the bounding set.
    if rustix::process::geteuid().is_root() {
        let kept = "-all,+net_admin,+net_raw,+net_bind_service";
        command.args(["--bounding-set", kept, "--inh-caps=-all"]);
    }
    command.arg(program);
    command
}

/// True if another process of this user can read process `id` as a tracer may (PTRACE_MODE_READ, the weakest of the
/// kernel's checks in ptrace(2)).
fn another_reads(id: u32) -> bool {
    let opens = format!("exec 3<\"/proc/{id}/environ\"");
    let mut command = as_the_daemon("sh");
    command.args(["-c", &opens]).stderr(Stdio::null()).status().expect("setpriv").success()
}

/// Without any section about it, the process that the network reaches keeps no privilege that it does not need.
///
/// Fault: in `service::sandbox::enter` leave out `set_dumpable`, or in `config::sandbox::read` return
/// `capabilities: false, seccomp: false` where there is no section.
#[test]
fn a_bare_run_drops_privileges_and_cannot_be_traced() {
    let folder = tempdir("bare");
    fs::write(folder.join("psk"), "a secret of this test").expect("written");
    let config = folder.join("ike.toml");
    write(&config, "", "psk");
    let service = Service::start(&folder, &config, "text");
    service.told("READY=1");
    assert!(service.of_threads("Seccomp:").iter().all(|mode| mode == "2"));
    assert!(service.of_threads("NoNewPrivs:").iter().all(|set| set == "1"));
    let kept = 1_u64 << 10 | 1 << 12 | 1 << 13;
    for key in ["CapEff:", "CapPrm:", "CapBnd:"] {
        for held in service.of_threads(key) {
            let held = u64::from_str_radix(&held, 16).expect("hexadecimal");
            // The bounding set can only be changed by root.
            let bound = key == "CapBnd:" && !rustix::process::geteuid().is_root();
            assert!(bound || held & !kept == 0, "{key} {held:x}");
        }
    }
    let mut other = as_the_daemon("sleep").arg("60").spawn().expect("it runs");
    let end = Instant::now() + PATIENCE;
    while !another_reads(other.id()) {
        assert!(Instant::now() < end, "an ordinary process can be read");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(!another_reads(service.process.id()), "the daemon cannot");
    other.kill().expect("ended");
    other.wait().expect("it ends");
    let log = fs::read_to_string(folder.join("log")).expect("a log");
    assert!(log.contains("sandbox: capabilities") && log.contains("sandbox: seccomp"), "{log}");
}

/// A configuration that works with root's privileges alone works without a section about the sandbox: the daemon keeps
/// what it takes, and says so.
///
/// Fault: have `Plan::relaxed_until` return `self`.
#[test]
fn files_of_other_users_and_elsewhere_are_read_without_a_section() {
    let folder = tempdir("bare-elsewhere");
    let elsewhere = tempdir("bare-elsewhere-secret");
    let secret = elsewhere.join("psk");
    fs::write(&secret, "a secret of this test").expect("written");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).expect("set");
    let root = rustix::process::geteuid().is_root();
    if root {
        std::os::unix::fs::chown(&secret, Some(65534), Some(65534)).expect("given away");
    }
    let config = folder.join("ike.toml");
    write(&config, "", secret.to_str().expect("UTF-8"));
    let service = Service::start(&folder, &config, "text");
    service.told("READY=1");
    service.signal("HUP");
    service.told("RELOADING=1");
    assert!(service.told("READY=1").contains("configuration reloaded"));
    let log = fs::read_to_string(folder.join("log")).expect("a log");
    assert!(log.contains("sandbox: no Landlock"), "{log}");
    assert_eq!(root, log.contains("CAP_DAC_READ_SEARCH"), "{log}");
}

/// systemd stops a service by a signal to all of its processes, in any order.
#[test]
fn a_signal_to_all_processes_is_an_orderly_end() {
    let folder = tempdir("signals");
    fs::write(folder.join("psk"), "a secret of this test").expect("written");
    let config = folder.join("ike.toml");
    write(&config, "", "psk");
    let mut service = Service::start(&folder, &config, "text");
    service.told("READY=1");
    let children = service.children();
    assert_eq!(children.len(), 2, "those that start signers and resolvers");
    for name in ["TERM", "INT", "HUP"] {
        let command = format!("kill -{name} {}", children.join(" "));
        assert!(Command::new("sh").args(["-c", &command]).status().expect("sh").success());
    }
    // Twice, so that one of them was said after the signals.
    service.told("WATCHDOG=1");
    service.told("WATCHDOG=1");
    service.signal("TERM");
    assert!(service.process.wait().expect("it ends").success());
    for child in children {
        assert!(!Path::new("/proc").join(child).exists(), "they have ended with it");
    }
}

/// Faults, each by itself: in `serve`, say "shutting down" and end in order when something is lost; in `Line::keep` of
/// src/names/client.rs, do not call `lost`.
#[test]
fn a_lost_signer_is_no_orderly_end_nor_is_a_lost_starter_of_resolvers() {
    for (process, ended) in [
        ("signer", "the signer has ended"),
        ("resolver", "the process that starts resolvers has ended"),
    ] {
        ends_without_order(process, ended);
    }
}

/// The daemon says `ended` and ends once this child of it is killed.
fn ends_without_order(child: &str, ended: &str) {
    let folder = tempdir("lost-child");
    fs::write(folder.join("psk"), "a secret of this test").expect("written");
    let config = folder.join("ike.toml");
    write(&config, "", "psk");
    let mut service = Service::start(&folder, &config, "text");
    service.told("READY=1");
    let child = child_of(&service.process.id().to_string(), child);
    let command = format!("kill -KILL {child}");
    assert!(Command::new("sh").args(["-c", &command]).status().expect("sh").success());
    assert_eq!(service.process.wait().expect("it ends").code(), Some(1));
    let log = fs::read_to_string(folder.join("log")).expect("a log");
    let mut lines = log.lines().filter(|line| line.contains(ended));
    assert!(lines.any(|line| line.contains("leaves its policies in place")), "{log}");
    assert!(!log.contains("shutting down"), "{log}");
}

/// A spawner may end before what it has started asks the kernel for a signal at that end. Here a shell is the parent, and this
/// process has made the socket.
///
/// Fault: in `spawner::end_with_spawner`, do not compare.
#[test]
fn what_a_lost_spawner_has_started_ends() {
    for what in ["signer", "resolver"] {
        let (mut ours, its) = UnixStream::pair().expect("a pair");
        let started = Command::new("sh")
            .args(["-c", "exec 3<&0; \"$0\" \"$1\" <&3 3<&- &"])
            .args([env!("CARGO_BIN_EXE_ike-daemon"), what])
            .stdin(Stdio::from(OwnedFd::from(its)))
            .status()
            .expect("it runs");
        assert!(started.success());
        ours.set_read_timeout(Some(PATIENCE)).expect("set");
        // By its first octet it is no spawner. It waits for more, unless it ends.
        ours.write_all(&[0]).expect("sent");
        let end = ours.read(&mut [0]);
        let reset = |why: &std::io::Error| why.kind() == ErrorKind::ConnectionReset;
        assert!(matches!(end, Ok(0)) || end.as_ref().is_err_and(reset), "{what}: {end:?}");
    }
}

/// Fault: in `commands::run`, do not start the log of a signer.
#[test]
fn the_process_that_starts_signers_logs() {
    let (mut ours, its) = UnixStream::pair().expect("a pair");
    let spawner = Command::new(env!("CARGO_BIN_EXE_ike-daemon"))
        .args(["signer", "--log-format", "json"])
        .stdin(Stdio::from(OwnedFd::from(its)))
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    // An order for a signer, and the list of PKCS#11 modules and limits, which is empty. The second list is a mistake.
    let list = [0xfe, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0];
    ours.write_all(&[&[0xff, 1][..], &list, &list].concat()).expect("sent");
    ours.shutdown(std::net::Shutdown::Write).expect("shut down");
    let ended = spawner.wait_with_output().expect("it ends");
    let log = String::from_utf8(ended.stderr).expect("UTF-8");
    assert!(ended.status.success() && log.contains("{\"timestamp\""), "{log}");
    assert!(log.contains("named a second time"), "{log}");
}

/// systemd's VICI socket is there before the daemon and after it; clients that came early are served.
#[test]
fn a_socket_of_systemds_is_vicis() {
    let folder = tempdir("activation");
    let config = folder.join("ike.toml");
    fs::write(folder.join("psk"), "a secret of this test").expect("written");
    write(&config, "sandbox = {}", "psk");
    let path = folder.join("vici");
    let listener = UnixListener::bind(&path).expect("bound");
    let mut early = UnixStream::connect(&path).expect("connected");
    early.set_read_timeout(Some(PATIENCE)).expect("set");
    // COMMAND, "version".
    early.write_all(b"\0\0\0\x09\0\x07version").expect("sent");
    let notify = folder.join("notify");
    let run = |fds: &str, stdin: Stdio| {
        // The descriptors begin with 3, and are for the process of this number.
        let mut command = Command::new("sh");
        command
            .args(["-c", "export LISTEN_PID=$$; exec 3<&0 4<&0 0</dev/null; exec \"$@\"", "sh"])
            .arg(env!("CARGO_BIN_EXE_ike-daemon"))
            .args(["run", "--data-plane", "none", "--listen", "127.0.0.1", "--config"])
            .arg(&config)
            .arg("--control")
            .arg(folder.join("control.sock"))
            .env("LISTEN_FDS", fds)
            .env("NOTIFY_SOCKET", &notify)
            .stdin(stdin)
            .stderr(Stdio::piped());
        command
    };
    let given = || Stdio::from(OwnedFd::from(listener.try_clone().expect("cloned")));
    let several = run("2", given()).output().expect("it runs");
    assert_eq!(several.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&several.stderr).contains("several sockets"));
    let no_socket = run("1", Stdio::from(fs::File::open(&config).expect("open"))).output();
    assert_eq!(no_socket.expect("it runs").status.code(), Some(1));

    let notify = UnixDatagram::bind(&notify).expect("bound");
    notify.set_read_timeout(Some(PATIENCE)).expect("set");
    // The file's own socket and group are not used, and the log says so.
    let text = fs::read_to_string(&config).expect("a file");
    let own = folder.join("own").display().to_string();
    let vici = format!("[charon.plugins.vici]\nsocket = 'unix://{own}'\n");
    fs::write(&config, format!("{text}{vici}")).expect("written");
    let log = folder.join("log");
    let to = Stdio::from(fs::File::create(&log).expect("a log"));
    let process = run("1", given()).stderr(to).spawn().expect("it runs");
    let mut service = Service { process, notify };
    service.told("READY=1");
    let mut answer = [0; 5];
    early.read_exact(&mut answer).expect("an answer");
    assert_eq!(answer[4], 1, "CMD_RESPONSE");
    service.signal("TERM");
    assert!(service.process.wait().expect("it ends").success());
    let log = fs::read_to_string(log).expect("a log");
    assert!(log.contains("systemd hands over the VICI socket") && log.contains(&own), "{log}");
    assert!(path.exists(), "it is systemd's");
    UnixStream::connect(&path).expect("it still listens");
}

#[test]
fn a_sandbox_that_would_break_reloads_is_refused_at_the_start() {
    let folder = tempdir("service-refused");
    let elsewhere = tempdir("service-refused-elsewhere");
    fs::write(elsewhere.join("psk"), "a secret of this test").expect("written");
    let config = folder.join("ike.toml");
    write(&config, "sandbox = { seccomp = false }", elsewhere.join("psk").to_str().expect("UTF-8"));
    let mut service = Service::start(&folder, &config, "journald");
    let end = Instant::now() + PATIENCE;
    let log = loop {
        let log = fs::read_to_string(folder.join("log")).expect("a log");
        if log.contains("keeps a reload from reading") || log.contains("has no such Landlock") {
            break log;
        }
        assert!(Instant::now() < end, "{log}");
        std::thread::sleep(Duration::from_millis(20));
    };
    if log.contains("keeps a reload") {
        assert_eq!(service.process.wait().expect("it ends").code(), Some(3), "{log}");
    }
    let first = log.lines().next().expect("a line");
    assert!(first.starts_with("<6>sandbox: capabilities"), "{first}");
}

/// Fault: in dist/debian/postinst, leave out the question for the second argument.
#[test]
fn an_upgrade_of_the_package_leaves_the_mode_of_the_configuration_to_its_owner() {
    let folder = tempdir("postinst");
    let (changed, script) = (folder.join("changed"), "#!/bin/sh\necho \"$0 $*\" >> \"$CHANGED\"\n");
    for tool in ["chmod", "systemctl", "systemd-tmpfiles"] {
        let path = folder.join(tool);
        fs::write(&path, script).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("set");
    }
    let install = |earlier: &str| {
        let _ = fs::remove_file(&changed);
        let status = Command::new("/bin/sh")
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/dist/debian/postinst"))
            .args(["configure", earlier])
            .env("PATH", &folder)
            .env("CHANGED", &changed)
            .status();
        assert!(status.expect("sh").success());
        fs::read_to_string(&changed).unwrap_or_default().contains("chmod 0600 /etc/ike")
    };
    assert!(install(""), "the secrets of a new file are its owner's");
    assert!(!install("0.1.0-1"), "the mode of an old one is kept");
}
