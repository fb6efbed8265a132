//! The sender over links of every rate and length: nothing is sent again without need, nothing waits
//! without need, and what is given up is given up in time.

mod ladder;
mod loss;
mod pacing;
mod scene;
mod spurious;
mod stalls;
