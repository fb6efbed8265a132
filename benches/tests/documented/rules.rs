//! How each command runs here: with which options smaller, or what is looked at in its place and why.

use std::fs;

use super::commands::{Written, is_variable};
use super::place::Place;
use super::{read, root};

/// What is done for a command.
enum How {
    /// `ike-bench` runs. The options of the first list are set or added, those of the second replaced if given.
    Bench(Options, Options),
    /// `ike-bench serve` runs until the section ends.
    Serve,
    /// `ike-bench links --to`, with the responder of the section.
    To(Options),
    /// `ike-bench load`, with the daemon of the section; one is started if there is none.
    Load(Options, Options),
    /// `ike-bench links --from`; a file that only another run would have written is a copy of the first.
    From,
    /// `ike-bench links --real`: it starts the lab's script, which reads the options and tells its usage.
    Real,
    /// `ike-daemon run` runs until the section ends.
    Daemon,
    /// What another host would fetch is copied.
    Copy,
    /// A script runs with these variables instead of those given.
    Script(&'static [(&'static str, &'static str)]),
    /// A script of the lab reads its options and tells its usage, because it needs root and the lab. Where they are,
    /// [`in_the_lab`] runs it with these options, in the place of its own of the same letters.
    Lab(&'static str),
    /// A script reads its options and tells its usage; the reason says why it does no more.
    Asked(&'static str),
    /// `.ci/run` has the script; its options are words of it.
    InCi,
    /// `docs/links/run.sh` on a copy of the folder, one handshake of each row.
    Pictures,
    /// A command of cargo: of what it names, all is there, and CI runs it.
    Cargo,
    /// A program, named alone: it tells its usage.
    Named,
}

type Options = &'static [(&'static str, &'static str)];

/// The first rule whose words a command begins with is its rule.
const RULES: &[(&str, How)] = &[
    ("ike-bench kem", How::Bench(&[("--runs", "1"), ("--limit", "0.1")], &[])),
    // Without optimisation SLH-DSA takes seconds for a signature; the other backend has all other schemes.
    (
        "ike-bench sign",
        How::Bench(&[("--runs", "1"), ("--limit", "0.1"), ("--only", "aws-lc-rs")], &[]),
    ),
    ("ike-bench sizes", How::Bench(&[("--seconds", "0.0001"), ("--only", "aws-lc-rs")], &[])),
    ("ike-bench handshake", How::Bench(&[("--runs", "2")], &[])),
    // A ratio of times says nothing about a build without optimisation.
    ("ike-bench esp", How::Bench(&[("--seconds", "0.005")], &[("--min", "0.001")])),
    ("ike-bench memory", How::Bench(&[("--sas", "50")], &[])),
    ("ike-bench soak", How::Bench(&[("--messages", "50"), ("--sas", "5"), ("--hours", "1")], &[])),
    ("ike-bench links --to", How::To(&[("--runs", "1")])),
    ("ike-bench links --from", How::From),
    ("ike-bench links --real", How::Real),
    ("ike-bench links", How::Bench(&[("--runs", "1")], &[])),
    (
        "ike-bench load",
        How::Load(&[("--handshakes", "20"), ("--warm-up", "2")], &[("--slice", "5")]),
    ),
    ("ike-bench serve --only-bundle", How::Bench(&[], &[("--initiators", "2")])),
    ("ike-bench serve", How::Serve),
    ("ike-daemon run", How::Daemon),
    ("scp", How::Copy),
    (
        "benches/shards.sh",
        How::Script(&[("CONNECTIONS", "8"), ("REPEATS", "1"), ("DAEMON", "ike-daemon")]),
    ),
    ("benches/bases.py", How::InCi),
    ("benches/counts.sh", How::InCi),
    ("benches/size.sh", How::InCi),
    ("docs/links/run.sh", How::Pictures),
    (
        "tests/lab/links.sh",
        How::Lab("-l clean-10 -p ours-strongswan -s mlkem768-ecdsa -n 1 -w 60 -j 1"),
    ),
    ("tests/lab/iperf.sh", How::Lab("-r 1 -t 1 -m 0.001")),
    (
        "tests/lab/psk-rsa.sh",
        How::Asked(
            "takes a guest forty seconds at its smallest size; scenario psk-rsa has its set-up",
        ),
    ),
    ("tests/lab/many-connections.sh", How::Lab("-n 20")),
    ("tests/lab/load.sh", How::Asked("needs strongSwan's fake kernel, which CI does not build")),
    ("tests/lab/setup.sh", How::Asked("installs packages")),
    ("cargo build", How::Cargo),
    ("cargo test", How::Cargo),
    ("cargo bench", How::Cargo),
    ("cargo run", How::Cargo),
];

/// Runs a command.
///
/// # Errors
///
/// What is wrong with it.
pub fn run(command: &Written, place: &mut Place) -> Result<(), String> {
    let (Split { variables, words }, how) = rule(command)?;
    let (variables, words) = (variables.as_slice(), words.as_slice());
    let arguments = words[1..].to_vec();
    match how {
        How::Bench(set, smaller) => place.bench(&resized(arguments, set, smaller)),
        How::Serve => place.serve(&arguments),
        How::To(set) => place.links_to(&resized(arguments, set, &[])),
        How::Load(set, smaller) => place.load(&resized(arguments, set, smaller)),
        How::From => from(place, &arguments),
        How::Real => {
            let repository = ["--repository".to_owned(), root().display().to_string()];
            let at = arguments.iter().position(|word| word == "--").unwrap_or(arguments.len());
            let asked = [&arguments[..at], &repository, &arguments[at..], &["-h".to_owned()]];
            place.bench(&asked.concat())
        }
        How::Daemon => place.daemon(&arguments),
        How::Copy => place.copy(&arguments),
        How::Script(sizes) => {
            let unknown = variables.iter().find(|variable| {
                let name = variable.split('=').next().unwrap_or_default();
                !read(&words[0]).contains(&format!("${{{name}:-"))
            });
            match unknown {
                Some(variable) => Err(format!("{} does not read {variable}", words[0])),
                None => place.script(words, variables, sizes),
            }
        }
        How::Lab(..) => place.script(&[words, &["-h".to_owned()]].concat(), variables, &[]),
        How::Asked(why) => place
            .script(&[words, &["-h".to_owned()]].concat(), variables, &[])
            .map_err(|said| format!("asked for its usage only, since it {why}: {said}")),
        How::InCi => in_ci(words),
        How::Pictures => place.pictures(),
        How::Cargo => cargo(place, &arguments),
        How::Named => place.named(words),
    }
}

/// A command that is split up.
#[derive(Debug, PartialEq)]
pub struct Split {
    /// `NAME=value` before the program.
    pub variables: Vec<String>,
    /// The program, by the name that the rules have for it, and its arguments.
    pub words: Vec<String>,
}

/// The command at the small size that the lab has for it; nothing if the lab is not needed for it.
///
/// # Errors
///
/// There is no rule for it.
pub fn in_the_lab(command: &Written) -> Result<Option<Split>, String> {
    let (Split { variables, words }, how) = rule(command)?;
    let How::Lab(small) = how else { return Ok(None) };
    let spec = read(&words[0]);
    let spec = spec.split_once("while getopts ").and_then(|(_, rest)| rest.split(' ').next());
    let spec = spec.ok_or_else(|| format!("{} has no getopts", words[0]))?;
    let mut kept = vec![words[0].clone()];
    let mut rest = words[1..].iter();
    while let Some(option) = rest.next() {
        let value = spec.contains(&format!("{}:", option.trim_start_matches('-')));
        let value = if value { rest.next() } else { None };
        if !small.split(' ').any(|word| word == option) {
            kept.extend([option].into_iter().chain(value).cloned());
        }
    }
    kept.extend(small.split(' ').map(str::to_owned));
    Ok(Some(Split { variables, words: kept }))
}

/// A command, split up, and its rule.
fn rule(command: &Written) -> Result<(Split, &'static How), String> {
    let mut variables = words(&command.text);
    let at = variables.iter().take_while(|word| is_variable(word)).count();
    let mut words = variables.split_off(at);
    words[0] = program(&words[0])?;
    let rule = RULES.iter().find(|(start, _)| {
        let mut rest = words.iter().map(String::as_str);
        start.split(' ').all(|word| rest.next() == Some(word))
    });
    let is_program = ["ike-bench", "ike-daemon", "taskset"].contains(&words[0].as_str());
    let how = match (rule, words.len()) {
        (_, 1) if is_program => &How::Named,
        // `ike-bench load` in a sentence is its name.
        (Some((_, How::Load(..))), 2) => &How::Named,
        (Some((_, how)), _) => how,
        (None, _) => return Err("no rule in benches/tests/documented/rules.rs".to_owned()),
    };
    Ok((Split { variables, words }, how))
}

/// The words of a command: without the CPU that it is bound to, with all that it may have (`[--json]`), and with
/// something in the place of what it leaves open.
fn words(text: &str) -> Vec<String> {
    let words = text.split_whitespace().map(|word| word.trim_matches(['[', ']', '\'']));
    let mut words: Vec<_> = words.filter(|word| *word != "&").map(str::to_owned).collect();
    if words.len() > 3 && words[..2] == ["taskset", "-c"] {
        words.drain(..3);
    }
    for word in &mut words {
        match word.as_str() {
            "…" => *word = "mlkem768-mldsa87".to_owned(),
            "$!" => *word = "PID".to_owned(),
            _ => {}
        }
    }
    words
}

/// A program by the name that the rules have for it.
fn program(word: &str) -> Result<String, String> {
    let name = word.strip_prefix("target/release/").unwrap_or(word);
    let is_script = name.ends_with(".sh") || name.ends_with(".py");
    if !is_script || name.contains('/') {
        return Ok(name.to_owned());
    }
    // `load.sh` in a sentence; docs/links/run.sh runs tables.py.
    let known =
        RULES.iter().map(|(start, _)| *start).find(|start| start.ends_with(&format!("/{name}")));
    match (name, known) {
        ("tables.py", _) => Ok("docs/links/run.sh".to_owned()),
        (_, Some(path)) => Ok(path.to_owned()),
        (_, None) => Ok(name.to_owned()),
    }
}

/// `arguments` with the options `set`, and with those of `smaller` if they are given.
fn resized(mut arguments: Vec<String>, set: Options, smaller: Options) -> Vec<String> {
    for (option, value) in set.iter().chain(smaller) {
        let given = arguments.iter().position(|word| word == option);
        match given {
            Some(at) if at + 1 < arguments.len() => arguments[at + 1] = (*value).to_owned(),
            Some(_) => {}
            None if smaller.iter().any(|(name, _)| name == option) => {}
            None => arguments.extend([option, value].map(|word| (*word).to_owned())),
        }
    }
    arguments
}

fn from(place: &Place, arguments: &[String]) -> Result<(), String> {
    let files = arguments.iter().skip_while(|word| *word != "--from").skip(1).step_by(2);
    let mut files = files.map(|name| place.folder.join(name));
    let first = files.next().ok_or("--from wants a file")?;
    for file in files.filter(|file| !file.exists()) {
        fs::copy(&first, file).map_err(|error| format!("{}: {error}", first.display()))?;
    }
    place.bench(arguments)
}

/// What `.ci/run` and its check of commits run need not run twice.
fn in_ci(words: &[String]) -> Result<(), String> {
    let (program, options) = (&words[0], &words[1..]);
    let runs = |script: &str| {
        read(script).lines().any(|line| line.trim().split(' ').next() == Some(program))
    };
    if ![".ci/run", ".ci/commits"].into_iter().any(runs) {
        return Err(format!(".ci/run does not run {program}"));
    }
    let script = read(program);
    let is_part = |c: char| c.is_alphanumeric() || c == '-';
    let has = |option: &str| script.split(|c| !is_part(c)).any(|word| word == option);
    let plain = |option: &String| option.trim_matches(|c| !is_part(c)).to_owned();
    match options.iter().find(|option| !has(&plain(option))) {
        Some(option) => Err(format!("{program} has no {option}")),
        None => Ok(()),
    }
}

fn cargo(place: &Place, arguments: &[String]) -> Result<(), String> {
    let all = |option: &str| -> Vec<&String> {
        let at = arguments.iter().enumerate().filter(|(_, word)| *word == option);
        at.filter_map(|(at, _)| arguments.get(at + 1)).collect()
    };
    let packages = all("-p");
    let folders = packages.iter().map(|name| package(name)).collect::<Result<Vec<_>, _>>()?;
    let has = |word: &str| arguments.iter().any(|argument| argument == word);
    let step = "cargo test --workspace --locked --bench '*'";
    if (has("bench") || has("--bench")) && !read(".ci/run").lines().any(|line| line == step) {
        return Err(format!(".ci/run does not run each bench once: {step}"));
    }
    let Some(folder) = folders.first() else {
        return if has("--workspace") { Ok(()) } else { Err("no package is named".to_owned()) };
    };
    let manifest = read(&format!("{folder}/Cargo.toml"));
    if let Some(feature) = all("--features").first()
        && !manifest.lines().any(|line| line.starts_with(&format!("{feature} = [")))
    {
        return Err(format!("{} has no feature {feature}", packages[0]));
    }
    match arguments[0].as_str() {
        // CI builds packages and runs all tests.
        "build" => Ok(()),
        "test" => all("--test").iter().try_for_each(|name| is_target(folder, "tests", name)),
        "bench" => all("--bench").iter().try_for_each(|name| is_target(folder, "benches", name)),
        "run" => match all("--example").as_slice() {
            [name] => place.example(name),
            _ => Err("no example is named".to_owned()),
        },
        other => Err(format!("no rule for cargo {other}")),
    }
}

/// The folder of a package.
fn package(name: &str) -> Result<String, String> {
    let line = format!("name = \"{name}\"");
    let is_it = |folder: &String| {
        let manifest = fs::read_to_string(root().join(folder).join("Cargo.toml"));
        manifest.is_ok_and(|text| text.lines().any(|written| written == line))
    };
    let mut folders = vec!["tests".to_owned(), "benches".to_owned()];
    for folder in ["crates", "tests"] {
        let entries = fs::read_dir(root().join(folder)).map_err(|error| error.to_string())?;
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        folders.extend(names.map(|name| format!("{folder}/{name}")));
    }
    folders.into_iter().find(is_it).ok_or_else(|| format!("no package {name}"))
}

fn is_target(folder: &str, kind: &str, name: &str) -> Result<(), String> {
    let file = root().join(folder).join(kind).join(format!("{name}.rs"));
    let is_there = file.exists() || file.with_extension("").join("main.rs").exists();
    if is_there { Ok(()) } else { Err(format!("{folder}/{kind} has no {name}")) }
}
