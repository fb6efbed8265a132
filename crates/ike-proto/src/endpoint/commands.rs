//! Commands of operators and of the driver.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::attempt::{Attempt, NewAttempt, Switch};
use super::wants::{FIRST_CAREFUL_WAIT, Name};
use super::{Endpoint, Entry, Shutdown, Slot, Trap, traps};
use crate::config::candidates::Lists;
use crate::config::lookup::Lookup;
use crate::config::{ConnectionConfig, EndpointConfig};
use crate::dataplane::{Flow, PolicyId};
use crate::event::{ChildSaId, Command, Event, Failure, IkeSaId, Now, Output, Path, RequestId};
use crate::exchange::redirect::Redirected;
use crate::exchange::sent::Retry;
use crate::ike_sa::collision::IkeActivity;
use crate::ike_sa::context::{Effect, TicketChange};
use crate::ike_sa::state::{IkePhase, State, Task};
use crate::reason::PolicyReason;
use crate::wants::aftermath::{End, Wishes, after, may_lock_account};
use crate::wants::{Ended, Sought, Wanted};

/// Why [`Command::Exclude`] ends an IKE SA.
const NOT_ADMITTED: Failure = Failure::Policy(PolicyReason::NotAdmitted);

impl Endpoint {
    pub(super) fn on_command(&mut self, now: Now, request: RequestId, command: Command) {
        match command {
            _ if self.shutdown.has_begun() => self.done(request, Err(Failure::Terminated)),
            Command::Initiate { connection, child, local, remote, packet } => {
                let ends = (local, remote);
                self.on_initiate(now, request, &connection, child.as_deref(), ends, packet);
            }
            Command::Ensure { connection, child, local, remote } => {
                self.on_ensure(now, request, &connection, &child, (local, remote));
            }
            Command::TerminateIke(ike) => self.on_terminate(now, request, ike),
            Command::ForgetIke(ike) => self.on_forget(now, request, ike, &Failure::Terminated),
            Command::Exclude(ike) => self.on_forget(now, request, ike, &NOT_ADMITTED),
            Command::Want { connection, child } => {
                let result = self.on_want(now, &connection, &child);
                self.done(request, result);
            }
            Command::Unwant { connection, child } => {
                let any = self.unwant(&connection, child.as_deref());
                self.done(request, if any { Ok(()) } else { Err(Failure::NotFound) });
            }
            Command::TerminateChild(child) => {
                self.name_of(child).iter().for_each(|name| self.unwant_name(name));
                self.child_task(now, request, child, |child| Task::DeleteChild {
                    child,
                    reason: Failure::Terminated,
                    request: Some(request),
                });
            }
            Command::RekeyIke(ike) => {
                let task = Task::RekeyIke { request: Some(request), retry: Retry::default() };
                self.ike_task(now, request, ike, task);
            }
            Command::Redirect(ike, to) => {
                self.ike_task(now, request, ike, Task::Redirect { to, request: Some(request) });
            }
            Command::RekeyChild(child) => {
                self.child_task(now, request, child, |child| Task::RekeyChild {
                    child,
                    request: Some(request),
                    retry: Retry::default(),
                });
            }
            Command::Reauthenticate(ike) => {
                if let Err(failure) = self.reauthenticate(now, ike, Some(request)) {
                    self.done(request, Err(failure));
                }
            }
            Command::LimitAuthentication(ike, lifetime) => {
                let mut done = false;
                self.with_sa(now, ike, |sa, ctx| done = sa.change_auth_lifetime(ctx, lifetime));
                self.done(request, if done { Ok(()) } else { Err(Failure::NotFound) });
            }
            Command::ForgetTickets(connection) => {
                let found = self.forget_tickets(&connection).then_some(());
                self.done(request, found.ok_or(Failure::NotFound));
            }
            Command::InstallTrap { connection, child, local, remote } => {
                let waiting = Some(request);
                let result = self.install_trap(now, waiting, &connection, &child, local, remote);
                if let Err(failure) = result {
                    self.tell_given_up(&(connection, Some(child)));
                    self.done(request, Err(failure));
                }
            }
            Command::UninstallTrap { connection, child } => {
                let result = self.uninstall_trap(&connection, &child);
                self.done(request, result);
            }
            Command::BlockTrap { connection, child } => {
                let result = self.block_trap(now, &connection, &child);
                self.done(request, result);
            }
            Command::Reload(config) => {
                self.reload(now, *config);
                self.done(request, Ok(()));
            }
            Command::Shutdown => self.on_shutdown(now, request),
        }
    }

