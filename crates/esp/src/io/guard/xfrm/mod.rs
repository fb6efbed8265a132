//! Drops packets in clear that a policy of the kernel protects, and packets that source NAT has taken out of a tunnel.
//!
//! The policies themselves keep packets from leaving in clear. This table is a second line: it holds while policies are
//! missing that another program has taken away. A packet that is in the selectors of a policy and that no SA is to transform
//! (`rt ipsec missing`) is dropped before it leaves, before the translation of its source address and after that. Traps and
//! packets that wait for an SA never come so far.
//!
//! The kernel finds the policy of a packet before it translates the source address, and looks again after that. A packet
//! whose new address no policy has would leave in clear. The first hook writes into the packet's priority that it is to go
//! through an SA, and the second one drops the packet if it has lost its SA.
//!
//! A packet that an SA has transformed comes to the hooks once more: as ESP, or with packet offload as it was, because only
//! the device transforms it. ESP, AH, IPComp and UDP pass if the priority has the note that this host has made them. The hook
//! `output`, where forwarded packets do not come, writes it. The second hook of `postrouting` notes it as well for packets that
//! come again, unless they have a class: a packet that a device transforms may not come again (Linux 6.14), and would lose its
//! class. A class of another program may have taken the place of the note later: then the first hook writes it again, if the
//! source address is one of this host. After the translation of the source address that would say nothing: a forwarded packet
//! may have got such an address. One may also claim to have it, so the hook `forward` drops such packets, or notes that they are
//! not of this host. With packet offload any class will do.
//!
//! ```text
//! table inet ike-xfrm {
//!   chain forwarded    { type filter hook forward priority 300
//!                        rt ipsec exists accept; <passes> accept; <may be outer> jump not-made-here }
//!   chain not-made-here { jump leave-clear; place == 0 or again: place = forwards }
//!   chain output       { type filter hook output priority 300; rt ipsec exists accept; <may be outer> jump made-here }
//!   chain made-here    { place == 0 or forwards: place = again }
//!   chain before-snat  { type filter hook postrouting priority srcnat - 1
//!                        rt ipsec missing, place == has-sa: place = 0
//!                        rt ipsec exists, place == again or 0: place = has-sa;  rt ipsec exists accept
//!                        oifkind vrf accept; <may be outer> jump own-source; jump leave }
//!   chain after-snat   { type filter hook postrouting priority srcnat + 1
//!                        place == has-sa jump protected; oifkind vrf accept
//!                        rt ipsec exists, no class or place == forwards: place = again;  rt ipsec exists accept
//!                        jump leave }
//!   chain restore      { type filter hook postrouting priority srcnat + 2
//!                        oifkind vrf accept; rt ipsec missing, place == again or forwards: place = 0 }
//!   chain protected    { place = 0; rt ipsec missing counter drop; oifkind vrf accept; no class: place = again; accept }
//!   chain own-source   { place == again or forwards: return; fib saddr type local: place = again; place == again return
//!                        fib saddr . oif type local: place = again }
//!   chain leave        { <passes> accept; <neighbor discovery> accept; place == again jump outer; jump leave-clear }
//!   chain outer        { meta l4proto { esp, ah, comp, udp } accept }
//!   chain leave-clear  { ip saddr & <mask> . ip daddr & <mask> @s1 counter drop; … }   # in the policies' order
//!   chain by-device    { priority & ffff0000 == forwards drop; priority & ffff0000 != 0 accept
//!                        counter drop }    # not `drop`, for policies of a device
//! }
//! ```
//!
//! `<passes>` are `oif lo`, `meta mark <ours>`, and devices of XFRM interfaces and of VTIs, which send nothing without a policy of
//! their own.
//!
//! `place` is the upper octet of the priority. To a packet to which a program has given another place nothing is noted, except
//! by `own-source`. ESP, AH, IPComp, and UDP from ports of IKE may be outer.
//!
//! A rule of `leave-clear` is for all policies with the same lengths of prefixes, the same masks and the same priority, so ten
//! thousand policies between networks of one size cost one look-up.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ipsec_types::dataplane::patience::{Patience, Verdict as Again};
use tracing::{debug, info, warn};

use super::absence;
use super::transactions::Transactions;
use crate::io::now;
use table::{Standing, Table};

pub use chains::XfrmGuardOptions;
pub use shape::{Changes, Leaving, Verdict};

mod chains;
mod content;
mod shape;
mod table;

/// How long after a failure it is tried again.
const RETRY: Duration = Duration::from_secs(10);

/// How long after that if the kernel has never taken the table, and nothing has changed.
const MINUTE: Duration = Duration::from_secs(60);

/// How often the kernel is asked whether another program has changed a table without an owner.
const LOOK: Duration = Duration::from_millis(500);

