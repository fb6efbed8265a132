//! Starts of wanted children: when they are due, between which addresses, and new starts when this host has moved.

use std::net::IpAddr;
use std::time::Instant;

use super::{Again, Asked, Ends, FIRST_WAIT, Name};
use crate::config::Action;
use crate::endpoint::attempt::NewAttempt;
use crate::endpoint::{Endpoint, Entry, Slot};
use crate::event::{Event, Failure, IkeSaId, Now, Output, RequestId, Ticket};
use crate::ike_sa::IkeSa;
use crate::question::{Answer, Question};
use crate::wants::aftermath::Next;
use crate::wants::{Sought, Wanted};

impl Endpoint {
    /// Starts the children that are due.
    pub(super) fn run_starts(&mut self, now: Now) {
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= now.mono);
        let wants = self.wants.all.iter().filter(|(_, want)| due(want.at));
        let names: Vec<_> = wants.map(|(name, _)| name.clone()).collect();
        for name in names {
            let carried = self.carries(&name.0, name.1.as_deref()) || self.wants.is_parked(&name);
            let Some(want) = self.wants.all.get_mut(&name) else { continue };
            want.at = None;
            if carried {
                // Another shard may have begun to wait for it when it was up already.
                if self.is_up(&name) {
                    self.tell_child_up(&name);
                }
                continue;
            }
            want.asked = true;
            let (connection, hint) = (name.0.clone(), want.ends);
            self.ask_ends(connection, hint, Asked::Want(*name));
        }
        let due: Vec<_> = self.wants.again.extract_if(.., |again| again.at <= now.mono).collect();
        for Again { new, .. } in due {
            let home = new.redirected.as_ref().map(|by| by.first);
            let hint = Some((new.path.local.ip(), home.unwrap_or(new.path.remote.ip())));
            self.ask_ends(new.connection.name.clone(), hint, Asked::Again(new));
        }
    }

    fn ask_ends(&mut self, connection: String, last: Option<Ends>, asked: Asked) {
        let ticket = Ticket(self.ids.next());
        self.wants.asked.insert(ticket, asked);
        self.out.push_back(Output::Ask(ticket, Question::Ends { connection, last }));
    }

    /// Handles the addresses of a connection, or their absence, from the driver.
    pub(in crate::endpoint) fn on_ends(&mut self, now: Now, asked: Asked, answer: Answer) {
        let ends = match answer {
            Answer::Ends { local, remote } => Ok((local, remote)),
            Answer::Failed(why) => Err(Failure::Config(why)),
            _ => Err(Failure::Config("the driver has no addresses".to_owned())),
        };
        match (asked, ends) {
            (Asked::Want(name), Ok(ends)) => self.start_between(now, name, ends),
            (Asked::Want(name), Err(why)) => {
                let Some(want) = self.wants.all.get_mut(&name) else {
                    return tracing::debug!(
                        ?name,
                        "child: not wanted any more, and has no address"
                    );
                };
                want.asked = false;
                let forever = self.lookup.connection(&name.0).is_some_and(|c| c.keyingtries == 0);
                if !forever {
                    return self.give_up(&name, &why);
                }
                want.begun = Some(now.mono);
                self.start_again(now, name, (Next::StartLater, false), None, Vec::new(), &why);
            }
            (Asked::Again(new), Ok(ends)) => self.again_between(now, *new, ends),
            (Asked::Again(new), Err(why)) => self.attempt_has_no_way(now, *new, &why),
        }
    }

    fn start_between(&mut self, now: Now, name: Name, (local, remote): Ends) {
        let Some(want) = self.wants.all.get_mut(&name) else {
            return tracing::debug!(?name, "child: not started, because it is not wanted any more");
        };
        want.asked = false;
        let Some(connection) = self.lookup.connection(&name.0).cloned() else {
            return self.unwant_name(&name);
        };
        let config = name.1.as_ref().and_then(|child| connection.child(child).cloned());
        if name.1.is_some() && config.is_none() {
            return self.unwant_name(&name);
        }
        if self.carries(&name.0, name.1.as_deref()) {
            return;
        }
        let remote = self.sent_on(&name.0, remote).unwrap_or(remote);
        if let Some(want) = self.wants.all.get_mut(&name) {
            (want.begun, want.ends) = (Some(now.mono), Some((local, remote)));
        }
        // Another shard may have an IKE SA for it.
        if let (Some(child), true) = (&name.1, self.config.shard.count > 1)
            && !self.serves(&name.0, remote)
        {
            self.wait_for_other_shard(&name);
            let (connection, child) = (name.0.clone(), child.clone());
            let event = Event::Restart { connection, child, local, remote };
            return self.out.push_back(Output::Event(event));
        }
        let path = self.path_to(&connection, local, remote);
        let wanted = Wanted { child: config, request: None, packet: None };
        self.initiate(now, connection, path, wanted);
    }

    /// The gateway to which the gateway at `home` has redirected this client, if an IKE SA is up there. A child is
    /// requested on that SA.
    fn sent_on(&self, connection: &str, home: IpAddr) -> Option<IpAddr> {
        let home = home.to_canonical();
        self.index.of(connection).find_map(|id| {
            match self.entries.get(&id).map(|slot| &slot.entry) {
                Some(Entry::Sa(sa)) if sa.carries(Sought::Sa) => {
                    let first = sa.peer.redirected()?.first;
                    (first.to_canonical() == home).then(|| sa.channel.route().path().remote.ip())
                }
                _ => None,
            }
        })
    }

    fn again_between(&mut self, now: Now, new: NewAttempt, (local, remote): Ends) {
        // The configuration of the connection may have changed meanwhile.
        let Some(connection) = self.lookup.connection(&new.connection.name).cloned() else {
            return self.fail_waiting(
                new.wanted.iter().filter_map(|wanted| wanted.request),
                &Failure::NotFound,
            );
        };
        let mut wanted = Vec::new();
        for each in new.wanted {
            match &each.child {
                None => wanted.push(each),
                Some(child) => match connection.child(&child.name).cloned() {
                    Some(child) => wanted.push(Wanted { child: Some(child), ..each }),
                    None => self.fail_waiting(each.request.into_iter(), &Failure::NotFound),
                },
            }
        }
        let replaces = new.replaces.filter(|old| self.entries.contains_key(old));
        if replaces.is_none() {
            // Another attempt or the peer may have brought them up meanwhile.
            for each in std::mem::take(&mut wanted) {
                let child = each.child.as_ref().map(|child| child.name.as_str());
                let there = match (child, each.packet) {
                    (Some(child), Some(packet)) => {
                        self.needs_no_child(now, &connection.name, remote, child, packet)
                    }
                    _ => self.carries(&connection.name, child),
                };
                if there {
                    if let Some(request) = each.request {
                        self.done(request, Ok(()));
                    }
                } else {
                    wanted.push(each);
                }
            }
        }
        if wanted.is_empty() {
            return;
        }
        let path = self.path_to(&connection, local, remote);
        let origin = Self::origin_of(&connection, path);
        self.begin(now, NewAttempt { connection, path, origin, wanted, replaces, ..new });
    }

    fn fail_waiting(&mut self, requests: impl Iterator<Item = RequestId>, why: &Failure) {
        for request in requests {
            self.done(request, Err(why.clone()));
        }
    }

    /// Handles an attempt without a route to the peer. It counts as a failed attempt.
    fn attempt_has_no_way(&mut self, now: Now, mut new: NewAttempt, why: &Failure) {
        new.tries = new.tries.saturating_add(1);
        let tries = new.connection.keyingtries;
        for wanted in &mut new.wanted {
            if let Some(request) = wanted.request.take() {
                self.done(request, Err(why.clone()));
            }
        }
        if tries == 0 || new.tries < tries {
            return self.attempt_again(now, now.mono, new, why);
        }
        self.end_series(now, (&new.connection, new.path), new.wanted, why, new.replaces);
    }

    /// Handles a change of this host's addresses or routes. Attempts that wait for their time start now. An
    /// attempt from an address that is gone is made again from another one.
    pub(in crate::endpoint) fn start_on_network(&mut self, now: Now) {
        let soonest = |begun: Option<Instant>| {
            begun.map_or(now.mono, |begun| now.mono.max(begun + FIRST_WAIT))
        };
        for want in self.wants.all.values_mut() {
            if !want.careful {
                want.at = want.at.map(|at| at.min(soonest(want.begun)));
            }
        }
        for again in self.wants.again.iter_mut() {
            again.at = again.at.min(soonest(Some(again.begun)));
        }
        let here = |ip: IpAddr| {
            let ip = ip.to_canonical();
            ip.is_loopback() || self.network.addresses.iter().any(|own| own.to_canonical() == ip)
        };
        let stranded = |(id, slot): (&IkeSaId, &Slot)| match &slot.entry {
            Entry::Attempt(attempt) if !here(attempt.path.local.ip()) => Some(*id),
            _ => None,
        };
        let mut stranded: Vec<_> = self.entries.iter().filter_map(stranded).collect();
        stranded.sort();
        for id in stranded {
            if let Some(Slot { entry: Entry::Attempt(attempt), .. }) = self.entries.get_mut(&id) {
                attempt.stranded = true;
            }
            self.remove(now, id, Failure::Timeout);
        }
        self.run_starts(now);
        self.leave_stranded(now);
    }

    /// Handles IKE SAs without MOBIKE whose address this host no longer has. Such an SA is of no use. If any of
    /// its children is wanted, or would come back by its actions after the peer is found silent, another IKE SA is
    /// begun to replace it.
    fn leave_stranded(&mut self, now: Now) {
        let stranded = |(id, slot): (&IkeSaId, &Slot)| {
            let Entry::Sa(sa) = &slot.entry else { return None };
            let comes_back = |name: &String| {
                let child = sa.channel.connection().child(name);
                self.wants.has(&sa.channel.connection().name, name)
                    || child.is_some_and(|child| {
                        child.dpd_action != Action::None || child.start_action == Action::Trap
                    })
            };
            let of_use = || sa.names_of_children().iter().any(comes_back);
            let alone = || self.index.replacing(*id).is_empty() && !self.wants.replaces(*id);
            (self.is_stranded(sa) && sa.carries(Sought::Sa) && of_use() && alone()).then_some(*id)
        };
        let mut ids: Vec<_> = self.entries.iter().filter_map(stranded).collect();
        ids.sort();
        for id in ids {
            if let Some(new) = self.replacement_of(id, None) {
                self.wants.again.push(Again { at: now.mono, begun: now.mono, new: Box::new(new) });
            }
        }
        self.run_starts(now);
    }

    /// Begins an attempt whose addresses the driver looks up first.
    pub(in crate::endpoint) fn begin_elsewhere(&mut self, now: Now, new: NewAttempt) {
        self.wants.again.push(Again { at: now.mono, begun: now.mono, new: Box::new(new) });
        self.run_starts(now);
    }

    /// True if `sa` cannot leave an address that this host does not have any more.
    pub(in crate::endpoint) fn is_stranded(&self, sa: &IkeSa) -> bool {
        let (own, here) =
            (&self.network.addresses, sa.channel.route().path().local.ip().to_canonical());
        let gone = !own.is_empty() && !own.iter().any(|own| own.to_canonical() == here);
        sa.channel.route().mobike().is_none() && gone && !here.is_loopback()
    }
}