    pub(super) fn done(&mut self, request: RequestId, result: Result<(), Failure>) {
        self.out.push_back(Output::Event(Event::Done(request, result)));
    }

    /// The name by which a child is wanted, unless the child is gone.
    fn name_of(&self, child: ChildSaId) -> Option<Name> {
        let sa = self.established(self.ids.esp.ike_of(child)?)?;
        let established = sa.established()?;
        let child = established.children.get(child)?;
        Some((sa.channel.connection().name.clone(), Some(child.config.name.clone())))
    }

    pub(super) fn find_connection(&self, name: &str) -> Result<Arc<ConnectionConfig>, Failure> {
        self.lookup
            .connection(name)
            .cloned()
            .ok_or_else(|| Failure::Config(format!("no connection {name:?}")))
    }

    pub(super) fn on_initiate(
        &mut self,
        now: Now,
        request: RequestId,
        connection: &str,
        child: Option<&str>,
        (local, remote): (IpAddr, IpAddr),
        packet: Option<Flow>,
    ) {
        let found = self.find_connection(connection).and_then(|connection| {
            let child = match child {
                None => None,
                Some(name) => Some(
                    connection
                        .child(name)
                        .cloned()
                        .ok_or_else(|| Failure::Config(format!("no child {name:?}")))?,
                ),
            };
            Ok((connection, child))
        });
        match found {
            Ok((connection, child)) => {
                let path = self.path_to(&connection, local, remote);
                if packet.is_none() {
                    let child = child.as_ref().map(|child| child.name.as_str());
                    let there = |child: &&str| self.has_or_makes(&connection.name, remote, child);
                    let one_more = child.filter(there);
                    self.want(now, &connection, child, Some((local, remote)));
                    if let Some(child) = one_more {
                        self.want_several(&connection.name, child);
                    }
                }
                let wanted = Wanted { child, request: Some(request), packet };
                self.initiate(now, connection, path, wanted);
            }
            Err(failure) => self.done(request, Err(failure)),
        }
    }

    /// Brings up a child: on an SA with this peer that exists or is being made, or on a new one.
    pub(super) fn initiate(
        &mut self,
        now: Now,
        connection: Arc<ConnectionConfig>,
        path: Path,
        wanted: Wanted,
    ) {
        let remote = path.remote.ip();
        if let (Some(packet), Some(child)) = (wanted.packet, &wanted.child)
            && self.needs_no_child(now, &connection.name, remote, &child.name, packet)
        {
            if let Some(request) = wanted.request {
                self.done(request, Ok(()));
            }
            return;
        }
        match self.sa_towards(&connection.name, remote) {
            Some(id) => {
                let (slot, mut ctx) = self.lend(now, id);
                match slot.map(|slot| &mut slot.entry) {
                    Some(Entry::Attempt(attempt)) => attempt.add(wanted),
                    Some(Entry::Sa(sa)) => match wanted.child {
                        Some(config)
                            if wanted.packet.is_none()
                                && wanted
                                    .request
                                    .is_some_and(|request| sa.join(&config, request)) => {}
                        Some(config) => sa.push(Task::CreateChild {
                            config,
                            packet: wanted.packet,
                            request: wanted.request,
                            retry: Retry::default(),
                            join: None,
                        }),
                        None => ctx.done(wanted.request, Ok(())),
                    },
                    Some(Entry::Parked(_)) | None => {}
                }
                self.settle(now, id);
            }
            None => self.attempt(now, connection, path, vec![wanted], None, 0),
        }
    }

