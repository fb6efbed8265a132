//! Handshakes of two engines on the simulated network, in virtual time.

use std::collections::HashMap;
use std::num::NonZero;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ike_proto::config::{AuthConfig, CertRequest, LocalAuth, RemoteAuth};
use ike_proto::crypto::CryptoProvider;
use ike_proto::wire::registry::{CertEncoding, ProtocolId};
use ike_tests::cheap::{self, Signer};
use ike_tests::credentials::{Authority, credential};
use ike_tests::link::{Jitter, Link, LinkModel, Loss};
use ike_tests::setup::{Side, proposals, side};
use ike_tests::{A, B, Setup, network::Conditions};
use pki::Credential;
use pq_kem::sign::KeyType;

use super::outcome::Outcome;
use super::suite::Authentication;
use super::{Backend, Case};

/// The simulated network. Octets and datagrams are those of the real protocol; the public-key
/// cryptography is a stand-in of the same lengths, unless the real one is wanted. Computing takes no
/// time but what the case says.
pub struct Simulated {
    crypto: Arc<CryptoProvider>,
    real: bool,
    limit: Duration,
    credentials: Mutex<HashMap<String, Arc<Real>>>,
}

/// Real keys and certificates of both ends.
struct Real {
    authority: Authority,
    credentials: [Credential; 2],
}

impl Simulated {
    /// With stand-ins for the public-key cryptography, or `real` backends. A handshake that is not done
    /// after `limit` has failed.
    pub fn new(real: bool, limit: Duration) -> Self {
        let crypto = if real { cheap::real() } else { cheap::post_quantum() };
        Self { crypto, real, limit, credentials: Mutex::default() }
    }

    /// Every datagram and event of a handshake, as text.
    ///
    /// # Errors
    /// As [`Backend::handshake`].
    pub fn story(&self, case: &Case, seed: u64) -> Result<String, String> {
        self.once(case, case.links, seed, true).map(|(_, story)| story)
    }

    fn once(
        &self,
        case: &Case,
        links: [LinkModel; 2],
        seed: u64,
        tracing: bool,
    ) -> Result<(Outcome, String), String> {
        let mut setup =
            Setup { seed, a: side(1, 2), b: side(2, 1), conditions: Conditions::default() };
        for (end, side) in [&mut setup.a, &mut setup.b].into_iter().enumerate() {
            self.prepare(case, end, side)?;
        }
        let mut pair = setup.build();
        pair.net.tracing = tracing;
        pair.audit.off = true;
        let links = links.map(|link| LinkModel { delay: link.delay + case.processing, ..link });
        let [there, back] = links.map(Link::new);
        pair.net.modelled.extend([((A, B), there), ((B, A), back)]);
        if !self.real {
            for end in [A, B] {
                pair.hosts[end].signer = signer(case, end);
            }
        }
        let mut outcome = Outcome::default();
        while pair.now() < self.limit && !outcome.established {
            let begun = pair.now();
            if !tracing {
                pair.hosts[A].log.clear();
                pair.hosts[A].dropped.clear();
            }
            outcome.attempts += 1;
            let request = pair.initiate(A, case.suite.child.then_some("net"));
            pair.run_until(self.limit - begun, |world| world.hosts[A].done(request).is_some());
            match pair.hosts[A].done(request) {
                Some(Ok(())) => outcome.established = true,
                // On a bad link a peer may have forgotten an attempt that this end still makes.
                Some(Err(_)) if pair.now() > begun => {}
                Some(Err(why)) => return Err(format!("{}: {why}", case.suite.name)),
                None => {}
            }
        }
        outcome.time = pair.now();
        outcome.datagrams = [A, B].map(|end| pair.hosts[end].sent);
        outcome.ike_octets = [A, B].map(|end| pair.hosts[end].sent_octets);
        outcome.ip_octets = [A, B].map(|end| pair.hosts[end].sent_ip_octets);
        Ok((outcome, if tracing { pair.story() } else { String::new() }))
    }

    /// Makes one end of a case.
    fn prepare(&self, case: &Case, end: usize, side: &mut Side) -> Result<(), String> {
        let suite = &case.suite;
        side.connection.proposals = proposals(ProtocolId::IKE, &[suite.proposal]);
        side.crypto = Arc::clone(&self.crypto);
        if suite.fragment_size > 0 {
            side.settings.fragment_size = Some(suite.fragment_size);
        }
        case.rules[end].apply(&mut side.settings);
        let Authentication::Certificate { real, .. } = suite.auth.clone() else { return Ok(()) };
        if self.real {
            let none = || format!("{}: no backend for all of it", suite.name);
            let real = self.real(real.filter(|_| suite.has_real_crypto).ok_or_else(none)?)?;
            let own = real.credentials.get(end).ok_or_else(none)?;
            side.show(own.clone());
            side.want("pubkey", &real.authority);
            return Ok(());
        }
        let id = side.connection.local_id().cloned();
        side.connection.local =
            vec![LocalAuth { id, ..LocalAuth::new("local", AuthConfig::pubkey()) }];
        let id = side.connection.remote_id().clone();
        let request =
            CertRequest { encoding: CertEncoding::X509_SIGNATURE, authorities: vec![0x5a; 20] };
        side.connection.remote = vec![RemoteAuth {
            id,
            certreqs: vec![request],
            ..RemoteAuth::new("remote", AuthConfig::pubkey())
        }];
        Ok(())
    }

    fn real(&self, key_type: KeyType) -> Result<Arc<Real>, String> {
        let mut known = self.credentials.lock().map_err(|_| "a thread panicked".to_owned())?;
        let real = known.entry(format!("{key_type:?}")).or_insert_with(|| {
            let authority = Authority::root("ca", key_type.clone(), 9);
            let credentials = [1, 2].map(|host| credential(&authority, key_type.clone(), host));
            Arc::new(Real { authority, credentials })
        });
        Ok(Arc::clone(real))
    }
}

fn signer(case: &Case, end: usize) -> Option<Signer> {
    match case.suite.auth {
        Authentication::Psk => None,
        Authentication::Certificate { initiator, responder, signature, .. } => {
            let certificate = if end == A { initiator } else { responder };
            Some(Signer { certificate, signature })
        }
    }
}

impl Backend for Simulated {
    fn name(&self) -> String {
        let crypto = if self.real { "real" } else { "stand-in" };
        format!("simulated network, virtual time, {crypto} public-key cryptography")
    }

    fn parallel(&self) -> usize {
        std::thread::available_parallelism().map_or(1, NonZero::get)
    }

    fn handshake(&self, case: &Case, seed: u64) -> Result<Outcome, String> {
        self.once(case, case.links, seed, false).map(|(outcome, _)| outcome)
    }

    fn lossless(&self, case: &Case) -> Result<Outcome, String> {
        // Nor does it wait for a slow link, on which some rules send again what is still under way.
        let clean = |link| LinkModel { loss: Loss::None, jitter: Jitter::None, rate: None, ..link };
        let (mut outcome, _) = self.once(case, case.links.map(clean), 1, false)?;
        outcome.time = outcome.time.max(case.ideal(outcome.ip_octets));
        match outcome {
            Outcome { established: true, attempts: 1, .. } => Ok(outcome),
            _ => Err(format!("{}: does not come about even without loss", case.suite.name)),
        }
    }
}
