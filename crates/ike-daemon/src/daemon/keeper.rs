//! The daemon as its operator sees it: the configuration in force, and what control clients have loaded.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ::pki::{TrustNow, ca_hash};
use ike_aaa::{Credentials, LeaseView, PasswordNow, PoolView};
use ike_config::{
    Difference, Kind, MetricsOptions, Overlay, Ports, RemoteAccess, SandboxOptions, TcpOptions,
};
use ike_control::views::{Lease, Pool};
use ike_control::{
    About, AuthorityView, Candidate, CertificateKind, CertificateView, Configuration, Evidence,
    Loader, OperatorError, Program, RevocationCounts,
};
use ike_proto::UsedAuth;
use ike_proto::config::{FrodoNumbers, QcdConfig};
use ike_proto::crypto::CryptoProvider;
use ike_tokio::Resolver;
use toml::de::DeTable;

use crate::config::loaded::{Base, Loaded};
use crate::config::{self, Config};
use crate::qcd;
use crate::service::notify;

/// Keeps the configuration in force. Clones keep the same one.
#[derive(Clone)]
pub(super) struct Keeper(Arc<Inner>);

struct Inner {
    credentials: Credentials,
    config: Mutex<Arc<Config>>,
    resolver: Arc<dyn Resolver>,
    loaded: Loaded,
    at_start: AtStart,
    /// Tokens of quick crash detection: the file has only the path of the secret.
    qcd: Mutex<QcdConfig>,
}

/// What a running daemon cannot take from a file, as it was at the start.
struct AtStart {
    ports: Ports,
    tcp: TcpOptions,
    shards: u8,
    frodokem: FrodoNumbers,
    vici: (Option<PathBuf>, Option<u32>),
    metrics: Option<MetricsOptions>,
    sandbox: SandboxOptions,
    starts_programs: bool,
    dae: Option<SocketAddr>,
    qcd_secret: Option<PathBuf>,
    void_tickets: Option<PathBuf>,
    tun_queues: u8,
    remote_access: RemoteAccess,
}

impl AtStart {
    fn of(config: &Config) -> Self {
        Self {
            ports: config.ports,
            tcp: config.tcp,
            shards: config.shards,
            frodokem: config.endpoint.frodokem,
            vici: (config.vici.clone(), config.vici_group),
            metrics: config.metrics.clone(),
            sandbox: config.sandbox,
            starts_programs: config.starts_programs(),
            dae: config.eap.listens_for_dae(),
            qcd_secret: config.qcd_secret.clone(),
            void_tickets: config.void_tickets.clone(),
            tun_queues: config.plane.tun_queues,
            remote_access: config.remote_access.clone(),
        }
    }

    /// A sentence for each difference to `new`. Each reload compares with the start, so that a second reload of the
    /// same file says the same.
    fn delayed(&self, new: &Self) -> Vec<String> {
        let programs = new.starts_programs && !self.starts_programs;
        let all = [
            (self.ports != new.ports, "[charon] port and port_nat_t take effect at the next start"),
            (self.tcp != new.tcp, "[charon] listen_tcp and tcp_port take effect at the next start"),
            (self.shards != new.shards, "[charon] shards takes effect at the next start"),
            (
                self.frodokem != new.frodokem,
                "[charon] frodokem_type and efrodokem_type take effect at the next start",
            ),
            (self.vici != new.vici, "[charon.plugins.vici] takes effect at the next start"),
            (
                self.metrics != new.metrics || self.sandbox != new.sandbox,
                "[charon.metrics] and [charon.sandbox] take effect at the next start",
            ),
            (
                programs && self.sandbox.programs != Some(true),
                "updown and resolvconf: the daemon cannot start programs, because none was configured at its start: restart the daemon",
            ),
            (
                self.dae != new.dae,
                "eap-radius.dae: enable, listen and port take effect at the next start",
            ),
            (
                self.qcd_secret != new.qcd_secret,
                "[charon] qcd_secret takes effect at the next start",
            ),
            (
                self.void_tickets != new.void_tickets,
                "[charon.session_resumption] void_tickets takes effect at the next start",
            ),
            (
                self.tun_queues != new.tun_queues,
                "[charon] tun_queues takes effect at the next start",
            ),
            (
                self.remote_access != new.remote_access,
                "[charon] install_virtual_ip, leases and plugins.resolve take effect at the next start",
            ),
        ];
        let differs = all.into_iter().filter(|(differs, _)| *differs);
        differs.map(|(_, sentence)| sentence.to_owned()).collect()
    }
}

