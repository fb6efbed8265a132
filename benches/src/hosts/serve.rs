//! `ike-bench serve`: a responder for every suite, until it is interrupted.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use ike_daemon::config::Ports;
use ike_daemon::daemon::{Daemon, Parts, open, os_crypto};
use ike_tokio::{Listen, Plane};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::bundle::{self, Bundle, Settings};
use super::suite::{self, SUITES, Suite};
use super::tally::{Sent, Tally};
use super::{ServeArgs, charon};

/// Octets of a question at most: some 400 SPIs.
const QUESTION: u64 = 8192;

/// Runs it until `stop`.
pub async fn run(args: &ServeArgs, stop: impl Future<Output = ()>) -> Result<(), String> {
    if args.bundle.exists() {
        if args.only_bundle {
            let name = args.bundle.display();
            return Err(format!("{name}: is there already; remove it, or name another --bundle"));
        }
    } else {
        let chosen: Vec<&Suite> = match args.suite.as_slice() {
            [] => SUITES.iter().collect(),
            names => names.iter().map(|name| suite::find(name)).collect::<Result<_, _>>()?,
        };
        eprintln!("making keys and certificates in {}", args.bundle.display());
        bundle::make(&args.bundle, &chosen, args.initiators)?;
    }
    if args.only_bundle {
        return Ok(());
    }
    let own = Bundle::open(&args.bundle, "responder")?;
    let suites = own.suites(&args.suite)?;
    let settings = Settings {
        peer: None,
        peer_port: 0,
        port: args.port,
        rules: args.rules,
        charon: charon(&args.charon),
    };
    let config = own.config(&suites, &settings)?;
    let ports = Ports { ike: args.ike_port, nat_t: args.port };
    let (sockets, plane) = open(&Listen::default(), ports, |_| Ok(Plane::none()))
        .map_err(|error| error.to_string())?;
    let counts = SocketAddr::new(std::net::Ipv4Addr::UNSPECIFIED.into(), args.counts_port);
    let listener = TcpListener::bind(counts).await.map_err(|e| format!("TCP {counts}: {e}"))?;
    let (tap, mut messages) = mpsc::unbounded_channel();
    let crypto = os_crypto(pq_kem::provider());
    let daemon = Daemon::start(Parts { config, sockets, plane, crypto, tap: Some(tap) }).await;

    let names: Vec<_> = suites.iter().map(|suite| suite.name).collect();
    eprintln!("serving {}", names.join(", "));
    eprintln!(
        "on UDP {} (IKE with the non-ESP marker), UDP {} (without), TCP {} (what was sent)",
        daemon.ports().nat_t,
        daemon.ports().ike,
        args.counts_port
    );
    let initiator = args.bundle.join("initiator");
    if initiator.is_dir() {
        eprintln!(
            "on the other host: ike-bench links --to THIS_HOST --port {} --bundle initiator, with a copy of {}",
            daemon.ports().nat_t,
            initiator.display()
        );
    }

    let tally = Arc::new(Mutex::new(Tally::default()));
    let asked = Arc::clone(&tally);
    let answering = tokio::spawn(async move {
        loop {
            if let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, Arc::clone(&asked)));
            }
        }
    });
    let mut stop = std::pin::pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop => break,
            message = messages.recv() => match message {
                Some(message) => {
                    tally.lock().unwrap_or_else(PoisonError::into_inner).note(&message);
                }
                None => break,
            },
        }
    }
    answering.abort();
    // Nobody waits for the peers of a measurement.
    drop(daemon);
    Ok(())
}

/// Ready when a signal asks for the end.
pub async fn signalled() {
    let terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate());
    match terminate {
        Ok(mut terminate) => tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = terminate.recv() => {}
        },
        Err(_) => {
            let _ = tokio::signal::ctrl_c().await;
        }
    }
}

/// Answers lines of initiator's SPIs with what was sent for them together.
async fn answer(stream: TcpStream, tally: Arc<Mutex<Tally>>) {
    let (reading, mut writing) = stream.into_split();
    let mut reading = BufReader::new(reading);
    let mut line = String::new();
    loop {
        line.clear();
        match (&mut reading).take(QUESTION).read_line(&mut line).await {
            Ok(octets) if octets > 0 && line.ends_with('\n') => {}
            _ => return,
        }
        let mut sum = Sent::default();
        for word in line.split_whitespace() {
            let Ok(spi) = u64::from_str_radix(word, 16) else { return };
            sum += tally.lock().unwrap_or_else(PoisonError::into_inner).of(spi);
        }
        let text = format!("{} {} {}\n", sum.datagrams, sum.octets, sum.again);
        if writing.write_all(text.as_bytes()).await.is_err() {
            return;
        }
    }
}
