//! A value with a mark for changes.

use std::ops::{Deref, DerefMut};

/// A value that records whether it may have been changed.
#[derive(Default)]
pub(super) struct Watched<T> {
    value: T,
    pub(super) changed: bool,
}

impl<T> Deref for Watched<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Watched<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.changed = true;
        &mut self.value
    }
}