impl Keeper {
    /// Keeps `config`, which is in force, the answers of `credentials`, and who looks host names up.
    pub(super) fn new(
        config: Config,
        credentials: Credentials,
        resolver: Arc<dyn Resolver>,
    ) -> Self {
        let qcd = Mutex::new(config.endpoint.qcd.clone());
        let at_start = AtStart::of(&config);
        let loaded = Loaded::default();
        if let Some(base) = &config.base {
            loaded.adopt(base);
        }
        let config = Mutex::new(Arc::new(config));
        Self(Arc::new(Inner { credentials, config, resolver, loaded, at_start, qcd }))
    }

    /// The configuration in force.
    pub(super) fn present(&self) -> Arc<Config> {
        Arc::clone(&self.0.config.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn qcd(&self) -> MutexGuard<'_, QcdConfig> {
        self.0.qcd.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file's sections and credentials.
    fn base(&self) -> Result<Arc<Base>, OperatorError> {
        self.present().base.clone().ok_or(OperatorError::NoLoader)
    }

    /// `config`, another one of the file, with what control clients have loaded over it. Its warnings are all that a
    /// start would have, those about loaded sections, and what takes effect at the next start.
    ///
    /// # Errors
    /// Both together have mistakes.
    pub(super) fn of_file(&self, config: Config) -> Result<Candidate, OperatorError> {
        let config = match &config.base {
            Some(base) if !self.0.loaded.is_empty() => {
                let merged = self.0.loaded.merged(base, true).map_err(|why| {
                    OperatorError::Refused(format!("with what clients have loaded: {why}"))
                })?;
                let mut warnings = config.warnings.clone();
                warnings.extend(unlike(&merged.warnings, &config.warnings));
                Config { warnings, ..merged }
            }
            _ => config,
        };
        let mut warnings = config.warnings.clone();
        let delayed = self.0.at_start.delayed(&AtStart::of(&config));
        warnings.extend(self.read_qcd_secret(&config));
        let (keeper, base) = (self.clone(), config.base.clone());
        let candidate = self.candidate(config, warnings);
        let adopt = candidate.adopt;
        let adopt = Box::new(move || {
            if let Some(base) = &base {
                keeper.0.loaded.adopt(base);
            }
            adopt();
        });
        Ok(Candidate { adopt, delayed, ..candidate })
    }

    /// `config`, to be put in force.
    fn candidate(&self, mut config: Config, warnings: Vec<String>) -> Candidate {
        config.endpoint.qcd = self.qcd().clone();
        let configuration = config.configuration();
        let keeper = self.clone();
        let adopt = Box::new(move || keeper.adopt(config));
        Candidate { configuration, warnings, delayed: Vec::new(), adopt }
    }

    fn adopt(&self, config: Config) {
        let credentials = &self.0.credentials;
        credentials.replace(config.answerer.clone(), config.eap.clone());
        credentials.look_up(config.lookup.clone());
        credentials.pools().configure(&config.pools);
        *self.0.config.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
    }

    /// Reads the secrets that `qcd_secret` has by now: a new one goes in front of those that are known. Returns a
    /// warning if it cannot.
    fn read_qcd_secret(&self, config: &Config) -> Option<String> {
        let path = config.qcd_secret.as_ref()?;
        if config.qcd_secret != self.0.at_start.qcd_secret {
            return None;
        }
        match qcd::again(path) {
            Ok(secrets) => {
                self.qcd().secrets = secrets;
                None
            }
            Err(error) => Some(format!("qcd_secret {}: {error}; as before", path.display())),
        }
    }
}

/// Those of `warnings` that are not in `known`.
fn unlike(warnings: &[String], known: &[String]) -> Vec<String> {
    let known: HashSet<&String> = known.iter().collect();
    warnings.iter().filter(|warning| !known.contains(warning)).cloned().collect()
}

impl Program for Keeper {
    fn about(&self) -> About {
        About { name: "ike-daemon", version: env!("CARGO_PKG_VERSION"), backend: "pq-kem" }
    }

    fn without_second_line(&self) -> Option<String> {
        esp::io::missing()
    }

    fn provider(&self) -> Option<CryptoProvider> {
        Some(CryptoProvider::clone(&self.present().crypto))
    }

    fn pools(&self, name: Option<&str>, leases: bool) -> Vec<Pool> {
        self.0.credentials.pools().list(name, leases).into_iter().map(pool).collect()
    }

    fn evidence(&self, round: (&str, &str), used: &UsedAuth) -> Evidence {
        let trust = match TrustNow::of(&self.0.credentials.present(), round, used) {
            TrustNow::Same => Evidence::Same,
            TrustNow::Replaced => Evidence::Replaced,
            TrustNow::SchemeRemoved => Evidence::SchemeRemoved,
            TrustNow::AnchorRemoved => Evidence::AnchorRemoved,
            TrustNow::PinRemoved => Evidence::PinRemoved,
        };
        let password = match self.present().eap.secrets.compared(used) {
            PasswordNow::Same => Evidence::Same,
            PasswordNow::Replaced => Evidence::Replaced,
            PasswordNow::Removed => Evidence::PasswordRemoved,
        };
        trust.max(password)
    }

    fn follows_charon(&self) -> bool {
        self.base().is_ok_and(|base| base.document.is_for_swanctl())
    }

    fn certificates(&self) -> Vec<CertificateView> {
        let config = self.present();
        let answerer = self.0.credentials.present();
        let trust = answerer.trust();
        let own = config.certificates.iter().map(|(certificate, has_private_key)| {
            let (subject, der) = (certificate.subject_text(), certificate.der().to_vec());
            let kind = CertificateKind::EndEntity;
            CertificateView { kind, subject, has_private_key: *has_private_key, der }
        });
        let cas = trust.cas().iter().chain(trust.intermediates()).map(|ca| CertificateView {
            kind: CertificateKind::Ca,
            subject: ca.subject_text(),
            has_private_key: false,
            der: ca.der().to_vec(),
        });
        // Of a long list its serial numbers alone are kept.
        let crls = trust.revocation.crls().filter_map(|crl| {
            Some(CertificateView {
                kind: CertificateKind::Crl,
                subject: crl.issuer_text(),
                has_private_key: false,
                der: crl.der()?.to_vec(),
            })
        });
        own.chain(cas).chain(crls).collect()
    }

    fn authorities(&self) -> Vec<AuthorityView> {
        let config = self.present();
        let view = |(name, authority): (&String, &::pki::Authority)| AuthorityView {
            name: name.clone(),
            subject: authority.ca.subject_text(),
            crl_uris: authority.crl_uris.clone(),
            ocsp_uris: authority.ocsp_uris.clone(),
            cert_uri_base: authority.cert_uri_base.clone(),
        };
        config.authorities.iter().map(view).collect()
    }

    fn groups(&self, connection: &str, round: &str) -> Vec<String> {
        self.present().eap.groups(connection, round).to_vec()
    }

    fn revocation(&self) -> RevocationCounts {
        let credentials = &self.0.credentials;
        RevocationCounts {
            unchecked: credentials.unchecked_peers(),
            unusable: credentials.unusable_answers(),
            unchecked_sas: credentials.unchecked_sas(),
            ended: credentials.revoked_sas(),
        }
    }

    fn flush(&self, lists: bool, responses: bool) {
        self.0.credentials.flush(lists, responses);
    }

    fn resolver(&self) -> Arc<dyn Resolver> {
        Arc::clone(&self.0.resolver)
    }

    fn read(&self, file: &Path) -> Result<Candidate, OperatorError> {
        let (keys, crypto) = {
            let present = self.present();
            (Arc::clone(&present.keys), Arc::clone(&present.crypto))
        };
        let config = config::load_by(file, keys, &crypto);
        self.of_file(config.map_err(|error| OperatorError::Mistakes(error.to_string()))?)
    }

    fn reloading(&self) {
        notify::reloading();
    }

    fn reloaded(&self, in_force: bool) {
        notify::ready(match in_force {
            true => format_args!("configuration reloaded"),
            false => format_args!("configuration refused, the present one goes on"),
        });
    }

    fn loader(&self) -> Option<&dyn Loader> {
        self.base().is_ok().then_some(self)
    }
}

impl Loader for Keeper {
    fn overlay(&self) -> MutexGuard<'_, Overlay> {
        self.0.loaded.overlay()
    }

    fn difference(&self, kind: Kind, name: &str, table: &DeTable<'_>) -> Option<Difference> {
        let base = self.base().ok()?;
        self.overlay().difference(&base.document, kind, name, table)
    }

    fn check_section(&self, kind: Kind, name: &str) -> Result<Configuration, OperatorError> {
        let config = self.0.loaded.check(&*self.base()?, kind, name);
        Ok(config.map_err(OperatorError::Refused)?.configuration())
    }

    fn check_shared(&self, key: &str) -> Result<(), OperatorError> {
        self.0.loaded.check_shared(&*self.base()?, key).map_err(OperatorError::Refused)
    }

    fn merged(&self) -> Result<Candidate, OperatorError> {
        let config = self.0.loaded.merged(&self.base()?, false).map_err(OperatorError::Refused)?;
        let new = unlike(&config.warnings, &self.present().warnings);
        Ok(self.candidate(config, new))
    }

    fn allows_updown(&self) -> bool {
        self.present().vici_updown
    }

    fn content_name(&self, octets: &[u8]) -> String {
        let hash: String = ca_hash(octets).iter().map(|octet| format!("{octet:02x}")).collect();
        format!("blob-{hash}")
    }

    fn keep_credentials(&self) -> Box<dyn FnOnce() + Send + '_> {
        let kept = self.0.loaded.keep_credentials();
        Box::new(|| self.0.loaded.put_back(kept))
    }

