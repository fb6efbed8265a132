//! What a reload means for IKE SAs that are up. With a file in this project's own format, an IKE SA ends if the new
//! configuration does not admit its peer: no connection accepts the identity, or the secret, key or trust anchor that proved
//! it was removed. All other IKE SAs keep their settings, and the answer names the connections whose settings the file has
//! changed.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ike_proto::config::{AuthConfig, ConnectionConfig, EndpointConfig};
use ike_proto::wire::payload::IdData;
use ike_proto::{Command, IkeSaId, IkeState, IkeStatus, SecretsNow, UsedAuth};
use ike_tokio::IkeView;

use super::Operator;
use super::following::Follow;
use crate::program::{Configuration, Evidence};

/// IKE SAs that a reload ends at once. If more are to end, and more than half of all, they end at [`A_SECOND`], so that there
/// is time to correct a mistake in the file.
const FEW: usize = 10;
/// IKE SAs that end in a second.
const A_SECOND: u32 = 20;
/// How often IKE SAs are looked at that were not up at a reload.
const AGAIN: Duration = Duration::from_millis(500);
/// How often IKE SAs that are to end are looked for. A rekey may give one a successor before its end.
const ROUNDS: usize = 3;
/// Lines about IKE SAs in an answer, at most.
const MOST_LINES: usize = 20;

/// Why a configuration does not admit the peer of an IKE SA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    Identity,
    SecretRemoved,
    SchemeRemoved,
    AnchorRemoved,
    PinRemoved,
    Replaced,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Identity => "no connection accepts the identity of its peer any more",
            Self::SecretRemoved => "the secret that authenticated it was removed",
            Self::SchemeRemoved => {
                "`auth` names the signature scheme of its peer's certificates no longer"
            }
            Self::AnchorRemoved => "the trust anchor that authenticated its peer was removed",
            Self::PinRemoved => {
                "the key that authenticated its peer was removed from `certs` or `pubkeys`"
            }
            Self::Replaced => {
                "the secret, the key or the trust anchor that authenticated it was replaced"
            }
        })
    }
}

/// An IKE SA that ends.
#[derive(Debug)]
struct Excluded {
    ike: IkeSaId,
    connection: String,
    peer: String,
    why: Why,
}

impl Excluded {
    fn new(status: &IkeStatus, why: Why) -> Self {
        let peer = status.remote_id.as_ref().map(ToString::to_string).unwrap_or_default();
        Self { ike: status.id, connection: status.connection.clone(), peer, why }
    }
}

impl fmt::Display for Excluded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ike, connection, peer, why } = self;
        write!(f, "connection {connection}: IKE SA {} with {peer} ends: {why}", ike.0)
    }
}

/// What has begun to end at [`A_SECOND`]. A reload that comes meanwhile judges by it, so that a second reload of the same file
/// ends the rest as well.
#[derive(Debug, Clone)]
pub(super) struct Ending {
    before: Arc<Configuration>,
    revoke: bool,
}

impl Ending {
    /// What a reload compares the new configuration with: `before`, or what an ending that is under way compares with.
    pub(super) fn since(under_way: Option<Self>, before: Arc<Configuration>, revoke: bool) -> Self {
        match under_way {
            Some(Self { before, revoke: too }) => Self { before, revoke: revoke || too },
            None => Self { before, revoke },
        }
    }
}

/// The configurations before and after a reload, and whether what is replaced counts as removed.
struct Change<'a> {
    before: &'a EndpointConfig,
    after: &'a EndpointConfig,
    revoke: bool,
}

impl Change<'_> {
    /// Why the configuration does not admit the peer of an IKE SA; `None` if it does. The connection of its own name
    /// decides. If that was removed, or does not accept the identity any more, another one may, by the methods by which the
    /// peer has authenticated. This end's own identity and method, and the address of the peer, do not count. `evidence` is
    /// that of [`Program::evidence`](crate::Program::evidence).
    fn excludes(
        &self,
        status: &IkeStatus,
        evidence: &dyn Fn((&str, &str), &UsedAuth) -> Evidence,
    ) -> Option<Why> {
        let (all, rounds) = (&self.after.connections, &status.remote_auth);
        let own = all.iter().find(|it| it.name == status.connection);
        let accepting: Vec<_> = match own.filter(|it| accepts(it, rounds)) {
            Some(own) => vec![own],
            None => all.iter().filter(|it| accepts(it, rounds) && is_by(it, rounds)).collect(),
        };
        let worst = |connection: &Arc<ConnectionConfig>| {
            let of_rounds = connection.remote.iter().zip(rounds);
            let of_rounds =
                of_rounds.map(|(round, used)| evidence((&connection.name, &round.name), used));
            of_rounds.max().unwrap_or_default()
        };
        let Some(evidence) = accepting.into_iter().map(worst).min() else {
            return Some(Why::Identity);
        };
        let mut replaced = false;
        match status.secrets {
            SecretsNow::Same => {}
            SecretsNow::Removed => return Some(Why::SecretRemoved),
            // A secret without identities, or for other ones, does not replace a secret that named this peer.
            SecretsNow::Replaced => match &status.remote_id {
                Some(id) if names(self.before, id) && !names(self.after, id) => {
                    return Some(Why::SecretRemoved);
                }
                _ => replaced = true,
            },
        }
        match evidence {
            Evidence::Same => {}
            Evidence::Replaced => replaced = true,
            Evidence::PasswordRemoved => return Some(Why::SecretRemoved),
            Evidence::SchemeRemoved => return Some(Why::SchemeRemoved),
            Evidence::AnchorRemoved => return Some(Why::AnchorRemoved),
            Evidence::PinRemoved => return Some(Why::PinRemoved),
        }
        (replaced && self.revoke).then_some(Why::Replaced)
    }
}

