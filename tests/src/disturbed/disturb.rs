//! What happens during a life.

use std::time::Duration;

use ike_proto::dataplane::{Event as PlaneEvent, SaId};
use ike_proto::wire::registry::ExchangeType;
use ike_proto::{ChildSaId, Command, IkeSaId, IkeState, IkeStatus};
use xfrm::Fault;

use super::plan::{ADDRESSES_OF_A, SETTLE};
use super::{Life, Met};
use crate::machine::{Crash, Resume};
use crate::pair::{A, B};

/// Thirty years, in seconds.
const THIRTY_YEARS: u64 = 30 * 365 * 86_400;

impl Life {
    /// One thing happens, and some time passes.
    pub(super) fn operate(&mut self) {
        let machine = if self.rng.chance(500) { A } else { B };
        let host = self.some_shard(machine);
        if self.prober.ask(&mut self.world) {
            self.meet(Met::Probe);
            self.react();
        }
        match self.rng.below(100) {
            0..8 => self.rekey_child(host),
            8..14 => {
                self.rekey_child(host);
                self.pause(100);
                let other = self.some_shard(1 - machine);
                self.rekey_child(other);
                self.meet(Met::Collision);
            }
            14..19 => self.rekey_ike(host),
            19..25 => {
                self.rekey_ike(host);
                self.pause(100);
                let other = self.some_shard(1 - machine);
                match self.rng.chance(500) {
                    true => self.rekey_ike(other),
                    false => self.rekey_child(other),
                }
                self.meet(Met::Collision);
            }
            25..30 => self.use_up_limits(),
            30..33 => self.soft_limit(host),
            33..43 => self.hard_limit(host),
            43..53 => self.sleep(machine),
            53..59 => self.break_network(),
            59..66 => self.roam(),
            66..70 => self.rebind(),
            70..77 => self.crash_somehow(machine),
            77..83 => self.step_clock(machine),
            83..90 => self.fail_plane(host),
            90..95 => self.lose_reauthentication(),
            95..97 => self.delete_child(),
            97..99 => self.delete_ike(),
            _ => self.send_test_packets(),
        }
        match self.rng.below(4) {
            0 => {}
            1 => self.pause(300),
            2 => self.pause(3000),
            _ => self.pause(20_000),
        }
    }

    fn some_shard(&mut self, machine: usize) -> usize {
        let shards = self.world.shards_of(machine);
        // One that has something, if there is one.
        let busy = |host: &usize| !self.world.hosts[*host].endpoint.ike_sas().is_empty();
        let busy: Vec<_> = shards.iter().copied().filter(busy).collect();
        self.rng.any(&busy).unwrap_or(shards[0])
    }

    fn some_child(&mut self, host: usize) -> Option<ChildSaId> {
        let ids: Vec<_> = self.world.hosts[host].children().iter().map(|child| child.id).collect();
        self.rng.any(&ids)
    }

    fn some_ike(&mut self, host: usize) -> Option<IkeSaId> {
        let ikes = self.world.hosts[host].ikes_in(IkeState::Established);
        let ids: Vec<_> = ikes.iter().map(|ike| ike.id).collect();
        self.rng.any(&ids)
    }

    pub(super) fn command(&mut self, host: usize, command: Command) {
        let Self { drivers, world, .. } = self;
        let machine = world.hosts[host].machine;
        let _ = drivers[machine].command(world, host, command);
        self.react();
    }

    fn rekey_child(&mut self, host: usize) {
        if let Some(child) = self.some_child(host) {
            self.command(host, Command::RekeyChild(child));
        }
    }

    fn rekey_ike(&mut self, host: usize) {
        if let Some(ike) = self.some_ike(host) {
            self.command(host, Command::RekeyIke(ike));
        }
    }

    fn soft_limit(&mut self, host: usize) {
        let sas = self.world.hosts[host].plane.sas_in_order();
        if let Some(sa) = self.rng.any(&sas) {
            self.world.plane_event(host, PlaneEvent::SoftExpire(sa));
            self.react();
        }
    }

