//! Reloads the parts of a configuration other than connections and credentials.

use std::sync::{MutexGuard, PoisonError};

use ike_proto::config::QcdConfig;

use super::Operator;
use crate::config::Config;
use crate::qcd;

impl Operator {
    /// Warns of the settings in `config` that a running daemon cannot take.
    pub(super) fn tell_what_waits(&self, config: &Config) {
        let present = self.config();
        if config.ports != present.ports {
            tracing::warn!("[charon] port and port_nat_t take effect at the next start");
        }
        if config.tcp != present.tcp {
            tracing::warn!("[charon] listen_tcp and tcp_port take effect at the next start");
        }
        if config.shards != present.shards {
            tracing::warn!("[charon] shards takes effect at the next start");
        }
        if config.endpoint.frodokem != present.endpoint.frodokem {
            tracing::warn!(
                "[charon] frodokem_type and efrodokem_type take effect at the next start"
            );
        }
        if (&config.vici, config.vici_group) != (&present.vici, present.vici_group) {
            tracing::warn!("[charon.plugins.vici] takes effect at the next start");
        }
        if config.metrics != present.metrics || config.sandbox != present.sandbox {
            tracing::warn!("[charon.metrics] and [charon.sandbox] take effect at the next start");
        }
        if config.starts_programs()
            && !present.starts_programs()
            && present.sandbox.programs != Some(true)
        {
            tracing::warn!(
                "updown and resolvconf: the daemon cannot start programs, because none was configured at its start: restart the daemon"
            );
        }
        if config.eap.listens_for_dae() != present.eap.listens_for_dae() {
            tracing::warn!("eap-radius.dae: enable, listen and port take effect at the next start");
        }
        if config.void_tickets != present.void_tickets {
            tracing::warn!(
                "[charon.session_resumption] void_tickets takes effect at the next start"
            );
        }
        if config.plane.tun_queues != present.plane.tun_queues {
            tracing::warn!("[charon] tun_queues takes effect at the next start");
        }
        if config.remote_access != present.remote_access {
            tracing::warn!(
                "[charon] install_virtual_ip, leases and plugins.resolve take effect at the next start"
            );
        }
    }

    pub(super) fn qcd_config(&self) -> MutexGuard<'_, QcdConfig> {
        self.qcd.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the secrets that `qcd_secret` has by now: a new one goes in front of those that are known.
    pub(super) fn read_qcd_secret(&self, config: &Config) {
        if config.qcd_secret != self.config().qcd_secret {
            tracing::warn!("[charon] qcd_secret takes effect at the next start");
        } else if let Some(path) = &config.qcd_secret {
            match qcd::again(path) {
                Ok(secrets) => self.qcd_config().secrets = secrets,
                Err(error) => {
                    tracing::warn!("qcd_secret {}: {error}; as before", path.display());
                }
            }
        }
    }
}