    fn add_key(&self, octets: &[u8], kind: &str) -> Result<String, OperatorError> {
        let base = self.base()?;
        let added = self.0.loaded.add_key(&*base.credentials.keys_from, octets, kind);
        added.map_err(OperatorError::Refused)
    }

    fn add_token(&self, table: DeTable<'static>) -> Result<String, OperatorError> {
        self.0.loaded.add_token(&*self.base()?, table).map_err(OperatorError::Refused)
    }

    fn remove_key(&self, id: &str) -> bool {
        self.0.loaded.remove_key(id)
    }

    fn key_ids(&self) -> Vec<String> {
        self.0.loaded.key_ids()
    }

    fn add_certificates(&self, octets: &[u8], ca: bool) -> Result<(), OperatorError> {
        self.0.loaded.add_certificates(octets, ca).map_err(OperatorError::Refused)
    }

    fn add_crl(&self, octets: &[u8]) -> Result<(), OperatorError> {
        self.0.loaded.add_crl(&*self.base()?, octets).map_err(OperatorError::Refused)
    }

    fn clear_credentials(&self) -> Result<(), OperatorError> {
        self.0.loaded.clear_credentials(&*self.base()?);
        Ok(())
    }
}

/// A pool as control clients see it.
fn pool(view: PoolView) -> Pool {
    let lease = |lease: &LeaseView| Lease {
        address: lease.address.to_string(),
        identity: lease.identity.as_ref().map(ToString::to_string),
        status: if lease.online { "online" } else { "offline" }.to_owned(),
    };
    Pool {
        base: view.base.to_string(),
        size: view.size.to_string(),
        online: view.online,
        offline: view.offline,
        leases: view.leases.iter().map(lease).collect(),
        name: view.name,
    }
}
