//! Manual pages and completions, from the command line's own definition and from `ike_config::options`, which describes
//! every option of the configuration file. A test compares it with the keys that the file's reader knows.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};

use crate::cli::Cli;

/// What stands at the bottom of each page.
const SOURCE: &str = concat!("ike-daemon ", env!("CARGO_PKG_VERSION"));
const MANUAL: &str = "System Administration";

/// The page of the whole command line, and of the configuration file, as roff.
pub fn page(configuration: bool, out: &mut dyn Write) -> io::Result<()> {
    if configuration { options_page().to_writer(out) } else { command(Cli::command()).render(out) }
}

/// Writes all pages to `folder`, gzip is left to whoever packages them: `ike-daemon.8`, one page for each
/// subcommand, and `ike-daemon.toml.5`.
pub fn write_to(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let mut cli = Cli::command().disable_help_subcommand(true);
    cli.build();
    pages(cli, folder)?;
    let mut file = fs::File::create(folder.join("ike-daemon.toml.5"))?;
    options_page().to_writer(&mut file)
}

fn pages(command: clap::Command, folder: &Path) -> io::Result<()> {
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        pages(sub.clone(), folder)?;
    }
    let man = self::command(command);
    let mut file = fs::File::create(folder.join(man.get_filename()))?;
    man.render(&mut file)
}

fn command(command: clap::Command) -> Man {
    Man::new(command).section("8").source(SOURCE).manual(MANUAL)
}

/// Completions for `shell`.
pub fn completions(shell: Shell, out: &mut dyn Write) {
    clap_complete::generate(shell, &mut Cli::command(), "ike-daemon", out);
}

/// ike-daemon.toml(5).
fn options_page() -> Roff {
    let mut page = Roff::new();
    page.control("TH", ["ike-daemon.toml", "5", "", SOURCE, MANUAL]);
    let text = |page: &mut Roff, line: &str| _ = page.text([roman(line)]);
    page.control("SH", ["NAME"]);
    text(&mut page, "ike-daemon.toml - configuration of the IKEv2 daemon");
    page.control("SH", ["DESCRIPTION"]);
    text(
        &mut page,
        "TOML, in the words of swanctl.conf(5) and strongswan.conf(5). Times are 30, 30s, 5m, 4h or 1d, \
         switches true, false, \"yes\" or \"no\", lists arrays of strings or one string with commas. \
         <conn>, <child> and <name> stand for names of your choice, <suffix> for anything or nothing. \
         An option that is not known is an error. Relative files begin beside the configuration file.",
    );
    for section in ike_config::options() {
        page.control("SH", [format!("[{}]", section.path).as_str()]);
        text(&mut page, section.about);
        for option in section.options {
            page.control("TP", []);
            let mut term: Vec<Inline> = vec![bold(option.key)];
            if let Some(default) = option.default {
                term.extend([roman(" = "), italic(default)]);
            }
            page.text(term);
            text(&mut page, option.about);
        }
    }
    page.control("SH", ["SEE ALSO"]);
    page.text([bold("ike-daemon"), roman("(8), "), bold("swanctl.conf"), roman("(5)")]);
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subcommand_has_a_page_and_every_option_is_in_one() {
        let folder = std::env::temp_dir().join(format!("ike-daemon-man-{}", std::process::id()));
        write_to(&folder).unwrap();
        for command in Cli::command().get_subcommands().filter(|command| !command.is_hide_set()) {
            let page = folder.join(format!("ike-daemon-{}.8", command.get_name()));
            assert!(page.is_file(), "{page:?}");
        }
        let page = fs::read_to_string(folder.join("ike-daemon.toml.5")).unwrap();
        assert!(page.contains("half_open_timeout") && page.contains("[charon.metrics]"));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn shells_complete_the_subcommands() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut text = Vec::new();
            completions(shell, &mut text);
            let text = String::from_utf8(text).unwrap();
            assert!(text.contains("offload") && text.contains("log-format"), "{shell}");
        }
    }
}
