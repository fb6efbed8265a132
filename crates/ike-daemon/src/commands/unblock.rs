//! `unblock`: removes what a daemon that has ended has left on the host.

use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::exit::Status;
use crate::{log, plane};

/// Removes it, unless a daemon answers at `control`: that one would put it back.
pub(super) fn unblock(control: &Path) -> Status {
    if answers(control) {
        eprintln!(
            "{}: a daemon runs, and its blocks are its own: `ike-daemon down` lifts those of a child",
            control.display()
        );
        return Status::Failed;
    }
    match plane::remove_all() {
        Ok(removal) => {
            match removal.removed {
                0 if removal.errors.is_empty() => println!("nothing to remove"),
                removed => println!(
                    "{removed} removed: rules, routes, XFRM policies and states, tables of nf_tables"
                ),
            }
            removal.errors.iter().for_each(|error| eprintln!("{error}"));
            if removal.errors.is_empty() { Status::Done } else { Status::Failed }
        }
        Err(error) => {
            eprintln!("{error}");
            Status::Failed
        }
    }
}

/// Says on standard error what an operator has to know where no daemon runs at `control`, if earlier runs have left
/// something that may block traffic. Who may not see what they have left is told nothing.
pub(super) fn hint(control: &Path) {
    if answers(control) {
        return;
    }
    if let Ok(left @ 1..) = plane::count_left() {
        log::say(format_args!(
            "{left} routes, XFRM policies and tables of nf_tables of an earlier run block traffic: a daemon that starts \
             replaces them, and `ike-daemon unblock` removes them"
        ));
    }
}

fn answers(control: &Path) -> bool {
    UnixStream::connect(control).is_ok()
}
