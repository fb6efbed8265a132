//! Features of dependencies, and no code: what tests of the whole workspace turn on, for tests of one package.
//!
//! Cargo gives a dependency the features that all chosen packages want. With `-p` these would be fewer, and the
//! dependency, and all above it, would be compiled once more. As a test dependency of each package this one makes
//! them equal. It is in no program, and not in what is published.
