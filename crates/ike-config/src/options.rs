//! The options of the configuration file, as `options.txt` describes them.

/// A section of the file, as a manual describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DescribedSection {
    /// Its name, with `<conn>` and the like for names that the user chooses.
    pub path: &'static str,
    /// Its purpose.
    pub about: &'static str,
    /// Its options.
    pub options: Vec<DescribedOption>,
}

/// An option, as a manual describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DescribedOption {
    /// Its name.
    pub key: &'static str,
    /// The default as it would be written; `None` where it cannot be.
    pub default: Option<&'static str>,
    /// Its effect.
    pub about: &'static str,
}

/// Every section and option that the readers know, in the order of a manual.
pub fn options() -> Vec<DescribedSection> {
    let mut sections: Vec<DescribedSection> = Vec::new();
    for line in include_str!("options.txt").lines() {
        if let Some((path, about)) = line.strip_prefix('[').and_then(|rest| rest.split_once("] ")) {
            sections.push(DescribedSection { path, about, options: Vec::new() });
            continue;
        }
        let Some(section) = sections.last_mut() else { continue };
        if let Some(about) = line.strip_prefix("    ") {
            if let Some(option) = section.options.last_mut() {
                option.about = about;
            }
        } else if !line.is_empty() {
            let (key, default) = match line.split_once(" = ") {
                Some((key, default)) => (key, Some(default)),
                None => (line, None),
            };
            section.options.push(DescribedOption { key, default, about: "" });
        }
    }
    sections
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::reading::parse;
    use crate::tree::asked;

    /// A file that has every section.
    const EVERYTHING: &str = "
        [charon.iptfs]
        [charon.plugins.bypass-lan]
        [charon.plugins.vici]
        [charon.plugins.pkcs11.modules.module]
        [charon.plugins.resolve.resolvconf]
        [charon.plugins.eap-tls]
        [charon.plugins.eap-ttls]
        [charon.plugins.eap-radius]
        address = '192.0.2.1'
        [charon.plugins.eap-radius.servers.server]
        [charon.plugins.eap-radius.dae]
        secret = 'x'
        [charon.tls]
        [charon.redirect]
        [charon.session_resumption]
        [charon.metrics]
        [charon.sandbox]
        [pools.pool]
        [connections.conn]
        local = { auth = 'psk', id = 'left' }
        remote = { auth = 'psk', id = 'right' }
        children.child = {}
        [secrets.ike]
        secret = 'a secret'
        [secrets.ppk]
        id = 'ppk'
        secret = 'another'
        [secrets.eap]
        secret = 'x'
        [secrets.token]
        [secrets.private]
        file = 'none.key'
        [authorities.name]
        cacert = 'none.pem'
    ";

    /// Sections whose keys are names alone.
    const PARENTS: [&str; 10] = [
        "",
        "charon.plugins",
        "charon.plugins.pkcs11",
        "charon.plugins.pkcs11.modules",
        "charon.plugins.eap-radius.servers",
        "pools",
        "connections",
        "connections.conn.children",
        "secrets",
        "authorities",
    ];

    /// The name in `options.txt` of what the test's file calls `path`.
    fn described(path: &str) -> String {
        match path {
            "connections.conn" => "connections.<conn>".to_owned(),
            "connections.conn.local" => "connections.<conn>.local<suffix>".to_owned(),
            "connections.conn.remote" => "connections.<conn>.remote<suffix>".to_owned(),
            "connections.conn.children.child" => "connections.<conn>.children.<child>".to_owned(),
            "authorities.name" => "authorities.<name>".to_owned(),
            "pools.pool" => "pools.<name>".to_owned(),
            "charon.plugins.pkcs11.modules.module" => {
                "charon.plugins.pkcs11.modules.<name>".to_owned()
            }
            "charon.plugins.eap-radius.servers.server" => {
                "charon.plugins.eap-radius.servers.<name>".to_owned()
            }
            secret if secret.starts_with("secrets.") => format!("{secret}<suffix>"),
            other => other.to_owned(),
        }
    }

    #[test]
    fn the_manual_has_every_option_that_the_reader_knows_and_no_other() {
        asked();
        // The files that are not there are mistakes, and the options are asked for all the same.
        let _ = parse(EVERYTHING);
        let mut known = BTreeSet::new();
        for (path, key) in asked() {
            let subsection = matches!(
                (path.as_str(), key),
                (
                    "charon",
                    "iptfs"
                        | "plugins"
                        | "metrics"
                        | "sandbox"
                        | "redirect"
                        | "tls"
                        | "session_resumption"
                ) | ("charon.plugins.eap-radius", "servers" | "dae")
                    | ("charon.plugins.resolve", "resolvconf")
                    | ("connections.conn", "local" | "remote" | "children")
            );
            // Attributes by number, which the manual tells of in the section's description.
            let number = path == "pools.pool" && key.starts_with(|c: char| c.is_ascii_digit());
            if PARENTS.contains(&path.as_str()) || subsection || number {
                continue;
            }
            let prefix = matches!(key, "cert" | "cacert") && path.starts_with("connections.")
                || key == "id" && path.starts_with("secrets.");
            let key = if prefix { format!("{key}<suffix>") } else { key.to_owned() };
            known.insert((described(&path), key));
        }
        let mut written = BTreeSet::new();
        for section in options() {
            assert!(!section.about.is_empty());
            for option in section.options {
                assert!(!option.about.is_empty(), "{} has no description", option.key);
                let entry = (section.path.to_owned(), option.key.to_owned());
                assert!(written.insert(entry), "{} is there twice", option.key);
            }
        }
        let missing: Vec<_> = known.difference(&written).collect();
        assert!(missing.is_empty(), "not in options.txt: {missing:?}");
        let invented: Vec<_> = written.difference(&known).collect();
        assert!(invented.is_empty(), "unknown to the reader: {invented:?}");
    }

    #[test]
    fn every_line_of_the_file_is_in_the_manual() {
        let written = |section: &DescribedSection| {
            let options = section.options.iter().map(|option| match option.default {
                Some(default) => format!("{} = {default}\n    {}\n", option.key, option.about),
                None => format!("{}\n    {}\n", option.key, option.about),
            });
            format!("[{}] {}\n{}", section.path, section.about, options.collect::<String>())
        };
        let all: Vec<_> = options().iter().map(written).collect();
        let written = all.concat();
        let mut file = include_str!("options.txt").lines().filter(|line| !line.is_empty());
        for line in written.lines() {
            assert_eq!(file.next(), Some(line));
        }
        assert_eq!(file.next(), None);
    }

    #[test]
    fn defaults_are_as_described() {
        let all = options();
        let lines = |path: &str| {
            let section = all.iter().find(|section| section.path == path).unwrap();
            let written = section.options.iter().filter_map(|option| {
                // Allowed only beside another option.
                let alone = option.key != "tcp_port";
                let default = option.default.filter(|_| alone)?;
                Some(format!("{} = {default:?}\n", option.key))
            });
            written.collect::<String>()
        };
        let file = |defaults: bool| {
            let lines = |path| if defaults { lines(path) } else { String::new() };
            format!(
                "[charon]\n{}[charon.iptfs]\n{}[charon.plugins.vici]\n{}[charon.metrics]\n{}\
                 [charon.sandbox]\n{}[connections.c]\n{}[connections.c.local]\nauth = 'psk'\n\
                 [connections.c.remote]\nauth = 'psk'\n[connections.c.children.child]\n{}\
                 [secrets.ike]\nsecret = 'x'\n",
                lines("charon"),
                lines("charon.iptfs"),
                lines("charon.plugins.vici"),
                lines("charon.metrics"),
                lines("charon.sandbox"),
                lines("connections.<conn>"),
                lines("connections.<conn>.children.<child>"),
            )
        };
        let read = |defaults| {
            let text = file(defaults);
            let read = parse(&text);
            let settings = read.unwrap_or_else(|mistakes| panic!("{mistakes:#?}\n{text}"));
            format!("{settings:#?}")
        };
        assert_eq!(read(true), read(false));
    }
}
