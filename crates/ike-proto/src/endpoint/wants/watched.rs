//! What says that it has changed.

use std::ops::{Deref, DerefMut};

/// A value that knows whether somebody may have changed it.
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
