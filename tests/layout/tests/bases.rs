//! `benches/bases.py` finds every way in which a base could be reset in silence.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use ike_test_namespace::{Lack, MUST, Need, Place};

ike_test_namespace::harness! {
    GIT_AND_PYTHON => [
        a_base_moves_down_alone_and_names_what_was_measured,
        a_base_that_was_reset_is_found,
        a_clone_without_the_history_fails,
    ],
}

const GIT_AND_PYTHON: Need = Need {
    met: || match ["git", "python3"].map(|name| Command::new(name).arg("--version").output()) {
        [Ok(_), Ok(_)] => Ok(Place::Here),
        _ => Err(Lack::of("no git or no python3", MUST)),
    },
};

const SCRIPT: &str = include_str!("../../../benches/bases.py");
const COUNTS: &str = "benches/counts.txt";
const MEMORY: &str = "benches/memory.txt";

/// A repository with bases, whose first commit is that of the script.
struct Repository(PathBuf);

impl Repository {
    fn new(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("bases-{name}"));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("benches")).unwrap();
        let repository = Self(folder);
        repository.git(&["init", "--quiet"]);
        repository.write("engine.rs", "");
        repository.write(COUNTS, "# of the engine\none 1000\ntwo 500 +2% checks\n");
        repository.write("benches/size.txt", "release 7000\n");
        repository.write(MEMORY, "sa 4000 +8% what is wanted\nlimit sa 4208\n");
        let first = repository.commit();
        let constant = SCRIPT.lines().find(|line| line.starts_with("FIRST = ")).unwrap();
        repository
            .write("benches/bases.py", &SCRIPT.replace(constant, &format!("FIRST = {first:?}")));
        // From now on each base names its commit.
        repository.write(
            COUNTS,
            &format!("# of the engine\none 1000 {first}\ntwo 500 {first} +2% checks\n"),
        );
        repository.write("benches/size.txt", &format!("release 7000 {first}\n"));
        repository.write(MEMORY, &format!("sa 4000 {first} +8% what is wanted\nlimit sa 4208\n"));
        repository.commit();
        repository
    }

    fn git(&self, arguments: &[&str]) -> String {
        let names =
            ["GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"];
        let output = Command::new("git")
            .args(arguments)
            .current_dir(&self.0)
            .envs(names.map(|name| (name, "test")))
            .envs(["GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"].map(|name| (name, "/dev/null")))
            .output()
            .unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    fn write(&self, path: &str, text: &str) {
        fs::write(self.0.join(path), text).unwrap();
    }

    /// Replaces a part of a file, which must be there.
    fn edit(&self, path: &str, from: &str, to: &str) {
        let text = fs::read_to_string(self.0.join(path)).unwrap();
        assert!(text.contains(from), "{path} has no {from}: {text}");
        self.write(path, &text.replace(from, to));
    }

    /// Commits everything. Returns the hash of the commit.
    fn commit(&self) -> String {
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--allow-empty", "--message", "a change"]);
        self.head()
    }

    fn head(&self) -> String {
        self.git(&["rev-parse", "HEAD"])
    }

    /// What the script finds; empty if nothing.
    fn check(&self) -> String {
        let output =
            Command::new("python3").arg("benches/bases.py").current_dir(&self.0).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.success(), said.is_empty(), "{said}");
        said
    }
}

/// The line of a base, with the commit that it names: the present one.
fn lower(repository: &Repository, to: &str) {
    let parent = repository.head();
    let text = fs::read_to_string(repository.0.join(COUNTS)).unwrap();
    let line = text.lines().find(|line| line.starts_with("one ")).unwrap();
    repository.edit(COUNTS, line, &format!("one {to} {parent}"));
}

