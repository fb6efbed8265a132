//! Fetches of revocation information, and what is said about them.
//!
//! The rounds of fetches for a peer end by progress: a round that leaves the same fetches ends them. A fetch that takes
//! longer than the peer waits goes on, and serves the next peer.

use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use ::pki::{
    Answerer, Certificate, ExtendedKeyUsagePolicy, FetchKind, FetchRequest, LoadError, Revocation,
    TrustedPeer,
};
use ike_proto::{Answer, PeerCertificate, PeerCredentials};
use tokio::sync::Mutex as AsyncMutex;
use tokio::task::spawn_blocking;

use super::{Credentials, Wanted, wanted};
use crate::eap::TlsPeer;
use crate::fetch::{Fetcher, Few, Lookups, Outside};

/// What was said lately, and how often peers were accepted unchecked.
#[derive(Debug, Default)]
pub(super) struct Said {
    /// By the text of a warning and the CA that it is about.
    lately: Mutex<HashMap<(&'static str, String), Instant>>,
    unchecked: AtomicU64,
    unusable: AtomicU64,
}

impl Said {
    /// True if this warning about this CA is due: once an hour.
    fn is_due(&self, warning: &'static str, ca: &str) -> bool {
        let mut lately = self.lately.lock().unwrap_or_else(PoisonError::into_inner);
        lately.retain(|_, said| said.elapsed() < WARN_AFTER);
        if lately.len() >= MAX_SAID || lately.contains_key(&(warning, ca.to_owned())) {
            return false;
        }
        lately.insert((warning, ca.to_owned()), Instant::now());
        true
    }
}

/// A peer that waits until what is to be known about it is fetched.
#[derive(Debug, Clone)]
struct Whom {
    peer: PeerCredentials,
    /// What its certificates are for, if it is one of EAP-TLS or EAP-TTLS.
    usage: Option<ExtendedKeyUsagePolicy>,
}

impl Credentials {
    /// Peers that were accepted although the status of a certificate was not known and URLs were asked.
    pub fn unchecked_peers(&self) -> u64 {
        self.0.said.unchecked.load(Ordering::Relaxed)
    }

    /// Revocation lists and OCSP responses that were fetched and could not tell that a certificate is good.
    pub fn unusable_answers(&self) -> u64 {
        self.0.said.unusable.load(Ordering::Relaxed)
    }

    /// The answer about a peer that has proven to have its key.
    pub(super) async fn answer_about(&self, peer: PeerCredentials) -> Option<Answer> {
        self.fetch_for(&Whom { peer: peer.clone(), usage: None }).await;
        let answer = self.work(move |answerer| answerer.answer_about(&peer, SystemTime::now()));
        let (answer, unchecked) = answer.await?;
        self.warn_of_unchecked(&unchecked);
        Some(answer)
    }

    /// Settles the revocation of a peer of EAP-TLS or EAP-TTLS, which has proven to have its key. It waits meanwhile.
    /// Returns its certificate. The error says why it is refused.
    pub(super) async fn settle_in_tls(
        &self,
        tls: TlsPeer,
    ) -> Result<Option<Arc<PeerCertificate>>, String> {
        let TlsPeer { peer, usage } = tls;
        self.fetch_for(&Whom { peer: peer.clone(), usage: Some(usage) }).await;
        let verdict = self
            .work(move |answerer| answerer.judge_in_tls(&peer, usage, SystemTime::now()))
            .await
            .ok_or("the answer broke off")?;
        let peer = verdict.map_err(|why| {
            tracing::info!(%why, "certificate refused in EAP");
            why.to_string()
        })?;
        self.warn_of_unchecked(&peer.unchecked);
        Ok(Some(peer.shown()))
    }

    fn warn_of_unchecked(&self, unchecked: &[Arc<Certificate>]) {
        if unchecked.is_empty() {
            return;
        }
        self.0.said.unchecked.fetch_add(1, Ordering::Relaxed);
        for certificate in unchecked {
            let ca = certificate.issuer_text();
            if self.0.said.is_due("unchecked", &ca) {
                let subject = certificate.subject_text();
                tracing::warn!(
                    %ca, %subject,
                    "peer accepted, and not known whether its certificate is revoked: no URL of its CA answers; see the \
                     lines above, or set `revocation = strict`"
                );
            }
        }
    }

    /// Fetches what is to be known about `peer`, round by round.
    async fn fetch_for(&self, whom: &Whom) {
        let end = tokio::time::Instant::now() + self.0.fetcher.patience() * ROUNDS;
        let mut before = HashSet::new();
        loop {
            let fetches = self.fetches(whom).await;
            let now: HashSet<Wanted> = fetches.iter().map(wanted).collect();
            if fetches.is_empty() || now == before {
                return;
            }
            before = now;
            let tasks: Vec<_> = fetches
                .into_iter()
                .map(|fetch| tokio::spawn(self.clone().fetch(whom.clone(), fetch)))
                .collect();
            for task in tasks {
                // The task goes on. If it panics there is no information, and the policy decides.
                if tokio::time::timeout_at(end, task).await.is_err() {
                    return;
                }
            }
        }
    }

    async fn fetches(&self, whom: &Whom) -> Vec<FetchRequest> {
        let Whom { peer, usage } = whom.clone();
        let fetches = self.work(move |answerer| {
            let now = SystemTime::now();
            match usage {
                None => answerer.fetches(&peer, now),
                Some(usage) => match answerer.judge_unsettled(&peer, usage, now) {
                    Ok(TrustedPeer { revocation: Revocation::Pending(fetches), .. }) => fetches,
                    _ => Vec::new(),
                },
            }
        });
        fetches.await.unwrap_or_default()
    }

