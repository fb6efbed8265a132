//! What a reload means for IKE SAs that are up. With a file in this project's own format, an IKE SA ends if the new
//! configuration does not admit its peer: no connection accepts the identity, or the secret or trust anchor that proved it
//! was removed. All other IKE SAs keep their settings, and the answer names the connections whose settings the file has
//! changed.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ike_proto::config::{AuthConfig, ConnectionConfig, EndpointConfig};
use ike_proto::wire::payload::IdData;
use ike_proto::{Command, IkeSaId, IkeState, IkeStatus, SecretsNow, UsedAuth};
use ike_tokio::IkeView;

use super::Operator;
use crate::program::{Configuration, Evidence};

/// IKE SAs that a reload ends at once. If more are to end, and more than half of all, they end at [`A_SECOND`], so that there
/// is time to correct a mistake in the file.
const FEW: usize = 10;
/// IKE SAs that end in a second.
const A_SECOND: u32 = 20;
/// Lines about IKE SAs in an answer, at most.
const MOST_LINES: usize = 20;

/// Why a configuration does not admit the peer of an IKE SA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    Identity,
    SecretRemoved,
    AnchorRemoved,
    Replaced,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Identity => "no connection accepts the identity of its peer any more",
            Self::SecretRemoved => "the secret that authenticated it was removed",
            Self::AnchorRemoved => "the trust anchor that authenticated its peer was removed",
            Self::Replaced => "the secret or the trust anchor that authenticated it was replaced",
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

/// The configurations before and after a reload, and whether what is replaced counts as removed.
struct Change<'a> {
    before: &'a EndpointConfig,
    after: &'a EndpointConfig,
    revoke: bool,
}

impl Change<'_> {
    /// Why the configuration does not admit the peer of an IKE SA; `None` if it does. `evidence` is that of
    /// [`Program::evidence`](crate::Program::evidence).
    fn excludes(
        &self,
        status: &IkeStatus,
        evidence: &dyn Fn(&UsedAuth) -> Evidence,
    ) -> Option<Why> {
        let rounds = &status.remote_auth;
        let of_name = |it: &&Arc<ConnectionConfig>| it.name == status.connection;
        let present = self.after.connections.iter().find(of_name);
        if !present.is_some_and(|it| accepts(it, rounds))
            && !self.after.connections.iter().any(|it| accepts(it, rounds))
        {
            return Some(Why::Identity);
        }
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
        for used in rounds {
            match evidence(used) {
                Evidence::Same => {}
                Evidence::Replaced => replaced = true,
                Evidence::PasswordRemoved => return Some(Why::SecretRemoved),
                Evidence::AnchorRemoved => return Some(Why::AnchorRemoved),
            }
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
    /// Ends the IKE SAs whose peers the configuration in force, which has replaced `before`, does not admit. `reload` is the
    /// number of the reload. Returns a sentence for each IKE SA that ends, and one for each connection whose other IKE SAs
    /// have settings that were changed.
    pub(super) async fn review_live(
        &self,
        before: Arc<Configuration>,
        revoke: bool,
        reload: u64,
    ) -> Vec<String> {
        let views = self.established().await;
        let (config, charon) = (self.resolved(), self.program.follows_charon());
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
        if few {
            for one in &excluded {
                self.exclude(one).await;
            }
        } else {
            tracing::error!(
                ends = excluded.len(),
                of = views.len(),
                "the configuration in force does not admit the peers of more than half of the IKE SAs: they end, \
                 {A_SECOND} a second; if that is a mistake, reload a corrected file, and the rest stays"
            );
            let operator = self.clone();
            tokio::spawn(async move {
                operator.exclude_slowly(excluded, &before, reload).await;
            });
        }
        if lines.len() > MOST_LINES {
            let more = lines.split_off(MOST_LINES).len();
            lines.push(format!("and {more} more: `ike-daemon list` shows what is up"));
        }
        lines
    }

    /// The IKE SAs that are up, without those that a rekey has replaced.
    async fn established(&self) -> Vec<IkeView> {
        let mut views = self.list().await.unwrap_or_else(|error| {
            tracing::debug!(%error, "reload: the drivers have ended");
            Vec::new()
        });
        views.retain(|view| view.status.state == IkeState::Established);
        views
    }

    fn excluded(&self, views: &[IkeView], change: &Change<'_>) -> Vec<Excluded> {
        let of_one = |view: &IkeView| {
            let status = &view.status;
            let evidence = |used: &UsedAuth| self.program.evidence(&status.connection, used);
            Some(Excluded::new(status, change.excludes(status, &evidence)?))
        };
        views.iter().filter_map(of_one).collect()
    }

    /// Ends the IKE SAs of `first`, and then the ones into which they were rekeyed meanwhile. Stops at another reload, which
    /// looks at all IKE SAs again.
    async fn exclude_slowly(&self, first: Vec<Excluded>, before: &Configuration, reload: u64) {
        let mut ticks = tokio::time::interval(Duration::from_secs(1) / A_SECOND);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        // Replaced secrets count in the first round only: in the second, a peer may have authenticated with the new one.
        for again in [false, true] {
            let round = match again {
                false => &first,
                true => {
                    let after = self.resolved();
                    let before = &before.endpoint;
                    let change = Change { before, after: &after, revoke: false };
                    &self.excluded(&self.established().await, &change)
                }
            };
            for one in round {
                ticks.tick().await;
                if self.loading.lock().await.reloads != reload {
                    return tracing::info!("another reload decides which IKE SAs end");
                }
                self.exclude(one).await;
            }
        }
    }

    async fn exclude(&self, one: &Excluded) {
        // It may have ended meanwhile.
        if self.command(Command::Exclude(one.ike)).await.is_ok() {
            tracing::warn!(ike = one.ike.0, "{one}");
        }
    }
}
