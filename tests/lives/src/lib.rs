//! What runs in release builds: simulated lives by the thousand, and programs that count and measure what the engine
//! does.
//!
//! They are not part of `ike-tests`, whose tests have dependencies and features that the daemon has not. With these,
//! a release build would compile the engine a second time.
