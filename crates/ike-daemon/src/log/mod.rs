//! Logs: one line per event, through `tracing`, to standard error.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, IsTerminal, Write};

use clap::ValueEnum;
#[cfg(feature = "vici")]
use ike_control::log::Feed;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::{Format, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

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
    let filter = EnvFilter::try_from_env("IKE_LOG").or_else(|_| EnvFilter::try_from_default_env());
    let filter = filter.unwrap_or_else(|_| EnvFilter::new(default));
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
        LogFormat::Json => lines.json().flatten_event(true).with_writer(io::stderr).boxed(),
        LogFormat::Journald => {
            let format = Format::default().without_time().with_level(false).with_target(false);
            let format = Prioritised(format.with_ansi(false));
            lines.with_ansi(false).event_format(format).with_writer(OneLine).boxed()
        }
        // The library escapes what could command a terminal.
        _ if terminal => lines.with_ansi(true).with_writer(io::stderr).boxed(),
        _ => lines.with_ansi(false).with_writer(OneLine).boxed(),
    };
    let logs = tracing_subscriber::registry().with(lines.with_filter(filter));
    // VICI clients may want levels that this log is not to have.
    #[cfg(feature = "vici")]
    let logs = logs.with(Feed.with_filter(tracing_subscriber::filter::LevelFilter::INFO));
    // A second call, as tests make, leaves the first subscriber in place.
    let _ = logs.try_init();
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

/// Standard error, an event a line: what a peer has put into it cannot begin another one, nor command
/// whoever reads it.
struct OneLine;

impl<'a> MakeWriter<'a> for OneLine {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        Self
    }
}

impl Write for OneLine {
    /// Takes an event as a whole, which is how it comes.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        io::stderr().write_all(one_line(&text).as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
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
