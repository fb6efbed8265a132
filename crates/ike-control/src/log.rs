//! Lines of the log for VICI clients: a layer of `tracing`.

use std::fmt::{self, Write};
use std::sync::{Arc, OnceLock};

use tokio::sync::broadcast;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// Lines that a slow client may be behind; what it misses then is counted.
const LINES: usize = 1024;

/// A line of the log.
#[derive(Debug, Default)]
pub(crate) struct Line {
    pub(crate) group: &'static str,
    pub(crate) level: u8,
    pub(crate) thread: u64,
    pub(crate) ike_name: Option<String>,
    pub(crate) ike_id: Option<u64>,
    pub(crate) message: String,
    pub(crate) rest: String,
}

fn sender() -> &'static broadcast::Sender<Arc<Line>> {
    static LISTENERS: OnceLock<broadcast::Sender<Arc<Line>>> = OnceLock::new();
    LISTENERS.get_or_init(|| broadcast::channel(LINES).0)
}

/// Lines from now on.
pub(crate) fn listen() -> broadcast::Receiver<Arc<Line>> {
    sender().subscribe()
}

/// A layer of `tracing-subscriber` that passes every line on to the clients that listen to it. Without a client it costs
/// next to nothing.
#[derive(Debug, Default)]
pub struct Feed;

impl<S: Subscriber> Layer<S> for Feed {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let sender = sender();
        // charon has levels 0 and 1 in this event.
        if sender.receiver_count() == 0 || *event.metadata().level() > Level::INFO {
            return;
        }
        let mut line = Line {
            group: group(event.metadata().target()),
            level: u8::from(*event.metadata().level() == Level::INFO),
            thread: thread(),
            ..Line::default()
        };
        event.record(&mut line);
        // The last client may have gone meanwhile.
        let _ = sender.send(Arc::new(line));
    }
}

impl Visit for Line {
    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "ike" {
            self.ike_id = Some(value);
        }
        self.record_debug(field, &value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => _ = write!(self.message, "{value:?}"),
            name => {
                if name == "connection" {
                    self.ike_name = Some(format!("{value:?}"));
                }
                let _ = write!(self.rest, " {name}={value:?}");
            }
        }
    }
}

/// charon's groups, by where a line comes from.
fn group(target: &str) -> &'static str {
    let has = |part: &str| target.contains(part);
    match () {
        () if has("ike_tokio::driver::log") => "IKE",
        () if has("ike_tokio::plane") => "KNL",
        () if has("ike_tokio")
            || has("ike_aaa::credentials")
            || has("::local")
            || has("::operator::resolve") =>
        {
            "NET"
        }
        () if has("::operator") || has("::config") || has("::control") || has("::vici") => "CFG",
        () if has("::plane") || has("xfrm") || has("routes") => "KNL",
        () if has("esp") => "ESP",
        () => "DMN",
    }
}

/// A small number for each thread that has logged.
fn thread() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static COUNT: AtomicU64 = AtomicU64::new(0);
    thread_local! {
        static NUMBER: u64 = COUNT.fetch_add(1, Ordering::Relaxed) + 1;
    }
    NUMBER.try_with(|number| *number).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::group;

    /// Fault: in `group`, look for `::control` before the modules of `ike_tokio`, or leave out `ike_aaa::credentials`.
    #[test]
    fn lines_of_the_runtime_have_the_groups_of_charon() {
        for (target, expected) in [
            ("ike_tokio::driver::log", "IKE"),
            ("ike_tokio::driver::outputs", "NET"),
            ("ike_tokio::net::socket", "NET"),
            ("ike_tokio::plane::control", "KNL"),
            ("ike_control::local", "NET"),
            ("ike_control::operator::resolve", "NET"),
            ("ike_control::operator::loading", "CFG"),
            ("ike_control::control::server", "CFG"),
            ("ike_daemon::plane::kernel", "KNL"),
            ("ike_daemon::daemon", "DMN"),
            ("ike_aaa::credentials", "NET"),
            ("ike_aaa::credentials::status", "NET"),
            ("ike_aaa::pools", "DMN"),
            ("ike_daemon::config::credentials", "CFG"),
        ] {
            assert_eq!(group(target), expected, "{target}");
        }
    }
}
