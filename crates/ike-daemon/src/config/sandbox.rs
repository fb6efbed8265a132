//! `[charon.sandbox]`: what the daemon gives up once it has started, this project's own.

use super::charon::set;
use super::diagnostic::Report;
use super::section::Section;

/// What is given up at the start, and cannot be had again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SandboxOptions {
    /// `capabilities`: all but those that sockets and data planes need.
    pub capabilities: bool,
    /// `landlock`: files but those of the system and the configuration, where the kernel has Landlock.
    pub landlock: bool,
    /// `seccomp`: system calls that this program never makes.
    pub seccomp: bool,
    /// `programs`: other programs may be started.
    pub programs: bool,
}

impl Default for SandboxOptions {
    fn default() -> Self {
        Self { capabilities: true, landlock: true, seccomp: true, programs: false }
    }
}

/// Reads it from `[charon]`, if there is the section.
pub(crate) fn read(charon: &mut Section<'_>, report: &mut Report<'_>) -> Option<SandboxOptions> {
    let mut section = charon.section("sandbox", report)?;
    let mut options = SandboxOptions::default();
    set(&mut options.capabilities, section.switch("capabilities", report));
    set(&mut options.landlock, section.switch("landlock", report));
    set(&mut options.seccomp, section.switch("seccomp", report));
    set(&mut options.programs, section.switch("programs", report));
    section.finish(&[], report);
    Some(options)
}
