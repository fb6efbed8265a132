//! SAs and pools as control clients get them: as JSON, and as text for people.

mod leases;
mod sas;
mod text;
mod waiting;

pub use leases::{Lease, Pool, render_pools};
pub use sas::{Algorithms, Auth, ChildSa, IkeSa};
pub use text::{render, suite};
pub use waiting::{
    TakenDown, Waiting, render_taken_down, render_waiting, render_without_second_line,
};
