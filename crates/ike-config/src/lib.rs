//! The configuration of an IKEv2 daemon: from text to plain [`Settings`].
//!
//! There are two formats: TOML, and the syntax of swanctl.conf(5) and strongswan.conf(5). Both have the same options:
//! strongSwan's, and some further ones. The defaults of `keyingtries`, `dpd_delay`, `close_action` and `dpd_action`
//! differ between the formats.
//!
//! The readers do no I/O of their own. They load no certificate and no private key, and have neither a runtime nor
//! cryptography. A [`Host`] gives them the content of other files, such as a `secret_file`. [`TextAlone`] is a host
//! without files.
//!
//! One reading finds all mistakes. Each [`Diagnostic`] has a line and a column, and names an included file. It may have
//! the expected value, and the nearest known name for a misspelt one:
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
//! The second is the daemon's own. It loads the keys and certificates that the settings name, and adds their mistakes
//! to the report. It also adds [`Settings::connections`] to [`Settings::endpoint`], with all names resolved.
//!
//! An [`Overlay`] has sections that control clients load at run time, and reads them with the sections of the file.
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
pub use overlay::{
    Blobs, Difference, Item, KeptSecrets, Kind, LoadedSecret, Overlay, Unloaded, remember,
};
pub use reading::{Document, Reading, parse, read_conf, read_file, read_toml};
pub use sections::{IDENTITY, hex, read_token, ticket_key_text};
pub use settings::{
    AccountingConfig, Authority, BY_RADIUS, Connection, CredentialOptions, DaeConfig, EapId,
    EapMethod, EapOptions, EapRound, EapSecret, Ends, GroupSources, Holds, HostSpec, Hosts,
    KeyFile, LocalRound, MetricsListen, MetricsOptions, Modules, NamedFile, NamedFiles,
    OcspOptions, PlaneOptions, PoolConfig, Ports, RadiusOptions, RadiusServer, Range, RemoteAccess,
    RemoteRound, Resolve, Revocation, RouteOptions, SandboxOptions, Settings, TcpOptions,
    TlsLimits, TlsOptions, TokenKey, TokenKeyOption, UrlParts, UrlPrefix, ViciOptions, Way,
};
pub use units::{duration, seconds};
