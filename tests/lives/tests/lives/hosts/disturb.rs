//! What happens during a life.

use std::time::Duration;

use ike_proto::{Command, IkeState};
use ike_tests::machine::Crash;
use ike_tests::road::{Exit, Road};
use routes::sim::Hand;

use super::host::{End, INSIDE};
use super::plan::{HERE, PLACES, Tunnel};
use super::{BACK, BACK_SELDOM, Life, Met};

impl Life {
    /// One thing happens, and some time passes.
    pub(super) fn operate(&mut self) -> Result<(), String> {
        let (table, rule) = (self.host.options.table, self.host.options.priority);
        match self.rng.below(100) {
            0..8 => self.take_away(Met::RuleTaken, Hand::Rules(rule)),
            8..16 => self.take_away(Met::TableFlushed, Hand::Table(table)),
            16..24 => {
                let number = usize::try_from(self.rng.below(8)).unwrap_or_default();
                self.take_away(Met::RouteTaken, Hand::Route(table, number))
            }
            24..30 => self.fight(),
            30..36 => self.lose_inside(),
            36..43 => self.lose_address(),
            43..50 => self.go_elsewhere(),
            50..57 => self.cut_link(),
            57..63 => self.lose_default(),
            63..70 => self.stir(),
            70..77 => self.kill_peer(),
            77..83 => self.end_and_start(Met::Killed, End::Killed),
            83..89 => self.end_and_start(Met::Restarted, End::Restart),
            89..94 => self.end_and_start(Met::Stopped, End::Stop),
            94..97 => self.be_silent(),
            _ => self.rekey(),
        }?;
        match self.rng.below(4) {
            0 => Ok(()),
            1 => self.pause(300),
            2 => self.pause(3000),
            _ => self.pause(20_000),
        }
    }

    /// Notes that `what` happens now. True if all carry traffic.
    fn meet(&mut self, what: Met) -> bool {
        let (both, outcome) = self.carried();
        if both > 0 {
            self.met.insert(what);
        }
        outcome.is_ok()
    }

    /// Another program takes something away. What it was is back soon.
    ///
    /// Fault: in `Table::mend` of routes, take no step that puts back what is `lost`.
    fn take_away(&mut self, met: Met, hand: Hand) -> Result<(), String> {
        self.meet(met);
        if !self.take(hand) {
            return Ok(());
        }
        let back = self.grace - self.world.now();
        self.run_for(back)?;
        // Whether there is an SA by now is another matter: what happened before may have ended it meanwhile.
        let lost = |it: &&Tunnel| {
            self.driver.is_closed(it) && self.host.exit(it.out().dst) != Exit::Tunnel
        };
        match self.plan.tunnels().iter().find(lost) {
            Some(tunnel) => Err(format!("{hand:?}: {} is not back after {back:?}", tunnel.name)),
            None => Ok(()),
        }
    }

    fn take(&mut self, hand: Hand) -> bool {
        let now = self.world.now();
        self.taken.retain(|at| now - *at < Duration::from_secs(75));
        self.taken.push(now);
        // What is put back more than five times in a minute is put back more seldom.
        let back = if self.taken.len() > 5 { BACK_SELDOM } else { BACK };
        self.grace = self.grace.max(now + back);
        let taken = self.host.take_away(hand);
        self.world.look_for_clear_of(HERE);
        self.driver.react(&mut self.world);
        taken
    }

    /// Another program removes rules and routes again and again, as one does that wants others there.
    fn fight(&mut self) -> Result<(), String> {
        self.meet(Met::Fought);
        let (table, rule) = (self.host.options.table, self.host.options.priority);
        for _ in 0..5 + self.rng.below(6) {
            self.take(Hand::Rules(rule));
            self.take(Hand::Table(table));
            self.pause(1500)?;
        }
        Ok(())
    }

    /// The kernel removes the routes with this source.
    fn lose_inside(&mut self) -> Result<(), String> {
        self.meet(Met::InsideAddress);
        self.host.sim.remove_address(INSIDE);
        self.note_lost();
        self.pause(10_000)?;
        self.host.connect_lan();
        self.driver.react(&mut self.world);
        Ok(())
    }

    /// The kernel has removed routes of the daemon.
    fn note_lost(&mut self) {
        let now = self.world.now();
        self.taken.push(now);
        self.grace = self.grace.max(now + BACK_SELDOM);
        self.world.look_for_clear_of(HERE);
        self.driver.react(&mut self.world);
    }

    fn lose_address(&mut self) -> Result<(), String> {
        self.meet(Met::AddressGone);
        self.host.sim.remove_address(self.place);
        self.driver.react(&mut self.world);
        self.pause(30_000)?;
        self.come_back()
    }

    fn come_back(&mut self) -> Result<(), String> {
        self.host.connect(self.place);
        self.driver.react(&mut self.world);
        self.prove_closed()
    }

