//! Notifications to systemd (sd_notify(3)); none without `NOTIFY_SOCKET`.

use std::fmt::Arguments;

use sd_notify::NotifyState;

fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(%error, "systemd not told");
    }
}

/// The daemon listens and does its work.
pub(crate) fn ready(status: Arguments<'_>) {
    tell(&[NotifyState::Ready, NotifyState::Status(&status.to_string())]);
}

/// What it does, in a line.
pub(crate) fn status(status: Arguments<'_>) {
    tell(&[NotifyState::Status(&status.to_string())]);
}

/// A reload begins; it is over with the next [`ready`].
pub(crate) fn reloading() {
    let mut state = vec![NotifyState::Reloading];
    // systemd orders what it hears by this.
    state.extend(NotifyState::monotonic_usec_now().ok());
    tell(&state);
}

/// The end begins.
pub(crate) fn stopping() {
    tell(&[NotifyState::Stopping, NotifyState::Status("shutting down")]);
}

/// All is well.
pub(crate) fn alive() {
    tell(&[NotifyState::Watchdog]);
}
