//! `[charon.metrics]`: the endpoint for Prometheus, this project's own.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::diagnostic::Report;
use super::section::Section;

/// Where metrics are to be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MetricsListen {
    /// `listen = "127.0.0.1:9500"`.
    Tcp(SocketAddr),
    /// `listen = "unix:///run/ike-metrics.sock"`.
    Unix(PathBuf),
}

impl fmt::Display for MetricsListen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
        }
    }
}

/// Metrics, where they are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetricsOptions {
    /// `listen`.
    pub listen: MetricsListen,
    /// `connections`: how many have a label of their own; the others are counted together.
    pub connections: usize,
}

/// The default of `listen`.
const LISTEN: MetricsListen =
    MetricsListen::Tcp(SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9500));

/// The default of `connections`.
const CONNECTIONS: u32 = 1000;

/// Reads it from `[charon]`, if there is the section.
pub(crate) fn read(charon: &mut Section<'_>, report: &mut Report<'_>) -> Option<MetricsOptions> {
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
    let listen = listen.unwrap_or(LISTEN);
    Some(MetricsOptions { listen, connections: connections as usize })
}
