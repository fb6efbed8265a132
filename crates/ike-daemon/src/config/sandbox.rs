//! `[charon.sandbox]`: the privileges that the daemon drops once it has started. The section is this project's own.

use super::charon::set;
use super::diagnostic::Report;
use super::section::Section;

/// The privileges that the daemon drops at its start and cannot regain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SandboxOptions {
    /// The file has the section: each step must succeed. Without it the daemon drops what the configuration
    /// does not need, and a step that this kernel lacks is a warning.
    pub demanded: bool,
    /// `capabilities`: keep only those that sockets and data planes need.
    pub capabilities: bool,
    /// `landlock`: open only files of the system and of the configuration.
    pub landlock: bool,
    /// `seccomp`: refuse system calls that this program never makes.
    pub seccomp: bool,
    /// `programs`: other programs may be started. `None` allows them if the configuration names one.
    pub programs: Option<bool>,
}

impl Default for SandboxOptions {
    fn default() -> Self {
        Self { demanded: false, capabilities: true, landlock: true, seccomp: true, programs: None }
    }
}

/// Reads the section from `[charon]`. Without one, the defaults hold.
pub(crate) fn read(charon: &mut Section<'_>, report: &mut Report<'_>) -> SandboxOptions {
    let mut options = SandboxOptions::default();
    let Some(mut section) = charon.section("sandbox", report) else { return options };
    options.demanded = true;
    set(&mut options.capabilities, section.switch("capabilities", report));
    set(&mut options.landlock, section.switch("landlock", report));
    set(&mut options.seccomp, section.switch("seccomp", report));
    options.programs = section.switch("programs", report);
    section.finish(&[], report);
    options
}
