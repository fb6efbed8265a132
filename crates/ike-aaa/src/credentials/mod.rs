//! Answers the engine's questions. Slow ones are answered off the driver's thread: a signature may take a second, a
//! FrodoKEM milliseconds, and a fetch longer. For the others, two changes of thread would cost more than they
//! gain.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::{Instant, SystemTime};

use ::pki::{Answerer, Credential, FetchKind, FetchRequest};
use ike_proto::config::EndpointConfig;
use ike_proto::{Answer, Distrust, EapAnswer, EapMessage, PeerCredentials, Question};
use ike_tokio::{Adopted, OutsideTunnels, Resolver, Work};
use tokio::sync::{Mutex as AsyncMutex, Notify, Semaphore};
use tokio::task::spawn_blocking;

use crate::coverage::Coverage;
use crate::eap::{EapConfig, PasswordNow, Seat, Seen, Turn, lock};
use crate::fetch::{Fetcher, Lookups};
use crate::lookup::{Lookup, LookupRules};
use crate::pools::Pools;
use crate::radius::{ExchangeLimits, RadiusClient};

/// Answers the engine's questions: by the keys and certificates of an [`Answerer`], by EAP, and from [`Pools`]. It
/// fetches revocation information. Clones share all of it.
#[derive(Clone)]
pub struct Credentials(Arc<Shared>);

struct Shared {
    answerer: RwLock<Arc<Answerer>>,
    pools: Pools,
    eap: RwLock<Arc<EapConfig>>,
    /// Held by who makes the next answerer from the present one.
    changing: Mutex<()>,
    fetcher: Fetcher,
    /// Makes sockets outside the tunnels, if there are any, and looks host names up.
    outside: OnceLock<(OutsideTunnels, Lookups)>,
    coverage: Arc<Coverage>,
    /// As much work at a time as there are processors; the rest waits in order.
    processors: Arc<Semaphore>,
    /// How many signatures a token or another process may make at a time. Their threads wait and need no processor, so a
    /// signer that does not answer must not use up `processors`.
    elsewhere: Arc<Semaphore>,
    /// Before that, strangers' key exchanges wait in a line of their own: however many they are, others
    /// have half of the processors' places before them.
    strangers: Semaphore,
    /// So many fetches at a time: slow servers must not take all threads.
    connections: Semaphore,
    /// The same for revocation lists.
    lists: Semaphore,
    /// Warnings about revocation.
    said: revocation::Said,
    /// Certificates by hash and URL.
    lookup: Lookup,
    /// How many exchanges with RADIUS servers run at a time, whatever configuration they are of.
    radius: Arc<ExchangeLimits>,
    /// One fetch of a thing at a time, whoever wants it.
    fetching: Mutex<HashMap<Wanted, Arc<AsyncMutex<()>>>>,
    /// IKE SAs that are up.
    live: live::Live,
    /// There is more, or something else, to have OCSP responses ready about.
    status_changed: Arc<Notify>,
}

/// What is fetched: the URL, and what is posted to it.
type Wanted = (String, Vec<u8>);

