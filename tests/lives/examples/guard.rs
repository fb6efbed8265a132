//! Compares figures with their bases (see [`ike_tests::guard`]): `guard BASES FIGURES`. Fails if one is too large.

use std::process::ExitCode;

use ike_tests::guard::{Bases, Report, figures};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [bases, now] = arguments.as_slice() else {
        eprintln!("usage: guard BASES FIGURES");
        return ExitCode::from(2);
    };
    match compare(bases, now) {
        Ok(report) => {
            print!("{report}");
            if report.is_good() {
                return ExitCode::SUCCESS;
            }
            println!("guard: see benches/README.md for what may change a base or an allowance");
            ExitCode::FAILURE
        }
        Err(why) => {
            eprintln!("guard: {why}");
            ExitCode::from(2)
        }
    }
}

fn compare(bases: &str, now: &str) -> Result<Report, String> {
    let read = |path: &str| std::fs::read_to_string(path).map_err(|why| format!("{path}: {why}"));
    let all: Bases = read(bases)?.parse().map_err(|why| format!("{bases}: {why}"))?;
    Ok(all.compare(&figures(&read(now)?).map_err(|why| format!("{now}: {why}"))?))
}
