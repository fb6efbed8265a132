//! The readers, with hosts of the test's own.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use ike_config::{Content, Host, Metadata, Reading, TextAlone, read_conf, read_file, read_toml};
use proptest::prelude::*;

/// Files in memory, and the paths that were asked for.
#[derive(Default)]
struct Memory {
    files: BTreeMap<PathBuf, &'static str>,
    asked: RefCell<Vec<PathBuf>>,
}

impl Memory {
    fn new(files: &[(&str, &'static str)]) -> Self {
        let files = files.iter().map(|(path, text)| (PathBuf::from(path), *text)).collect();
        Self { files, ..Self::default() }
    }

    fn text(&self, path: &Path) -> io::Result<&'static str> {
        self.asked.borrow_mut().push(path.to_path_buf());
        self.files.get(path).copied().ok_or_else(|| ErrorKind::NotFound.into())
    }
}

impl Host for Memory {
    fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        let len = self.text(path)?.len() as u64;
        Ok(Metadata { is_file: true, is_folder: false, len, mode: 0o600 })
    }

    fn read(&self, path: &Path, limit: u64) -> io::Result<Content> {
        let text = self.text(path)?.as_bytes();
        let end = text.len().min(usize::try_from(limit).unwrap_or(usize::MAX).saturating_add(1));
        Ok(Content::new(text[..end].to_vec()))
    }
}

/// Fault: in `host.rs`, read the file by `std::fs::read` in `read_text`.
#[test]
fn files_come_from_the_host_alone() {
    let host = Memory::new(&[
        ("/etc/ike/swanctl.conf", "include more.conf\nsecrets { ike-a { secret_file = a.psk } }"),
        ("/etc/ike/more.conf", "charon { metrics { } }\ncharon { port = x }"),
        ("/etc/ike/a.psk", "0x6162\n"),
    ]);
    let reading = read_file(Path::new("/etc/ike/swanctl.conf"), &host).unwrap();
    assert!(reading.settings.metrics.is_some());
    assert_eq!(reading.settings.endpoint.secrets[0].secret.expose(), b"ab");
    let mistakes = reading.finish().unwrap_err();
    assert_eq!(mistakes.len(), 1, "{mistakes:?}");
    assert_eq!(mistakes[0].file.as_deref(), Some(Path::new("/etc/ike/more.conf")));
    assert_eq!((mistakes[0].line, mistakes[0].column), (2, 17));
    let asked = host.asked.take();
    assert!(asked.iter().all(|path| host.files.contains_key(path)), "{asked:?}");
    let none = read_file(Path::new("/etc/ike/none.toml"), &host).unwrap_err();
    assert!(none.to_string().contains("cannot read the file"), "{none}");
}

/// Fault: in the `Debug` of `Entry`, print the value.
#[test]
fn secrets_are_never_printed() {
    const TEXT: &str = "
[secrets.ike]
secret = 'hush-psk'
[secrets.ppk]
id = 'ppk'
secret = 'hush-ppk'
[secrets.eap-a]
id = 'carol'
secret = 'hush-eap'
[secrets.private-a]
file = 'a.pem'
secret = 'hush-passphrase'
[secrets.token-a]
handle = '01'
module = 'one'
pin = 'hush-pin'
[charon.plugins.pkcs11.modules.one]
path = '/usr/lib/one.so'
[charon.plugins.eap-radius]
address = '192.0.2.1'
secret = 'hush-radius'
[charon.plugins.eap-radius.dae]
enable = true
secret = 'hush-dae'
";
    let reading = read_toml(TEXT, Path::new("/"), &TextAlone);
    assert!(reading.report.is_clean(), "{:?}", reading.report);
    let Reading { settings, report, document } = &reading;
    assert_eq!((settings.key_files.len(), settings.tokens.len()), (1, 1));
    assert!(document.is_some() && settings.eap.radius.is_some());
    let printed = format!("{settings:#?} {report:#?} {document:#?}");
    assert!(!printed.contains("hush"), "{printed}");
}