    /// A limit of the kernel ends an SA, often while its child is being rekeyed.
    fn hard_limit(&mut self, host: usize) {
        if self.rng.chance(600) {
            self.rekey_child(host);
            let most = if self.rng.chance(500) { 100 } else { 1500 };
            self.pause(most);
        }
        let sas = self.world.hosts[host].plane.sas_in_order();
        // Of an IKE SA that has a request about a child outstanding.
        let rekeying = |ike: &IkeStatus| {
            let exchange = ike.outstanding;
            exchange == Some(ExchangeType::CREATE_CHILD_SA)
                || exchange == Some(ExchangeType::IKE_FOLLOWUP_KE)
        };
        let mut ikes = self.world.hosts[host].ikes();
        ikes.retain(rekeying);
        let children: Vec<_> = ikes.iter().flat_map(|ike| &ike.children).collect();
        let is_rekeyed =
            |sa: &SaId| children.iter().any(|child| child.inbound == *sa || child.outbound == *sa);
        let in_flight: Vec<_> = sas.iter().copied().filter(is_rekeyed).collect();
        let sa = match self.rng.any(&in_flight) {
            Some(sa) => {
                self.meet(Met::HardInFlight);
                Some(sa)
            }
            None => self.rng.any(&sas),
        };
        if let Some(sa) = sa {
            self.meet(Met::HardLimit);
            self.world.hosts[host].plane.expire(sa);
            self.world.plane_event(host, PlaneEvent::HardExpire(sa));
            self.react();
        }
    }

    /// Traffic until limits are reached, if there are any.
    fn use_up_limits(&mut self) {
        let mut rounds = 5;
        if self.plan.limits {
            self.meet(Met::Limits);
            rounds = 60;
        }
        let octets = if self.rng.chance(500) { 100 } else { 1000 };
        for _ in 0..rounds {
            // Nobody expects them to arrive.
            let _ = self.send_packets(octets);
            self.pause(200);
        }
    }

    /// A machine is suspended, and goes on. The other one may crash meanwhile.
    fn sleep(&mut self, machine: usize) {
        let queues = self.rng.chance(500);
        self.meet(if queues { Met::SuspendQueued } else { Met::SuspendLost });
        self.world.suspend(machine, queues);
        let index = usize::try_from(self.rng.below(6)).unwrap_or_default();
        let time = Duration::from_secs([2, 10, 60, 400, 4000, 30_000][index]);
        let crashes = self.rng.chance(200);
        if crashes {
            self.run_for(time / 2);
            self.crash_somehow(1 - machine);
            self.run_for(time / 2);
        } else {
            self.run_for(time);
        }
        let config = self.world.hosts[self.drivers[A].home].endpoint.config();
        let lives = config.connections[0].children.iter().map(|child| child.life_time);
        if lives.max().is_some_and(|longest| longest < time) {
            self.meet(Met::SuspendPastLife);
        }
        self.resume(machine);
    }

    pub(super) fn resume(&mut self, machine: usize) {
        let clock_stood = self.rng.chance(300);
        self.meet(if clock_stood { Met::SuspendStood } else { Met::SuspendCounted });
        let how = Resume { clock_stood, timers_first: self.rng.chance(500) };
        self.world.resume(machine, how);
        // The daemon has not run meanwhile. The kernel's own limits count on.
        if !self.keeps_after_crash() {
            let settled = self.world.now() + SETTLE;
            let until = &mut self.leftover_until[machine];
            *until = until.map(|until| until.max(settled));
        }
        self.react();
    }

    /// Nothing gets through for a while.
    fn break_network(&mut self) {
        self.meet(Met::Outage);
        let index = usize::try_from(self.rng.below(4)).unwrap_or_default();
        let most = [3_000, 30_000, 120_000, 400_000][index];
        let time = Duration::from_millis(self.rng.below(most));
        self.without_network(time);
    }

    fn without_network(&mut self, time: Duration) {
        let before = std::mem::replace(&mut self.world.net.conditions.loss, 1000);
        self.run_for(time);
        self.world.net.conditions.loss = before;
    }

    /// A gets another address, at once or after a while without any.
    fn roam(&mut self) {
        if !self.plan.roams {
            return self.lose_address();
        }
        if self.rng.chance(400) {
            let home = self.some_shard(A);
            if let Some(ike) = self.some_ike(home) {
                self.command(home, Command::Reauthenticate(ike));
                self.pause(300);
            }
        }
        if self.is_connecting(A) {
            self.meet(Met::RoamAttempt);
        }
        self.meet(if self.plan.mobike { Met::RoamMobike } else { Met::RoamPlain });
        if self.rng.chance(400) {
            self.lose_address();
        }
        let told = !self.rng.chance(400);
        if !told {
            self.meet(Met::RoamUntold);
        }
        let to = usize::try_from(self.rng.below(4)).unwrap_or_default();
        self.go_to(Some(to), told);
        if self.rng.chance(300) {
            self.pause(400);
            let to = usize::try_from(self.rng.below(4)).unwrap_or_default();
            self.go_to(Some(to), true);
        }
    }

