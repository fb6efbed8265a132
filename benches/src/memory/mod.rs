//! `ike-bench memory`: what an SA holds on the heap of its engine, stage by stage.

pub mod config;
pub mod ends;
pub mod stages;
pub mod suite;

use std::fmt::Write;

use clap::Args;
use serde_json::{Value, json};

pub use stages::{Held, Measured, Stage, measure};

/// Memory of the engine for each IKE SA with one child, at both ends.
#[derive(Debug, Args)]
pub struct MemoryArgs {
    /// SAs, each with an initiator of its own.
    #[arg(long, default_value_t = 100_000)]
    sas: usize,
    /// Suites, with commas between them; all if none is named.
    #[arg(long, value_delimiter = ',')]
    suite: Vec<String>,
    /// Do not measure the resident memory of a responder alone.
    #[arg(long)]
    heap_only: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Measures and prints.
///
/// # Errors
///
/// If a suite is not known, or an SA does not come about.
pub fn memory(args: &MemoryArgs) -> Result<(), String> {
    if args.sas == 0 {
        return Err("--sas must be at least 1".to_owned());
    }
    let suites = match args.suite.as_slice() {
        [] => suite::SUITES.to_vec(),
        names => names.iter().map(|name| suite::named(name)).collect::<Result<_, _>>()?,
    };
    let mut all = Vec::new();
    for suite in suites {
        let measured = measure(suite, args.sas, !args.heap_only)?;
        if args.json {
            all.push(json(&measured));
        } else {
            print!("{}", text(&measured));
        }
    }
    if args.json {
        println!("{:#}", Value::Array(all));
    }
    Ok(())
}

/// As a table.
pub fn text(measured: &Measured) -> String {
    let Measured { suite, sas, init, stages, resident, sizes, tables } = measured;
    let mut out = format!(
        "{}: {sas} IKE SAs with one child; octets for each on the heap of either end\n\
         ({} / {}; IKE_SA_INIT: {init:.0} octets, both messages)\n\n\
         {:22} {:>9} {:>7} {:>8} {:>8}   {:>9} {:>7} {:>8} {:>8}\n",
        suite.name,
        suite.ike,
        suite.esp,
        "",
        "responder",
        "blocks",
        "chunks",
        "peak",
        "initiator",
        "blocks",
        "chunks",
        "peak",
    );
    for Stage { name, responder, initiator } in stages {
        let _ = write!(out, "{name:22}");
        for (held, gap) in [(responder, ""), (initiator, "  ")] {
            let Held { octets, blocks, chunks, most } = held;
            let _ = write!(out, "{gap} {octets:9.0} {blocks:7.1} {chunks:8.0} {most:8.0}");
        }
        out.push('\n');
    }
    if *resident > 0.0 {
        let _ = writeln!(out, "resident memory of the responder alone, idle: {resident:.0}");
        let sizes: Vec<_> =
            sizes.iter().map(|(size, each)| format!("{size} ({each:.1})")).collect();
        let _ = writeln!(out, "its allocations: octets (how many): {}", sizes.join(", "));
        let _ = writeln!(out, "and in tables {tables:.0} octets");
    }
    out.push('\n');
    out
}

fn json(measured: &Measured) -> Value {
    let Measured { suite, sas, init, stages, resident, sizes, tables } = measured;
    let held = |held: &Held| {
        json!({
            "octets": held.octets,
            "blocks": held.blocks,
            "chunks": held.chunks,
            "peak": held.most,
        })
    };
    let stages = stages.iter().map(|stage| {
        let Stage { name, responder, initiator } = stage;
        json!({ "stage": name, "responder": held(responder), "initiator": held(initiator) })
    });
    json!({
        "suite": suite.name,
        "ike": suite.ike,
        "esp": suite.esp,
        "sas": sas,
        "init_octets": init,
        "stages": stages.collect::<Vec<_>>(),
        "resident": (*resident > 0.0).then_some(*resident),
        "sizes": sizes,
        "tables": tables,
    })
}