impl Credentials {
    /// Answers by `answerer` and `eap`, and fetches by `fetcher`. There are no pools yet ([`Self::pools`]).
    pub fn new(answerer: Answerer, eap: EapConfig, fetcher: Fetcher) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get());
        let coverage = Arc::<Coverage>::default();
        let limits = Arc::new(ExchangeLimits::new(Arc::clone(&coverage)));
        if let Some(radius) = &eap.radius {
            radius.join(&limits);
        }
        Self(Arc::new(Shared {
            answerer: RwLock::new(Arc::new(answerer)),
            pools: Pools::default(),
            eap: RwLock::new(Arc::new(eap)),
            changing: Mutex::new(()),
            fetcher,
            outside: OnceLock::new(),
            coverage,
            processors: Arc::new(Semaphore::new(processors)),
            elsewhere: Arc::new(Semaphore::new(ELSEWHERE)),
            strangers: Semaphore::new((processors / 2).max(1)),
            connections: Semaphore::new(CONNECTIONS),
            lists: Semaphore::new(LISTS),
            said: revocation::Said::default(),
            lookup: Lookup::default(),
            radius: limits,
            fetching: Mutex::default(),
            live: live::Live::default(),
            status_changed: Arc::default(),
        }))
    }

    /// From now on what is to be known about a peer is fetched by `sockets` if the peer's own tunnel covers the server and
    /// is down. `resolver` looks up the names of servers. `config` is the present configuration; [`Sessions`](crate::Sessions) reports later ones. Only the first
    /// `sockets` count. Children that go on from an earlier run, `kept`, count as up for a while.
    pub fn fetch_outside(
        &self,
        sockets: OutsideTunnels,
        resolver: Arc<dyn Resolver>,
        config: &EndpointConfig,
        kept: &[Adopted],
    ) {
        // Later sockets do not count.
        let _ = self.0.outside.set((sockets, Lookups::new(&resolver)));
        self.0.coverage.configure(config);
        self.0.coverage.keep(kept, config, Instant::now());
    }

    pub(crate) fn coverage(&self) -> &Coverage {
        &self.0.coverage
    }

    /// The RADIUS servers, if there are any.
    pub fn radius(&self) -> Option<Arc<RadiusClient>> {
        self.0.eap.read().unwrap_or_else(PoisonError::into_inner).radius.clone()
    }

    /// Replaces `answerer` and `eap`. Fetched revocation information is kept. A conversation of EAP continues as it has
    /// begun.
    pub fn replace(&self, mut answerer: Answerer, eap: EapConfig) {
        if let Some(radius) = &eap.radius {
            radius.join(&self.0.radius);
        }
        *self.0.eap.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(eap);
        let _one = self.0.changing.lock().unwrap_or_else(PoisonError::into_inner);
        answerer.trust_mut().inherit(self.present().trust());
        answerer.inherit_status(&self.present());
        answerer.inherit_examples(&self.present());
        // SAs of connections that were removed stay up.
        answerer.inherit_ends_live(&self.present(), |connection| self.0.live.has(connection));
        self.put(answerer);
        self.0.status_changed.notify_one();
        self.0.live.judge_all();
    }

    /// Looks up certificates by hash and URL as `rules` allow it. Before the first call such certificates are refused.
    pub fn look_up(&self, rules: LookupRules) {
        self.0.lookup.set(rules);
    }

    /// The pools from which peers get addresses.
    pub fn pools(&self) -> &Pools {
        &self.0.pools
    }

    /// Forgets fetched revocation lists, or fetched OCSP responses, or both.
    pub fn flush(&self, lists: bool, responses: bool) {
        let _one = self.0.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut answerer = Answerer::clone(&self.present());
        answerer.trust_mut().revocation.flush(lists, responses);
        if responses {
            answerer.own_status().clear();
        }
        self.put(answerer);
        self.0.status_changed.notify_one();
        self.0.live.flushed();
    }

    /// The answerer in force, with the revocation information fetched so far.
    pub fn present(&self) -> Arc<Answerer> {
        Arc::clone(&self.0.answerer.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn put(&self, answerer: Answerer) {
        let mut place = self.0.answerer.write().unwrap_or_else(PoisonError::into_inner);
        *place = Arc::new(answerer);
    }

    /// The answer to `question` if there is one soon, so that nothing else need be done meanwhile.
    fn at_once(&self, question: &Question) -> Option<Answer> {
        if let Question::Lease(request) = question {
            return Some(self.0.pools.answer(request));
        }
        if matches!(question, Question::Judge(peer) if self.0.lookup.concerns(peer)) {
            return None;
        }
        if let Question::Resume(claim) = question {
            let book = Arc::clone(&self.0.eap.read().unwrap_or_else(PoisonError::into_inner));
            let now = claim.rounds.iter().map(|(_, used)| book.secrets.compared(used)).max();
            if let Some(now @ (PasswordNow::Replaced | PasswordNow::Removed)) = now {
                return Some(Answer::Untrusted(Distrust::Other, now.to_string()));
            }
        }
        let answerer = self.present();
        if let Question::Sign(request) = question
            && !answerer.status_fetches(request, SystemTime::now()).is_empty()
        {
            return None;
        }
        answerer.is_quick(question).then(|| answerer.answer(question, SystemTime::now()))
    }

    /// The answer to `question`; `None` if nobody waits for it any more.
    async fn find_answer(&self, question: Question) -> Option<Answer> {
        if let Question::Lease(request) = &question {
            return Some(self.0.pools.answer(request));
        }
        let question = match question {
            Question::Eap(message) => return Some(self.eap(*message).await),
            Question::Judge(peer) if self.0.lookup.concerns(&peer) => {
                return Some(self.looked_up(peer, false).await);
            }
            Question::Revocation(peer) if self.0.lookup.concerns(&peer) => {
                return Some(self.looked_up(peer, true).await);
            }
            other => other,
        };
        self.answer_by_work(question).await
    }

    /// The answer about a peer that sent certificates by hash and URL, and that has `proven` to have its key or
    /// not yet. If not, and what was fetched is to be kept, the question after the signature is asked for.
    async fn looked_up(&self, peer: PeerCredentials, proven: bool) -> Answer {
        let outside = self.outside_for(&peer.connection, |names| names.strangers);
        let resolved = match self.0.lookup.resolve(&peer, outside).await {
            Ok(resolved) => resolved,
            Err(why) => return Answer::Failed(why),
        };
        let ask = if proven { Question::Revocation } else { Question::Judge };
        let mut answer = self.answer_by_work(ask(resolved.clone())).await;
        if let Some(Answer::Key(key)) = &mut answer {
            let path = self.work(move |answerer| answerer.path(&resolved, SystemTime::now())).await;
            let path = path.unwrap_or_default();
            let path: Vec<_> = path.iter().map(|certificate| certificate.der()).collect();
            if proven {
                self.0.lookup.keep(&peer, &path);
            } else {
                key.revocation_pending |= self.0.lookup.would_keep(&peer, &path);
            }
        }
        answer.unwrap_or_else(|| Answer::Failed("the answer broke off".to_owned()))
    }

    async fn answer_by_work(&self, question: Question) -> Option<Answer> {
        let question = Arc::new(question);
        let _turn = match &*question {
            Question::Exchange(exchange) if exchange.is_for_stranger() => {
                self.0.strangers.acquire().await.ok()
            }
            _ => None,
        };
        // It may have waited for long.
        if matches!(&*question, Question::Exchange(exchange) if !exchange.is_wanted()) {
            return None;
        }
        match &*question {
            Question::Revocation(peer) => {
                let answer = self.answer_about(peer.clone()).await;
                let broken = || Answer::Failed("the answer broke off".to_owned());
                return Some(answer.unwrap_or_else(broken));
            }
            Question::Sign(request) => self.get_status_for(request).await,
            _ => {}
        }
        let place = match &*question {
            Question::Sign(request) => {
                let present = self.present();
                Place::of(present.credentials(&request.connection, &request.round))
            }
            _ => Place::Here,
        };
        let asked = Arc::clone(&question);
        let answer = move |answerer: &Answerer| answerer.answer(&asked, SystemTime::now());
        let answer = self.work_at(place, answer).await;
        Some(answer.unwrap_or_else(|| Answer::Failed("the answer broke off".to_owned())))
    }

    /// What comes of an EAP packet.
    async fn eap(&self, message: EapMessage) -> Answer {
        let book = Arc::clone(&self.0.eap.read().unwrap_or_else(PoisonError::into_inner));
        let failure = failure_of(&message);
        let answer = match book.turn(message, &self.present()) {
            Err(why) => return Answer::Failed(why),
            Ok(Turn::Here(work, seen)) => {
                let answer = self.converse(work, &seen).await;
                let peer = lock(&seen).unsettled.take();
                match (answer, peer) {
                    (
                        Some(mut answer @ (EapAnswer::Send(..) | EapAnswer::Success(_))),
                        Some(peer),
                    ) => match self.settle_in_tls(peer).await {
                        Ok(shown) => {
                            if let EapAnswer::Success(success) = &mut answer {
                                success.certificate.clone_from(&shown);
                            }
                            lock(&seen).shown = shown;
                            Some(answer)
                        }
                        Err(why) => Some(EapAnswer::Failure { packet: failure, why }),
                    },
                    (answer, _) => answer,
                }
            }
            Ok(Turn::There(answer)) => Some(answer.await),
        };
        match answer {
            Some(answer) => Answer::Eap(Box::new(answer)),
            None => Answer::Failed("the answer broke off".to_owned()),
        }
    }

    /// Does the work for an EAP packet; `None` if it panics. Any packet may need a signature. If that is made elsewhere, few
    /// threads may wait at a time, and they need a processor before and after it alone.
    async fn converse(
        &self,
        work: Box<dyn FnOnce() -> EapAnswer + Send>,
        seen: &Seen,
    ) -> Option<EapAnswer> {
        if !lock(seen).signs_elsewhere {
            return self.work(move |_| work()).await;
        }
        let permit = Arc::clone(&self.0.elsewhere).acquire_owned().await.ok()?;
        let seat = Arc::new(Seat::take(&self.0.processors).await?);
        lock(seen).seat = Arc::downgrade(&seat);
        let work = move || {
            // Held until the thread is free, even if nobody waits for the result any more.
            let _held = (permit, seat);
            work()
        };
        spawn_blocking(work).await.ok()
    }

    /// Does `what` on a thread where it may take long; `None` if it panics.
    async fn work<T: Send + 'static>(
        &self,
        what: impl FnOnce(&Answerer) -> T + Send + 'static,
    ) -> Option<T> {
        self.work_at(Place::Here, what).await
    }

    /// As [`Self::work`], with a permit for `place`.
    async fn work_at<T: Send + 'static>(
        &self,
        place: Place,
        what: impl FnOnce(&Answerer) -> T + Send + 'static,
    ) -> Option<T> {
        let permits = match place {
            Place::Here => &self.0.processors,
            Place::Elsewhere => &self.0.elsewhere,
        };
        let permit = Arc::clone(permits).acquire_owned().await.ok()?;
        let answerer = self.present();
        let work = move || {
            // Held until the thread is free, even if nobody waits for the result any more.
            let _permit = permit;
            what(&answerer)
        };
        spawn_blocking(work).await.ok()
    }
}

