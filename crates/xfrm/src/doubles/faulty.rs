//! A data plane that fails when told to.

use ipsec_types::dataplane::{Capabilities, Command, DataPlane, DataPlaneError, Event, Reply};

use crate::summary::CommandKind;

/// When to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The `n`-th command from now, once; 1 is the next one.
    Nth(u64),
    /// Every command of this kind.
    Every(CommandKind),
    /// The `n`-th command of this kind from now, once.
    NthOf(CommandKind, u64),
    /// Every command.
    All,
    /// The `n`-th command from now is applied, and reported as failed: an answer that got lost.
    LostAnswer(u64),
}

/// Fails commands as told, before the wrapped plane sees them.
#[derive(Debug)]
pub struct Faulty<D> {
    inner: D,
    faults: Vec<Fault>,
    failed: u64,
}

impl<D> Faulty<D> {
    /// Fails nothing yet.
    pub fn new(inner: D) -> Self {
        Self { inner, faults: Vec::new(), failed: 0 }
    }

    /// Adds a fault to come.
    pub fn fail(&mut self, fault: Fault) {
        self.faults.push(fault);
    }

    /// Takes all faults back.
    pub fn heal(&mut self) {
        self.faults.clear();
    }

    /// Commands failed so far.
    pub fn failed(&self) -> u64 {
        self.failed
    }

    /// The wrapped plane.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// The wrapped plane.
    pub fn inner_mut(&mut self) -> &mut D {
        &mut self.inner
    }

    /// Counts a command of `kind` against the faults: whether it fails, and whether it is applied.
    fn next(&mut self, kind: CommandKind) -> (bool, bool) {
        let (mut fails, mut applied) = (false, true);
        self.faults.retain_mut(|fault| {
            let (hit, lost, keep) = match fault {
                Fault::Nth(n) => due(n, false),
                Fault::LostAnswer(n) => due(n, true),
                Fault::NthOf(of, n) if *of == kind => due(n, false),
                Fault::NthOf(..) => (false, false, true),
                Fault::Every(of) => (*of == kind, false, true),
                Fault::All => (true, false, true),
            };
            fails |= hit;
            applied &= !hit || lost;
            keep
        });
        (fails, applied)
    }
}

/// Counts down `n`: whether it is due, whether only the answer is lost, whether to keep the fault.
fn due(n: &mut u64, lost: bool) -> (bool, bool, bool) {
    *n = n.saturating_sub(1);
    (*n == 0, lost, *n != 0)
}

impl<D: DataPlane> DataPlane for Faulty<D> {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn apply(&mut self, command: Command) -> Result<Reply, DataPlaneError> {
        let (fails, applied) = self.next(CommandKind::of(&command));
        if !fails {
            return self.inner.apply(command);
        }
        self.failed += 1;
        if applied {
            self.inner.apply(command)?;
        }
        Err(DataPlaneError("injected fault".into()))
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.inner.poll_event()
    }
}
