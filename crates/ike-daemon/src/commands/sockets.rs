//! The sockets of optional parts, for `run`.

pub(super) use metrics::Metrics;
pub(super) use vici::Vici;

#[cfg(feature = "metrics")]
mod metrics {
    use std::io;

    use ike_control::exporter::MetricsSocket;

    use crate::config::Config;
    use crate::daemon::Daemon;

    /// The socket for Prometheus, if the configuration has one.
    pub(in crate::commands) struct Metrics(Option<MetricsSocket>);

    impl Metrics {
        pub(in crate::commands) fn bind(config: &Config) -> io::Result<Self> {
            let socket =
                config.metrics.as_ref().map(|metrics| MetricsSocket::bind(&metrics.listen));
            socket.transpose().map(Self)
        }

        pub(in crate::commands) fn serve(self, daemon: &mut Daemon) {
            if let Some(socket) = self.0 {
                let address = socket.address();
                tracing::info!(?address, "metrics");
                daemon.serve_metrics(socket);
            }
        }
    }
}

#[cfg(not(feature = "metrics"))]
mod metrics {
    use std::io;

    use crate::config::Config;
    use crate::daemon::Daemon;
    use crate::parts::Part;

    /// No socket.
    pub(in crate::commands) struct Metrics;

    impl Metrics {
        pub(in crate::commands) fn bind(config: &Config) -> io::Result<Self> {
            match &config.metrics {
                Some(_) => Err(super::missing(Part::Metrics)),
                None => Ok(Self),
            }
        }

        pub(in crate::commands) fn serve(self, _: &mut Daemon) {}
    }
}

#[cfg(feature = "vici")]
mod vici {
    use std::io;
    use std::os::unix::net::UnixListener;
    use std::path::Path;

    use ike_control::vici::ViciSocket;

    use crate::config::Config;
    use crate::daemon::Daemon;

    /// The socket for VICI's clients, if there is one.
    pub(in crate::commands) struct Vici(Option<ViciSocket>);

    impl Vici {
        /// The socket that the service manager hands over, or that the configuration names.
        pub(in crate::commands) fn open(
            config: &Config,
            activated: Option<UnixListener>,
        ) -> io::Result<Self> {
            match (activated, config.vici.as_deref()) {
                (Some(activated), configured) => {
                    if let Some(path) = configured {
                        tracing::warn!(
                            socket = %path.display(),
                            "systemd hands over the VICI socket: socket and group of [charon.plugins.vici] count for nothing"
                        );
                    }
                    ViciSocket::given(activated).map(Some)
                }
                (None, Some(path)) => ViciSocket::bind_for(path, config.vici_group).map(Some),
                (None, None) => Ok(None),
            }
            .map(Self)
        }

        pub(in crate::commands) fn serve(self, daemon: &mut Daemon, file: &Path) {
            if let Some(socket) = self.0 {
                daemon.serve_vici(socket, Some(file.to_path_buf()));
            }
        }
    }
}

#[cfg(not(feature = "vici"))]
mod vici {
    use std::io;
    use std::os::unix::net::UnixListener;
    use std::path::Path;

    use crate::config::Config;
    use crate::daemon::Daemon;
    use crate::parts::Part;

    /// No socket.
    pub(in crate::commands) struct Vici;

    impl Vici {
        pub(in crate::commands) fn open(
            config: &Config,
            activated: Option<UnixListener>,
        ) -> io::Result<Self> {
            match (activated, &config.vici) {
                (None, None) => Ok(Self),
                _ => Err(super::missing(Part::Vici)),
            }
        }

        pub(in crate::commands) fn serve(self, _: &mut Daemon, _: &Path) {}
    }
}

#[cfg(not(all(feature = "metrics", feature = "vici")))]
fn missing(part: crate::parts::Part) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::Unsupported, part.missing().to_string())
}