/// Where a question is answered.
#[derive(Clone, Copy)]
enum Place {
    Here,
    /// In a token or another process, for which a thread waits.
    Elsewhere,
}

impl Place {
    /// Where a signature by one of `credentials` may be made.
    fn of(credentials: &[Credential]) -> Self {
        match credentials.iter().any(|credential| credential.key().is_elsewhere()) {
            true => Self::Elsewhere,
            false => Self::Here,
        }
    }
}

impl ike_tokio::Answerer for Credentials {
    fn answer_at_once(&self, question: &Question) -> Option<Answer> {
        self.at_once(question)
    }

    fn answer(&self, question: Question) -> Work<'_, Option<Answer>> {
        Box::pin(self.find_answer(question))
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials")
    }
}

/// The EAP-Failure that refuses `message`, on a responder (RFC 3748 §4.2).
fn failure_of(message: &EapMessage) -> Option<Vec<u8>> {
    let identifier = *message.packet.as_ref()?.get(1)?;
    (!message.initiator).then(|| vec![EAP_FAILURE, identifier, 0, 4])
}

fn wanted(fetch: &FetchRequest) -> Wanted {
    let posted = match &fetch.kind {
        FetchKind::Crl => Vec::new(),
        FetchKind::Ocsp { request } => request.clone(),
    };
    (fetch.url.clone(), posted)
}

/// Code of an EAP-Failure.
const EAP_FAILURE: u8 = 4;
/// Signatures at a time by keys of tokens and other processes.
const ELSEWHERE: usize = 32;
/// Fetches at a time.
const CONNECTIONS: usize = 16;
/// Fetches of lists at a time: one may take minutes, and the memory of a long list.
const LISTS: usize = 8;

mod live;
mod revocation;
mod status;

#[cfg(test)]
mod tests;
