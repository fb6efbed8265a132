//! Writes the seeds of every target to `corpus/TARGET/`, where `cargo fuzz run` looks for them.

use std::error::Error;
use std::fs;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for (target, seeds) in [
        ("message", ike_fuzz::seeds::messages()),
        ("fragments", ike_fuzz::seeds::fragments()),
        ("fragment_ack", ike_fuzz::seeds::fragment_acks()),
        ("endpoint_script", ike_fuzz::seeds::scripts()),
        ("esp", ike_fuzz::seeds::esp()),
        ("stream", ike_fuzz::seeds::streams()),
        ("configuration", ike_fuzz::seeds::configurations()),
    ] {
        let folder = corpus.join(target);
        fs::create_dir_all(&folder)?;
        for (number, seed) in seeds.iter().enumerate() {
            fs::write(folder.join(format!("seed-{number:04}")), seed)?;
        }
        println!("{target}: {} seeds", seeds.len());
    }
    Ok(())
}
