//! `ike-bench`: how fast every backend is, and how a handshake fares on bad links. See `README.md`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::builder::RangedU64ValueParser;
use clap::{Args, Parser, Subcommand};
use ike_bench::counter::Rates;
use ike_bench::esp::cli::{Esp, esp};
use ike_bench::handshake::{HandshakeArgs, handshake};
use ike_bench::links::cli::{Links, links};
use ike_bench::memory::{self, MemoryArgs};
use ike_bench::operations::{KeyExchange, Signature, key_exchanges, signatures};
use ike_bench::report::{self, Row};
use ike_bench::sample::{Plan, sample};
use ike_bench::soak::{self, SoakArgs};
use ike_bench::{hosts, load, rates, svg};
use ike_proto::crypto::CryptoError;
use ike_tests::heap::Counting;

#[global_allocator]
static HEAP: Counting = Counting;

/// Measures every key exchange and signature backend, and handshakes over bad links.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Key generation, encapsulation (the responder's part) and decapsulation (the initiator's).
    Kem(Spreads),
    /// Key generation, signing and verifying a message of 800 octets.
    Sign(Spreads),
    /// Signatures and verifications per second for messages of 21 to 65,520 octets.
    Sizes {
        /// Seconds per size and operation.
        #[arg(long, default_value_t = 1.0)]
        seconds: f64,
        #[command(flatten)]
        output: Output,
    },
    Handshake(HandshakeArgs),
    Esp(Esp),
    Links(Box<Links>),
    Load(load::Load),
    /// A responder for `links --to` and `load --to`, until it is interrupted.
    Serve(hosts::ServeArgs),
    Memory(MemoryArgs),
    Soak(SoakArgs),
}

#[derive(Debug, Args)]
struct Spreads {
    /// Runs of each operation.
    #[arg(long, default_value_t = 100_000, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    runs: usize,
    /// Seconds after which a slow operation stops with fewer runs; the table says with how many.
    #[arg(long, default_value_t = 30.0)]
    limit: f64,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, Args)]
struct Output {
    /// Only algorithms and backends whose names contain this.
    #[arg(long, default_value = "")]
    only: String,
    /// Also write the table here as CSV.
    #[arg(long)]
    csv: Option<PathBuf>,
    /// Also write the table here as a picture.
    #[arg(long)]
    svg: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ike-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<(), String> {
    match command {
        Command::Kem(spreads) => {
            let chosen = key_exchanges().into_iter();
            let chosen =
                chosen.filter(|e| spreads.output.wants(&e.method.id().to_string(), e.backend));
            tell_spreads(&spreads, chosen.collect(), kem_rows)
        }
        Command::Sign(spreads) => {
            let chosen =
                signatures().into_iter().filter(|s| spreads.output.wants(&s.name(), s.backend));
            tell_spreads(&spreads, chosen.collect(), sign_rows)
        }
        Command::Load(args) => load::load(&args),
        Command::Serve(args) => hosts::serve(&args),
        Command::Handshake(args) => handshake(&args),
        Command::Esp(args) => esp(&args),
        Command::Links(args) => links(&args),
        Command::Memory(args) => memory::memory(&args),
        Command::Soak(args) => soak::soak(&args),
        Command::Sizes { seconds, output } => {
            let time = duration("--seconds", seconds)?;
            let mut series = Vec::new();
            let chosen = signatures().into_iter();
            let chosen = chosen.filter(|s| output.wants(&s.name(), s.backend)).collect();
            for signature in output.some(chosen)? {
                eprintln!("{} ({})", signature.name(), signature.backend);
                series.push(rates::measure(&signature, time).map_err(|e| e.to_string())?);
            }
            series.push(rates::rainbow());
            print!("{}", rates::text(&series));
            output.write(&rates::csv(&series), &svg::rates(&series))
        }
    }
}

fn tell_spreads<T>(
    spreads: &Spreads,
    chosen: Vec<T>,
    measure: fn(&T, Plan) -> Result<Vec<Row>, CryptoError>,
) -> Result<(), String> {
    let plan = Plan { runs: spreads.runs, limit: duration("--limit", spreads.limit)? };
    let chosen = spreads.output.some(chosen)?;
    let rates = Rates::measure();
    let mut rows = Vec::new();
    for one in chosen {
        let measured = measure(&one, plan).map_err(|e| e.to_string())?;
        if let Some(row) = measured.first() {
            eprintln!("{} ({})", row.algorithm, row.backend);
        }
        rows.extend(measured);
    }
    print!("{}", report::text(&rows, &rates));
    spreads.output.write(&report::csv(&rows, &rates), &svg::spreads(&rows, &rates))
}

fn kem_rows(exchange: &KeyExchange, plan: Plan) -> Result<Vec<Row>, CryptoError> {
    let KeyExchange { backend, method } = *exchange;
    let mut rng = pq_kem::os_random();
    let pending = method.initiate(&mut rng)?;
    let (public, _) = method.respond(pending.public(), &mut rng)?;
    let row =
        |operation, spread| Row { algorithm: method.id().to_string(), backend, operation, spread };
    Ok(vec![
        row("keygen", sample(plan, &mut || method.initiate(&mut rng).map(drop))),
        row(
            "encaps",
            sample(plan, &mut || method.respond(pending.public(), &mut pq_kem::os_random())),
        ),
        row("decaps", sample(plan, &mut || pending.complete(&public))),
    ])
}

fn sign_rows(signature: &Signature, plan: Plan) -> Result<Vec<Row>, CryptoError> {
    let Signature { backend, scheme, rsa_bits, verifier, keygen } = signature;
    let key = keygen(scheme.clone(), *rsa_bits)?;
    let message = [0x5a; MESSAGE];
    let signed = key.sign(scheme, &message)?;
    let row = |operation, spread| Row { algorithm: signature.name(), backend, operation, spread };
    Ok(vec![
        row("keygen", sample(plan, &mut || keygen(scheme.clone(), *rsa_bits))),
        row("sign", sample(plan, &mut || key.sign(scheme, &message))),
        row(
            "verify",
            sample(plan, &mut || verifier.verify(scheme, key.public_key(), &message, &signed)),
        ),
    ])
}

impl Output {
    fn wants(&self, algorithm: &str, backend: &str) -> bool {
        algorithm.contains(&self.only) || backend.contains(&self.only)
    }

    /// `chosen`, if anything is.
    fn some<T>(&self, chosen: Vec<T>) -> Result<Vec<T>, String> {
        match chosen.is_empty() {
            true => Err(format!(
                "--only {}: no algorithm or backend of this build has that name",
                self.only
            )),
            false => Ok(chosen),
        }
    }

    fn write(&self, csv: &str, svg: &str) -> Result<(), String> {
        for (path, content) in [(&self.csv, csv), (&self.svg, svg)] {
            if let Some(path) = path {
                write(path, content)?;
            }
        }
        Ok(())
    }
}

fn write(path: &Path, content: &str) -> Result<(), String> {
    std::fs::write(path, content).map_err(|error| format!("{}: {error}", path.display()))
}

fn duration(option: &str, seconds: f64) -> Result<Duration, String> {
    Duration::try_from_secs_f64(seconds).map_err(|error| format!("{option} {seconds:?}: {error}"))
}

/// Octets of the message of `sign`: about what an initiator signs in IKE_AUTH.
const MESSAGE: usize = 800;
