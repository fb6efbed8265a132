//! Why this process has no second line.

use std::sync::{Mutex, PoisonError};

static REASON: Mutex<Option<String>> = Mutex::new(None);

/// Why this process has no second line. `None` if it has one, or has not tried to make one.
pub fn missing() -> Option<String> {
    REASON.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Takes down why there is none, or that there is one.
pub(crate) fn set(reason: Option<String>) {
    *REASON.lock().unwrap_or_else(PoisonError::into_inner) = reason;
}
