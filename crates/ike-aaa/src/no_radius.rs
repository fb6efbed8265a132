//! RADIUS in a build without the feature `radius`: the types that the rest of the crate names, and nothing behind them.
//! There is no [`RadiusClient`](radius::RadiusClient), so there are no sessions to report and no requests about them.

/// In place of the client.
pub(crate) mod radius {
    use std::net::SocketAddr;
    use std::sync::Arc;

    use crate::coverage::Coverage;

    /// The RADIUS servers of one configuration. This build is without the feature `radius`, so there is no value of this
    /// type.
    #[derive(Debug)]
    pub enum RadiusClient {}

    impl RadiusClient {
        pub(crate) fn join(&self, _: &Arc<ExchangeLimits>) {
            match *self {}
        }

        pub(crate) fn listens_for_dae(&self) -> Option<SocketAddr> {
            match *self {}
        }
    }

    /// No exchanges, no limits.
    #[derive(Debug, Default)]
    pub(crate) struct ExchangeLimits;

    impl ExchangeLimits {
        pub(crate) fn new(_: Arc<Coverage>) -> Self {
            Self
        }
    }

    /// No server grants anything.
    pub(crate) mod grants {
        use std::iter;
        use std::net::IpAddr;

        use ike_proto::wire::payload::Attribute;

        pub(crate) fn addresses(_: &[u8]) -> impl Iterator<Item = IpAddr> {
            iter::empty()
        }

        pub(crate) fn attributes(_: &[u8]) -> impl Iterator<Item = Attribute> {
            iter::empty()
        }
    }
}

/// In place of accounting.
pub(crate) mod accounting {
    use std::sync::Arc;
    use std::time::Duration;

    use ike_proto::{Endpoint, Event, IkeSaId};
    use ike_tokio::{Handle, Plane, PlaneHandle};
    use tokio::sync::mpsc;

    use super::radius::RadiusClient;

    /// A session of which no server hears. This build is without the feature `radius`, so there is no value of this type.
    #[derive(Debug)]
    pub enum Unheard {}

    /// A session that is over: none has begun.
    pub(crate) enum Over {}

    /// The sessions of all shards. This build is without the feature `radius`: nobody hears of them.
    #[derive(Debug, Clone, Default)]
    pub struct Accounting(());

    impl Accounting {
        /// No sessions. The receiver gets nothing.
        pub fn new() -> (Self, mpsc::UnboundedReceiver<Unheard>) {
            (Self(()), mpsc::unbounded_channel().1)
        }

        /// Leaves `plane` as it is.
        pub fn watch(&self, _plane: &mut Plane) {}

        /// Drops the handle.
        pub fn ask(&self, _handle: Handle) {}

        /// There is nothing to forget.
        pub fn forget(&self) {}

        /// There is nothing to end.
        pub async fn close<F: Future<Output = bool>>(
            &self,
            unheard: Unheard,
            _down: impl Fn(IkeSaId) -> F,
        ) {
            match unheard {}
        }

        /// There is nothing to wait for.
        pub async fn finish(&self, _limit: Duration) {}

        pub(crate) fn event(
            &self,
            _: &Event,
            _: &Endpoint,
            _: impl FnOnce() -> Option<Arc<RadiusClient>>,
        ) -> Option<Over> {
            None
        }

        pub(crate) async fn over(&self, over: Over, _: &PlaneHandle) {
            match over {}
        }
    }
}

/// In place of dynamic authorization.
pub(crate) mod dae {
    use std::io;
    use std::net::SocketAddr;
    use std::sync::Arc;

    use super::accounting::Accounting;
    use super::radius::RadiusClient;

    /// The UDP socket for requests of RADIUS servers about sessions. This build is without the feature `radius`, so there
    /// is no value of this type.
    #[derive(Debug)]
    pub enum DaeSocket {}

    impl DaeSocket {
        /// Makes no socket.
        ///
        /// # Errors
        /// Always.
        pub fn bind(_listen: SocketAddr) -> io::Result<Self> {
            let why = "ike-aaa was built without RADIUS (feature `radius`)";
            Err(io::Error::new(io::ErrorKind::Unsupported, why))
        }

        /// Its own address.
        ///
        /// # Errors
        /// None: there is no value of this type.
        pub fn address(&self) -> io::Result<SocketAddr> {
            match *self {}
        }

        /// Serves nobody: there is no value of this type.
        pub async fn serve(
            self,
            _radius: impl Fn() -> Option<Arc<RadiusClient>>,
            _sessions: Accounting,
        ) {
            match self {}
        }
    }
}
