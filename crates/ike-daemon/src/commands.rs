//! What each subcommand does.

use std::path::Path;

use crate::cli::{Cli, Command, Status};
use crate::config;

/// Runs the subcommand.
pub(crate) fn run(cli: Cli) -> Status {
    match cli.command {
        Command::Check { config } => check(&config),
        _ => {
            eprintln!("not in this build yet");
            Status::Failed
        }
    }
}

fn check(path: &Path) -> Status {
    match config::load(path) {
        Ok(config) => {
            for warning in &config.warnings {
                eprintln!("warning: {warning}");
            }
            let children: usize =
                config.endpoint.connections.iter().map(|c| c.children.len()).sum();
            println!(
                "{}: {} connections, {children} children, {} secrets: no mistakes",
                path.display(),
                config.endpoint.connections.len(),
                config.endpoint.secrets.len(),
            );
            Status::Done
        }
        Err(error) => {
            eprintln!("{error}");
            Status::Config
        }
    }
}
