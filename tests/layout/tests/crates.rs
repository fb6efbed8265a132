//! Which crates of the workspace may depend on which.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// A dependency of one package of the workspace on another.
struct Dependency {
    on: String,
    /// Only its tests, benchmarks and examples need it.
    for_tests: bool,
}

/// The dependencies of each package of the workspace on others of it, by name.
type Packages = BTreeMap<String, Vec<Dependency>>;

/// Fault: in `crates/xfrm/Cargo.toml`, add `ike-proto.workspace = true` to `[dependencies]` or to
/// `[dev-dependencies]`.
#[test]
fn backends_do_without_the_engine() {
    let packages = workspace();
    for name in ["ike-wire", "ipsec-types", "ike-pq-kem", "xfrm", "ike-esp", "ike-routes"] {
        let needed = needed(&packages, name);
        assert!(!needed.contains("ike-proto"), "{name} depends on ike-proto: {needed:?}");
    }
}

/// Text becomes settings without a runtime, without cryptography and without the services that take the settings.
///
/// Fault: in `crates/ike-config/Cargo.toml`, add `pki.workspace = true` or `tokio.workspace = true` to
/// `[dependencies]`.
#[test]
fn settings_need_neither_a_runtime_nor_cryptography() {
    let built = built(&["--package", "ike-config"]);
    assert!(built.contains("ike-proto") && built.contains("toml"), "{built:?}");
    for banned in [
        "aws-lc-rs",
        "aws-lc-sys",
        "ike-daemon",
        "ike-eap",
        "ike-pki",
        "ike-pq-kem",
        "ike-routes",
        "mio",
        "nix",
        "rustix",
        "rustls",
        "socket2",
        "tokio",
        "ureq",
    ] {
        assert!(!built.contains(banned), "ike-config depends on {banned}");
    }
}

/// A daemon without optional parts builds neither these parts nor what only they need. The same holds for the runtime
/// without the kernel, and for AAA without EAP.
///
/// Fault: in `crates/ike-daemon/Cargo.toml`, take `optional = true` from `cryptoki`, or in the workspace's `Cargo.toml`
/// take `default-features = false` from `ike-control`.
#[test]
fn without_features_optional_parts_are_not_built() {
    let parts = [
        "clap_complete",
        "clap_mangen",
        "cryptoki",
        "hyper",
        "ike-eap",
        "ike-vici",
        "p12-keystore",
        "prometheus",
        "rustls",
    ];
    let all = built(&["--package", "ike-daemon"]);
    let lean = built(&["--package", "ike-daemon", "--no-default-features"]);
    for part in parts {
        assert!(all.contains(part), "ike-daemon does not depend on {part}");
        assert!(!lean.contains(part), "without features ike-daemon depends on {part}");
    }
    // Both data planes are in it, and certificates with their revocation.
    for needed in ["ike-esp", "ike-pki", "ike-routes", "ureq", "xfrm"] {
        assert!(lean.contains(needed), "without features ike-daemon lacks {needed}");
    }
    let runtime = built(&["--package", "ike-tokio", "--no-default-features"]);
    assert!(runtime.contains("ike-esp") && !runtime.contains("xfrm"), "{runtime:?}");
    let aaa = built(&["--package", "ike-aaa", "--no-default-features"]);
    assert!(aaa.contains("ike-pki") && !aaa.contains("ike-eap"), "{aaa:?}");
}

/// A program can have the runtime without the daemon and its parts.
///
/// Fault: in `crates/ike-tokio/Cargo.toml`, add `pki.workspace = true` to `[dependencies]`.
#[test]
fn the_runtime_needs_the_engine_and_data_planes_alone() {
    let packages = workspace();
    let built: BTreeSet<_> = packages["ike-tokio"]
        .iter()
        .filter(|dependency| !dependency.for_tests)
        .map(|dependency| dependency.on.as_str())
        .collect();
    assert_eq!(built, BTreeSet::from(["ike-esp", "ike-proto", "xfrm"]));
    assert!(!needed(&packages, "ike-tokio").contains("ike-daemon"));
}

/// A program can control an engine without the daemon and its parts: keys, certificates, EAP and data planes.
///
/// Fault: in `crates/ike-control/Cargo.toml`, add `pki.workspace = true` to `[dependencies]`.
#[test]
fn control_needs_the_runtime_and_the_settings_alone() {
    let packages = workspace();
    let built: BTreeSet<_> = packages["ike-control"]
        .iter()
        .filter(|dependency| !dependency.for_tests)
        .map(|dependency| dependency.on.as_str())
        .collect();
    assert_eq!(built, BTreeSet::from(["ike-config", "ike-proto", "ike-tokio", "ike-vici"]));
    let needed = needed(&packages, "ike-control");
    for banned in ["ike-aaa", "ike-daemon", "ike-eap", "ike-pki"] {
        assert!(!needed.contains(banned), "ike-control depends on {banned}");
    }
}

/// A gateway can have certificates, EAP, RADIUS and pools without the daemon and its control sockets.
///
/// Fault: in `crates/ike-aaa/Cargo.toml`, add `xfrm.workspace = true` to `[dependencies]`.
#[test]
fn aaa_stands_beside_the_runtime_and_below_the_daemon() {
    let packages = workspace();
    let built: BTreeSet<_> = packages["ike-aaa"]
        .iter()
        .filter(|dependency| !dependency.for_tests)
        .map(|dependency| dependency.on.as_str())
        .collect();
    let below = ["ike-config", "ike-eap", "ike-pki", "ike-pq-kem", "ike-proto", "ike-tokio"];
    assert_eq!(built, BTreeSet::from(below));
    let needed_by = |name| needed(&packages, name);
    assert!(
        ["ike-daemon", "ike-control"].iter().all(|above| !needed_by("ike-aaa").contains(above))
    );
    assert!(!needed_by("ike-tokio").contains("ike-aaa"));
}

