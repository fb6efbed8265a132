//! The optional parts of the program, and what a build without some of them says. Each part is a feature of cargo.
//!
//! A configuration that needs a part which this build does not have is refused. Nothing of it is ignored: a
//! connection that is left out in silence would be traffic in clear.

use std::fmt;

use ike_config::{BY_RADIUS, Connection, EapRound, Holds, Report, Settings};
use ike_proto::config::{SeparateTransports, TcpUse};

/// An optional part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// `ike-daemon demo`.
    Demo,
    /// Authentication by EAP.
    Eap,
    /// Manual pages and completions.
    Man,
    /// Metrics for Prometheus.
    Metrics,
    /// Private keys in tokens.
    Pkcs11,
    /// PKCS#12 files.
    Pkcs12,
    /// RADIUS servers.
    Radius,
    /// IKE and ESP over TCP.
    Tcp,
    /// strongSwan's control protocol.
    Vici,
}

impl Part {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Demo,
        Self::Eap,
        Self::Man,
        Self::Metrics,
        Self::Pkcs11,
        Self::Pkcs12,
        Self::Radius,
        Self::Tcp,
        Self::Vici,
    ];

    /// The name for people, and the feature.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Demo => ("the demo", "demo"),
            Self::Eap => ("EAP", "eap"),
            Self::Man => ("manual pages and completions", "man"),
            Self::Metrics => ("metrics", "metrics"),
            Self::Pkcs11 => ("PKCS#11", "pkcs11"),
            Self::Pkcs12 => ("PKCS#12", "pkcs12"),
            Self::Radius => ("RADIUS", "radius"),
            Self::Tcp => ("TCP", "tcp"),
            Self::Vici => ("VICI", "vici"),
        }
    }

    /// The feature of this crate that has it.
    pub fn feature(self) -> &'static str {
        self.names().1
    }

    /// The sentence about a build without it.
    pub fn missing(self) -> Missing {
        Missing(self)
    }
}

/// Says that this build is without a part, and which feature has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Missing(Part);

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, feature) = self.0.names();
        write!(f, "ike-daemon was built without {name} (feature `{feature}`)")
    }
}

/// The parts of a build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parts([bool; Part::ALL.len()]);

impl Parts {
    /// Those of this build.
    pub const BUILT: Self = Self([
        cfg!(feature = "demo"),
        cfg!(feature = "eap"),
        cfg!(feature = "man"),
        cfg!(feature = "metrics"),
        cfg!(feature = "pkcs11"),
        cfg!(feature = "pkcs12"),
        cfg!(feature = "radius"),
        cfg!(feature = "tcp"),
        cfg!(feature = "vici"),
    ]);

    /// True if `part` is one of them.
    pub fn has(self, part: Part) -> bool {
        let mut all = Part::ALL.iter().zip(self.0);
        all.any(|(one, built)| *one == part && built)
    }
}

/// Reports what `settings` need of the parts that are not in `built`, and takes keys and servers of such parts out, so
/// that they are reported once. `pkcs12` are the files of the folder of this name.
pub(crate) fn refuse(
    settings: &mut Settings,
    pkcs12: &[String],
    built: Parts,
    report: &mut Report,
) {
    let lacks = |part| !built.has(part);
    if lacks(Part::Vici) && settings.vici.is_some() {
        about("[charon.plugins.vici]", Part::Vici, report);
    }
    if lacks(Part::Metrics) && settings.metrics.is_some() {
        about("[charon.metrics]", Part::Metrics, report);
    }
    if lacks(Part::Radius) && settings.eap.radius.take().is_some() {
        about("[charon.plugins.eap-radius]", Part::Radius, report);
    }
    if lacks(Part::Eap) && !settings.eap.secrets.is_empty() {
        about("[secrets.eap]", Part::Eap, report);
    }
    if lacks(Part::Tcp) && settings.tcp.listen {
        about("[charon] listen_tcp", Part::Tcp, report);
    }
    if lacks(Part::Pkcs11) {
        for (name, _) in std::mem::take(&mut settings.modules) {
            about(&format!("[charon.plugins.pkcs11.modules] {name}"), Part::Pkcs11, report);
        }
        for token in std::mem::take(&mut settings.tokens) {
            report.add(token.place, format!("`{}`: {}", token.option, Part::Pkcs11.missing()));
        }
    }
    if lacks(Part::Pkcs12) {
        for file in pkcs12 {
            about(&format!("pkcs12/{file}"), Part::Pkcs12, report);
        }
        let (held, others): (Vec<_>, Vec<_>) = std::mem::take(&mut settings.key_files)
            .into_iter()
            .partition(|file| file.holds == Holds::Pkcs12);
        settings.key_files = others;
        for file in held {
            report.add(file.place, format!("`{}`: {}", file.option, Part::Pkcs12.missing()));
        }
    }
    for connection in &settings.connections {
        refuse_connection(connection, built, report);
    }
}

fn refuse_connection(connection: &Connection, built: Parts, report: &mut Report) {
    let Connection { config, local, remote, .. } = connection;
    let name = &config.name;
    if !built.has(Part::Eap) {
        let local = local.iter().map(|round| (&round.path, &round.eap));
        let remote = remote.iter().map(|round| (&round.path, &round.eap));
        for (path, eap) in local.chain(remote) {
            if let Some(EapRound { place, .. }) = eap {
                report.add(*place, format!("`{path}.auth`: {}", Part::Eap.missing()));
            }
        }
    }
    if !built.has(Part::Radius) && config.pools.iter().any(|pool| pool == BY_RADIUS) {
        about(&format!("[connections.{name}] pools"), Part::Radius, report);
    }
    if !built.has(Part::Tcp) {
        if config.enable_tcp != TcpUse::No {
            about(&format!("[connections.{name}] enable_tcp"), Part::Tcp, report);
        }
        if config.separate_transports == SeparateTransports::Yes {
            about(&format!("[connections.{name}] separate_transports"), Part::Tcp, report);
        }
    }
}

fn about(option: &str, part: Part, report: &mut Report) {
    report.about_file(format!("{option}: {}", part.missing()));
}

#[cfg(test)]
mod tests;