/// How many times as long as a look at the values of sets took the next one is away at least: it costs at most 1 % of a core.
const REST: u32 = 100;

/// How often this process has put its table back.
static PUT_BACK: AtomicU64 = AtomicU64::new(0);

/// How often another program has changed a table of this process, and it was put back.
pub fn put_back() -> u64 {
    PUT_BACK.load(Ordering::Relaxed)
}

/// The table. Since Linux 6.9 it stays when this value is dropped, as policies do. The transactions have a thread of their
/// own.
pub struct XfrmGuard {
    orders: mpsc::Sender<Order>,
    thread: Option<JoinHandle<()>>,
}

enum Order {
    Change(Changes),
    /// Removes the table.
    Remove(mpsc::Sender<io::Result<()>>),
}

impl XfrmGuard {
    /// Makes the table without policies. A table of an earlier run stays in its place until `options.settle` has passed.
    /// Needs CAP_NET_ADMIN, and nf_tables in the kernel. If the kernel refuses, [`missing`](super::missing) says why, and it is
    /// tried again at changes and once a minute.
    ///
    /// # Errors
    /// There is no thread.
    pub fn start(options: XfrmGuardOptions) -> io::Result<Self> {
        let mut server = Server {
            options,
            table: None,
            wanted: Changes::new(),
            due: None,
            next_look: now(),
            next_values: now(),
            failing: false,
            patience: Patience::default(),
        };
        server.make();
        let (orders, inbox) = mpsc::channel();
        let thread = thread::Builder::new().name("ike-nft".into());
        let thread = thread.spawn(move || server.serve(&inbox))?;
        Ok(Self { orders, thread: Some(thread) })
    }

    /// Follows the policies. Does not wait.
    pub fn change(&self, changes: Changes) {
        if self.orders.send(Order::Change(changes)).is_err() {
            debug!("nf_tables: the thread has ended");
        }
    }

    /// Removes the table.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn remove(mut self) -> io::Result<()> {
        let (answer, answers) = mpsc::channel();
        let ended = || io::Error::other("the thread of nf_tables has ended");
        self.orders.send(Order::Remove(answer)).map_err(|_| ended())?;
        let removed = answers.recv().map_err(|_| ended())?;
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
        removed
    }

    /// Whether an earlier run has left the table. A kernel without nf_tables has none.
    ///
    /// # Errors
    /// The kernel does not tell: this process lacks CAP_NET_ADMIN.
    pub fn is_left() -> io::Result<bool> {
        open_if_known()?.map_or(Ok(false), |mut transactions| chains::is_there(&mut transactions))
    }

    /// What the table that an earlier run has left does not let pass, with the priorities of the policies. Nothing if there is
    /// none.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub fn left() -> io::Result<Vec<(Leaving, u32)>> {
        let Some(mut transactions) = open_if_known()? else { return Ok(Vec::new()) };
        let mut all = Vec::new();
        for table in chains::there(&mut transactions)? {
            all.extend(content::blocks(&mut transactions, table)?);
        }
        Ok(all)
    }

    /// Removes the table that an earlier run has left. False if there is none.
    ///
    /// # Errors
    /// The kernel refuses: another process owns the table.
    pub fn remove_left() -> io::Result<bool> {
        let Some(mut transactions) = open_if_known()? else { return Ok(false) };
        if !chains::is_there(&mut transactions)? {
            return Ok(false);
        }
        chains::remove(&mut transactions)?;
        Ok(true)
    }
}

fn open_if_known() -> io::Result<Option<Transactions>> {
    match Transactions::open() {
        Err(error) if chains::is_unsupported(&error) => Ok(None),
        transactions => transactions.map(Some),
    }
}

impl fmt::Debug for XfrmGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("XfrmGuard").finish_non_exhaustive()
    }
}

/// What the thread has.
struct Server {
    options: XfrmGuardOptions,
    /// `None` as long as the kernel has refused it.
    table: Option<Table>,
    /// What is to be in the table once there is one.
    wanted: Changes,
    /// Nothing is changed before that.
    due: Option<Instant>,
    /// The kernel is not asked before that, and not for values of sets before that.
    next_look: Instant,
    next_values: Instant,
    /// The last try has failed.
    failing: bool,
    patience: Patience<()>,
}

impl Server {
    /// Executes orders until there are no more. What has come together is one change.
    fn serve(mut self, orders: &mpsc::Receiver<Order>) {
        loop {
            let looks = self.is_watched().then_some(self.next_look);
            let first = match self.due.or(looks) {
                Some(wake) => orders.recv_timeout(wake.saturating_duration_since(now())),
                None => orders.recv().map_err(mpsc::RecvTimeoutError::from),
            };
            let first = match first {
                Ok(order) => Some(order),
                Err(mpsc::RecvTimeoutError::Timeout) => None,
                Err(mpsc::RecvTimeoutError::Disconnected) => return,
            };
            let more = std::iter::from_fn(|| orders.try_recv().ok());
            for order in first.into_iter().chain(more) {
                match order {
                    Order::Change(changes) => self.want(changes),
                    Order::Remove(answer) => {
                        _ = answer.send(self.remove());
                        return;
                    }
                }
            }
            if self.due.is_none() && self.is_watched() && now() >= self.next_look {
                self.look();
                self.next_look = now() + LOOK;
            }
            if self.due.is_none_or(|due| now() >= due) {
                match self.table {
                    Some(_) => self.settle(),
                    None => self.make(),
                }
            }
        }
    }

