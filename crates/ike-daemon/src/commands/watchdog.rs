//! The watchdog of systemd (`WatchdogSec=`): it is told that all is well only after every shard has had its
//! turn and the data plane has answered. Where any of them hangs, systemd starts the daemon again.

use std::time::Duration;

use ike_control::Operator;
use ike_tokio::Tally;

use crate::service::notify;

/// The status line is made anew so often, at the most.
const STATUS: Duration = Duration::from_secs(30);

/// Watches over the daemon behind `operator` as long as it is polled.
pub(crate) async fn watch(operator: Operator) {
    match sd_notify::watchdog_enabled() {
        Some(limit) => {
            tracing::info!(seconds = limit.as_secs_f64(), "systemd watches over this daemon");
            tokio::join!(pulses(&operator, limit), status(&operator));
        }
        None => status(&operator).await,
    }
}

/// Tells systemd twice within `limit`, unless something hangs.
async fn pulses(operator: &Operator, limit: Duration) {
    loop {
        match tokio::time::timeout(limit, operator.handle().pulse()).await {
            Ok(Ok(())) => notify::alive(),
            Ok(Err(_)) => return,
            Err(_) => tracing::error!("a shard or the data plane has not answered in time"),
        }
        tokio::time::sleep(limit / 2).await;
    }
}

/// Shows in `systemctl status` how many SAs are up.
async fn status(operator: &Operator) {
    if std::env::var_os("NOTIFY_SOCKET").is_none() {
        return;
    }
    let mut last = None;
    loop {
        tokio::time::sleep(STATUS).await;
        let Ok((tally, _)) = operator.handle().census().await else { return };
        let now = tally.established();
        if last.replace(now) != Some(now) {
            tell(&tally);
        }
    }
}

fn tell(tally: &Tally) {
    let (ike, children) = tally.established();
    notify::status(format_args!("{ike} IKE SAs established, {children} Child SAs installed"));
}
