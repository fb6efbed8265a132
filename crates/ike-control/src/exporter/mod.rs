//! The endpoint for Prometheus: it reads the figures of the daemon for each scrape.

mod scrape;
mod server;

pub use scrape::scrape;
pub use server::MetricsSocket;
