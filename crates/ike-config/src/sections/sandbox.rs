//! `[charon.sandbox]`: the privileges that the daemon drops once it has started. The section is this project's own.

use super::charon::set;
use crate::diagnostic::Report;
use crate::settings::SandboxOptions;
use crate::tree::Section;

/// Reads the section from `[charon]`. Without one, the defaults hold.
pub(crate) fn read(charon: &mut Section<'_>, report: &mut Report) -> SandboxOptions {
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