/// True if `connection` accepts the identities that a peer has proven, round by round.
fn accepts(connection: &ConnectionConfig, rounds: &[UsedAuth]) -> bool {
    connection.remote.len() == rounds.len()
        && connection
            .remote
            .iter()
            .zip(rounds)
            .all(|(round, used)| round.auth == AuthConfig::Null || round.id.admits(&used.id))
}

/// True if the peer has authenticated by the methods of `connection`.
fn is_by(connection: &ConnectionConfig, rounds: &[UsedAuth]) -> bool {
    connection.remote.iter().zip(rounds).all(|(round, used)| used.is_by(&round.auth))
}

/// True if a pre-shared key names `id`.
fn names(config: &EndpointConfig, id: &IdData) -> bool {
    config.secrets.iter().any(|psk| psk.ids.iter().any(|it| it.matches(id.as_id())))
}

/// True if `config`, in which host names are resolved, has other settings for the IKE SA or one of its children.
fn differs(view: &IkeView, config: &EndpointConfig) -> bool {
    let Some(made) = &view.status.config else { return false };
    let Some(now) = config.connections.iter().find(|it| it.name == made.name) else { return true };
    let remote = view.status.path.remote.ip().to_canonical();
    let takes_peer = now.remote_addrs.iter().any(|spec| spec.contains(remote));
    // Names may have other addresses by now, and children are compared by what they ask for.
    let same = || {
        let (local_addrs, remote_addrs) = (now.local_addrs.clone(), now.remote_addrs.clone());
        let made = ConnectionConfig::clone(made);
        let children = now.children.clone();
        ConnectionConfig { local_addrs, remote_addrs, children, ..made } == **now
    };
    let child_differs = || {
        view.children.iter().any(|child| {
            let now = now.child(&child.status.name);
            !now.is_some_and(|now| child.status.config.asks_same_as(now))
        })
    };
    !(Arc::ptr_eq(made, now) || takes_peer && same()) || child_differs()
}

impl Operator {
    /// Ends the IKE SAs whose peers the configuration in force does not admit any more, compared with `since`. `reload` is the
    /// number of the reload. `follows` end some children by themselves. Returns a sentence for each IKE SA that ends, and one
    /// for each connection whose other IKE SAs have settings that were changed. The other result is there if IKE SAs go on
    /// ending afterwards.
    pub(super) async fn review_live(
        &self,
        since: Ending,
        follows: &[Follow],
        reload: u64,
    ) -> (Vec<String>, Option<Ending>) {
        let Ending { before, revoke } = &since;
        let revoke = *revoke;
        let (mut views, under_way) = self.live().await;
        follows.iter().for_each(|follow| follow.leave_out(&mut views));
        let (config, charon) = (self.resolved(), self.program.follows_charon());
        if !charon && !under_way.is_empty() {
            let (operator, before) = (self.clone(), Arc::clone(before));
            let judged = views.iter().map(|view| view.status.id).collect();
            tokio::spawn(async move {
                operator.review_late(under_way, judged, (&before, revoke)).await;
            });
        }
        let excluded = match charon {
            true => Vec::new(),
            false => {
                let change = Change { before: &before.endpoint, after: &config, revoke };
                self.excluded(&views, &change)
            }
        };
        let mut others = BTreeMap::<&str, usize>::new();
        for view in &views {
            let ends = || excluded.iter().any(|one| one.ike == view.status.id);
            if differs(view, &config) && !ends() {
                *others.entry(&view.status.connection).or_default() += 1;
            }
        }
        let mut lines: Vec<String> = excluded.iter().map(ToString::to_string).collect();
        lines.extend(others.iter().map(|(connection, count)| {
            let command =
                if charon { "swanctl --terminate --ike" } else { "ike-daemon down --ike" };
            let (what, them) = match *count {
                1 => ("IKE SA has", "it"),
                _ => ("IKE SAs have", "them"),
            };
            format!(
                "connection {connection}: {count} {what} settings that the file has changed: \
                 `{command} {connection}` ends {them}; then bring the connection up again"
            )
        }));
        let few = excluded.len() <= FEW || excluded.len() * 2 <= views.len();
        let mut ending = None;
        if few {
            self.exclude_at_once(excluded, &since).await;
        } else {
            tracing::error!(
                ends = excluded.len(),
                of = views.len(),
                "the configuration in force does not admit the peers of more than half of the IKE SAs: they end, \
                 {A_SECOND} a second; if that is a mistake, reload a corrected file, and the rest stays"
            );
            let operator = self.clone();
            ending = Some(since.clone());
            tokio::spawn(async move {
                operator.exclude_slowly(excluded, &since, reload).await;
            });
        }
        if lines.len() > MOST_LINES {
            let more = lines.split_off(MOST_LINES).len();
            lines.push(format!("and {more} more: `ike-daemon list` shows what is up"));
        }
        (lines, ending)
    }