    /// Fetches one thing, unless somebody else has done so by the time it is this one's turn.
    async fn fetch(self, whom: Whom, fetch: FetchRequest) {
        let wanted = wanted(&fetch);
        let turn = self.turn(wanted.clone());
        let waited = turn.try_lock().is_err();
        let patience = self.0.fetcher.patience() * ROUNDS;
        let Ok(_turn) = tokio::time::timeout(patience, turn.lock()).await else { return };
        if waited && !self.fetches(&whom).await.iter().any(|again| super::wanted(again) == wanted) {
            return;
        }
        let connections = match fetch.kind {
            FetchKind::Crl => &self.0.lists,
            FetchKind::Ocsp { .. } => &self.0.connections,
        };
        let Ok(_connection) = connections.acquire().await else { return };
        let this = self.clone();
        // If it panics there is no information, and the policy decides.
        let fetcher = self.fetcher_for(&whom.peer.connection);
        let _ = spawn_blocking(move || this.fetch_now(&fetch, &fetcher)).await;
    }

    /// Fetches about a peer of this connection: outside its tunnel while that is down.
    fn fetcher_for(&self, connection: &str) -> Fetcher {
        match self.outside_for(connection, |names| names.revocation) {
            None => self.0.fetcher.clone(),
            Some(outside) => self.0.fetcher.by(&outside),
        }
    }

    /// Connects outside the tunnel of this connection while that is down. `whose` says whose places its look-ups take.
    pub(super) fn outside_for(
        &self,
        connection: &str,
        whose: fn(Lookups) -> Arc<Few>,
    ) -> Option<Outside> {
        let (sockets, names) = self.0.outside.get().cloned()?;
        let names = whose(names);
        let (coverage, connection) = (Arc::clone(&self.0.coverage), connection.to_owned());
        let wants = Arc::new(move |address| coverage.goes_outside(&connection, address));
        Some(Outside { sockets, names, wants })
    }

    pub(super) fn turn(&self, wanted: Wanted) -> Arc<AsyncMutex<()>> {
        let mut fetching = self.0.fetching.lock().unwrap_or_else(PoisonError::into_inner);
        fetching.retain(|_, turn| Arc::strong_count(turn) > 1);
        Arc::clone(fetching.entry(wanted).or_default())
    }

    /// Blocks. False if the URL counts as failed.
    pub(super) fn fetch_now(&self, fetch: &FetchRequest, fetcher: &Fetcher) -> bool {
        let (url, subject) = (&fetch.url, fetch.subject_text());
        let was_revoked = self.present().is_revoked_by_response(fetch);
        let lists = self.present().lists_taken();
        let (fetched, taken) = match fetch.kind {
            FetchKind::Crl => {
                let take = |list| self.deliver(|by, now| by.deliver_list(fetch, list, now));
                let here = self.present();
                let read = |body: &mut dyn Read| here.trust().revocation.read_crl_stream(body);
                match fetcher.list(fetch, read, take) {
                    Ok(taken) => (Ok(()), taken),
                    Err(why) => (Err(why), self.deliver(|by, now| by.deliver(fetch, None, now))),
                }
            }
            FetchKind::Ocsp { .. } => {
                let body = fetcher.fetch(fetch);
                let octets = body.as_deref().ok();
                let taken = self.deliver(|answerer, now| answerer.deliver(fetch, octets, now));
                (body.map(|_| ()), taken)
            }
        };
        // A list is about many, and a response about one.
        let more = match fetch.kind {
            FetchKind::Crl => self.present().lists_taken() != lists,
            FetchKind::Ocsp { .. } => !was_revoked && self.present().is_revoked_by_response(fetch),
        };
        if more {
            self.0.live.judge_all();
        }
        let is_of_use = taken.is_ok();
        match (fetched, taken) {
            (Err(why), _) => {
                tracing::info!(%url, %subject, %why, "revocation information not fetched");
            }
            (Ok(()), Ok(())) => tracing::info!(%url, %subject, "revocation information fetched"),
            (Ok(()), Err(why)) => self.warn_of_unusable(fetch, why),
        }
        is_of_use
    }

    /// A list or a response that tells of nobody that it is good.
    fn warn_of_unusable(&self, fetch: &FetchRequest, why: LoadError) {
        let (url, subject, ca) = (&fetch.url, fetch.subject_text(), fetch.issuer_text());
        self.0.said.unusable.fetch_add(1, Ordering::Relaxed);
        if self.0.said.is_due("unusable", &ca) {
            tracing::warn!(
                %url, %subject, %ca, %why,
                "revocation information from this URL cannot call a certificate good: check the server of the URL"
            );
        } else {
            tracing::info!(%url, %subject, %why, "revocation information calls no certificate good");
        }
    }

    /// Takes something into the answerer in force. Answers do not wait for it.
    fn deliver(
        &self,
        take: impl FnOnce(&mut Answerer, SystemTime) -> Result<(), LoadError>,
    ) -> Result<(), LoadError> {
        let _one = self.0.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut changed = Answerer::clone(&self.present());
        let taken = take(&mut changed, SystemTime::now());
        self.put(changed);
        taken
    }
}

/// How long all fetches for one peer may take, in patiences of the fetcher: 15 seconds. The peer waits meanwhile, and
/// this end keeps its half-open SA.
const ROUNDS: u32 = 3;
/// A warning about a CA is repeated after this time.
const WARN_AFTER: Duration = Duration::from_secs(3600);
/// Most warnings remembered.
const MAX_SAID: usize = 1024;

#[cfg(test)]
mod tests;
