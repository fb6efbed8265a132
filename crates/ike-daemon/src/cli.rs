//! The command line.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::config;
#[cfg(feature = "demo")]
use crate::demo;
use crate::log::LogFormat;
use crate::pki::PkiArgs;
use crate::plane::DataPlaneKind;

/// The default path of the control socket.
pub const CONTROL: &str = "/run/ike-daemon.sock";

/// IKEv2 daemon.
#[derive(Debug, Parser)]
#[command(name = "ike-daemon", version, about = "IKEv2 daemon (RFC 7296)", after_help = STATUSES)]
pub struct Cli {
    /// Control socket of the daemon
    #[arg(long, global = true, value_name = "SOCKET", default_value = CONTROL)]
    pub control: PathBuf,
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Runs the daemon in the foreground
    Run(RunArgs),
    /// Checks a configuration file and prints its mistakes
    Check {
        /// Configuration file: TOML, or the syntax of swanctl.conf(5) if its name ends in .conf
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// The data plane for which to check; an option that it does not support is a mistake
        ///
        /// Without this option the data plane is the one that `run` would choose on this system, and an option that it
        /// does not support is a warning.
        #[arg(long, value_enum)]
        data_plane: Option<DataPlaneKind>,
    },
    /// Brings up a child (or, with --ike, a connection without a child) and waits for the outcome
    Up(UpArgs),
    /// Deletes the SAs of a connection or child, at both ends
    Down(NameArgs),
    /// Rekeys the SAs of a connection or child
    Rekey {
        /// The SAs
        #[command(flatten)]
        name: NameArgs,
        /// Makes a new IKE SA instead, with authentication (only for a connection)
        #[arg(long)]
        reauth: bool,
    },
    /// Redirects the clients of a connection to another gateway (RFC 5685)
    Redirect {
        /// Connection
        connection: String,
        /// Address of the other gateway
        gateway: IpAddr,
    },
    /// Lists the SAs
    List {
        /// As JSON, with the names of VICI's list-sas except `ke` (ake1, ake2 …), `local-auth` and `remote-auth`
        #[arg(long)]
        json: bool,
    },
    /// Lists the network devices and the ESP offload of each (hw_offload)
    Offload {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Lists the pools of virtual IPs and the holder of each address
    Leases {
        /// One pool only
        #[arg(value_name = "POOL")]
        pool: Option<String>,
        /// As JSON, with the names of VICI's get-pools
        #[arg(long)]
        json: bool,
    },
    /// Reads the configuration file again (as SIGHUP does)
    ///
    /// IKE SAs stay up, with the settings that they were made with. If the file is in this project's own format, an IKE SA
    /// ends if no connection accepts its peer any more, or if its secret or trust anchor was removed. Standard error names
    /// the IKE SAs that end, and the connections whose IKE SAs have settings that the file has changed.
    Reload {
        /// Also ends IKE SAs whose secret or trust anchor was replaced (not with a file in swanctl.conf's format)
        #[arg(long)]
        revoke: bool,
    },
    /// Removes what a daemon that has ended has left on this host: traffic that it blocked leaves in clear
    ///
    /// A daemon with --keep-blocks leaves its blocks, and so does a daemon that crashes. The next one replaces them. This
    /// command is for a host on which none is to start. It removes routing rules, routes, XFRM policies and states, and
    /// only those with the marks of this program.
    Unblock,
    /// Makes a file, readable by its owner only, with a key by which a gateway seals tickets (RFC 5723)
    TicketKey {
        /// The new file
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Holds private keys for the daemon that has started it; speaks over standard input
    #[command(hide = true)]
    Signer {
        /// Format of the log
        #[arg(long, value_enum, default_value_t)]
        log_format: LogFormat,
    },
    /// Looks host names up for the daemon that has started it; speaks over standard input
    #[command(hide = true)]
    Resolver {
        /// Format of the log
        #[arg(long, value_enum, default_value_t)]
        log_format: LogFormat,
    },
    /// Makes keys, certificates and revocation lists, with the options of strongSwan's pki
    Pki(Box<PkiArgs>),
    /// Writes manual pages (roff): all to a folder, or one to standard output
    #[cfg(feature = "man")]
    Man {
        /// The page of the configuration file instead of that of the command
        #[arg(long)]
        config: bool,
        /// All pages, into this folder
        #[arg(long, value_name = "FOLDER", conflicts_with = "config")]
        out: Option<PathBuf>,
    },
    /// Writes the completions of a shell to standard output
    #[cfg(feature = "man")]
    Completions {
        /// The shell
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Shows a handshake and traffic between two daemons in this process; needs no root
    #[cfg(feature = "demo")]
    Demo {
        /// Algorithms
        #[arg(long, value_enum, default_value_t)]
        suite: demo::Suite,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Is not part of this build
    #[cfg(not(feature = "man"))]
    #[command(hide = true)]
    Man(Unused),
    /// Is not part of this build
    #[cfg(not(feature = "man"))]
    #[command(hide = true)]
    Completions(Unused),
    /// Is not part of this build
    #[cfg(not(feature = "demo"))]
    #[command(hide = true)]
    Demo(Unused),
}

/// Arguments of a subcommand that this build is without.
#[cfg(not(all(feature = "demo", feature = "man")))]
#[derive(Debug, Args)]
pub struct Unused {
    /// Whatever they are
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    pub words: Vec<std::ffi::OsString>,
}

/// Arguments of `run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Configuration file: TOML, or the syntax of swanctl.conf(5) if its name ends in .conf
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// The data plane, which carries the traffic
    #[arg(long, value_enum, default_value_t = DataPlaneKind::Auto)]
    pub data_plane: DataPlaneKind,
    /// Leaves SAs and policies in the kernel at the end, and takes over those of an earlier run
    ///
    /// Traffic uses them until the connections are up again. Needs the kernel data plane.
    #[arg(long)]
    pub keep_sas: bool,
    /// Leaves traffic of the children blocked at the end, until another run protects it or `unblock` removes the blocks
    ///
    /// For a service that is restarted: without this option SIGTERM is a stop, which removes everything.
    #[arg(long)]
    pub keep_blocks: bool,
    /// The process that holds private keys: the signer, which `run` starts, or this process
    #[arg(long, value_enum, default_value_t = KeysIn::Signer, value_name = "WHERE")]
    pub keys_in: KeysIn,
    /// Address to listen on, instead of all (may be given several times)
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Vec<IpAddr>,
    /// Format of the log
    #[arg(long, value_enum, default_value_t)]
    pub log_format: LogFormat,
}

/// Where private keys are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum KeysIn {
    /// A process of their own
    Signer,
    /// This process
    Daemon,
}

/// Arguments of `up`.
#[derive(Debug, Args)]
pub struct UpArgs {
    /// Child, or connection if no child has this name
    #[arg(required_unless_present_any = ["ike", "child", "all"], value_name = "CHILD")]
    pub name: Option<String>,
    /// Connection, exactly
    #[arg(long, value_name = "CONNECTION")]
    pub ike: Option<String>,
    /// Child, exactly
    #[arg(long, value_name = "CHILD", conflicts_with = "name")]
    pub child: Option<String>,
    /// Everything configured that has a peer's address and is not up, all at once
    #[arg(long, conflicts_with_all = ["name", "ike", "child"])]
    pub all: bool,
    /// Seconds to wait for the outcome
    #[arg(long, value_parser = seconds, default_value = "165", value_name = "TIME")]
    pub timeout: Duration,
}

/// The SAs of a command.
#[derive(Debug, Args)]
pub struct NameArgs {
    /// Child or connection
    #[arg(required_unless_present_any = ["ike", "child"], value_name = "NAME")]
    pub name: Option<String>,
    /// Connection, exactly
    #[arg(long, value_name = "CONNECTION")]
    pub ike: Option<String>,
    /// Child, exactly
    #[arg(long, value_name = "CHILD", conflicts_with = "name")]
    pub child: Option<String>,
    /// Seconds to wait for the outcome
    #[arg(long, value_parser = seconds, default_value = "30", value_name = "TIME")]
    pub timeout: Duration,
}

/// [`Status`](crate::exit::Status) for `--help`.
const STATUSES: &str = "Exit status:
  0  the command succeeded
  1  the command failed; standard error says why
  2  the command line is wrong
  3  the configuration file has mistakes, all of them on standard error
  4  no daemon answers at the control socket
  5  no outcome within --timeout
  6  reloaded, except for the options that standard error names";

fn seconds(text: &str) -> Result<Duration, String> {
    config::parse_duration(text).ok_or_else(|| "not a time such as 30, 30s or 5m".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn control_is_global_and_times_have_units() {
        let cli =
            Cli::try_parse_from(["ike-daemon", "up", "net", "--timeout", "2m", "--control", "/x"]);
        let cli = cli.unwrap();
        assert_eq!(cli.control, PathBuf::from("/x"));
        assert!(matches!(cli.command, Command::Up(up) if up.timeout == Duration::from_secs(120)));
    }

    #[test]
    fn a_name_is_needed() {
        for words in [
            &["up"][..],
            &["down"],
            &["rekey"],
            &["up", "net", "--child", "net"],
            &["up", "net", "--all"],
        ] {
            let words = std::iter::once(&"ike-daemon").chain(words);
            assert!(Cli::try_parse_from(words).is_err());
        }
        assert!(Cli::try_parse_from(["ike-daemon", "down", "--ike", "site"]).is_ok());
        assert!(Cli::try_parse_from(["ike-daemon", "up", "--all"]).is_ok());
    }
}
