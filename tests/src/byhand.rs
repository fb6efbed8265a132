//! Delivering by hand what waits in the mailbox of a network that is [`manual`](crate::network::Network::manual).

use crate::network::Packet;
use crate::world::World;

impl World {
    /// Delivers the first packet in the mailbox for which `which` is true. False if there is none.
    pub fn deliver_first(&mut self, which: impl Fn(&Packet) -> bool) -> bool {
        let Some(index) = self.net.mailbox.iter().position(which) else { return false };
        let packet = self.net.mailbox.remove(index);
        self.deliver(packet);
        true
    }

    /// Delivers the first packet in the mailbox that goes to `host`.
    ///
    /// # Panics
    ///
    /// If there is none.
    #[track_caller]
    pub fn deliver_to(&mut self, host: usize) {
        let address = self.address(host);
        let delivered = self.deliver_first(|packet| packet.dst.ip() == address);
        assert!(delivered, "seed {}: nothing for host {host}", self.seed);
    }

    /// Loses the first packet in the mailbox that goes to `host`.
    ///
    /// # Panics
    ///
    /// If there is none.
    #[track_caller]
    pub fn lose_to(&mut self, host: usize) {
        let address = self.address(host);
        let index = self.net.mailbox.iter().position(|packet| packet.dst.ip() == address);
        self.net.mailbox.remove(index.expect("a packet for the host"));
    }

    /// Packets in the mailbox that go to `host`.
    pub fn waiting_for(&self, host: usize) -> usize {
        let address = self.address(host);
        self.net.mailbox.iter().filter(|packet| packet.dst.ip() == address).count()
    }

    /// Delivers what is in the mailbox, and what that causes, until it is empty.
    pub fn deliver_all(&mut self) {
        while self.deliver_first(|_| true) {}
    }
}
