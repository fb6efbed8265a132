//! The modules of a crate stand in layers, and imports only point down.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use ike_test_layout::{ROOT, read};

/// Crates with their layers from top to bottom. Modules of one layer do not import each other. ARCHITECTURE.md has the
/// same layers with a word about each.
const LAYERS: &[(&str, &[&[&str]])] = &[
    (
        "ike-daemon",
        &[
            &["commands"],
            &["man"],
            &["cli"],
            &["demo", "offload", "pki"],
            &["daemon"],
            &["plane", "system", "qcd", "roam", "void_tickets"],
            &["config"],
            &["names"],
            &["signer"],
            &["service"],
            &["exit", "files", "log", "parts"],
        ],
    ),
    (
        "ike-aaa",
        &[
            &["sessions"],
            &["credentials", "dae"],
            &["pools", "eap", "lookup", "accounting"],
            &["radius", "fetch", "no_radius"],
            &["coverage"],
        ],
    ),
    (
        "ike-control",
        &[
            &["vici"],
            &["control", "exporter"],
            &["operator"],
            &["program"],
            &["demands", "error", "views", "metrics", "log", "local"],
        ],
    ),
    (
        "ike-tokio",
        &[
            &["start"],
            &["driver"],
            &["handle"],
            &["delegate", "report"],
            &["plane"],
            &["sockets"],
            &["streams", "no_streams", "shards"],
            &["net", "clock", "crypto", "target"],
        ],
    ),
];

fn workspace() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Fault: in `crates/ike-tokio/src/streams/mod.rs`, import something of `crate::driver`.
#[test]
fn imports_only_point_down() {
    let mut report = String::new();
    for (name, layers) in LAYERS {
        let graph = read(&workspace().join("crates").join(name).join("src")).unwrap();
        let mut depths = BTreeMap::new();
        for (depth, layer) in layers.iter().enumerate() {
            for module in *layer {
                assert_eq!(
                    depths.insert(*module, depth),
                    None,
                    "{name}: {module} is in two layers"
                );
            }
        }
        let listed: Vec<_> = depths.keys().copied().collect();
        let modules = graph.modules.iter().filter(|module| *module != ROOT);
        let modules: Vec<_> = modules.map(String::as_str).collect();
        assert_eq!(modules, listed, "{name}: each module is in a layer");
        for import in graph.imports.iter().filter(|import| import.from != ROOT) {
            // The root is above all layers.
            let down = depths.get(import.to.as_str()).is_some_and(|to| *to > depths[&*import.from]);
            if !down {
                writeln!(report, "{name}: {import}").unwrap();
            }
        }
    }
    assert!(report.is_empty(), "imports that do not point down:\n{report}");
}

/// Fault: in ARCHITECTURE.md, exchange two layers.
#[test]
fn the_architecture_has_the_same_layers() {
    let text = fs::read_to_string(workspace().join("ARCHITECTURE.md")).unwrap();
    for (name, layers) in LAYERS {
        let heading = format!("### Layers of `{name}`\n");
        let (_, section) = text.split_once(&heading).unwrap_or_else(|| panic!("no {heading:?}"));
        let section = section.split("\n#").next().unwrap_or_default();
        // A line that begins with more spaces goes on with the words about the layer above.
        let lines = section.lines().filter_map(|line| line.strip_prefix("    "));
        let lines = lines.filter(|line| !line.starts_with(' '));
        let stated: Vec<Vec<&str>> = lines
            .map(|line| line.split("  ").next().unwrap_or_default().split(", ").collect())
            .collect();
        let expected: Vec<Vec<&str>> = layers.iter().map(|layer| layer.to_vec()).collect();
        assert_eq!(stated, expected, "{name}");
    }
}