    pub(super) fn sa_towards(&self, connection: &str, remote: IpAddr) -> Option<IkeSaId> {
        let usable = |id: &IkeSaId| match self.entries.get(id).map(|slot| &slot.entry) {
            Some(Entry::Attempt(attempt)) => attempt.replaces.is_none(),
            Some(Entry::Sa(sa)) => matches!(
                &sa.state,
                State::Established(established) if established.phase == IkePhase::Alive
                    // Its Delete may wait for the answer to another request.
                    && !matches!(established.work().ike_activity(established.phase), IkeActivity::Closing)
                    && !self.handovers.is_old(*id)
            ),
            Some(Entry::Parked(_)) | None => false,
        };
        self.index.towards(connection, remote).find(usable)
    }

    /// Starts a new IKE SA.
    fn attempt(
        &mut self,
        now: Now,
        connection: Arc<ConnectionConfig>,
        path: Path,
        wanted: Vec<Wanted>,
        replaces: Option<IkeSaId>,
        tries: u32,
    ) {
        let origin = Self::origin_of(&connection, path);
        let (initial_contact, redirected) = (replaces.is_none(), None);
        let new = NewAttempt {
            connection,
            path,
            origin,
            wanted,
            replaces,
            tries,
            initial_contact,
            redirected,
            ticket: None,
        };
        self.begin(now, new);
    }

    pub(super) fn begin(&mut self, now: Now, mut new: NewAttempt) {
        if new.ticket.is_none() {
            new.ticket = self.ticket_for(now, &new);
        }
        let former = match &new.ticket {
            Some(carried) => carried.held.vips.clone(),
            None => Vec::new(),
        };
        let wanted = new.wanted.clone();
        let name = new.connection.name.clone();
        let ends = (new.path.local.ip(), new.path.remote.ip());
        let vips = new.replaces.map_or(former, |old| self.own_virtual_ips(old));
        let mut ctx = self.context(now, None);
        match Attempt::start(&mut ctx, new) {
            Ok(mut attempt) => {
                attempt.vips = vips;
                let (id, spi) = (attempt.id, attempt.spi_i);
                self.insert(now, id, spi, Entry::Attempt(Box::new(attempt)));
                // INITIAL_CONTACT would end another SA of the same identities (RFC 7296 §2.4). The check comes
                // after other shards can find this attempt, because their attempts may begin at the same moment.
                if let Some(Slot { entry: Entry::Attempt(attempt), keys, .. }) =
                    self.entries.get_mut(&id)
                    && keys.has_company()
                {
                    attempt.is_not_first_contact();
                }
            }
            Err(failure) => {
                for wanted in wanted {
                    ctx.done(wanted.request, Err(failure.clone()));
                    ctx.effects.push_back(Effect::Ended(Box::new(Ended {
                        connection: name.clone(),
                        child: wanted.child.map(|child| child.name.clone()),
                        end: End::Unable,
                        reason: failure.clone(),
                        was_up: false,
                        ends,
                        held: Vec::new(),
                    })));
                }
            }
        }
    }

    /// The virtual IPs that this end has on `ike`.
    fn own_virtual_ips(&self, ike: IkeSaId) -> Vec<IpAddr> {
        let assignment = self.entries.get(&ike).and_then(|slot| slot.status().assignment);
        let own = assignment.filter(|assignment| assignment.ours);
        own.map(|assignment| assignment.addresses.clone()).unwrap_or_default()
    }

