//! `log`: every line of the daemon's log, to clients that want it.

use std::fmt::{self, Write};
use std::sync::{Arc, OnceLock};

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use vici::Section;

use super::session::{LOG, Outlet};

/// Lines that a slow client may be behind; what it misses then is counted.
const LINES: usize = 1024;

/// A line of the log.
#[derive(Debug, Default)]
pub(super) struct Line {
    group: &'static str,
    level: u8,
    thread: u64,
    ike_name: Option<String>,
    ike_id: Option<u64>,
    message: String,
    rest: String,
}

fn sender() -> &'static broadcast::Sender<Arc<Line>> {
    static LISTENERS: OnceLock<broadcast::Sender<Arc<Line>>> = OnceLock::new();
    LISTENERS.get_or_init(|| broadcast::channel(LINES).0)
}

/// Lines from now on.
pub(super) fn listen() -> broadcast::Receiver<Arc<Line>> {
    sender().subscribe()
}

/// Sends a client the lines until it is gone.
pub(super) async fn run(mut lines: broadcast::Receiver<Arc<Line>>, outlet: Outlet) {
    loop {
        let section = match lines.recv().await {
            Ok(line) => line.section(),
            Err(RecvError::Lagged(missed)) => Line {
                group: "DMN",
                message: format!("{missed} lines of the log came too fast for this client"),
                ..Line::default()
            }
            .section(),
            Err(RecvError::Closed) => return,
        };
        if outlet.event(LOG, section).await.is_err() {
            return;
        }
    }
}

impl Line {
    fn section(&self) -> Section {
        let mut section = Section::new()
            .text("group", self.group)
            .text("level", self.level.to_string())
            .text("thread", self.thread.to_string());
        if let Some(name) = &self.ike_name {
            section = section.text("ikesa-name", name);
        }
        if let Some(id) = self.ike_id {
            // The documentation has the first, strongSwan sends the second.
            section = section.text("ikesa-uniqueid", id.to_string());
        }
        section.text("msg", format!("{}{}", self.message, self.rest))
    }
}

/// Hands lines to clients, if any listens.
#[derive(Debug, Default)]
pub(crate) struct Feed;

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
        // He may have gone meanwhile.
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
        () if has("::driver::log") => "IKE",
        () if has("::driver") || has("::net") => "NET",
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
