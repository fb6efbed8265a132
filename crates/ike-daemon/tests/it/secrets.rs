//! No key shows in a log, at whatever level.

use std::io;
use std::sync::{Arc, Mutex};

use crate::common::{Carrier, PSK, Pair};
use ike_proto::dataplane::{Capabilities, Command, DataPlane, DataPlaneError, Event, Reply};
use ike_tokio::Target;
use ike_tokio::{NoPlane, Plane};
use tracing_subscriber::fmt::MakeWriter;

/// Where all log lines go.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        self.0.lock().map_err(|_| io::ErrorKind::Other)?.extend(octets);
        Ok(octets.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// A data plane that remembers the keys it was given.
struct Spy {
    plane: NoPlane,
    keys: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl DataPlane for Spy {
    fn capabilities(&self) -> Capabilities {
        self.plane.capabilities()
    }

    fn apply(&mut self, command: Command) -> Result<Reply, DataPlaneError> {
        tracing::trace!(?command, "applied");
        if let Command::InstallSa(spec) = &command {
            let mut keys = self.keys.lock().expect("not poisoned");
            keys.push(spec.encr_key.expose().to_vec());
            keys.push(spec.integ_key.expose().to_vec());
        }
        self.plane.apply(command)
    }

    fn poll_event(&mut self) -> Option<Event> {
        None
    }
}

#[tokio::test]
async fn no_log_line_has_a_key_in_it() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_ansi(false)
        .with_writer(log.clone())
        .finish();
    tracing::subscriber::set_global_default(subscriber).unwrap();

    let keys = Arc::new(Mutex::new(Vec::new()));
    let spied = Arc::clone(&keys);
    let plane = move || Plane::new(Spy { plane: NoPlane, keys: Arc::clone(&spied) });
    // The identity is not text, and would play tricks on a terminal if it were printed as it is.
    let pair = Pair::start_with(Carrier::None, "", "", Some(&plane), "keyid:#1b5b324a0a7f00").await;
    let operator = pair.left.operator();
    operator.up(&Target::named("net")).await.unwrap();
    operator.rekey(&Target::named("net")).await.unwrap();
    operator.rekey(&Target::named("site")).await.unwrap();
    let shown =
        format!("{:?}{:?}{:?}", pair.left.config(), operator.config(), operator.list().await);
    operator.down(&Target::named("site")).await.unwrap();

    let mut secrets = keys.lock().unwrap().clone();
    secrets.retain(|key| !key.is_empty());
    assert!(secrets.len() >= 8, "two SAs at each end, twice");
    secrets.push(unhex(PSK.trim_start_matches("0x")));
    let log = log.0.lock().unwrap().clone();
    assert!(!log.contains(&0x1b) && !log.contains(&0x7f));
    let text = String::from_utf8(log).unwrap();
    assert!(
        text.contains("IKE SA established") && text.contains("sent IKE_AUTH request 1"),
        "{text}"
    );
    assert!(text.contains("1b5b324a0a7f00") || text.contains("1b:5b:32:4a"), "{text}");
    for line in text.lines() {
        assert!(line.starts_with("20"), "one line per event: {line:?}");
    }
    for secret in &secrets {
        for form in forms(secret) {
            assert!(!text.contains(&form), "a key is in the log");
            assert!(!shown.contains(&form), "a key is in debug output");
        }
    }
}

/// How the beginning of a key might be printed.
fn forms(key: &[u8]) -> Vec<String> {
    let start = &key[..8];
    let hex: String = start.iter().map(|octet| format!("{octet:02x}")).collect();
    let list = |render: &dyn Fn(&u8) -> String, between: &str| {
        start.iter().map(render).collect::<Vec<_>>().join(between)
    };
    vec![
        hex.to_uppercase(),
        list(&|octet| octet.to_string(), ", "),
        list(&|octet| format!("{octet:02x}"), ":"),
        list(&|octet| format!("{octet:02x}"), " "),
        list(&|octet| format!("{octet:x}"), ", "),
        list(&|octet| format!("0x{octet:02x}"), ", "),
        hex,
    ]
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .filter_map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok())
        .collect()
}
