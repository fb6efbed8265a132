//! The exit status of the program.

/// How the process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// The command succeeded.
    Done = 0,
    /// The command failed; the reason is on standard error.
    Failed = 1,
    /// The command line is wrong (clap's own status).
    Usage = 2,
    /// The configuration file has mistakes.
    Config = 3,
    /// No daemon answers at the control socket.
    Unreachable = 4,
    /// No outcome within the time given.
    TimedOut = 5,
    /// A reload: the configuration is in force but for what the answer names.
    Partly = 6,
}