    /// Handles an attempt that ended without an SA: tries again as `keyingtries` says, or reports the failure.
    pub(super) fn on_attempt_failed(&mut self, now: Now, mut attempt: Attempt, reason: Failure) {
        let tries = attempt.tries + 1;
        let connection = Arc::clone(&attempt.connection);
        let (path, replaces, id) = (attempt.path, attempt.replaces, attempt.id);
        let wanted = attempt.wanted.clone();
        let (switch, origin) = (attempt.switch, attempt.origin);
        let (redirected, stranded, begun) = (attempt.redirected, attempt.stranded, attempt.begun());
        // After a failure with a ticket the attempt is made without it, unless it is not wanted any more.
        let failed = attempt.is_resuming() && reason != Failure::Terminated;
        let switch = switch.or_else(|| {
            attempt.give_up_ticket();
            failed.then_some(Switch::Anew)
        });
        let carried = attempt.ticket.take();
        attempt.dispose(&mut self.context(now, Some(id)), &reason);
        let again = |path, origin, tries, redirected, ticket| NewAttempt {
            connection: Arc::clone(&connection),
            path,
            origin,
            wanted: wanted.clone(),
            replaces,
            tries,
            initial_contact: replaces.is_none(),
            redirected,
            ticket,
        };
        let alive = !self.shutdown.has_begun();
        if let Some(switch) = switch.filter(|_| alive)
            && let Some((path, origin)) = self.switched(&connection, path, switch)
        {
            if !matches!(switch, Switch::Redirect(_) | Switch::Anew) {
                let connection = connection.name.clone();
                self.out.push_back(Output::Event(Event::TransportChanged { connection, path }));
            }
            return self.begin(now, again(path, origin, tries - 1, redirected, carried));
        }
        self.learn(now, path, origin, false);
        if reason != Failure::Terminated && !(stranded || self.goes_on(&connection, &reason, tries))
        {
            if let Some(carried) = carried {
                self.put_back(now, id, carried);
            }
            return self.on_series_failed(now, id, (&connection, path), wanted, &reason, replaces);
        }
        if stranded || reason != Failure::Terminated {
            let tries = if stranded { tries - 1 } else { tries };
            let ticket = Self::presented_again(carried);
            // It begins again at the gateway that redirected it first.
            let redirected = redirected.map(Redirected::back);
            let mut new = again(path, origin, tries, redirected, ticket);
            if connection.keyingtries == 0 && !stranded {
                // Waiting commands get the first failure. The series continues.
                let waiting = new.wanted.iter_mut().filter_map(|wanted| wanted.request.take());
                let waiting: Vec<_> = waiting.collect();
                self.tell_failed(id, &connection, &reason);
                for request in waiting {
                    self.done(request, Err(reason.clone()));
                }
            }
            if stranded {
                // No attempt has failed from where this host is now. If it has no address left, the next one may be a
                // moment away, and to look for a route now would only spend a try.
                let left = self.network.addresses.iter().any(|ip| !ip.is_loopback());
                let wait = if left { Duration::ZERO } else { self.back_off(1) };
                return self.attempt_at(now, (now.mono, now.mono + wait), new, &reason);
            }
            return self.attempt_again(now, begun, new, &reason);
        }
        self.tell_failed(id, &connection, &reason);
        for request in wanted.into_iter().filter_map(|wanted| wanted.request) {
            self.done(request, Err(reason.clone()));
        }
    }

    /// True if a failed attempt is made again as a whole.
    fn goes_on(&self, connection: &ConnectionConfig, reason: &Failure, tries: u32) -> bool {
        let wishes = Wishes::of(connection, None, false, tries);
        !self.shutdown.has_begun() && after(End::of_attempt(reason), wishes).starts()
    }

    fn tell_failed(&mut self, ike: IkeSaId, connection: &ConnectionConfig, reason: &Failure) {
        let (connection, reason) = (connection.name.clone(), reason.clone());
        let event = Event::IkeDown { ike, connection, established: false, reason };
        self.out.push_back(Output::Event(event));
    }

    /// Handles the end of a series of attempts. What follows is decided for each of its children.
    fn on_series_failed(
        &mut self,
        now: Now,
        id: IkeSaId,
        (connection, path): (&ConnectionConfig, Path),
        wanted: Vec<Wanted>,
        reason: &Failure,
        replaces: Option<IkeSaId>,
    ) {
        self.tell_failed(id, connection, reason);
        self.end_series(now, (connection, path), wanted, reason, replaces);
    }

