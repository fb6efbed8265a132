//! `[charon.metrics]`: the endpoint for Prometheus, this project's own.

use std::path::Path;

use crate::diagnostic::Report;
use crate::settings::{MetricsListen, MetricsOptions};
use crate::tree::Section;

/// The default of `connections`.
const CONNECTIONS: u32 = 1000;

/// Reads it from `[charon]`, if there is the section.
pub(crate) fn read(charon: &mut Section<'_>, report: &mut Report) -> Option<MetricsOptions> {
    let mut metrics = charon.section("metrics", report)?;
    let what = "an address and port, as in \"127.0.0.1:9500\", or unix:// and an absolute path";
    let listen =
        metrics.parsed("listen", what, report, |text| match text.strip_prefix("unix://") {
            Some(path) => {
                let path = Path::new(path);
                path.is_absolute().then(|| MetricsListen::Unix(path.to_path_buf()))
            }
            None => text.parse().ok().map(MetricsListen::Tcp),
        });
    let connections = metrics.number("connections", 0, 100_000, report).unwrap_or(CONNECTIONS);
    metrics.finish(&[], report);
    let listen = listen.unwrap_or_default();
    Some(MetricsOptions { listen, connections: connections as usize })
}