    /// True if other programs can change the table.
    fn is_watched(&self) -> bool {
        self.table.as_ref().is_some_and(Table::is_watched)
    }

    fn want(&mut self, changes: Changes) {
        match &mut self.table {
            Some(table) => table.want(changes),
            None => {
                self.wanted.extend(changes);
                // An event may have loaded what the kernel lacked, but a flood of events is no flood of tries.
                let soon = self.next_look;
                self.due = self.due.map(|due| due.min(soon));
            }
        }
    }

    fn remove(&mut self) -> io::Result<()> {
        match &mut self.table {
            Some(table) => table.remove(),
            // This run has not been able to put its own table in the place of an earlier run's.
            None => XfrmGuard::remove_left().map(drop),
        }
    }

    /// Makes the table for the first time. If the kernel refuses, it is tried again later.
    fn make(&mut self) {
        match self.begin() {
            Ok(table) => {
                absence::set(None);
                if std::mem::take(&mut self.failing) {
                    info!(
                        "nf_tables: table ike-xfrm is made: there is a second line behind the XFRM policies"
                    );
                }
                self.table = Some(table);
            }
            Err(error) => {
                if !std::mem::replace(&mut self.failing, true) {
                    warn!(
                        %error,
                        "nf_tables: table ike-xfrm not made: packets leave in clear while another program has removed XFRM \
                         policies, and if source NAT takes them out of a tunnel; it is tried again once a minute; until then put \
                         an exemption in front of each source NAT rule (docs/security.md)"
                    );
                }
                absence::set(Some(format!("table ike-xfrm of nf_tables not made: {error}")));
                self.next_look = now() + RETRY;
                self.due = Some(now() + MINUTE);
            }
        }
    }

    fn begin(&mut self) -> io::Result<Table> {
        let mut table = Table::new(Transactions::open()?, self.options.clone())?;
        let left = table.is_left()?;
        if !left {
            table.settle()?;
        }
        let wanted = std::mem::take(&mut self.wanted);
        self.due = match left {
            true => Some(now() + self.options.settle),
            false => (!wanted.is_empty()).then(now),
        };
        table.want(wanted);
        Ok(table)
    }

    fn settle(&mut self) {
        let Some(table) = &mut self.table else { return self.make() };
        // The second try makes the whole table again: another program may have changed one that it can change.
        let mut settled = table.settle();
        if settled.is_err() {
            settled = table.settle();
        }
        self.due = match settled {
            Ok(()) => {
                absence::set(None);
                if std::mem::take(&mut self.failing) {
                    info!("nf_tables: table ike-xfrm is in force again");
                }
                None
            }
            Err(error) => Some(self.fail(&error)),
        };
    }

    /// Says so once. Returns when to try again.
    fn fail(&mut self, error: &io::Error) -> Instant {
        let standing = self.table.as_ref().map_or(Standing::Unknown, Table::standing);
        if !std::mem::replace(&mut self.failing, true) {
            let left = standing.after_failure();
            warn!(%error, "nf_tables: {left}; it is tried again every 10 s");
        }
        if standing == Standing::Unknown {
            absence::set(Some(format!("table ike-xfrm of nf_tables not put back: {error}")));
        }
        now() + RETRY
    }

    /// Has the table made again if another program has changed it.
    fn look(&mut self) {
        let Some(table) = &mut self.table else { return self.make() };
        let begin = now();
        let values = begin >= self.next_values;
        let changed = table.is_changed(values);
        if values {
            self.next_values = begin + begin.elapsed() * REST;
        }
        if let Ok(false) = changed {
            return;
        }
        table.distrust();
        if let Err(error) = changed {
            self.due = Some(self.fail(&error));
            return;
        }
        PUT_BACK.fetch_add(1, Ordering::Relaxed);
        match self.patience.ask((), now()) {
            Again::Now => {
                warn!(
                    "nf_tables: another program has changed or removed the table ike-xfrm; it is put back"
                );
            }
            Again::Later { due, news } => {
                self.due = Some(due);
                if news {
                    warn!(
                        "nf_tables: another program removes the table ike-xfrm all the time; it is put back every 10 s only. Find that program with `nft monitor`"
                    );
                }
            }
        }
    }
}