/// Fault: in bases.py, leave out the case that the commit of the base names its parent.
fn a_base_moves_down_alone_and_names_what_was_measured() {
    let repository = Repository::new("good");
    assert_eq!(repository.check(), "");
    lower(&repository, "980");
    // Before the commit, and after.
    assert_eq!(repository.check(), "");
    let lowered = repository.commit();
    assert_eq!(repository.check(), "");
    // Later lines may name the commit that has the base.
    repository.edit(COUNTS, "one 980", "three 7 0000000\none 980");
    let parent = repository.head();
    repository.edit(COUNTS, "0000000", &parent);
    repository.edit(COUNTS, "+2% checks", "+4% checks more");
    repository.write("engine.rs", "slower");
    let text = fs::read_to_string(repository.0.join(COUNTS)).unwrap();
    let line = text.lines().find(|line| line.starts_with("one ")).unwrap();
    repository.edit(COUNTS, line, &format!("one 980 {lowered}"));
    repository.commit();
    assert_eq!(repository.check(), "");
}

/// A name, what a commit changes, and what the script says about it.
type Case = (&'static str, fn(&Repository), &'static str);

/// Fault: in bases.py, leave out one of the conditions that add to `faults`.
fn a_base_that_was_reset_is_found() {
    let cases: [Case; 8] = [
        (
            "beside",
            |repository| {
                lower(repository, "980");
                repository.write("engine.rs", "faster");
            },
            "moves one and changes engine.rs; a base moves alone",
        ),
        (
            "raised",
            |repository| lower(repository, "1010"),
            "the base of one rises from 1000 to 1010",
        ),
        (
            "edited",
            |repository| repository.edit(COUNTS, "one 1000", "one 990"),
            "one is 990, and the file of",
        ),
        (
            "gone",
            |repository| {
                let text = fs::read_to_string(repository.0.join(COUNTS)).unwrap();
                let rest: Vec<_> = text.lines().filter(|line| !line.starts_with("one")).collect();
                repository.write(COUNTS, &(rest.join("\n") + "\n"));
            },
            "one is gone",
        ),
        (
            "allowed",
            |repository| repository.edit(COUNTS, "+2% checks", "+60% x"),
            "the allowances of two sum to 60 % since 65a59d7, and 5 are the limit",
        ),
        (
            "wanted",
            |repository| repository.edit(MEMORY, "+8%", "+14%"),
            "the allowances of sa sum to 6 % since 65a59d7, and 5 are the limit",
        ),
        (
            "limit",
            |repository| repository.edit(MEMORY, "limit sa 4208", "limit sa 4300"),
            "the limit of sa was 4208, and is 4300",
        ),
        (
            "unnamed",
            |repository| {
                let parent = repository.head();
                repository.edit(COUNTS, "two", &format!("new 5 {parent}\nunnamed 5\ntwo"));
            },
            "unnamed names no commit",
        ),
    ];
    for (name, change, why) in cases {
        let repository = Repository::new(name);
        change(&repository);
        repository.commit();
        let said = repository.check();
        assert!(said.contains(why), "{name}: {said}");
        if name == "beside" {
            // It stays found, whatever comes later.
            repository.write("later.rs", "");
            repository.commit();
            assert_eq!(repository.check(), said);
        }
    }
}

/// Fault: in bases.py, return from `require` in place of the first `raise`.
fn a_clone_without_the_history_fails() {
    let repository = Repository::new("deep");
    let url = format!("file://{}", repository.0.display());
    let shallow = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bases-shallow");
    let _ = fs::remove_dir_all(&shallow);
    repository.git(&["clone", "--quiet", "--depth", "1", &url, &shallow.display().to_string()]);
    let said = Repository(shallow).check();
    assert!(said.contains("this clone is shallow and lacks"), "{said}");
    let first = repository.git(&["rev-list", "--max-parents=0", "HEAD"]);
    repository.edit(COUNTS, &format!("one 1000 {first}"), "one 1000 0123456789");
    let said = repository.check();
    assert!(said.contains("the history of HEAD has no commit 01234567"), "{said}");
}
