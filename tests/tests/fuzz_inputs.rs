//! The fuzz targets' seeds, and the inputs that fuzzing found, without libFuzzer.
#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "test code")]

use std::fs;
use std::path::Path;

#[path = "../../fuzz/src/configuration.rs"]
mod configuration;
#[path = "../../fuzz/src/endpoint_script.rs"]
mod endpoint_script;
#[path = "../../fuzz/src/esp.rs"]
mod esp_packets;
#[path = "../../fuzz/src/fragment_ack.rs"]
mod fragment_ack;
#[path = "../../fuzz/src/fragments.rs"]
mod fragments;
#[path = "../../fuzz/src/input.rs"]
mod input;
#[path = "../../fuzz/src/message.rs"]
mod message;
#[path = "../../fuzz/src/seeds.rs"]
mod seeds;
#[path = "../../fuzz/src/stream.rs"]
mod stream;

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
fn fragments_are_acknowledged() {
    let ran = seeds::fragment_acks().into_iter().map(|seed| fragment_ack::run(&seed));
    let (again, acks) = ran.fold((0, 0), |sum, ran| (sum.0 + ran.0, sum.1 + ran.1));
    assert!(again >= 7, "{again} fragments were sent again");
    assert!(acks >= 3, "{acks} acknowledgements were made");
}

#[test]
fn scripts_bring_children_up() {
    let scripts = seeds::scripts();
    let with_children = scripts.iter().filter(|seed| endpoint_script::run(seed) > 0).count();
    assert!(2 * with_children > scripts.len(), "{with_children} of {}", scripts.len());
}

#[test]
fn esp_packets_are_opened() {
    let seeds = seeds::esp();
    let opened = seeds.iter().filter(|seed| esp_packets::run(seed) > 0).count();
    assert!(2 * opened > seeds.len(), "{opened} of {}", seeds.len());
}

#[test]
fn streams_are_taken_apart() {
    let seeds = seeds::streams();
    let whole = seeds.iter().filter(|seed| stream::run(seed) > 0).count();
    assert!(2 * whole > seeds.len(), "{whole} of {}", seeds.len());
}

/// Fault: in `Overlay::read`, read `document.common`.
#[test]
fn configurations_are_read() {
    let seeds = seeds::configurations();
    let read: Vec<_> = seeds.iter().filter_map(|seed| configuration::run(seed)).collect();
    assert!(read.len() > 2 && read.iter().all(|connections| *connections > 0), "{read:?}");
}

/// Every target's folder in `fuzz/found`, and no other.
#[test]
fn what_was_found_stays_mended() {
    let mut ran = 0;
    let found = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/found");
    for target in fs::read_dir(found).expect("the folder") {
        let target = target.expect("an entry").path();
        let name = target.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        for entry in fs::read_dir(&target).expect("a folder") {
            let path = entry.expect("an entry").path();
            println!("{}", path.display());
            let input = fs::read(path).expect("an input");
            match name.as_str() {
                "configuration" => _ = configuration::run(&input),
                "endpoint_script" => drop(endpoint_script::run(&input)),
                "esp" => drop(esp_packets::run(&input)),
                "fragment_ack" => drop(fragment_ack::run(&input)),
                "fragments" => drop(fragments::run(&input)),
                "message" => message::run(&input),
                "stream" => drop(stream::run(&input)),
                other => panic!("no target {other}"),
            }
            ran += 1;
        }
    }
    assert!(ran >= 4);
}
