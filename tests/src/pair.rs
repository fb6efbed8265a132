//! Two hosts.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use ike_proto::config::EndpointConfig;
use ike_proto::{ChildSaId, Command, IkeSaId, RequestId};

use crate::host::Host;
use crate::setup::Setup;
use crate::world::World;

/// The host that a [`Setup`] calls `a`.
pub const A: usize = 0;
/// The host that a [`Setup`] calls `b`.
pub const B: usize = 1;

/// Longer than any ladder of retransmissions.
const LONG: Duration = Duration::from_secs(300);

/// Two endpoints and what is between them. Everything of [`World`] is here as well.
pub struct Pair(World);

impl Deref for Pair {
    type Target = World;

    fn deref(&self) -> &World {
        &self.0
    }
}

impl DerefMut for Pair {
    fn deref_mut(&mut self) -> &mut World {
        &mut self.0
    }
}

impl Pair {
    pub(crate) fn new(world: World) -> Self {
        Self(world)
    }

    /// A pair of the usual [`Setup`] with an established IKE SA and its child, A the initiator.
    #[track_caller]
    pub fn established(seed: u64) -> Self {
        let mut pair = Setup::new(seed).build();
        pair.establish();
        pair
    }

    /// Host A.
    pub fn a(&self) -> &Host {
        &self.hosts[A]
    }

    /// Host B.
    pub fn b(&self) -> &Host {
        &self.hosts[B]
    }

    /// The other one.
    pub fn other(host: usize) -> usize {
        1 - host
    }

    /// Tells `host` to bring up a child, or the IKE SA alone.
    pub fn initiate(&mut self, host: usize, child: Option<&str>) -> RequestId {
        let (local, remote) = (self.address(host), self.address(Self::other(host)));
        let connection = "ab".to_owned();
        let child = child.map(str::to_owned);
        self.command(host, Command::Initiate { connection, child, local, remote, packet: None })
    }

    /// Brings up "net" from A, and checks that both ends have it.
    ///
    /// # Panics
    ///
    /// If it does not come up.
    #[track_caller]
    pub fn establish(&mut self) {
        let request = self.initiate(A, Some("net"));
        self.run_until(LONG, |w| w.hosts[A].done(request).is_some());
        assert_eq!(self.a().done(request), Some(Ok(())), "{}", self.story());
        self.settle();
        assert_eq!(self.b().children_up().len(), self.a().children_up().len(), "{}", self.story());
        self.assert_agreement();
    }

    /// The id of the one IKE SA of `host`.
    #[track_caller]
    pub fn ike_id(&self, host: usize) -> IkeSaId {
        self.hosts[host].ike().id
    }

    /// The id of the one child of `host`.
    #[track_caller]
    pub fn child_id(&self, host: usize) -> ChildSaId {
        self.hosts[host].child().id
    }

    /// Rekeys the one child of `host`.
    #[track_caller]
    pub fn rekey_child(&mut self, host: usize) -> RequestId {
        let child = self.child_id(host);
        self.command(host, Command::RekeyChild(child))
    }

    /// Rekeys the one IKE SA of `host`.
    #[track_caller]
    pub fn rekey_ike(&mut self, host: usize) -> RequestId {
        let ike = self.ike_id(host);
        self.command(host, Command::RekeyIke(ike))
    }

    /// Gives both ends new settings.
    pub fn reload(&mut self, host: usize, config: EndpointConfig) -> RequestId {
        self.command(host, Command::Reload(Box::new(config)))
    }

    /// Checks that both ends have the same IKE SAs and the same children, that the data planes hold
    /// exactly what the children are made of, that packets would arrive, and that nobody misused a
    /// message ID. For quiet moments: nothing under way, nothing lingering.
    ///
    /// # Panics
    ///
    /// If not.
    #[track_caller]
    pub fn assert_agreement(&self) {
        if let Err(what) = self.agreement() {
            panic!("seed {}: {what}\n{}", self.seed, self.story());
        }
    }

    /// What [`assert_agreement`](Self::assert_agreement) checks.
    pub fn agreement(&self) -> Result<(), String> {
        crate::agreement::check(self)
    }
}
