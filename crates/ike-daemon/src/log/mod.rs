//! Logs: one line per event, through `tracing`, to standard error.

mod queue;

use std::borrow::Cow;
use std::fmt;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use clap::ValueEnum;
#[cfg(feature = "vici")]
use ike_control::log::Feed;
use queue::Queue;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::{Format, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

/// Lines for the thread that writes them.
static QUEUE: Queue = Queue::new();

/// Whether that thread exists.
static QUEUED: AtomicBool = AtomicBool::new(false);

/// How long the end of the program waits until all lines are written.
const FLUSH: Duration = Duration::from_secs(1);

/// How long a panic waits for that.
const FLUSH_OF_PANIC: Duration = Duration::from_millis(100);

/// The name of the thread that writes.
const THREAD: &str = "log";

/// How lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum LogFormat {
    /// As journald wants it if standard error leads there, else text
    #[default]
    Auto,
    /// Time, level, message, fields
    Text,
    /// One JSON object per line
    Json,
    /// Text with the priority of syslog before it (sd-daemon(3)), and without the time
    Journald,
}

/// Starts logging. `IKE_LOG` (or else `RUST_LOG`) has the filter, `info` by default.
pub fn init() {
    init_at("info", LogFormat::Auto);
}

/// The same with another filter by default, and a format.
pub fn init_at(default: &str, format: LogFormat) {
    let named = ["IKE_LOG", "RUST_LOG"].into_iter().find_map(filter_in);
    let filter = named.or_else(|| default.parse().ok()).unwrap_or_default();
    let terminal = io::stderr().is_terminal();
    let format = match format {
        LogFormat::Auto if !terminal && std::env::var_os("JOURNAL_STREAM").is_some() => {
            LogFormat::Journald
        }
        LogFormat::Auto => LogFormat::Text,
        other => other,
    };
    let lines = tracing_subscriber::fmt::layer().with_target(false);
    let lines = match format {
        LogFormat::Json => lines.json().flatten_event(true).with_writer(UNESCAPED).boxed(),
        LogFormat::Journald => {
            let format = Format::default().without_time().with_level(false).with_target(false);
            let format = Prioritised(format.with_ansi(false));
            lines.with_ansi(false).event_format(format).with_writer(ESCAPED).boxed()
        }
        // The library escapes what could command a terminal.
        _ if terminal => lines.with_ansi(true).with_writer(UNESCAPED).boxed(),
        _ => lines.with_ansi(false).with_writer(ESCAPED).boxed(),
    };
    let logs = tracing_subscriber::registry().with(lines.with_filter(filter));
    // VICI clients may want levels that this log is not to have.
    #[cfg(feature = "vici")]
    let logs = logs.with(Feed.with_filter(tracing_subscriber::filter::LevelFilter::INFO));
    // A second call, as tests make, leaves the first subscriber in place.
    let _ = logs.try_init();
}

/// The filter in an environment variable: a level, or a list of `target=level` with commas. `None` if the variable is unset
/// or has anything else. Filters by spans and fields are left out: they would need a second engine for regular expressions.
fn filter_in(variable: &str) -> Option<Targets> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Lines that begin with their priority, as journald reads it.
struct Prioritised<F>(F);

impl<S, N, F> FormatEvent<S, N> for Prioritised<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        write!(writer, "<{}>", priority(*event.metadata().level()))?;
        self.0.format_event(context, writer, event)
    }
}

/// The severity of syslog (RFC 5424 §6.2.1).
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}

/// Writes each event as one line to standard error.
#[derive(Clone, Copy)]
struct Lines {
    /// Whether control characters are escaped here, so that text of a peer can neither begin a line nor control a
    /// terminal.
    escaped: bool,
    /// The level of the event.
    level: Level,
}

/// For formats that escape by themselves.
const UNESCAPED: Lines = Lines { escaped: false, level: Level::ERROR };

/// For the other formats.
const ESCAPED: Lines = Lines { escaped: true, ..UNESCAPED };

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        *self
    }

    fn make_writer_for(&'a self, event: &Metadata<'_>) -> Self {
        Self { level: *event.level(), ..*self }
    }
}

impl Write for Lines {
    /// Takes one whole event: `tracing_subscriber` writes it by one call.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        if self.escaped {
            put(self.level, one_line(&String::from_utf8_lossy(event)).as_bytes());
        } else {
            put(self.level, event);
        }
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// From now on a thread writes to standard error, so that no other thread waits for its reader.
///
/// # Errors
/// If the thread cannot be started.
pub(crate) fn queue_lines() -> io::Result<()> {
    let out = File::from(io::stderr().as_fd().try_clone_to_owned()?);
    thread::Builder::new().name(THREAD.to_owned()).spawn(|| QUEUE.serve(out, tell_dropped))?;
    QUEUED.store(true, Ordering::Release);
    // With RUST_BACKTRACE the standard hook stays, which writes the panic and its backtrace to standard error directly.
    if std::env::var_os("RUST_BACKTRACE").is_none() {
        std::panic::set_hook(Box::new(|panic| {
            let thread = thread::current();
            say(format_args!("thread '{}' {panic}", thread.name().unwrap_or("?")));
            // The process may be about to end, without another flush.
            if thread.name() != Some(THREAD) {
                QUEUE.flush(FLUSH_OF_PANIC);
            }
        }));
    }
    Ok(())
}

/// Writes `what` to standard error, as a line outside the log's format: an error that ends the program.
pub(crate) fn say(what: impl fmt::Display) {
    put(Level::ERROR, format!("{what}\n").as_bytes());
}

/// Waits until the thread has written all lines, for [`FLUSH`] at the most.
pub(crate) fn flush() {
    if QUEUED.load(Ordering::Acquire) {
        QUEUE.flush(FLUSH);
    }
}

/// How many lines were dropped because standard error was not read, by level.
#[cfg(feature = "metrics")]
pub(crate) fn dropped() -> [(&'static str, u64); 5] {
    QUEUE.dropped()
}

fn put(level: Level, line: &[u8]) {
    if QUEUED.load(Ordering::Acquire) {
        QUEUE.push(level, line);
    } else {
        // An error cannot be told anywhere else.
        let _ = io::stderr().write_all(line);
    }
}

fn tell_dropped([error, warn, info, details, trace]: queue::ByLevel) {
    tracing::warn!(
        error,
        warn,
        info,
        debug = details,
        trace,
        "log lines dropped: nobody read standard error"
    );
}

/// `event` with every control character but the newline at its end escaped.
fn one_line(event: &str) -> Cow<'_, str> {
    let text = event.strip_suffix('\n').unwrap_or(event);
    if !text.contains(char::is_control) {
        return Cow::Borrowed(event);
    }
    let mut line = String::with_capacity(event.len() + 8);
    for c in text.chars() {
        if c.is_control() {
            line.extend(c.escape_default());
        } else {
            line.push(c);
        }
    }
    if event.ends_with('\n') {
        line.push('\n');
    }
    Cow::Owned(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_whatever_is_in_it() {
        assert_eq!(one_line("a peer\n"), "a peer\n");
        let forged = "id=x\n<3>root: all is lost\u{1b}[2J\u{9b}31m\r\n";
        assert_eq!(one_line(forged), "id=x\\n<3>root: all is lost\\u{1b}[2J\\u{9b}31m\\r\n");
        assert!(matches!(one_line("grüße\n"), Cow::Borrowed(_)));
    }

    #[test]
    fn levels_are_priorities() {
        let all = [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE];
        assert_eq!(all.map(priority), [3, 4, 6, 7, 7]);
    }
}
