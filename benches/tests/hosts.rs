//! `ike-bench serve` and `links --to` on this host's loopback.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::net::UdpSocket;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use ike_bench::hosts::handshake::Handshake;
use ike_bench::hosts::serve;
use ike_bench::hosts::to::{self, Wanted};
use ike_bench::hosts::{ServeArgs, ToArgs, charon};
use ike_bench::links::rules::Rules;
use tokio::sync::oneshot;

#[derive(Debug, Parser)]
struct Serve {
    #[command(flatten)]
    args: ServeArgs,
}

#[derive(Debug, Parser)]
struct To {
    #[command(flatten)]
    args: ToArgs,
}

/// A folder that is gone in the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("ike-bench-{}-{name}", std::process::id())))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn free_port() -> u16 {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

async fn measured(name: &str, suites: &[&str], rules: Rules) -> Vec<Handshake> {
    let folder = Folder::new(name);
    let bundle = folder.0.to_str().unwrap().to_owned();
    let (port, counts) = (free_port().to_string(), free_port().to_string());
    let mut words = vec!["serve", "--bundle", &bundle, "--port", &port, "--counts-port", &counts];
    suites.iter().for_each(|suite| words.extend(["--suite", suite]));
    let args = Serve::parse_from(words).args;
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn(async move {
        serve::run(&args, async {
            let _ = stopped.await;
        })
        .await
    });
    while !folder.0.join("responder/swanctl.conf").exists()
        || tokio::net::TcpStream::connect(format!("127.0.0.1:{counts}")).await.is_err()
    {
        assert!(!serving.is_finished(), "the responder ended");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let to =
        ["to", "--to", "127.0.0.1", "--bundle", &bundle, "--port", &port, "--counts-port", &counts];
    let args = To::parse_from(to).args;
    let suites: Vec<String> = suites.iter().map(|suite| (*suite).to_owned()).collect();
    let wanted = Wanted {
        host: "127.0.0.1",
        args: &args,
        suites: &suites,
        runs: 3,
        rules,
        charon: charon(&[]),
    };
    let mut told = 0;
    let all = to::run(&wanted, |_| {
        told += 1;
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(told, all.len());
    let _ = stop.send(());
    serving.await.unwrap().unwrap();
    all
}

#[tokio::test]
async fn what_both_ends_send_is_counted() {
    let all = measured("counts", &["psk", "mlkem768-ecdsa"], Rules::Strongswan).await;
    assert_eq!(all.len(), 6);
    for one in &all {
        assert!(one.setup.is_some_and(|seconds| seconds > 0.0 && seconds < 60.0), "{one:?}");
        let responder = one.responder.unwrap();
        // IKE_SA_INIT and IKE_AUTH; with ML-KEM an IKE_INTERMEDIATE, and a certificate that takes a second
        // fragment. The delete at the end does not count.
        let least = if one.suite == "psk" { 2 } else { 3 };
        assert!((least..=least + 1).contains(&one.initiator.datagrams), "{one:?}");
        assert!((least..=least + 1).contains(&responder.datagrams), "{one:?}");
        assert_eq!((one.attempts, one.initiator.again, responder.again), (1, 0, 0), "{one:?}");
        assert!(one.initiator.octets > 500 && responder.octets > 500, "{one:?}");
    }
}

/// Fault: in `serve::run`, return `Ok(())` for a folder that is there.
#[tokio::test]
async fn a_bundle_that_is_there_is_not_taken_for_the_one_that_is_asked_for() {
    let folder = Folder::new("twice");
    let bundle = folder.0.to_str().unwrap();
    let words = ["serve", "--only-bundle", "--bundle", bundle, "--suite", "psk"];
    let args = Serve::parse_from(words).args;
    serve::run(&args, std::future::pending()).await.unwrap();
    let again = serve::run(&args, std::future::pending()).await.unwrap_err();
    assert!(again.contains("is there already"), "{again}");
}

#[tokio::test]
async fn a_bundle_without_the_suite_is_an_error() {
    let folder = Folder::new("without");
    let suite = [ike_bench::hosts::suite::find("psk").unwrap()];
    ike_bench::hosts::bundle::make(&folder.0, &suite, 1).unwrap();
    assert!(ike_bench::hosts::bundle::make(&folder.0, &suite, 1).is_err(), "it is there already");
    let own = ike_bench::hosts::bundle::Bundle::open(&folder.0, "initiator").unwrap();
    assert_eq!(own.suites(&["psk".to_owned()]).unwrap().len(), 1);
    let why = own.suites(&["classical".to_owned()]).unwrap_err();
    assert!(why.contains("nothing for classical"), "{why}");
    assert!(own.suites(&["rot13".to_owned()]).unwrap_err().contains("no suite"));
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(folder.0.join("responder/psk")).unwrap().permissions(),
    );
    assert_eq!(mode & 0o077, 0, "a secret is nobody else's");
}
