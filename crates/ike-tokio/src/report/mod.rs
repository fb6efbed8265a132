//! The reports of drivers: SAs, counters and messages.

mod census;
mod counters;
mod trace;
mod usage;

pub(crate) use census::AT_A_TIME;
pub use census::{CHILD_STATES, Counts, IKE_STATES, ShardState, Tally};
pub use counters::{Counters, Values};
pub(crate) use counters::{kind, own_spi};
pub use trace::{Direction, Message};
pub(crate) use usage::views;
pub use usage::{ChildView, IkeView, PolicyView};
