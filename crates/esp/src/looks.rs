//! Counts looks at SAs, for tests that tables are not walked.

use std::cell::Cell;

thread_local! {
    static LOOKS: Cell<usize> = const { Cell::new(0) };
}

/// An SA, or an entry of an index of SAs, is looked at.
pub(crate) fn note() {
    LOOKS.set(LOOKS.get() + 1);
}

/// The looks that `f` takes.
pub(crate) fn of<T>(f: impl FnOnce() -> T) -> (T, usize) {
    let before = LOOKS.get();
    let result = f();
    (result, LOOKS.get() - before)
}
