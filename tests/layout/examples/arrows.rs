//! Prints the imports between the top-level modules of a crate, those on a circle with a star:
//! `cargo run -p ike-test-layout --example arrows -- crates/ike-daemon`.

#![forbid(unsafe_code)]

use std::path::Path;
use std::process::ExitCode;

use ike_test_layout::read;

fn main() -> ExitCode {
    let Some(folder) = std::env::args().nth(1) else {
        eprintln!("the folder of a crate is missing");
        return ExitCode::FAILURE;
    };
    let graph = match read(&Path::new(&folder).join("src")) {
        Ok(graph) => graph,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let circular = graph.circular();
    for ((from, to), imports) in graph.arrows() {
        let star = if circular.contains_key(&(from, to)) { "*" } else { " " };
        println!("{star} {from} -> {to}");
        for import in imports {
            println!("      {}:{}", import.file.display(), import.line);
        }
    }
    println!("{} arrows on circles", circular.len());
    ExitCode::SUCCESS
}
