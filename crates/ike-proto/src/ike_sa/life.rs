//! How an IKE SA is renewed in time, and how often the peer has not let it.

use std::time::Instant;

/// This end gives up at this sum of consecutive chains that the peer has forgotten: three chains that were
/// continued in time, or a dozen if losses on the path explain it.
const MAX_FORGOTTEN: u8 = 12;
/// The weight of a forgotten chain that was continued in time.
const IN_TIME: u8 = 4;

/// The renewal of an IKE SA.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Life {
    /// When the first soft limit for a rekey or a reauthentication was reached.
    soft_at: Option<Instant>,
    /// This end is reauthenticating because of a soft limit.
    renewing: bool,
    /// How often in a row the peer had forgotten a chain of key exchanges when it was to continue (RFC 9370
    /// §2.2.4), weighted.
    forgotten: u8,
}

impl Life {
    /// That of the SA which replaces this one by a rekey.
    pub(crate) fn rekeyed(&self) -> Self {
        let soft_at = self.soft_at.filter(|_| self.renewing);
        Self { soft_at, renewing: self.renewing, forgotten: 0 }
    }

    /// Records that a soft limit is reached.
    pub(crate) fn note_soft(&mut self, now: Instant) {
        self.soft_at.get_or_insert(now);
    }

    /// When the first soft limit was reached.
    pub(crate) fn soft_at(&self) -> Option<Instant> {
        self.soft_at
    }

    /// Records that this end reauthenticates because of a soft limit.
    pub(crate) fn note_renewing(&mut self) {
        self.renewing = true;
    }

    /// True while this end reauthenticates because of a soft limit.
    pub(crate) fn renews(&self) -> bool {
        self.renewing
    }

    /// Records that the reauthentication has failed. True if there was one because of a soft limit.
    pub(crate) fn end_renewal(&mut self) -> bool {
        std::mem::take(&mut self.renewing)
    }

    /// Counts that the peer has forgotten a chain. `late` if the time that passed explains it. True if it has
    /// forgotten too many in a row.
    pub(crate) fn note_forgotten(&mut self, late: bool) -> bool {
        self.forgotten = self.forgotten.saturating_add(if late { 1 } else { IN_TIME });
        self.forgotten >= MAX_FORGOTTEN
    }

    /// Records that the peer has not forgotten a chain.
    pub(crate) fn note_kept(&mut self) {
        self.forgotten = 0;
    }
}