    /// Ends a series as [`on_series_failed`](Self::on_series_failed) does. Its last attempt may not even have begun.
    pub(super) fn end_series(
        &mut self,
        now: Now,
        (connection, path): (&ConnectionConfig, Path),
        wanted: Vec<Wanted>,
        reason: &Failure,
        replaces: Option<IkeSaId>,
    ) {
        // A series that was to replace an IKE SA ends nothing. If that IKE SA has ended meanwhile, the series ends
        // as the SA did.
        let (end, was_up) = match replaces {
            Some(_) if *reason != Failure::Replaced => (End::Lifetime, true),
            _ => (End::of_attempt(reason), false),
        };
        for wanted in wanted {
            if let Some(request) = wanted.request {
                self.done(request, Err(reason.clone()));
            }
            self.effects.push_back(Effect::Ended(Box::new(Ended {
                connection: connection.name.clone(),
                child: wanted.child.map(|child| child.name.clone()),
                end,
                reason: reason.clone(),
                was_up,
                ends: (path.local.ip(), path.remote.ip()),
                held: Vec::new(),
            })));
        }
        if let Some(old) = replaces.filter(|_| *reason != Failure::Replaced) {
            // There may be time for another attempt before the IKE SA ends.
            let careful = may_lock_account(connection, reason);
            let wait = if careful { FIRST_CAREFUL_WAIT } else { Duration::ZERO };
            self.with_sa(now, old, |sa, ctx| {
                sa.when_established(|established, _| established.rearm_reauth(ctx, wait));
            });
        }
    }

    /// Starts the SA that replaces `ike` (make before break, RFC 7296 §2.8.3).
    pub(super) fn reauthenticate(
        &mut self,
        now: Now,
        ike: IkeSaId,
        request: Option<RequestId>,
    ) -> Result<(), Failure> {
        if self.joins_reauthentication(ike, request) {
            return Ok(());
        }
        let new = self.replacement_of(ike, request).ok_or(Failure::NotFound)?;
        let entry = self.entries.get(&ike).map(|slot| &slot.entry);
        match matches!(entry, Some(Entry::Sa(sa)) if self.is_stranded(sa)) {
            // Nothing leaves from the address of the old SA.
            true => self.begin_elsewhere(now, new),
            false => self.begin(now, new),
        }
        Ok(())
    }

    /// True if `ike` is being reauthenticated already. `request` is answered when that has ended. A second attempt
    /// would make a second IKE SA.
    fn joins_reauthentication(&mut self, ike: IkeSaId, request: Option<RequestId>) -> bool {
        let wanted = Wanted { child: None, request, packet: None };
        for id in self.index.replacing(ike) {
            let entry = self.entries.get_mut(&id).map(|slot| &mut slot.entry);
            if let Some(Entry::Attempt(attempt)) = entry {
                if wanted.request.is_some() {
                    attempt.add(wanted);
                }
                return true;
            }
        }
        self.wants.add_to_parked(ike, wanted.request.is_some().then_some(wanted))
            || self.is_reauthenticated(ike, request)
    }

    /// The attempt that would replace `ike`, with all its children.
    pub(super) fn replacement_of(
        &self,
        ike: IkeSaId,
        request: Option<RequestId>,
    ) -> Option<NewAttempt> {
        let Some(Slot { entry: Entry::Sa(sa), .. }) = self.entries.get(&ike) else { return None };
        let established = sa.established()?;
        if !sa.carries(Sought::Sa) {
            // It is about to end: its timer may run out while the Delete waits for an answer to another request.
            return None;
        }
        let mut wanted: Vec<Wanted> = established
            .children
            .iter()
            .filter(|child| child.carries() && established.children.stands_for_all(child))
            .map(|child| Wanted::of(Arc::clone(&child.config)))
            .collect();
        // Two for the same traffic are made one, unless an operator has asked for both.
        let mut seen = BTreeSet::new();
        wanted.retain(|wanted| {
            let name = wanted.child.as_ref().map(|child| child.name.clone());
            let several = name
                .as_deref()
                .is_some_and(|name| self.wants.has_several(&sa.channel.connection().name, name));
            seen.insert(name) || several
        });
        match wanted.first_mut() {
            Some(first) => first.request = request,
            None => wanted.push(Wanted { child: None, request, packet: None }),
        }
        let connection = Arc::clone(sa.channel.connection());
        let path = self.path_to(
            &connection,
            sa.channel.route().path().local.ip(),
            sa.channel.route().path().remote.ip(),
        );
        let origin = Self::origin_of(&connection, path);
        Some(NewAttempt {
            connection,
            path,
            origin,
            wanted,
            replaces: Some(ike),
            tries: 0,
            initial_contact: false,
            redirected: None,
            ticket: None,
        })
    }

