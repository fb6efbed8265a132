//! Servers' requests about sessions (RFC 5176): the sessions meant, their end, and their lifetime.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ike_proto::{Command, IkeSaId};

use super::account::Account;
use super::{Accounting, Unheard, lock};

/// How long a peer has to confirm its end.
const CONFIRMED_IN: Duration = Duration::from_secs(10);

impl Accounting {
    /// The sessions that have all of `wanted`.
    pub(crate) fn matching(&self, wanted: &[(u8, &[u8])]) -> Vec<Arc<Account>> {
        let sessions = lock(&self.0.sessions);
        let all = sessions.values().map(|(account, _)| account);
        all.filter(|account| wanted.iter().all(|one| account.has(*one))).cloned().collect()
    }

    /// True if a session has this.
    pub(crate) fn any_with(&self, wanted: (u8, &[u8])) -> bool {
        lock(&self.0.sessions).values().any(|(account, _)| account.has(wanted))
    }

    /// A server wants the end of a session. A peer that does not confirm it in time is not waited for.
    pub(crate) fn disconnect(&self, account: Arc<Account>) {
        if account.ending.swap(true, Ordering::Relaxed) {
            return;
        }
        let this = self.clone();
        tokio::spawn(async move {
            let down = async |ike: IkeSaId| {
                // At the end of the daemon nobody is left to be told.
                let Some(handle) = lock(&this.0.handle).clone() else { return true };
                tracing::info!(ike = ike.0, "a RADIUS server ends it");
                let ended = handle.command(Command::TerminateIke(ike));
                match tokio::time::timeout(CONFIRMED_IN, ended).await {
                    Ok(ended) => ended == Ok(Ok(())),
                    Err(_) => handle.command(Command::ForgetIke(ike)).await == Ok(Ok(())),
                }
            };
            this.close(Unheard(account), down).await;
        });
    }

    /// A server wants a session to last no longer than `lifetime`, unless its peer authenticates anew. False if the
    /// session is over.
    pub(crate) async fn limit(&self, account: &Arc<Account>, lifetime: Duration) -> bool {
        // It may be rekeyed meanwhile, but not again and again.
        for _ in 0..3 {
            let Some(handle) = lock(&self.0.handle).clone() else { return false };
            let order = Command::LimitAuthentication(account.ike(), lifetime);
            if handle.command(order).await == Ok(Ok(())) {
                return true;
            }
        }
        false
    }
}

/// Sessions of tests.
#[cfg(test)]
pub(crate) mod known {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, AtomicU64};

    use tokio::sync::oneshot;
    use tokio::time::Instant;

    use super::*;

    /// Adds a session that has these attributes.
    pub(crate) fn add(sessions: &Accounting, ike: u64, id: &str, attributes: &[(u8, &[u8])]) {
        let account = Account {
            ike: AtomicU64::new(ike),
            id: id.to_owned(),
            radius: Arc::default(),
            options: None,
            attributes: attributes.iter().map(|(kind, value)| (*kind, value.to_vec())).collect(),
            begun: Instant::now(),
            totals: Mutex::default(),
            sas: Mutex::default(),
            ending: AtomicBool::new(false),
        };
        let (stop, _) = oneshot::channel();
        lock(&sessions.0.sessions).insert(IkeSaId(ike), (Arc::new(account), stop));
    }

    /// Those whose end a server wants, in order.
    pub(crate) fn ending(sessions: &Accounting) -> Vec<String> {
        let sessions = lock(&sessions.0.sessions);
        let ending = sessions.values().filter(|(one, _)| one.ending.load(Ordering::Relaxed));
        let mut ids: Vec<_> = ending.map(|(one, _)| one.id.clone()).collect();
        ids.sort();
        ids
    }
}
