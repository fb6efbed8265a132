//! The subcommands.

use std::io;
use std::path::Path;
use std::sync::Arc;

use ike_control::control::client::{self, Unreachable};
use ike_control::control::protocol::{Named, Request, Response};
use ike_control::views::{
    IkeSa, Pool, render, render_pools, render_taken_down, render_waiting,
    render_without_second_line,
};
use ike_proto::crypto::CryptoProvider;
use serde_json::Value;

use crate::cli::{Cli, Command, NameArgs, UpArgs};
use crate::config;
#[cfg(feature = "demo")]
use crate::demo;
use crate::exit::Status;
use crate::log::{self, LogFormat};
#[cfg(feature = "man")]
use crate::man;
use crate::offload;
#[cfg(not(all(feature = "demo", feature = "man")))]
use crate::parts::Part;
use crate::{names, pki, signer};

mod check;
mod run;
mod sockets;
mod ssh;
mod unblock;
mod watchdog;

/// Runs the subcommand, with these algorithms.
pub(crate) fn run(cli: Cli, crypto: &Arc<CryptoProvider>) -> Status {
    let control = &cli.control;
    match cli.command {
        Command::Run(args) => {
            let status = run::run(&args, control, crypto);
            if status != Status::Done {
                unblock::hint(control);
            }
            log::flush();
            status
        }
        Command::Check { config, data_plane } => {
            let status = check::check(&config, data_plane, crypto);
            unblock::hint(control);
            status
        }
        Command::Up(UpArgs { all: true, timeout, .. }) => {
            ask(control, &Request::UpAll { timeout: Some(timeout.as_secs_f64()) }, "up")
        }
        Command::Up(args) => ask(control, &Request::Up(up(args)), "up"),
        Command::Down(args) => ask(control, &Request::Down(named(args)), "deleted"),
        Command::Rekey { name, reauth: false } => {
            ask(control, &Request::Rekey(named(name)), "rekeyed")
        }
        Command::Rekey { name, reauth: true } => {
            ask(control, &Request::Reauth(named(name)), "reauthenticated")
        }
        Command::Redirect { connection, gateway } => {
            let request = Request::Redirect { gateway, ike: connection };
            ask(control, &request, "redirected")
        }
        Command::List { json } => list(control, json),
        Command::Leases { pool, json } => leases(control, pool, json),
        Command::Offload { json } => offload::run(json),
        Command::Reload { revoke } => reload(control, revoke),
        Command::Unblock => unblock::unblock(control),
        Command::TicketKey { file } => written(
            config::make_ticket_key(&file)
                .map_err(|error| io::Error::other(format!("{}: {error}", file.display()))),
        ),
        Command::Signer { log_format } => {
            serve("signer", log_format, |format| signer::serve_stdin(format, &crypto.schemes))
        }
        Command::Resolver { log_format } => serve("resolver", log_format, names::serve_stdin),
        Command::Pki(args) => pki::run(&args, &crypto.schemes),
        #[cfg(feature = "man")]
        Command::Man { config, out } => written(match out {
            Some(folder) => man::write_to(&folder),
            None => man::page(config, &mut io::stdout()),
        }),
        #[cfg(feature = "man")]
        Command::Completions { shell } => {
            man::completions(shell, &mut io::stdout());
            Status::Done
        }
        #[cfg(feature = "demo")]
        Command::Demo { suite, json } => demonstrate(suite, json, crypto),
        #[cfg(not(feature = "man"))]
        Command::Man(_) | Command::Completions(_) => missing(Part::Man),
        #[cfg(not(feature = "demo"))]
        Command::Demo(_) => missing(Part::Demo),
    }
}

/// Runs a process of the daemon.
fn serve(
    what: &str,
    log_format: LogFormat,
    by: impl FnOnce(LogFormat) -> io::Result<()>,
) -> Status {
    log::init_at("info", log_format);
    let status = match by(log_format) {
        Ok(()) => Status::Done,
        Err(error) => {
            log::say(format_args!("{what}: {error}"));
            Status::Failed
        }
    };
    log::flush();
    status
}

fn written(outcome: io::Result<()>) -> Status {
    match outcome {
        Ok(()) => Status::Done,
        Err(error) => {
            eprintln!("{error}");
            Status::Failed
        }
    }
}

/// The command is one of another build.
#[cfg(not(all(feature = "demo", feature = "man")))]
fn missing(part: Part) -> Status {
    eprintln!("{}", part.missing());
    Status::Usage
}