    fn on_terminate(&mut self, now: Now, request: RequestId, ike: IkeSaId) {
        self.unwant_of(ike);
        if matches!(self.entries.get(&ike), Some(Slot { entry: Entry::Attempt(_), .. })) {
            self.cancel(now, ike);
            return self.done(request, Ok(()));
        }
        for old in self.end_with(now, ike) {
            self.unwant_of(old);
            self.void_tickets_of(now, old);
            let task = Task::DeleteIke { reason: Failure::Terminated, request: None };
            self.with_sa(now, old, |sa, _| sa.push_first(task));
        }
        self.void_tickets_of(now, ike);
        let task = Task::DeleteIke { reason: Failure::Terminated, request: Some(request) };
        self.ike_task(now, request, ike, task);
    }

    /// A peer that does not answer the Delete of `ike` must not come back with a ticket meanwhile.
    fn void_tickets_of(&mut self, now: Now, ike: IkeSaId) {
        if let Some(Slot { entry: Entry::Sa(sa), .. }) = self.entries.get(&ike) {
            let void = TicketChange::Void(sa.peer.spis_of_tickets(&sa.channel));
            self.on_ticket(now, ike, void);
        }
    }

    /// Sends a Delete if the window has room for it. Does not wait for the answer.
    fn on_forget(&mut self, now: Now, request: RequestId, ike: IkeSaId, reason: &Failure) {
        for old in self.end_with(now, ike) {
            self.forget(now, old, reason);
        }
        let mut known = false;
        // A rekey may have given it a successor since it was listed.
        for ike in self.line_from(ike) {
            known |= self.forget(now, ike, reason);
        }
        self.done(request, if known { Ok(()) } else { Err(Failure::NotFound) });
    }

    /// False if there is no such IKE SA.
    fn forget(&mut self, now: Now, ike: IkeSaId, reason: &Failure) -> bool {
        if *reason == Failure::Terminated {
            self.unwant_of(ike);
        }
        let Some(slot) = self.entries.get(&ike) else { return false };
        let (established, crossed) = match &slot.entry {
            Entry::Sa(sa) => (matches!(sa.state, State::Established(_)), sa.crossed_rekey()),
            Entry::Attempt(_) | Entry::Parked(_) => (false, None),
        };
        if let Some(theirs) = crossed {
            // It would go on without children, and the peer moves its own ones there.
            self.forget(now, theirs, reason);
        }
        if established {
            let task = Task::DeleteIke { reason: reason.clone(), request: None };
            self.with_sa(now, ike, |sa, _| sa.push_first(task));
            self.with_sa(now, ike, |sa, ctx| sa.close(ctx, reason.clone()));
        } else {
            self.cancel(now, ike);
        }
        true
    }

    /// Ends an attempt or a half-open SA without a message to the peer.
    fn cancel(&mut self, now: Now, id: IkeSaId) {
        let entry = self.entries.get(&id).map(|slot| &slot.entry);
        if matches!(entry, Some(Entry::Attempt(_) | Entry::Parked(_))) {
            self.remove(now, id, Failure::Terminated);
        } else {
            self.with_sa(now, id, |sa, ctx| sa.close(ctx, Failure::Terminated));
        }
    }

    fn ike_task(&mut self, now: Now, request: RequestId, ike: IkeSaId, task: Task) {
        let established = matches!(
            self.entries.get(&ike),
            Some(Slot { entry: Entry::Sa(sa), .. }) if matches!(sa.state, State::Established(_))
        );
        if established {
            self.with_sa(now, ike, |sa, _| sa.push_first(task));
        } else {
            self.done(request, Err(Failure::NotFound));
        }
    }

    fn child_task(
        &mut self,
        now: Now,
        request: RequestId,
        child: ChildSaId,
        task: impl FnOnce(ChildSaId) -> Task,
    ) {
        match self.ids.esp.ike_of(child) {
            Some(ike) => self.ike_task(now, request, ike, task(child)),
            None => self.done(request, Err(Failure::NotFound)),
        }
    }

