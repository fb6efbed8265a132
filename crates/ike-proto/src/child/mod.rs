//! Child SAs.

pub mod selectors;