/// Lines that make up a file with and without sense.
fn lines() -> impl Strategy<Value = String> {
    let key = prop_oneof![
        Just("auth"),
        Just("children.net.local_ts"),
        Just("dpd_delay"),
        Just("id"),
        Just("keys"),
        Just("pools"),
        Just("port"),
        Just("proposals"),
        Just("remote_addrs"),
        Just("secret"),
        Just("shards"),
        Just("version"),
    ];
    let section = prop_oneof![
        Just("charon"),
        Just("charon.session_resumption"),
        Just("connections.c"),
        Just("connections.c.local"),
        Just("connections.c.remote"),
        Just("pools.p"),
        Just("secrets.eap"),
        Just("secrets.ike"),
        Just("x"),
    ];
    let value = prop_oneof!["[a-z0-9%.:/,*-]{0,12}", "[ -~]{0,12}", "\\PC{0,8}"];
    let line = prop_oneof![
        section.prop_map(|section| format!("[{section}]")),
        (key, value).prop_map(|(key, value)| format!("{key} = {value:?}")),
        "\\PC{0,20}",
    ];
    proptest::collection::vec(line, 0..20).prop_map(|lines| lines.join("\n"))
}

/// Every place of a mistake is inside `text`.
fn are_inside(text: &str, reading: Reading) -> Result<(), TestCaseError> {
    let Err(mistakes) = reading.finish() else { return Ok(()) };
    let lines: Vec<_> = text.split('\n').collect();
    for mistake in mistakes {
        prop_assert!(mistake.line <= lines.len(), "{mistake:?}");
        if let Some(line) = mistake.line.checked_sub(1) {
            prop_assert!(mistake.column <= lines[line].chars().count() + 1, "{mistake:?}");
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    /// Fault: in `Report::position`, count octets for the column.
    #[test]
    fn no_text_upsets_the_readers(text in lines()) {
        are_inside(&text, read_toml(&text, Path::new("/"), &TextAlone))?;
        are_inside(&text, read_conf(&text, Path::new("/"), &TextAlone))?;
    }
}

/// Everyday mistakes in a secret: the diagnostics, which the log repeats, say where and not what.
///
/// Fault: in `Reader::statement`, say the name; or in `Section::finish`, say the path of every unknown option; or in
/// `cannot_be`, quote every value; or in `read_file` of src/sections/secrets.rs, say the path.
#[test]
fn diagnostics_do_not_repeat_a_mistyped_secret() {
    let texts = [
        "secrets { ike-1 {\n secret =\n hunter2\n } }",
        "secrets { ike-1 {\n secret hunter2\n } }",
        "secrets { ike-1 {\n secret =\n hunter2==\n } }",
        "secrets { ike-1 {\n secret = pa}hunter2\n } }",
        "secrets { ike-1 {\n secret = pa}}hunter2\n",
        "secrets { ike-1 {\n secret =\n hunter2:x\n } }",
        "secrets { ike-1 {\n secret =\n hunter2.x\n } }",
        "secrets {\n hunter2 {\n } }",
        "secrets { ike-1 { id = a.x secret = hunter2 } }",
        "secrets { ike-1 { id = {x}y secret = hunter2 } }",
        "secrets { eap-1 { id = ^a.* secret = hunter2 } }",
        "secrets { ike-1 {\n secret_file = hunter2\n } }",
        "secrets { private-1 {\n file = a\n secret_file = hunter2\n } }",
        "secrets { token-1 {\n handle = hunter2\n module = hunter2\n slot = hunter2\n } }",
        "charon { plugins { eap-radius {\n server = hunter2\n } } }",
        "charon { plugins { eap-radius {\n server = 192.0.2.1\n secret = a\n nas_identifier = a\n accounting = hunter2\n } } }",
        "base {\n secret =\n hunter2=\n }\nsecrets { ike-1 : base { } }",
    ];
    let host = Memory::new(&[]);
    for text in texts {
        let said = read_conf(text, Path::new("/etc"), &host).finish().expect_err(text);
        let said: Vec<_> = said.iter().map(|d| format!("{d:?} {d}")).collect();
        assert!(!said.is_empty() && !said.iter().any(|d| d.contains("hunter2")), "{said:#?}");
    }
    let toml = "[secrets.ike-1]\nsecret = 'a'\nhunter2 = ''\n";
    let said = read_toml(toml, Path::new("/etc"), &host).finish().expect_err(toml);
    assert!(!said.iter().any(|d| d.to_string().contains("hunter2")), "{said:?}");
    // A name that is nearly one is said, for that helps.
    let near = "secrets { ike-1 {\n secrt = x\n } }";
    let said = read_conf(near, Path::new("/etc"), &host).finish().expect_err(near);
    assert!(said.iter().any(|d| d.to_string().contains("`secrets.ike-1.secrt`")), "{said:?}");
}
