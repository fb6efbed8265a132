//! OCSP responses about this end's own certificates, for peers that ask for them (RFC 4806).
//!
//! IKE_AUTH waits [`PATIENCE`] at the most for a responder, off the engine's thread, and only if there is no
//! response to send. A response that arrives later is used for the next peer. Once requested, a response is
//! renewed in time from then on. With `ocsp = both` it is fetched before the first peer asks.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ::pki::{Answerer, FetchRequest, StatusFetch};
use ike_proto::SignRequest;
use tokio::task::{JoinHandle, spawn_blocking};

use super::{Credentials, wanted};

impl Credentials {
    /// Starts a task that keeps OCSP responses about this end's certificates ready for peers. Must be called once, in a
    /// tokio runtime. The task ends with the last clone.
    pub fn keep_status(&self) {
        let (shared, changed) = (Arc::downgrade(&self.0), Arc::clone(&self.0.status_changed));
        tokio::spawn(async move {
            while let Some(shared) = shared.upgrade() {
                let pause = Self(shared).renew_status().await;
                let _ = tokio::time::timeout(pause, changed.notified()).await;
            }
        });
    }

    /// Fetches all that is due; says when to look again.
    async fn renew_status(self) -> Duration {
        let ahead = |answerer: &Answerer| answerer.status_ahead(SystemTime::now());
        let (fetches, _) = self.work(ahead).await.unwrap_or_default();
        all(self.fetch_all(fetches)).await;
        let (_, next) = self.work(ahead).await.unwrap_or_default();
        let now = SystemTime::now();
        let pause = next.map(|next| next.duration_since(now).unwrap_or_default());
        pause.unwrap_or(RENEW_AT_LEAST).clamp(RENEW_AT_MOST, RENEW_AT_LEAST)
    }

    /// Sees to it that what `request` asks for is there to be sent along, if it can be had soon.
    pub(super) async fn get_status_for(&self, request: &SignRequest) {
        let fetches = self.present().status_fetches(request, SystemTime::now());
        self.fetch_all(fetches.aging);
        let lacking = self.fetch_all(fetches.lacking);
        if !lacking.is_empty() && tokio::time::timeout(PATIENCE, all(lacking)).await.is_err() {
            let connection = &request.connection;
            tracing::info!(%connection, "no OCSP response for the own certificate in time");
        }
    }

    /// They go on if nobody waits for them.
    fn fetch_all(&self, fetches: Vec<StatusFetch>) -> Vec<JoinHandle<()>> {
        fetches.into_iter().map(|fetch| tokio::spawn(self.clone().fetch_status(fetch))).collect()
    }

    async fn fetch_status(self, fetch: StatusFetch) {
        let Some(first) = fetch.requests.first() else { return };
        let turn = self.turn(wanted(first));
        let _turn = turn.lock().await;
        // Somebody else may have had the turn before.
        if !self.present().own_status().is_due(&fetch, SystemTime::now()) {
            return;
        }
        let Ok(_connection) = self.0.connections.acquire().await else { return };
        let this = self.clone();
        // If it panics there is nothing to send.
        let _ = spawn_blocking(move || {
            let first = !this.present().own_status().knows(&fetch);
            if !fetch.requests.iter().any(|request| this.fetch_status_now(request)) {
                this.present().own_status().failed(&fetch, SystemTime::now());
            }
            if first {
                this.0.status_changed.notify_one();
            }
        })
        .await;
    }

    /// Blocks; true if there is an answer.
    fn fetch_status_now(&self, request: &FetchRequest) -> bool {
        let (url, subject) = (&request.url, request.subject_text());
        let body = match self.0.fetcher.fetch(request) {
            Ok(body) => body,
            Err(why) => {
                tracing::info!(%url, %subject, %why, "OCSP response for the own certificate not fetched");
                return false;
            }
        };
        match self.present().deliver_status(request, &body, SystemTime::now()) {
            Ok(true) => tracing::warn!(%url, %subject, "the own certificate is revoked"),
            Ok(false) => {
                tracing::info!(%url, %subject, "OCSP response for the own certificate fetched");
            }
            Err(why) => {
                tracing::info!(%url, %subject, %why, "OCSP response for the own certificate of no use");
                return false;
            }
        }
        true
    }
}

async fn all(tasks: Vec<JoinHandle<()>>) {
    for task in tasks {
        let _ = task.await;
    }
}

/// How long IKE_AUTH may wait.
const PATIENCE: Duration = Duration::from_secs(2);
/// What is fetched ahead is renewed so often at the most, and looked at so often at the least: the clock may
/// be set.
const RENEW_AT_MOST: Duration = Duration::from_secs(60);
const RENEW_AT_LEAST: Duration = Duration::from_secs(3600);
