//! The seeds run without libFuzzer, and get as far as they are meant to.

use std::fs;
use std::path::Path;

use ike_fuzz::{endpoint_script, fragments, message, seeds};

#[test]
fn messages() {
    seeds::messages().iter().for_each(|seed| message::run(seed));
}

#[test]
fn fragments_are_put_together() {
    let answered: usize = seeds::fragments().iter().map(|seed| fragments::run(seed)).sum();
    assert!(answered >= 4, "{answered} messages were answered");
}

#[test]
fn scripts_bring_children_up() {
    let scripts = seeds::scripts();
    let with_children = scripts.iter().filter(|seed| endpoint_script::run(seed) > 0).count();
    assert!(2 * with_children > scripts.len(), "{with_children} of {}", scripts.len());
}

#[test]
fn what_was_found_stays_mended() {
    let mut ran = 0;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("found/endpoint_script");
    for entry in fs::read_dir(folder).expect("the folder") {
        let path = entry.expect("an entry").path();
        println!("{}", path.display());
        endpoint_script::run(&fs::read(path).expect("an input"));
        ran += 1;
    }
    assert!(ran >= 3);
}
