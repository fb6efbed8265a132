//! The acknowledgements of one message that were acted upon.

/// As many are acted upon. What is asked for beyond is left to the timers.
const MOST: usize = 128;

/// Digests of the acknowledgements taken: each counts once, though somebody may play it back.
#[derive(Debug, Default)]
pub(crate) struct Taken(Vec<u64>);

impl Taken {
    /// Takes the acknowledgement with this digest; false if it came before, or is one too many.
    pub(crate) fn take(&mut self, digest: u64) -> bool {
        let fresh = self.0.len() < MOST && !self.0.contains(&digest);
        if fresh {
            self.0.push(digest);
        }
        fresh
    }

    /// Another message is acknowledged from now on.
    pub(crate) fn start_over(&mut self) {
        self.0 = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acknowledgement_counts_once_and_there_are_not_too_many() {
        let mut taken = Taken::default();
        assert!(taken.take(7) && !taken.take(7));
        assert_eq!((100..1100).filter(|digest| taken.take(*digest)).count(), MOST - 1);
        assert!(!taken.take(7));
        taken.start_over();
        assert!(taken.take(7));
    }
}