    fn go_elsewhere(&mut self) -> Result<(), String> {
        self.meet(Met::Moved);
        self.host.sim.remove_address(self.place);
        self.driver.react(&mut self.world);
        self.pause(2000)?;
        let others: Vec<_> = PLACES.iter().copied().filter(|it| *it != self.place).collect();
        self.place = self.rng.any(&others).unwrap_or(self.place);
        self.come_back()
    }

    fn cut_link(&mut self) -> Result<(), String> {
        self.meet(Met::LinkDown);
        self.host.sim.set_link(self.host.uplink, false);
        self.driver.react(&mut self.world);
        self.pause(40_000)?;
        self.come_back()
    }

    fn lose_default(&mut self) -> Result<(), String> {
        self.meet(Met::DefaultRoute);
        self.host.default_route(false);
        self.driver.react(&mut self.world);
        self.pause(20_000)?;
        self.host.default_route(true);
        self.driver.react(&mut self.world);
        Ok(())
    }

    /// A change of routes that changes nothing for an SA does nothing to it.
    ///
    /// Fault: in `watch::usable` of routes, leave out links with `LinkFlags::Loopback`.
    fn stir(&mut self) -> Result<(), String> {
        // What happened before may move it.
        self.run_for(Duration::from_secs(5))?;
        let well = self.meet(Met::Stirred);
        let before = self.paths();
        let attempts = self.attempts();
        for _ in 0..3 {
            self.host.stir();
            self.driver.react(&mut self.world);
            self.run_for(Duration::from_millis(400))?;
        }
        let after = self.paths();
        // After a move without MOBIKE the IKE SA of before may still be there.
        let settled = before.len() == self.plan.tunnels().len() && attempts == 0;
        if well && settled && (after != before || self.attempts() > 0) {
            return Err(format!("routes of others changed, and IKE SAs: {before:?} to {after:?}"));
        }
        Ok(())
    }

    /// The numbers of established IKE SAs, and where they are.
    fn paths(&self) -> Vec<(u64, std::net::SocketAddr)> {
        let ikes = self.world.hosts[HERE].ikes_in(IkeState::Established);
        ikes.iter().map(|ike| (ike.id.0, ike.path.local)).collect()
    }

    fn attempts(&self) -> usize {
        self.world.hosts[HERE].ikes_in(IkeState::Connecting).len()
    }

    fn kill_peer(&mut self) -> Result<(), String> {
        self.meet(Met::PeerDied);
        let tunnels = self.plan.tunnels();
        let chosen = usize::try_from(self.rng.below(tunnels.len() as u64)).unwrap_or_default();
        let peer = tunnels[chosen].peer;
        self.world.offline.insert(peer);
        self.world.crash(peer, &self.crypto, Crash::Machine);
        self.pause(90_000)?;
        self.world.offline.remove(&peer);
        self.world.tell_network(peer);
        Ok(())
    }

    fn end_and_start(&mut self, met: Met, end: End) -> Result<(), String> {
        self.meet(met);
        self.stop(end)?;
        self.pause(20_000)?;
        self.start();
        self.prove_closed()
    }

    /// The daemon ends before anything is up, because no peer answers.
    pub(super) fn end_early(&mut self) -> Result<(), String> {
        self.met.insert(Met::EndedEarly);
        self.world.net.conditions.loss = 1000;
        self.pause(20_000)?;
        let end = if self.rng.chance(600) { End::Restart } else { End::Killed };
        let silent = self.end_and_start(Met::EndedEarly, end);
        self.world.net.conditions.loss = 0;
        silent
    }

    /// The daemon ends. In order it says good-bye first.
    pub(super) fn stop(&mut self, end: End) -> Result<(), String> {
        if end == End::Killed {
            // What was taken away before a process is killed, and is not back, stays away: nobody is there to see to it.
            let back = self.grace.saturating_sub(self.world.now());
            self.run_for(back)?;
        }
        if end != End::Killed {
            self.world.hosts[HERE].plane.stopping = true;
            self.world.command(HERE, Command::Shutdown);
            self.run_for(Duration::from_millis(500))?;
        }
        self.end(end);
        self.prove_closed()
    }

    fn be_silent(&mut self) -> Result<(), String> {
        self.meet(Met::Silence);
        self.world.net.conditions.loss = 1000;
        let silent = self.pause(40_000);
        self.world.net.conditions.loss = 0;
        silent
    }

    fn rekey(&mut self) -> Result<(), String> {
        self.meet(Met::Rekeyed);
        let ikes = self.world.hosts[HERE].ikes_in(IkeState::Established);
        for ike in &ikes {
            let child = ike.children.first().map(|child| Command::RekeyChild(child.id));
            let command = match (self.rng.chance(500), child) {
                (true, Some(child)) => child,
                _ => Command::RekeyIke(ike.id),
            };
            self.world.command(HERE, command);
        }
        self.driver.react(&mut self.world);
        Ok(())
    }
}
