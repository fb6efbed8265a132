//! `check`: reports the errors in a configuration file.

use std::path::Path;
use std::sync::Arc;

use ike_proto::crypto::CryptoProvider;

use super::ssh::Ssh;
use crate::config;
use crate::exit::Status;
use crate::plane::{self, Choice, DataPlaneKind};
use crate::qcd;
use crate::signer::Local;

/// Tells every mistake in the file at `path`, and what the data plane `kind` could not do of it. Without `kind`
/// it is the one that `run` would take here, and no mistake: the file may be for another system.
pub(super) fn check(
    path: &Path,
    kind: Option<DataPlaneKind>,
    crypto: &Arc<CryptoProvider>,
) -> Status {
    let keys = Arc::new(Local::new(crypto.schemes.clone()));
    let config = match config::load_by(path, keys, crypto) {
        Ok(config) => config,
        Err(error) => {
            eprintln!("{error}");
            return Status::Config;
        }
    };
    for warning in &config.warnings {
        eprintln!("warning: {warning}");
    }
    let ssh = Ssh::here();
    for warning in ssh.iter().flat_map(|ssh| ssh.warnings(&config)) {
        eprintln!("warning: {warning}");
    }
    if let Some(path) = &config.qcd_secret
        && let Err(error) = qcd::check(path)
    {
        eprintln!("qcd_secret {}: {error}", path.display());
        return Status::Config;
    }
    let choice = plane::choose(kind.unwrap_or(DataPlaneKind::Auto));
    let (choice, capabilities) =
        match choice.and_then(|choice| Ok((choice, plane::capabilities(choice)?))) {
            Ok(found) => found,
            Err(error) => {
                eprintln!("{error}");
                return Status::Failed;
            }
        };
    let unmet = config.unmet(&capabilities);
    for sentence in &unmet {
        match kind {
            Some(_) => eprintln!("{}: {sentence}", path.display()),
            None => eprintln!("warning: {sentence}"),
        }
    }
    if kind.is_some() && !unmet.is_empty() {
        return Status::Config;
    }
    let connections = &config.endpoint.connections;
    let children: usize = connections.iter().map(|connection| connection.children.len()).sum();
    let secrets =
        config.endpoint.secrets.len() + config.endpoint.ppks.len() + config.eap.secrets.0.len();
    let connections = connections.len();
    let path = path.display();
    let plane = match choice {
        Choice::Kernel(_) => "the kernel's",
        Choice::Userspace => "ESP in user space",
        Choice::None => "none",
    };
    println!(
        "{path}: no mistakes (connections {connections}, children {children}, secrets {secrets}; \
         data plane: {plane})"
    );
    Status::Done
}
