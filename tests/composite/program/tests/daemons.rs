//! Two daemons in processes of their own, which authenticate by certificates of a chain of the composite. Configuration and
//! `pki` alone make that: no crate of the engine knows the scheme.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

const SCHEME: &str = "composite_mldsa65_ed25519";
/// Addresses and ports are the same in all tests.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_ike-test-composite-daemon"))
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The folders of two hosts below one, and the CAs there.
struct Hosts {
    folder: PathBuf,
    /// The `auth` of each host itself.
    local: [&'static str; 2],
    /// Further options of the connection, for each host.
    options: [&'static [&'static str]; 2],
    _turn: MutexGuard<'static, ()>,
}

/// The format of a configuration file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Toml,
    Swanctl,
}

impl Hosts {
    /// Root, intermediate and an end entity for each host, with keys of `types` in this order.
    fn new(name: &str, types: [&str; 3]) -> Self {
        let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let folder =
            std::env::temp_dir().join(format!("ike-composite-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        let this = Self { folder, local: [SCHEME; 2], options: [&[]; 2], _turn: turn };
        for host in ["left", "right"] {
            for kind in ["x509", "x509ca", "private", "pubkey"] {
                fs::create_dir_all(this.folder.join(host).join(kind)).expect("a folder");
            }
        }
        let [root, inter, leaf] = types;
        this.pki(&format!("--gen --type {root} --out root.key"));
        this.pki("--self --ca --in root.key --dn CN=Root --out root.pem");
        this.pki(&format!("--gen --type {inter} --out inter.key"));
        let by = |ca: &str| format!("--cacert {ca}.pem --cakey {ca}.key");
        this.pki(&format!(
            "--issue --ca --in inter.key {} --dn CN=Inter --out inter.pem",
            by("root")
        ));
        for host in ["left", "right"] {
            this.pki(&format!("--gen --type {leaf} --out {host}/private/own.key"));
            this.pki(&format!(
                "--issue --in {host}/private/own.key {} --dn CN={host} --san {host}.example.org --out {host}/x509/own.pem",
                by("inter")
            ));
            this.pki(&format!("--pub --in {host}/private/own.key --out {host}.pub"));
            for ca in ["root", "inter"] {
                let to = this.folder.join(host).join(format!("x509ca/{ca}.pem"));
                fs::copy(this.folder.join(format!("{ca}.pem")), to).expect("a copy");
            }
        }
        for (host, peer) in [("left", "right"), ("right", "left")] {
            for key in [host, peer] {
                let to = this.folder.join(host).join(format!("pubkey/{key}.pub"));
                fs::copy(this.folder.join(format!("{key}.pub")), to).expect("a copy");
            }
        }
        this
    }

    /// Another key and another CA of `host`, by built-in schemes.
    fn certify_plainly(&self, host: &str) {
        self.pki("--gen --type ed25519 --out plain.key");
        self.pki("--self --ca --in plain.key --dn CN=Plain --out plain.pem");
        for file in ["private/own.key", "x509/own.pem"] {
            fs::remove_file(self.folder.join(host).join(file)).expect("the file");
        }
        self.pki(&format!("--gen --type ecdsa --out {host}/private/own.key"));
        self.pki(&format!(
            "--issue --in {host}/private/own.key --cacert plain.pem --cakey plain.key --dn CN={host} --san {host}.example.org --out {host}/x509/own.pem"
        ));
        for host in ["left", "right"] {
            let to = self.folder.join(host).join("x509ca/plain.pem");
            fs::copy(self.folder.join("plain.pem"), to).expect("a copy");
        }
    }

    fn pki(&self, line: &str) -> String {
        let output = program()
            .current_dir(&self.folder)
            .arg("pki")
            .args(line.split(' '))
            .output()
            .expect("the program runs");
        assert!(output.status.success(), "{line}: {}", stderr(&output));
        String::from_utf8(output.stdout).expect("text")
    }

    /// The file of `host`: `remote` is the `auth` of its peer; `raw` for public keys in place of certificates.
    fn configure(&self, host: &str, format: Format, remote: &str, raw: bool) -> PathBuf {
        let (peer, address, other) = match host {
            "left" => ("right", "127.0.7.1", "127.0.7.2"),
            _ => ("left", "127.0.7.2", "127.0.7.1"),
        };
        let at = usize::from(host != "left");
        let (local, options) = (self.local[at], self.options[at]);
        let (ours, theirs) = match raw {
            true => (format!("pubkeys = {host}.pub"), format!("pubkeys = {peer}.pub")),
            false => ("certs = own.pem".to_owned(), String::new()),
        };
        let (name, text) = match format {
            Format::Swanctl => (
                "swanctl.conf",
                format!(
                    "charon {{\n port = 45017\n port_nat_t = 45018\n retransmit_timeout = 0.3\n retransmit_tries = 2\n}}\n\
                     connections {{\n site {{\n local_addrs = {address}\n remote_addrs = {other}\n remote_port = 45018\n{}\n\
                     local {{\n auth = {local}\n id = {host}.example.org\n {ours}\n}}\n\
                     remote {{\n auth = {remote}\n id = {peer}.example.org\n {theirs}\n}}\n\
                     children {{\n net {{\n local_ts = 10.1.0.0/16\n remote_ts = 10.1.0.0/16\n}}\n}}\n}}\n}}\n",
                    options.join("\n"),
                ),
            ),
            Format::Toml => {
                let quoted = |option: &str| match option.split_once(" = ") {
                    Some((name, value)) => format!("{name} = '{value}'"),
                    None => String::new(),
                };
                let (ours, theirs) = (quoted(&ours), quoted(&theirs));
                let options: Vec<String> = options.iter().map(|one| quoted(one)).collect();
                (
                    "ike.toml",
                    format!(
                        "[charon]\nport = 45017\nport_nat_t = 45018\nretransmit_timeout = 0.3\nretransmit_tries = 2\n\
                         [connections.site]\nlocal_addrs = '{address}'\nremote_addrs = '{other}'\nremote_port = 45018\n{}\n\
                         [connections.site.local]\nauth = '{local}'\nid = '{host}.example.org'\n{ours}\n\
                         [connections.site.remote]\nauth = '{remote}'\nid = '{peer}.example.org'\n{theirs}\n\
                         [connections.site.children.net]\nlocal_ts = '10.1.0.0/16'\nremote_ts = '10.1.0.0/16'\n",
                        options.join("\n"),
                    ),
                )
            }
        };
        let file = self.folder.join(host).join(name);
        fs::write(&file, text).expect("a file");
        file
    }

    /// The DER encoding of what `pki` makes, changed.
    fn changed(&self, line: &str, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let file = self.folder.join("changed.der");
        self.pki(&format!("{line} --outform der --out changed.der"));
        let mut octets = fs::read(&file).expect("a file");
        fs::remove_file(file).expect("the file");
        change(&mut octets);
        octets
    }

    /// Both daemons with these values of the peer's `auth`.
    fn start(&self, format: Format, auth: [&str; 2], raw: bool) -> [Running; 2] {
        let start = |host: &str, address: &str, auth: &str| {
            let file = self.configure(host, format, auth, raw);
            Running::start(&self.folder, host, &file, address)
        };
        [start("left", "127.0.7.1", auth[0]), start("right", "127.0.7.2", auth[1])]
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A daemon without a data plane. Killed when dropped.
struct Running {
    process: Child,
    socket: PathBuf,
    lines: mpsc::Receiver<String>,
}

impl Running {
    fn start(folder: &Path, name: &str, config: &Path, address: &str) -> Self {
        let socket = folder.join(format!("{name}.sock"));
        let mut process = program()
            .args(["run", "--data-plane", "none", "--listen", address, "--config"])
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
        let this = Self { process, socket, lines };
        this.wait_for("listening");
        let deadline = Instant::now() + Duration::from_secs(20);
        while !this.ask(&["list", "--json"]).status.success() {
            assert!(Instant::now() < deadline, "no control socket");
        }
        this
    }

    fn ask(&self, words: &[&str]) -> Output {
        program().args(words).arg("--control").arg(&self.socket).output().expect("the program runs")
    }

    /// Waits for a log line with `what`.
    fn wait_for(&self, what: &str) -> String {
        let mut seen = Vec::new();
        loop {
            match self.lines.recv_timeout(Duration::from_secs(20)) {
                Ok(line) if line.contains(what) => return line,
                Ok(line) => seen.push(line),
                Err(_) => panic!("no log line with {what:?}: {seen:#?}"),
            }
        }
    }

    fn sas(&self) -> serde_json::Value {
        serde_json::from_slice(&self.ask(&["list", "--json"]).stdout).expect("JSON")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Both ends come up from either side, and `list` has these names.
fn comes_up(hosts: &Hosts, format: Format, auth: &str, raw: bool, names: &[&str]) {
    let [left, right] = hosts.start(format, [auth, auth], raw);
    for (starts, answers) in [(&left, &right), (&right, &left)] {
        let up = starts.ask(&["up", "net", "--timeout", "20"]);
        assert!(up.status.success(), "{auth}: {}", stderr(&up));
        for daemon in [starts, answers] {
            let sas = daemon.sas().to_string();
            assert!(names.iter().all(|name| sas.contains(name)), "{auth}: {sas}");
        }
        let down = starts.ask(&["down", "--ike", "site"]);
        assert!(down.status.success(), "{}", stderr(&down));
    }
}

/// Faults, each by itself: in `main_with`, pass `pq_kem::provider()` on; in `signer::serve_stdin`, `Local::default()`; in
/// `config::load_by`, give `ThisHost` the built-in algorithms.
#[test]
fn a_chain_of_the_scheme_authenticates_both_ends_by_configuration_alone() {
    let hosts = Hosts::new("chain", [SCHEME; 3]);
    for format in [Format::Toml, Format::Swanctl] {
        comes_up(&hosts, format, SCHEME, false, &[SCHEME]);
    }
    comes_up(&hosts, Format::Toml, &format!("pubkey-{SCHEME}"), false, &[SCHEME]);
    comes_up(&hosts, Format::Toml, SCHEME, true, &[SCHEME]);
    // `pki` knows both keys and the chain.
    assert!(hosts.pki("--print --in left/x509/own.pem").contains(SCHEME));
    assert!(hosts.pki("--print --in left/private/own.key").contains(SCHEME));
    hosts.pki("--verify --in left/x509/own.pem --cacert root.pem --cacert inter.pem");
    hosts.pki(
        "--signcrl --cacert inter.pem --cakey inter.key --cert left/x509/own.pem --out inter.crl",
    );
    assert!(hosts.pki("--print --in inter.crl").contains("CN=Inter"));
}

/// Fault: in `Search::signature` of ike-pki, verify by all schemes of the program.
#[test]
fn the_scheme_is_refused_where_it_is_not_named() {
    let hosts = Hosts::new("unnamed", [SCHEME; 3]);
    let of_auth = format!("ike:{SCHEME}");
    let unnamed =
        format!("has signature scheme {SCHEME}, which `auth` does not name for certificates");
    for (auth, refuses, why) in [
        (["pubkey", SCHEME], "left", &*unnamed),
        (["mldsa65", SCHEME], "left", &unnamed),
        ([SCHEME, "pubkey"], "right", &unnamed),
        // Named for AUTH, and not for the path.
        ([&of_auth, SCHEME], "left", &unnamed),
    ] {
        let [left, right] = hosts.start(Format::Toml, auth, false);
        let up = left.ask(&["up", "net", "--timeout", "20"]);
        assert!(!up.status.success(), "{auth:?}");
        let refuses = if refuses == "left" { &left } else { &right };
        let line = refuses.wait_for("peer refused");
        assert!(line.contains("CN=") && line.contains(why), "{auth:?}: {line}");
        for daemon in [&left, &right] {
            let sas = daemon.sas().to_string();
            assert!(!sas.contains("ESTABLISHED"), "{auth:?}: {sas}");
        }
    }
    // A path of a built-in scheme, and the key of the peer alone of this one.
    drop(hosts);
    let hosts = Hosts::new("mixed", ["ed25519", "ed25519", SCHEME]);
    comes_up(&hosts, Format::Toml, &format!("ike:{SCHEME}"), false, &[SCHEME]);
}

/// `left` is refused by `right` as responder and as initiator, and `right` says why.
fn left_is_refused(hosts: &Hosts, raw: bool, why: &str) {
    for starts in ["left", "right"] {
        // New daemons: the same line comes again after a while only.
        let [left, right] = hosts.start(Format::Toml, [SCHEME; 2], raw);
        let starts = if starts == "left" { &left } else { &right };
        // An initiator that refuses a responder asks again, and again.
        let up = starts.ask(&["up", "net", "--timeout", "2"]);
        assert!(!up.status.success(), "{why}");
        let line = right.wait_for("peer refused");
        assert!(line.contains(&why.replace('"', "\\\"")), "{line}");
        for daemon in [&left, &right] {
            let sas = daemon.sas().to_string();
            assert!(!sas.contains("ESTABLISHED"), "{sas}");
        }
    }
}

/// One half of the certificate's signature is wrong, or one half of the public key that signs AUTH.
///
/// Fault: in `Composite::verify`, `|` in the place of `&`.
#[test]
fn a_wrong_half_is_refused_with_the_scheme_and_the_certificate_or_auth() {
    let mut hosts = Hosts::new("forged", [SCHEME; 3]);
    let issue = "--issue --in left/private/own.key --cacert inter.pem --cakey inter.key --dn CN=left --san left.example.org";
    // Ed25519 comes last, with 64 octets.
    for from_end in [1, 1000] {
        let forged = hosts.changed(issue, |der| {
            let at = der.len() - from_end;
            der[at] ^= 1;
        });
        fs::write(hosts.folder.join("left/x509/own.pem"), forged).expect("a file");
        let why = format!(
            "certificate \"CN=left\" has a signature by {SCHEME} that does not verify by the key of its CA"
        );
        left_is_refused(&hosts, false, &why);
    }
    // A raw key that is sent would be refused as an unknown one.
    hosts.options = [&["send_cert = never"]; 2];
    for from_end in [1, 1000] {
        let other = hosts.changed("--pub --in left/private/own.key", |der| {
            let at = der.len() - from_end;
            der[at] ^= 1;
        });
        fs::write(hosts.folder.join("right/pubkey/left.pub"), other).expect("a file");
        left_is_refused(
            &hosts,
            true,
            &format!("the signature in AUTH, by {SCHEME}, does not verify"),
        );
    }
}

/// A reload takes the scheme out of what `auth` says about paths: its peer's key is not trusted any more, and the IKE SA
/// ends. The scheme of AUTH is as the method: an IKE SA that has used it stays up, and the answer names it.
///
/// Faults: in `Judged::trust`, leave `all_named` out; in `Keeper::evidence`, `Same` for `SchemeRemoved`; in `excludes`, end
/// what has an AUTH that the connection does not allow; in `differs`, do not compare the connection.
#[test]
fn an_ike_sa_ends_when_auth_no_longer_names_the_scheme_of_its_path() {
    let hosts = Hosts::new("reload", [SCHEME; 3]);
    let [left, right] = hosts.start(Format::Toml, [SCHEME; 2], false);
    let up = left.ask(&["up", "net", "--timeout", "20"]);
    assert!(up.status.success(), "{}", stderr(&up));
    for (auth, stays) in [
        (&*format!("pubkey-{SCHEME}"), true),
        (&format!("{SCHEME}-ike:ed25519"), true),
        (&format!("ike:{SCHEME}"), false),
    ] {
        hosts.configure("right", Format::Toml, auth, false);
        let reloaded = right.ask(&["reload"]);
        assert!(reloaded.status.success(), "{}", stderr(&reloaded));
        let sas = right.sas().to_string();
        assert_eq!(sas.contains("ESTABLISHED"), stays, "{auth}: {sas}");
        let named = [reloaded.stdout, reloaded.stderr].concat();
        let named = String::from_utf8_lossy(&named).into_owned();
        let line = "connection site: 1 IKE SA has settings that the file has changed";
        assert_eq!(named.contains(line), stays, "{auth}: {named}");
    }
    right.wait_for("`auth` names the signature scheme of its peer's certificates no longer");
}

/// EAP-TLS has the signature schemes of TLS alone. A path with the scheme is refused, and a key of the scheme is not shown,
/// at either end and with a line that says so.
///
/// Faults: in `Answerer::judge_by`, leave `SchemeInEap` out; in `tls::own_key`, take the first credential.
#[test]
fn eap_tls_takes_neither_a_path_nor_a_key_of_the_scheme() {
    let refused = format!("has signature scheme {SCHEME}, which EAP does not take");
    let no_key = "no certificate with a key of RSA, ECDSA or Ed25519 for TLS";
    let (path, key) = ([SCHEME, SCHEME, "ecdsa"], ["ecdsa", "ecdsa", SCHEME]);
    for (name, types, local, of_gateway, says, line) in [
        ("client-path", path, ["eap-tls", "pubkey"], "pubkey", "right", &*refused),
        ("gateway-path", path, ["eap-tls", "eap-tls"], "eap-tls", "left", &refused),
        ("client-key", key, ["eap-tls", "pubkey"], "pubkey", "left", no_key),
        ("gateway-key", key, ["eap-tls", "eap-tls"], "eap-tls", "right", no_key),
    ] {
        let mut hosts = Hosts::new(name, types);
        hosts.local = local;
        hosts.certify_plainly(if name.starts_with("client") { "right" } else { "left" });
        let [left, right] = hosts.start(Format::Toml, [of_gateway, "eap-tls"], false);
        let up = left.ask(&["up", "net", "--timeout", "20"]);
        assert!(!up.status.success(), "{name}");
        let says = if says == "left" { &left } else { &right };
        says.wait_for(line);
        for daemon in [&left, &right] {
            let sas = daemon.sas().to_string();
            assert!(!sas.contains("ESTABLISHED"), "{name}: {sas}");
        }
    }
}

/// The program's key exchange method goes by its number, which is offered only where it is named (RFC 7296 §3.3.2).
///
/// Faults: in `main`, leave the method out; in `ProposalConfig::default_ike`, offer it.
#[test]
fn a_key_exchange_and_the_scheme_of_the_program_are_chosen_by_configuration_alone() {
    const BESIDE: &[&str] = &["proposals = aes256gcm16-prfsha384-x25519-ke1_kem60001"];
    const ALONE: &[&str] = &["proposals = aes256gcm16-prfsha384-kem60001"];
    let mut hosts = Hosts::new("kem", [SCHEME; 3]);
    for (format, options) in [
        (Format::Toml, BESIDE),
        (Format::Swanctl, BESIDE),
        (Format::Toml, ALONE),
        (Format::Swanctl, ALONE),
    ] {
        hosts.options = [options; 2];
        comes_up(&hosts, format, SCHEME, false, &[SCHEME, "60001"]);
    }
    // By default no number for private use is offered or taken.
    for options in [[BESIDE, &[]], [&[], BESIDE], [ALONE, &[]], [&[], ALONE]] {
        for format in [Format::Toml, Format::Swanctl] {
            hosts.options = options;
            let [left, right] = hosts.start(format, [SCHEME; 2], false);
            let up = left.ask(&["up", "net", "--timeout", "20"]);
            assert!(!up.status.success(), "{options:?}");
            let why = stderr(&up);
            assert!(why.contains("NO_PROPOSAL_CHOSEN"), "{options:?}: {why}");
            for daemon in [&left, &right] {
                let sas = daemon.sas().to_string();
                assert!(!sas.contains("ESTABLISHED"), "{options:?}: {sas}");
            }
        }
    }
}

/// A section inherits `auth` with the scheme from another one.
///
/// Fault: in the reader of references, read `auth` of the inherited section with the built-in schemes.
#[test]
fn an_inherited_auth_names_the_scheme() {
    let hosts = Hosts::new("inherited", [SCHEME; 3]);
    for host in ["left", "right"] {
        let file = hosts.configure(host, Format::Swanctl, SCHEME, false);
        let text = fs::read_to_string(&file).expect("the file");
        let auth = format!(" auth = {SCHEME}\n");
        assert_eq!(text.matches(&auth).count(), 2);
        let text = text
            .replace(&auth, "")
            .replace("local {", "local : both {")
            .replace("remote {", "remote : both {");
        fs::write(&file, format!("both {{\n{auth}}}\n{text}")).expect("a file");
    }
    let start = |host: &str, address: &str| {
        let file = hosts.folder.join(host).join("swanctl.conf");
        Running::start(&hosts.folder, host, &file, address)
    };
    let [left, right] = [start("left", "127.0.7.1"), start("right", "127.0.7.2")];
    let up = left.ask(&["up", "net", "--timeout", "20"]);
    assert!(up.status.success(), "{}", stderr(&up));
    for daemon in [&left, &right] {
        assert!(daemon.sas().to_string().contains(SCHEME));
    }
}

#[test]
fn check_knows_the_name_and_refuses_others() {
    let hosts = Hosts::new("check", [SCHEME; 3]);
    for format in [Format::Toml, Format::Swanctl] {
        let file = hosts.configure("left", format, SCHEME, false);
        let checked = program().arg("check").arg("--config").arg(&file).output().unwrap();
        assert!(checked.status.success(), "{}", stderr(&checked));
        let file = hosts.configure("left", format, "composite_of_nobody", false);
        let checked = program().arg("check").arg("--config").arg(&file).output().unwrap();
        assert_eq!(checked.status.code(), Some(3));
        assert!(stderr(&checked).contains("composite_of_nobody"), "{}", stderr(&checked));
    }
    let unknown = program().args(["pki", "--gen", "--type", "nobody"]).output().unwrap();
    assert!(stderr(&unknown).contains(SCHEME), "{}", stderr(&unknown));
    assert_eq!(unknown.status.code(), Some(2));
}