    /// A packet met a trap: the driver looks for the addresses and initiates. If the policy belongs to a child
    /// already, a CPU requests a child of its own (RFC 9611).
    pub(super) fn on_acquire(
        &mut self,
        now: Now,
        policy: PolicyId,
        packet: Flow,
        cpu: Option<u32>,
    ) {
        if let (Some(cpu), Some(ike)) = (cpu, self.ids.user_of(policy)) {
            return self.with_sa(now, ike, |sa, _| sa.want_cpu(policy, cpu, packet));
        }
        let Some(trap) = self.traps.iter().find(|trap| trap.policy == policy) else {
            return tracing::debug!(?policy, "packet: asks for nothing; its trap was removed");
        };
        if let Some(cpu) = cpu {
            // The packet may carry the name of a trap, because both have the same selectors.
            let shared = |id| match self.entries.get(&id).map(|slot| &slot.entry) {
                Some(Entry::Sa(sa)) => {
                    Some((id, sa.shared_policy(&trap.child.name, packet, &trap.processing)?))
                }
                _ => None,
            };
            let found = self.index.towards(&trap.connection, trap.remote).find_map(shared);
            if let Some((ike, policy)) = found {
                return self.with_sa(now, ike, |sa, _| sa.want_cpu(policy, cpu, packet));
            }
        }
        let Trap { connection, child, remote, .. } = trap;
        if !self.needs_no_child(now, connection, *remote, &child.name, packet) {
            let (connection, child) = (connection.clone(), child.name.clone());
            self.out.push_back(Output::Event(Event::Acquire { connection, child, packet }));
        }
    }

    /// True if `packet`, which has met a trap, needs no further child of this name by now: one is asked for, or one exists
    /// for it. The trap may belong to another shard, and the decision to make a child may be a while ago.
    pub(super) fn needs_no_child(
        &self,
        now: Now,
        connection: &str,
        remote: IpAddr,
        child: &str,
        packet: Flow,
    ) -> bool {
        let of_this = |trap: &&Trap| trap.connection == connection && trap.child.name == child;
        let trap = self.traps.iter().find(of_this).map(|trap| &*trap.processing);
        let makes = |id| match self.entries.get(&id).map(|slot| &slot.entry) {
            Some(Entry::Attempt(attempt)) => attempt.wants(child, packet),
            Some(Entry::Sa(sa)) => sa.serves(now, child, packet, trap),
            Some(Entry::Parked(_)) | None => false,
        };
        self.index.towards(connection, remote).any(makes)
    }

    fn reload(&mut self, now: Now, config: EndpointConfig) {
        // The shard is part of every SPI in use and cannot change.
        let config = super::usable::usable(config, &self.crypto);
        self.budget.set_limit(config.reassembly_memory);
        self.paths.mtus.reconfigure(config.fragment_size);
        self.tickets.lived(self.config.resumption.lifetime);
        self.config = EndpointConfig { shard: self.config.shard, ..config };
        (self.lookup, self.lists) = (Lookup::new(&self.config), Lists::default());
        self.tickets.reconfigure(&self.config, &self.lookup, &self.crypto);
        let gone = traps::reload(&mut self.traps, now, &self.lookup);
        for trap in &gone {
            self.ids.numbers.forget_trap(&trap.connection, &trap.child.name);
            self.tell_given_up(&trap.name());
        }
        self.remove_each(gone.into_iter().flat_map(Trap::into_removals));
        self.run_traps(now);
        self.review_wants(now);
    }

    fn on_shutdown(&mut self, now: Now, request: RequestId) {
        self.shutdown = Shutdown::Requested(request);
        self.unwant_all();
        let traps = std::mem::take(&mut self.traps);
        self.remove_each(traps.into_iter().flat_map(Trap::into_removals));
        let mut all: Vec<_> = self.entries.keys().copied().collect();
        all.sort();
        for id in all {
            let established = matches!(
                self.entries.get(&id),
                Some(Slot { entry: Entry::Sa(sa), .. })
                    if matches!(sa.state, State::Established(_))
            );
            if established {
                let task = Task::DeleteIke { reason: Failure::Terminated, request: None };
                self.with_sa(now, id, |sa, _| sa.push_first(task));
            } else {
                self.cancel(now, id);
            }
        }
    }
}
