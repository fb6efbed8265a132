//! The acknowledgements of one message upon which this end has acted.

/// The maximum number. Further losses are left to the timers.
const MOST: usize = 128;

/// Digests of the acknowledgements. Each counts once, because an attacker may replay it.
#[derive(Debug, Default)]
pub(crate) struct Taken(Vec<u64>);

impl Taken {
    /// Records the acknowledgement with this digest. False if it came before, or exceeds the maximum.
    pub(crate) fn take(&mut self, digest: u64) -> bool {
        let fresh = self.0.len() < MOST && !self.0.contains(&digest);
        if fresh {
            self.0.push(digest);
        }
        fresh
    }

    /// Begins with another message.
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
