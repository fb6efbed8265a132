//! Virtual IPs that are set again when another program has taken them away.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{io, thread};

use futures_util::StreamExt;
use ipsec_types::dataplane::patience::{Patience, Verdict};
use rtnetlink::{MulticastGroup, new_multicast_connection};
use tokio::sync::Notify;
use tracing::warn;

use super::address::{self, Installed};
use super::mended::count_put_back;

/// Changes come in bursts.
const SETTLE: Duration = Duration::from_millis(100);
/// How long until a look that no change has called for.
const REGULAR: Duration = Duration::from_secs(60);
/// How long until a next try at what has failed.
const AGAIN: Duration = Duration::from_secs(1);

/// Watches virtual IPs of this host, and sets those again that are gone. Its thread ends when it is dropped.
#[derive(Debug)]
pub struct KeptAddresses {
    shared: Arc<Shared>,
    thread: Option<thread::JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    wanted: Mutex<BTreeMap<IpAddr, Installed>>,
    end: Notify,
}

impl KeptAddresses {
    /// Begins to watch. Needs CAP_NET_ADMIN to set an address.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub fn start() -> io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let known = Arc::clone(&shared);
        let thread =
            thread::Builder::new().name("ike-addresses".into()).spawn(move || run(&known))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Keeps an address that was added, from now on. One that was there before is somebody else's, and not kept.
    pub fn keep(&self, installed: Installed) {
        if installed.ours {
            self.shared.lock().insert(installed.address, installed);
        }
    }

    /// Lets an address go, before it is removed. Returns where it is now, if it was kept.
    pub fn release(&self, address: IpAddr) -> Option<Installed> {
        self.shared.lock().remove(&address)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<IpAddr, Installed>> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for KeptAddresses {
    fn drop(&mut self) {
        self.shared.end.notify_one();
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

fn run(shared: &Shared) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ran = runtime.and_then(|runtime| {
        runtime.block_on(async {
            tokio::select! {
                () = shared.end.notified() => Ok(()),
                ended = watch(shared) => ended,
            }
        })
    });
    if let Err(error) = ran {
        warn!(%error, "virtual IPs are not watched: one that another program removes stays away");
    }
}

async fn watch(shared: &Shared) -> io::Result<()> {
    let groups = [MulticastGroup::Link, MulticastGroup::Ipv4Ifaddr, MulticastGroup::Ipv6Ifaddr];
    let (connection, _, messages) = new_multicast_connection(&groups)?;
    tokio::spawn(connection);
    let mut messages = pin!(messages);
    let mut patience = Patience::default();
    let mut pause = REGULAR;
    loop {
        tokio::select! {
            news = messages.next() => if news.is_none() {
                return Err(io::Error::other("netlink has ended"));
            },
            () = tokio::time::sleep(pause) => {}
        }
        let more = async { while messages.next().await.is_some() {} };
        _ = tokio::time::timeout(SETTLE, more).await;
        pause = mend(shared, &mut patience).await;
    }
}

/// Sets again what is missing. Returns how long until a look that no change calls for.
async fn mend(shared: &Shared, patience: &mut Patience<IpAddr>) -> Duration {
    let now = Instant::now();
    if shared.lock().is_empty() {
        return REGULAR;
    }
    let present = match address::present().await {
        Ok(present) => present,
        Err(error) => {
            warn!(%error, "virtual IPs cannot be looked for; the next look is in a second");
            return AGAIN;
        }
    };
    let wanted: Vec<Installed> = shared.lock().values().cloned().collect();
    let (mut pause, mut gone) = (REGULAR, Vec::new());
    for missing in lacking(&wanted, &present) {
        let Installed { address, interface, .. } = &missing;
        match patience.ask(*address, now) {
            Verdict::Later { due, news } => {
                pause = pause.min(due.saturating_duration_since(now));
                if news {
                    warn!(virtual_ip = %address, interface, "another program removes it all the time; it is set again every 10 s only");
                }
            }
            Verdict::Now => match address::again(&missing).await {
                Ok(installed) => {
                    warn!(virtual_ip = %address, interface, "another program has removed it; it is set again");
                    count_put_back(1);
                    let mut wanted = shared.lock();
                    match wanted.get_mut(address) {
                        Some(known) => *known = installed,
                        // It was released meanwhile, and its removal has found nothing.
                        None => gone.push(installed),
                    }
                }
                // The interface may come back, which is news.
                Err(error) => {
                    warn!(virtual_ip = %address, interface, %error, "another program has removed it; it cannot be set again")
                }
            },
        }
    }
    for installed in gone {
        if let Err(error) = address::remove(&installed).await {
            warn!(virtual_ip = %installed.address, %error, "an address that is not wanted any more is left");
        }
    }
    patience.forget(now);
    pause
}

/// Those of `wanted` that are not `present`.
fn lacking(wanted: &[Installed], present: &[(IpAddr, u32)]) -> Vec<Installed> {
    let there = |one: &&Installed| !present.contains(&(one.address, one.index));
    wanted.iter().filter(there).cloned().collect()
}