/// A circle of test dependencies alone builds, but compiles its crates twice.
///
/// Fault: in `crates/pq-kem/Cargo.toml`, add `ike-proto.workspace = true` to `[dev-dependencies]`.
#[test]
fn crates_form_no_circle() {
    assert_eq!(circle(&workspace()), None);
}

#[test]
fn a_circle_is_found() {
    let packages = |edges: &[(&str, &str)]| {
        let mut packages = Packages::new();
        for (from, to) in edges {
            let dependency = Dependency { on: (*to).to_owned(), for_tests: true };
            packages.entry((*from).to_owned()).or_default().push(dependency);
            packages.entry((*to).to_owned()).or_default();
        }
        packages
    };
    assert_eq!(circle(&packages(&[("a", "b"), ("a", "c"), ("b", "c"), ("c", "d")])), None);
    let found = circle(&packages(&[("a", "b"), ("b", "c"), ("c", "d"), ("d", "b")])).unwrap();
    assert_eq!(found, ["b", "c", "d"].map(str::to_owned).into());
}

/// crates.io refuses a package without a description or a licence, and shows an empty page for one without the rest.
/// cargo only warns of these. `.ci/packages` holds the packages to what cargo refuses.
///
/// Fault: in `crates/eap/Cargo.toml`, take `description` away, or in `tests/namespace/Cargo.toml` take `publish = false`
/// away.
#[test]
fn the_packages_below_crates_are_published_and_describe_themselves() {
    let crates = root().join("crates").canonicalize().unwrap();
    let mut published = 0;
    for package in &metadata() {
        let manifest = Path::new(package["manifest_path"].as_str().unwrap());
        let (name, refused) = (&package["name"], package["publish"] == Value::Array(Vec::new()));
        if !manifest.starts_with(&crates) {
            assert!(refused, "{name} lies outside crates/, and lacks `publish = false`");
            continue;
        }
        assert!(package["publish"].is_null(), "{name} lies below crates/, and is not published");
        published += 1;
        for field in ["description", "license", "repository", "readme"] {
            assert!(package[field].is_string(), "{name} has no {field}");
        }
        let readme = manifest.with_file_name(package["readme"].as_str().unwrap());
        assert!(readme.is_file(), "{name}: no file {}", readme.display());
        // <https://doc.rust-lang.org/cargo/reference/manifest.html#the-keywords-field>
        for field in ["keywords", "categories"] {
            let words = package[field].as_array().unwrap();
            assert!((1..=5).contains(&words.len()), "{name}: {field}: {words:?}");
        }
    }
    assert!(published > 10, "{published} packages are published");
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The packages of the workspace, as cargo describes them.
fn metadata() -> Vec<Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

/// The packages of the workspace, and which of them each depends on.
fn workspace() -> Packages {
    let list = |value: &Value, key: &str| value[key].as_array().unwrap().clone();
    let text = |value: &Value, key: &str| value[key].as_str().unwrap().to_owned();
    let packages: Packages = metadata()
        .iter()
        .map(|package| {
            let name = text(package, "name");
            let dependencies = list(package, "dependencies")
                .iter()
                // Those of the workspace have a path.
                .filter(|dependency| dependency["path"].is_string())
                .map(|dependency| Dependency {
                    on: text(dependency, "name"),
                    for_tests: dependency["kind"] == "dev",
                })
                // A package turns its own features on in its tests by naming itself.
                .filter(|dependency| !(dependency.for_tests && dependency.on == name))
                .collect();
            (name, dependencies)
        })
        .collect();
    assert!(packages["ike-daemon"].iter().any(|dependency| dependency.on == "ike-proto"));
    packages
}

/// The packages that cargo builds for a package, with its features as `arguments` say.
fn built(arguments: &[&str]) -> BTreeSet<String> {
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--edges", "normal,build", "--prefix", "none"])
        .args(arguments)
        .current_dir(root())
        .output()
        .unwrap();
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    let tree = String::from_utf8(tree.stdout).unwrap();
    tree.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

/// The packages that are built for `name` and its tests.
fn needed<'a>(packages: &'a Packages, name: &str) -> BTreeSet<&'a str> {
    let mut needed = BTreeSet::new();
    let mut open: Vec<_> = packages[name].iter().map(|dependency| dependency.on.as_str()).collect();
    while let Some(next) = open.pop() {
        if needed.insert(next) {
            let built = packages[next].iter().filter(|dependency| !dependency.for_tests);
            open.extend(built.map(|dependency| dependency.on.as_str()));
        }
    }
    needed
}

/// The packages of a circle, if there is one. Dependencies of tests count.
fn circle(packages: &Packages) -> Option<BTreeSet<String>> {
    let mut left: BTreeMap<&str, BTreeSet<&str>> = packages
        .iter()
        .map(|(name, dependencies)| {
            (name.as_str(), dependencies.iter().map(|dependency| dependency.on.as_str()).collect())
        })
        .collect();
    loop {
        let before = left.len();
        let names: BTreeSet<&str> = left.keys().copied().collect();
        let used: BTreeSet<&str> = left.values().flatten().copied().collect();
        // A package without dependencies among the rest, or without users there, is in no circle.
        left.retain(|name, on| !on.is_disjoint(&names) && used.contains(name));
        if left.is_empty() {
            return None;
        }
        if left.len() == before {
            return Some(left.keys().map(|&name| name.to_owned()).collect());
        }
    }
}