    /// A has no address for a while, and then the same again.
    fn lose_address(&mut self) {
        self.meet(Met::Offline);
        let address = self.world.address(self.drivers[A].home);
        self.go_to(None, true);
        let index = usize::try_from(self.rng.below(3)).unwrap_or_default();
        self.pause([2_000, 60_000, 400_000][index]);
        let number =
            ADDRESSES_OF_A.iter().position(|known| address == std::net::IpAddr::from(*known));
        self.go_to(number, true);
    }

    /// A is at the address with this number, or nowhere.
    pub(super) fn go_to(&mut self, number: Option<usize>, told: bool) {
        let address = number.map(|number| ADDRESSES_OF_A[number].into());
        self.world.relocate(A, address, told);
        self.react();
    }

    fn rebind(&mut self) {
        let count = u64::try_from(self.world.net.nats.len()).unwrap_or_default();
        if count > 0 {
            self.meet(Met::Rebinding);
            for nat in &mut self.world.net.nats {
                nat.rebind();
            }
        } else {
            self.break_network();
        }
    }

    fn crash_somehow(&mut self, machine: usize) {
        let program = self.rng.chance(500);
        self.meet(if program { Met::CrashProgram } else { Met::CrashMachine });
        self.meet(if machine == A { Met::CrashInitiator } else { Met::CrashResponder });
        self.crash(machine, if program { Crash::Program } else { Crash::Machine });
        if self.rng.chance(500) {
            self.pause(5_000);
        }
    }

    fn step_clock(&mut self, machine: usize) {
        let back = self.rng.chance(500);
        self.meet(if back { Met::ClockBackwards } else { Met::ClockForwards });
        let step = i64::try_from(self.rng.below(THIRTY_YEARS)).unwrap_or_default();
        self.world.set_wall(machine, if back { -step } else { step });
        if self.plan.certificates {
            self.meet(Met::ClockCertificates);
            self.pause(300_000);
            if self.rng.chance(500) {
                self.world.set_wall(machine, 0);
            }
        }
    }

    fn fail_plane(&mut self, host: usize) {
        let nth = 1 + self.rng.below(6);
        let lost = self.rng.chance(500);
        self.meet(if lost { Met::PlaneAnswerLost } else { Met::PlaneFault });
        let fault = if lost { Fault::LostAnswer(nth) } else { Fault::Nth(nth) };
        self.world.hosts[host].plane.inner.fail(fault);
        if self.rng.chance(700) {
            self.rekey_child(host);
        }
    }

    /// A reauthenticates, and nothing of it arrives.
    fn lose_reauthentication(&mut self) {
        let host = self.some_shard(A);
        let Some(ike) = self.some_ike(host) else { return };
        self.meet(Met::Reauthentication);
        self.command(host, Command::Reauthenticate(ike));
        if self.rng.chance(600) {
            self.meet(Met::ReauthenticationLost);
            self.pause(100);
            let config = self.world.hosts[host].endpoint.config();
            let schedule = config.retransmission.longest();
            self.without_network(schedule + Duration::from_secs(5));
        }
    }

    /// The end that wants nothing deletes a child.
    fn delete_child(&mut self) {
        if self.plan.both_want {
            return self.break_network();
        }
        let host = self.some_shard(B);
        if let Some(child) = self.some_child(host) {
            self.meet(Met::DeletedChild);
            self.command(host, Command::TerminateChild(child));
        }
    }

    /// The same with an IKE SA.
    fn delete_ike(&mut self) {
        if self.plan.both_want {
            return self.break_network();
        }
        let host = self.some_shard(B);
        if let Some(ike) = self.some_ike(host) {
            self.meet(Met::DeletedIke);
            let forgets = self.rng.chance(300);
            let command =
                if forgets { Command::ForgetIke(ike) } else { Command::TerminateIke(ike) };
            self.command(host, command);
        }
    }
}
