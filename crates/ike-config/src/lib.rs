//! The configuration of an IKEv2 daemon: from text to plain [`Settings`].
//!
//! Two formats have the same options, which are those of strongSwan: TOML, and the syntax of swanctl.conf(5) and
//! strongswan.conf(5). The readers do no I/O of their own. They load no certificate and no private key, and have
//! neither a runtime nor cryptography. What they need of the host, such as the content of a `secret_file`, they ask of
//! a [`Host`]. [`TextAlone`] is a host without files.
//!
//! All mistakes are found in one reading. Each [`Diagnostic`] has its file, line and column, says what was expected,
//! and has the nearest name for a misspelt one:
//!
//! ```
//! let text = r#"
//! [connections.office]
//! remote_addrs = "vpn.example.org"
//! local = { auth = "psk", id = "carol" }
//! remote = { auth = "psk", id = "vpn.example.org" }
//! children.net.remote_ts = "10.1.0.0/16"
//!
//! [secrets.ike]
//! secret = "0sFpZAZqEN6Ti9sqt4ZP5EWcqx"
//! "#;
//! let settings = ike_config::parse(text).expect("no mistake");
//! let office = &settings.connections[0];
//! assert_eq!(office.hosts.remote, [ike_config::HostSpec::Name("vpn.example.org".to_owned())]);
//! assert_eq!(office.config.children[0].name, "net");
//!
//! let mistakes = ike_config::parse("[charon]\nkeepalive = 20").unwrap_err();
//! assert_eq!((mistakes[0].line, mistakes[0].column), (2, 1));
//! assert_eq!(mistakes[0].suggestion.as_deref(), Some("keep_alive"));
//! ```
//!
//! A daemon reads in two passes. The first is [`read_file`]: it returns a [`Reading`], with settings and a [`Report`].
//! The second loads the keys and certificates that the settings name, and adds to the report what is wrong with them.
//! An [`Overlay`] has sections that control clients load at run time, and reads them with those of the file.
//! [`options()`] describes every option, for a manual.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod conf;
mod diagnostic;
mod host;
mod nearest;
mod options;
mod overlay;
mod reading;
mod sections;
mod settings;
mod tree;
mod units;
mod warnings;

pub use diagnostic::{ConfigError, Diagnostic, Place, Report};
pub use host::{Content, Host, Metadata, TextAlone, load_file};
pub use nearest::nearest;
pub use options::{DescribedOption, DescribedSection, options};
pub use overlay::{Blobs, Difference, Item, Kind, LoadedSecret, Overlay};
pub use reading::{Document, Reading, parse, read_conf, read_file, read_toml};
pub use sections::{IDENTITY, hex, read_token, ticket_key_text};
pub use settings::{
    AccountingConfig, Authority, BY_RADIUS, Connection, DaeConfig, EapId, EapMethod, EapOptions,
    EapRound, EapSecret, Ends, GroupSources, Holds, HostSpec, Hosts, KeyFile, LocalRound,
    MetricsListen, MetricsOptions, Modules, NamedFile, NamedFiles, OcspOptions, PlaneOptions,
    PoolConfig, Ports, RadiusOptions, RadiusServer, Range, RemoteAccess, RemoteRound, Resolve,
    Revocation, RouteOptions, SandboxOptions, Settings, TcpOptions, TlsLimits, TlsOptions,
    TokenKey, TokenKeyOption, UrlParts, UrlPrefix, ViciOptions, Way,
};
pub use units::{duration, seconds};
