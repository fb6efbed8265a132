//! Reading decisions from the octets of an input.

/// What is left of an input.
pub(crate) struct Input<'a>(pub(crate) &'a [u8]);

impl<'a> Input<'a> {
    /// The next octet; `None` at the end.
    pub(crate) fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// The next octet, 0 at the end.
    pub(crate) fn octet(&mut self) -> u8 {
        self.next().unwrap_or(0)
    }

    /// The next two octets.
    pub(crate) fn word(&mut self) -> u16 {
        u16::from_be_bytes([self.octet(), self.octet()])
    }

    /// An index below `bound`; `None` if there is no such thing.
    pub(crate) fn index(&mut self, bound: usize) -> Option<usize> {
        let choice = if bound > 256 { usize::from(self.word()) } else { usize::from(self.octet()) };
        choice.checked_rem(bound)
    }

    /// Up to `n` octets.
    pub(crate) fn take(&mut self, n: usize) -> &'a [u8] {
        let (head, rest) = self.0.split_at(n.min(self.0.len()));
        self.0 = rest;
        head
    }
}