    /// The IKE SAs that are up, without those that a rekey has replaced, and the numbers of those that are not up yet.
    async fn live(&self) -> (Vec<IkeView>, Vec<IkeSaId>) {
        let mut views = self.list().await.unwrap_or_else(|error| {
            tracing::debug!(%error, "reload: the drivers have ended");
            Vec::new()
        });
        let connecting = |view: &&IkeView| view.status.state == IkeState::Connecting;
        let under_way = views.iter().filter(connecting).map(|view| view.status.id).collect();
        views.retain(|view| view.status.state == IkeState::Established);
        (views, under_way)
    }

    /// Judges IKE SAs that were `under_way` at the reload, as soon as they are up: their peers may have authenticated by what
    /// it has removed. Those of `judged` were up then.
    async fn review_late(
        &self,
        mut under_way: Vec<IkeSaId>,
        judged: HashSet<IkeSaId>,
        (before, revoke): (&Configuration, bool),
    ) {
        let mut ticks = tokio::time::interval(AGAIN);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while !under_way.is_empty() {
            ticks.tick().await;
            let Ok(views) = self.handle.views(&under_way).await else {
                return tracing::debug!("IKE SAs of before a reload: the drivers have ended");
            };
            let connecting = |view: &&IkeView| view.status.state == IkeState::Connecting;
            let left: Vec<_> = views.iter().filter(connecting).map(|v| v.status.id).collect();
            if left.len() == under_way.len() {
                continue;
            }
            let mut views = self.live().await.0;
            views.retain(|view| !judged.contains(&view.status.id));
            // A rekey may have given one that came up a successor by now. Others have begun since, or another reload
            // decides about them.
            let (late, others): (Vec<_>, Vec<_>) =
                views.into_iter().partition(|view| under_way.contains(&view.status.id));
            let after = self.resolved();
            for (views, revoke) in [(late, revoke), (others, false)] {
                let change = Change { before: &before.endpoint, after: &after, revoke };
                for one in &self.excluded(&views, &change) {
                    self.exclude(one).await;
                }
            }
            under_way = left;
        }
    }

    fn excluded(&self, views: &[IkeView], change: &Change<'_>) -> Vec<Excluded> {
        let of_one = |view: &IkeView| {
            let status = &view.status;
            let evidence =
                |round: (&str, &str), used: &UsedAuth| self.program.evidence(round, used);
            Some(Excluded::new(status, change.excludes(status, &evidence)?))
        };
        views.iter().filter_map(of_one).collect()
    }

    /// Those that the configuration in force does not admit, compared with `since`.
    async fn excluded_now(&self, Ending { before, revoke }: &Ending) -> Vec<Excluded> {
        let after = self.resolved();
        let change = Change { before: &before.endpoint, after: &after, revoke: *revoke };
        self.excluded(&self.live().await.0, &change)
    }

    /// Ends the IKE SAs of `first`, and then the ones into which they were rekeyed meanwhile.
    async fn exclude_at_once(&self, first: Vec<Excluded>, since: &Ending) {
        let mut round = first;
        for _ in 0..ROUNDS {
            if round.is_empty() {
                return;
            }
            for one in &round {
                self.exclude(one).await;
            }
            round = self.excluded_now(since).await;
        }
    }

    /// Ends the IKE SAs of `first`, and then the ones into which they were rekeyed meanwhile. Stops at another reload, which
    /// looks at all IKE SAs again.
    async fn exclude_slowly(&self, first: Vec<Excluded>, since: &Ending, reload: u64) {
        let mut ticks = tokio::time::interval(Duration::from_secs(1) / A_SECOND);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut round = first;
        for _ in 0..ROUNDS {
            for one in &round {
                ticks.tick().await;
                if self.loading.lock().await.reloads != reload {
                    return tracing::info!("another reload decides which IKE SAs end");
                }
                self.exclude(one).await;
            }
            round = self.excluded_now(since).await;
            if round.is_empty() {
                break;
            }
        }
        let mut loading = self.loading.lock().await;
        if loading.reloads == reload {
            loading.ending = None;
        }
    }

    async fn exclude(&self, one: &Excluded) {
        // It may have ended meanwhile.
        if self.command(Command::Exclude(one.ike)).await.is_ok() {
            tracing::warn!(ike = one.ike.0, "{one}");
        }
    }
}