#[cfg(feature = "demo")]
fn demonstrate(suite: demo::Suite, json: bool, crypto: &Arc<CryptoProvider>) -> Status {
    use std::io::Write;
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("cannot start: {error}");
            return Status::Failed;
        }
    };
    let account = runtime.block_on(demo::run(suite, crypto));
    let text = if json {
        match serde_json::to_string_pretty(&account) {
            Ok(text) => text,
            Err(error) => error.to_string(),
        }
    } else {
        account.to_string()
    };
    // Who reads only the beginning gets the status all the same.
    let _ = writeln!(io::stdout(), "{text}");
    if account.ok { Status::Done } else { Status::Failed }
}

/// Asks the daemon and says what came of it.
fn ask(control: &Path, request: &Request, done: &str) -> Status {
    match exchange(control, request) {
        Ok(Response { count: Some(count), .. }) if count != 1 => println!("{count} {done}"),
        Ok(_) => println!("{done}"),
        Err(status) => return status,
    }
    Status::Done
}

/// Has the daemon read its file again, and prints its warnings as `check` does.
fn reload(control: &Path, revoke: bool) -> Status {
    match exchange(control, &Request::Reload { revoke }) {
        Ok(response) => {
            for warning in &response.warnings {
                eprintln!("warning: {warning}");
            }
            for delayed in &response.delayed {
                eprintln!("not in force: {delayed}");
            }
            for live in &response.live {
                eprintln!("{live}");
            }
            if response.delayed.is_empty() {
                println!("reloaded");
                Status::Done
            } else {
                println!("reloaded, except for the options that standard error names");
                Status::Partly
            }
        }
        Err(status) => status,
    }
}

fn list(control: &Path, json: bool) -> Status {
    let response = match exchange(control, &Request::List) {
        Ok(response) => response,
        Err(status) => return status,
    };
    let sas = response.sas.unwrap_or(Value::Array(Vec::new()));
    if json {
        println!("{sas:#}");
        return Status::Done;
    }
    match serde_json::from_value::<Vec<IkeSa>>(sas) {
        Ok(sas) => {
            print!("{}{}", render(&sas), render_waiting(&response.waiting));
            let missing = response.without_second_line.as_deref();
            print!("{}{}", render_taken_down(&response.down), render_without_second_line(missing));
            Status::Done
        }
        Err(error) => {
            eprintln!("the daemon's answer is not understood: {error}");
            Status::Failed
        }
    }
}

fn leases(control: &Path, pool: Option<String>, json: bool) -> Status {
    let response = match exchange(control, &Request::Leases { pool }) {
        Ok(response) => response,
        Err(status) => return status,
    };
    let pools = response.pools.unwrap_or(Value::Array(Vec::new()));
    if json {
        println!("{pools:#}");
        return Status::Done;
    }
    match serde_json::from_value::<Vec<Pool>>(pools) {
        Ok(pools) => {
            print!("{}", render_pools(&pools));
            Status::Done
        }
        Err(error) => {
            eprintln!("the daemon's answer is not understood: {error}");
            Status::Failed
        }
    }
}

fn exchange(control: &Path, request: &Request) -> Result<Response, Status> {
    match client::ask(control, request) {
        Ok(response) if response.ok => Ok(response),
        Ok(response) => {
            eprintln!("{}", response.error.as_deref().unwrap_or("it failed"));
            Err(match response {
                Response { timed_out: true, .. } => Status::TimedOut,
                Response { config: true, .. } => Status::Config,
                _ => Status::Failed,
            })
        }
        Err(error) => {
            eprintln!("{error}{}", hint(&error));
            Err(Status::Unreachable)
        }
    }
}

/// What to try when the daemon cannot be asked.
fn hint(unreachable: &Unreachable) -> &'static str {
    match unreachable.error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            " (is the daemon running? `ike-daemon run`, and the same --control)"
        }
        _ => "",
    }
}

fn up(args: UpArgs) -> Named {
    let UpArgs { name, ike, child, timeout, all: _ } = args;
    Named { name, ike, child, timeout: Some(timeout.as_secs_f64()) }
}

fn named(args: NameArgs) -> Named {
    let NameArgs { name, ike, child, timeout } = args;
    Named { name, ike, child, timeout: Some(timeout.as_secs_f64()) }
}
