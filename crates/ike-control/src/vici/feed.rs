//! `log`: every line of the daemon's log, to clients that want it.

use std::sync::Arc;

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use vici::Section;

use super::session::{LOG, Outlet};
use crate::log::Line;

/// Sends a client the lines until it is gone.
pub(super) async fn run(mut lines: broadcast::Receiver<Arc<Line>>, outlet: Outlet) {
    loop {
        let section = match lines.recv().await {
            Ok(line) => section(&line),
            Err(RecvError::Lagged(missed)) => section(&Line {
                group: "DMN",
                message: format!("{missed} lines of the log came too fast for this client"),
                ..Line::default()
            }),
            Err(RecvError::Closed) => return,
        };
        if outlet.event(LOG, section).await.is_err() {
            return;
        }
    }
}

/// A line as clients get it.
fn section(line: &Line) -> Section {
    let mut section = Section::new()
        .text("group", line.group)
        .text("level", line.level.to_string())
        .text("thread", line.thread.to_string());
    if let Some(name) = &line.ike_name {
        section = section.text("ikesa-name", name);
    }
    if let Some(id) = line.ike_id {
        // The documentation has the first, strongSwan sends the second.
        section = section.text("ikesa-uniqueid", id.to_string());
    }
    section.text("msg", format!("{}{}", line.message, line.rest))
}
