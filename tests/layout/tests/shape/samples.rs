//! The program itself, on a small engine that is written for it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::ceilings::{Ceilings, faults_of_history};
use crate::figures;
use crate::silent::Silent;

/// A folder of its own.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("shape-{name}"));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

const SAMPLE: &[(&str, &str)] = &[
    ("lib.rs", "mod ike_sa; mod keys; mod config; #[cfg(test)] mod absent;"),
    (
        "ike_sa/mod.rs",
        "mod near; pub(crate) mod window;
pub(crate) struct Sa { pub(crate) a: u8, pub(super) b: u8, pub(in crate::ike_sa) c: u8, d: (u8, u8), #[cfg(test)] e: u8 }
struct Hidden { pub(crate) a: u8 }
impl Sa {
    fn own(&mut self) -> Option<&mut u8> { None }
    fn shared(&self) -> &u8 { &self.d.0 }
    #[cfg(test)] fn for_tests(&self) {}
}
#[cfg(test)] impl Sa { fn also_for_tests(&self) {} }
",
    ),
    (
        "ike_sa/near.rs",
        "use super::Sa;
impl Sa {
    fn near(&self) { fn inner(it: &super::Sa) { let Some(_) = it.a() else { return }; } inner(self) }
}
fn five(a: u8, b: u8, c: u8, d: u8, e: u8) {}
fn six(a: u8, b: u8, c: u8, d: u8, e: u8, f: u8) {}
fn tuple(a: u8, b: u8, c: &[(u8, (u8, u8))], d: u8) -> Result<(), String> { Ok(()) }
",
    ),
    ("ike_sa/window/mod.rs", "pub(crate) struct Window { pub(super) a: u8, pub(in crate::ike_sa::window) b: u8 }"),
    (
        "keys.rs",
        "use crate::ike_sa::Sa;
use crate::config::Settings;
trait Reach { fn reach(&mut self) -> &mut u8; fn provided(of: &mut Sa) -> std::slice::IterMut<'_, u8> { todo() } }
impl Reach for Sa { fn reach(&mut self) -> &mut u8 { &mut self.b } }
impl Sa { fn far(&self) -> Result<u8, &'static str> { Err(\"text\") } }
fn by_argument(sa: &mut Sa) -> Option<()> { None }
",
    ),
    ("config.rs", "pub struct Settings { pub(crate) a: u8 }"),
];

/// What a figure counts is what its name says, with the ways around it.
///
/// Fault: in `figures.rs`, leave out one of the calls of `count`; in `source.rs`, one of the arms.
pub(crate) fn each_figure_counts_what_it_names() {
    let src = folder("sample");
    for (file, text) in SAMPLE {
        let path = src.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let long = format!("fn long() {{\n{}}}\nfn short() {{\n{}}}", "\n".repeat(79), "\n".repeat(78));
    fs::write(src.join("keys.rs"), format!("{}{long}", SAMPLE[4].1)).unwrap();
    let figures = figures::of_engine(&src);
    let found: BTreeMap<_, _> =
        figures.iter().map(|(name, places)| (name.as_str(), places.len())).collect();
    let expected = [
        // `a` and `b` of `Sa`, and `a` of `Window`. A field of a hidden type is no wider than the type.
        ("fields seen outside their folder", 3),
        ("fields of Hidden", 1),
        ("fields of Sa", 5),
        ("fields of Settings", 1),
        ("fields of Window", 2),
        ("functions with over 80 lines", 1),
        ("functions with six parameters by members", 2),
        ("functions with six parameters", 1),
        // Of `ike_sa` and of `config` by `keys`.
        ("imports that go up", 2),
        ("methods", 4),
        // And `inner`, `provided`, `reach`, `by_argument`.
        ("methods and functions", 8),
        ("methods and functions of Sa", 8),
        ("methods and functions outside the file", 6),
        ("methods and functions outside the folder", 4),
        ("methods of Sa", 4),
        ("methods outside the file", 2),
        ("methods outside the folder", 1),
        // `own`, `provided` and `reach`.
        ("methods that return &mut", 3),
        // `own`.
        ("methods that return &mut of a part", 1),
        ("silent returns", 1),
        ("silent returns in any words", 2),
        ("texts as errors", 2),
    ];
    assert_eq!(found, BTreeMap::from(expected), "{figures:#?}");
}

/// Fault: in `silent.rs`, leave out one of the patterns.
pub(crate) fn silent_returns_count_in_all_spellings() {
    let count = |text: &str| {
        let Silent { plain, others } = Silent::of(text.parse().unwrap());
        (plain, others)
    };
    for plain in ["let Some(a) = b else { return };", "let Ok(a) = b.c() else { return; };"] {
        assert_eq!(count(plain), (1, 0), "{plain}");
        assert_eq!(count(&format!("let f = |b| {{ {plain} }};")), (1, 0), "{plain}");
    }
    for other in [
        "let Some(a) = b else { return Ok(()) };",
        "let Some(a) = b else { return (); };",
        "let Some(a) = b else { continue };",
        "let Some(a) = b else { break 'outer };",
        "if let Some(a) = b { f(a) } else { return }",
        "let a = match b { Some(a) => a, None => return };",
        "match b { Some(a) => { f(a) } _ => { return; } }",
        "match b { Ok(a) => a, Err(_) => return, }",
        "if b.is_none() { return }",
        "if let None = b { return; }",
    ] {
        assert_eq!(count(other), (0, 1), "{other}");
    }
    for spoken in [
        "let Some(a) = b else { return None };",
        "let Some(a) = b else { return Err(Missing) };",
        "let Some(a) = b else { log(b); return };",
        "if is_done { return }",
        "match b { Up => return, Down => f() }",
    ] {
        assert_eq!(count(spoken), (0, 0), "{spoken}");
    }
}

/// Fault: in `Ceilings::compare`, exchange `risen` and `fallen`; in `Ceilings::of`, leave figures out that nothing counts
/// any more.
pub(crate) fn a_figure_that_rises_or_falls_is_told() {
    let listed = Ceilings::parse(
        "# words\nversion 1\na: methods of A 3\na: texts as errors 2\na: silent returns 1\n",
    );
    let places = |figures: &[(&str, usize)]| {
        let places =
            figures.iter().map(|&(name, number)| (name.to_owned(), vec![String::new(); number]));
        places.collect()
    };
    let now = places(&[
        ("a: functions with six parameters", 1),
        ("a: methods of A", 4),
        ("a: methods of B", 9),
        ("a: methods", 20),
        ("a: texts as errors", 2),
    ]);
    let now = Ceilings::of(&now, &listed);
    let (risen, fallen) = listed.compare(&now);
    assert_eq!(
        risen,
        ["a: functions with six parameters 1, above 0", "a: methods of A 4, above 3"]
    );
    assert_eq!(fallen, ["a: silent returns 0, below 1"]);
    // What is written only lowers.
    let written = listed.lowered_to(&now).write("# words\n\nversion 1\n");
    assert_eq!(
        written,
        "# words\n\nversion 1\na: methods of A 3\na: silent returns 0\na: texts as errors 2\n"
    );
}

/// Fault: in `Ceilings::follow`, leave out one of the faults.
pub(crate) fn a_raised_ceiling_is_found() {
    let tree = folder("history");
    let git = |arguments: &[&str]| {
        let names =
            ["GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"];
        let done = Command::new("git")
            .args(arguments)
            .current_dir(&tree)
            .envs(names.map(|name| (name, "test")))
            .envs(["GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"].map(|name| (name, "/dev/null")))
            .output()
            .unwrap();
        assert!(done.status.success(), "{arguments:?}: {done:?}");
    };
    git(&["init", "--quiet"]);
    let commit = |text: &str| {
        fs::write(tree.join("shape.txt"), text).unwrap();
        git(&["add", "--all"]);
        git(&["commit", "--quiet", "--message", "a change"]);
    };
    let faults = || {
        let faults = faults_of_history(&tree, "shape.txt");
        let bare = faults.iter().map(|fault| fault.split_once(": ").unwrap().1.to_owned());
        bare.collect::<Vec<_>>()
    };
    commit("version 1\na: long 3\na: six 2\n");
    commit("version 1\na: long 2\na: six 2\na: methods of A 9\n");
    assert_eq!(faults(), [""; 0]);
    // Before the commit, and after.
    fs::write(tree.join("shape.txt"), "version 1\na: long 3\na: new 1\na: methods of A 9\n")
        .unwrap();
    let raised = ["a: long rises from 2 to 3", "a: new 1 is new", "a: six is gone"];
    assert_eq!(faults(), raised);
    commit("version 1\na: long 3\na: new 1\na: methods of A 9\n");
    // It stays found, whatever comes later.
    commit("version 1\na: long 1\na: new 1\na: methods of A 9\n");
    assert_eq!(faults(), raised);
    commit("version 9\na: long 8\n");
    assert_eq!(faults().last().unwrap(), "version 9 has no reason");
}
