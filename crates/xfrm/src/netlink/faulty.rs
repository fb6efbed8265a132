//! A transport that fails when told to.

use netlink_packet_xfrm::XfrmMessage;

use super::{Error, Kind, Transport, request_name};

/// When to fail. A request is named as in [`Error::request`], for instance `add state`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NetlinkFault {
    /// The `n`-th request from now is refused with this errno, once; 1 is the next one.
    Nth(u64, i32),
    /// The `n`-th request of this name from now is refused with this errno, once.
    NthOf(&'static str, u64, i32),
    /// Every request of this name is refused with this errno.
    Every(&'static str, i32),
    /// Every request is refused with this errno.
    All(i32),
    /// The kernel executes the `n`-th request from now, but the caller gets ETIMEDOUT.
    LostAck(u64),
    /// As [`Self::LostAck`], of the `n`-th request of this name.
    LostAckOf(&'static str, u64),
    /// The `n`-th dump from now gives half of the answers and then fails with EMSGSIZE.
    TruncatedDump(u64),
    /// The next `n` dumps give half of the answers and then fail with EINTR, as the kernel's
    /// NLM_F_DUMP_INTR does.
    InterruptedDumps(u64),
}

/// Passes requests on, except those it is to fail.
#[derive(Debug)]
pub struct FaultyTransport<T> {
    inner: T,
    faults: Vec<NetlinkFault>,
    requests: Vec<&'static str>,
    failed: u64,
}

/// The fate of one request.
enum Fate {
    Passes,
    Refused(i32),
    Lost,
    Cut(i32),
}

impl<T> FaultyTransport<T> {
    /// Fails nothing yet.
    pub fn new(inner: T) -> Self {
        Self { inner, faults: Vec::new(), requests: Vec::new(), failed: 0 }
    }

    /// Adds a fault to come.
    pub fn fail(&mut self, fault: NetlinkFault) {
        self.faults.push(fault);
    }

    /// Takes all faults back.
    pub fn heal(&mut self) {
        self.faults.clear();
    }

    /// Requests failed so far.
    pub fn failed(&self) -> u64 {
        self.failed
    }

    /// Names of the requests since the last call, failed ones too: a test that is to fail each of them
    /// in turn counts them first.
    pub fn take_requests(&mut self) -> Vec<&'static str> {
        std::mem::take(&mut self.requests)
    }

    /// The wrapped transport.
    pub fn inner_mut(&mut self) -> &mut T {
        &mut self.inner
    }

    fn fate(&mut self, name: &'static str, dump: bool) -> Fate {
        self.requests.push(name);
        let mut fate = Fate::Passes;
        self.faults.retain_mut(|fault| {
            let (hit, keep) = match fault {
                NetlinkFault::Nth(n, errno) => due(n, Fate::Refused(*errno)),
                NetlinkFault::NthOf(of, n, errno) if *of == name => due(n, Fate::Refused(*errno)),
                NetlinkFault::Every(of, errno) if *of == name => {
                    (Some(Fate::Refused(*errno)), true)
                }
                NetlinkFault::All(errno) => (Some(Fate::Refused(*errno)), true),
                NetlinkFault::LostAck(n) => due(n, Fate::Lost),
                NetlinkFault::LostAckOf(of, n) if *of == name => due(n, Fate::Lost),
                NetlinkFault::TruncatedDump(n) if dump => due(n, Fate::Cut(libc::EMSGSIZE)),
                NetlinkFault::InterruptedDumps(n) if dump => {
                    *n = n.saturating_sub(1);
                    (Some(Fate::Cut(libc::EINTR)), *n != 0)
                }
                _ => (None, true),
            };
            if let Some(hit) = hit {
                fate = hit;
            }
            keep
        });
        self.failed += u64::from(!matches!(fate, Fate::Passes));
        fate
    }
}

/// Counts `n` down. Returns the fate if it is due, and whether to keep the fault.
fn due(n: &mut u64, fate: Fate) -> (Option<Fate>, bool) {
    *n = n.saturating_sub(1);
    if *n == 0 { (Some(fate), false) } else { (None, true) }
}

fn injected(request: &'static str, errno: i32) -> Error {
    Error { request, errno, message: Some("injected fault".into()) }
}

impl<T: Transport> Transport for FaultyTransport<T> {
    fn request(&mut self, message: XfrmMessage, kind: Kind) -> Result<Vec<XfrmMessage>, Error> {
        let name = request_name(&message);
        match self.fate(name, kind == Kind::Dump) {
            Fate::Passes => self.inner.request(message, kind),
            Fate::Refused(errno) => Err(injected(name, errno)),
            Fate::Lost => {
                self.inner.request(message, kind)?.iter_mut().for_each(super::wipe::message);
                Err(injected(name, libc::ETIMEDOUT))
            }
            Fate::Cut(errno) => {
                self.inner.request(message, kind)?.iter_mut().for_each(super::wipe::message);
                Err(injected(name, errno))
            }
        }
    }

    fn dump(
        &mut self,
        message: XfrmMessage,
        each: &mut dyn FnMut(XfrmMessage),
    ) -> Result<(), Error> {
        let name = request_name(&message);
        match self.fate(name, true) {
            Fate::Passes => self.inner.dump(message, each),
            Fate::Refused(errno) => Err(injected(name, errno)),
            Fate::Lost => {
                self.inner.dump(message, &mut |mut answer| super::wipe::message(&mut answer))?;
                Err(injected(name, libc::ETIMEDOUT))
            }
            Fate::Cut(errno) => {
                let answers = self.inner.request(message, Kind::Dump)?;
                let half = answers.len() / 2;
                for (at, mut answer) in answers.into_iter().enumerate() {
                    if at < half {
                        each(answer);
                    } else {
                        super::wipe::message(&mut answer);
                    }
                }
                Err(injected(name, errno))
            }
        }
    }
}
