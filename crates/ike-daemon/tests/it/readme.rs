//! The first tunnel of README.md, and the same with certificates of docs/first-tunnel.md, done as they say.

use std::fs;
use std::path::Path;

use crate::common::{Pair, list, tempdir};
use crate::pki::done;
use ike_control::views::IkeSa;
use ike_control::views::render;
use ike_daemon::config::{self, Config};
use ike_tokio::Target;

/// The indented blocks below a heading of a document.
fn blocks(document: &str, heading: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(document);
    let text = fs::read_to_string(path).expect("a document");
    let (_, below) = text.split_once(&format!("\n## {heading}\n")).expect("the heading");
    let section = below.split("\n## ").next().unwrap_or_default();
    let mut blocks = vec![String::new()];
    for line in section.lines() {
        match (line.strip_prefix("    "), blocks.last_mut()) {
            (Some(code), Some(block)) => *block += &format!("{code}\n"),
            (None, Some(block)) if line.is_empty() && !block.is_empty() => block.push('\n'),
            (None, Some(block)) if !block.is_empty() => blocks.push(String::new()),
            _ => {}
        }
    }
    blocks.retain(|block| !block.trim().is_empty());
    blocks
}

/// The same for the other host.
fn exchanged(text: &str) -> String {
    [("left", "right"), ("10.1.", "10.2.")].iter().fold(text.to_owned(), |text, (a, b)| {
        text.replace(a, "\u{0}").replace(b, a).replace('\u{0}', b)
    })
}

/// The configuration of one side: `left` as it is, or exchanged. Both sides are on the loopback interface, on ports
/// that the system chooses, and without traps, because there is no data plane.
fn configured(left: &str, folder: &Path, side: &str, port: u16) -> Config {
    let text = if side == "left" { left.to_owned() } else { exchanged(left) };
    let lines = text.lines().filter(|line| !line.starts_with("start_action"));
    let text = lines.map(|line| format!("{line}\n")).collect::<String>();
    let text = text
        .replace("192.0.2.1", "127.0.0.1")
        .replace("192.0.2.2", "127.0.0.1")
        .replace("[connections.site]\n", &format!("[connections.site]\nremote_port = {port}\n"));
    let text = format!("[charon]\nport = 0\nport_nat_t = 0\n\n{text}");
    let config = config::parse(&text, &folder.join(side));
    let config = config.unwrap_or_else(|mistakes| panic!("{text}\n{mistakes:#?}"));
    assert_eq!(config.warnings, Vec::<String>::new());
    config
}

/// Fault: take ML-KEM-768 out of `ProposalConfig::default_ike`.
#[tokio::test]
async fn the_readmes_tunnel_comes_up_with_the_proof_that_it_shows() {
    let folder = tempdir("readme-secret");
    let [file, commands, proof] = &blocks("README.md", "Two hosts and a secret")[..] else {
        panic!("three blocks")
    };
    assert!(commands.trim().lines().all(|line| {
        let words = ["chmod 600 ", "ike-daemon check --config ", "ike-daemon run --config "];
        words.iter().any(|word| line.starts_with(word)) && line.ends_with("/etc/ike/left.toml")
    }));
    let secret = format!("0s{}", "QUJD".repeat(11));
    assert!(file.contains("\"0s…\""));
    let file = file.replace("0s…", &secret);
    let pair = Pair::configured(|side, port| configured(&file, &folder, side, port)).await;
    pair.left.operator().up(&Target::named("net")).await.unwrap();
    for daemon in [&pair.left, &pair.right] {
        let shown = render(&list(daemon).await);
        assert!(proof.trim().ends_with("/KE1_ML_KEM_768"));
        assert!(shown.lines().any(|line| line.trim() == proof.trim()), "{proof}{shown}");
    }
}

#[tokio::test]
async fn the_certificates_of_the_first_tunnel_work_as_it_says() {
    let folder = tempdir("readme");
    let [commands, rounds] = &blocks("docs/first-tunnel.md", "Two hosts and certificates")[..]
    else {
        panic!("two blocks")
    };
    let commands = commands.replace("\\\n", " ");
    let commands: Vec<&str> = commands.lines().filter(|line| !line.trim().is_empty()).collect();
    assert_eq!(commands.len(), 4);
    let own: Vec<String> = commands[2..].iter().map(|line| exchanged(line)).collect();
    for line in commands.iter().map(|line| (*line).to_owned()).chain(own) {
        done(&folder, line.strip_prefix("ike-daemon pki ").expect("a command of pki"));
    }
    for side in ["left", "right"] {
        for (to, name) in [
            ("x509ca", "ca.pem".to_owned()),
            ("x509", format!("{side}.pem")),
            ("private", format!("{side}.key")),
        ] {
            let to = folder.join(side).join(to);
            fs::create_dir_all(&to).unwrap();
            fs::copy(folder.join(&name), to.join(&name)).unwrap();
        }
    }

    let secret = &blocks("README.md", "Two hosts and a secret")[0];
    let replaced = ["[connections.site.local]", "[connections.site.remote]", "[secrets."];
    let kept =
        secret.split("\n\n").filter(|part| !replaced.iter().any(|old| part.starts_with(old)));
    let left = [kept.collect::<Vec<_>>().join("\n\n"), rounds.clone()].join("\n\n");
    let pair = Pair::configured(|side, port| configured(&left, &folder, side, port)).await;
    pair.left.operator().up(&Target::named("net")).await.unwrap();
    let shown = render(&list(&pair.left).await);
    assert!(shown.contains("  local authenticated by ML-DSA-65\n"), "{shown}");
    let remote = "  remote authenticated by ML-DSA-65, certificate 'O=example, CN=right'\n";
    assert!(shown.contains(remote), "{shown}");
    let json = serde_json::to_value(list(&pair.left).await).unwrap();
    assert_eq!(json[0]["remote-auth"][0]["by"], "ML-DSA-65");
    assert_eq!(json[0]["remote-auth"][0]["certificate"], "O=example, CN=right");
    let back: Vec<IkeSa> = serde_json::from_value(json).unwrap();
    assert_eq!(back[0].remote_auth[0].id, "right.example.org");
}
