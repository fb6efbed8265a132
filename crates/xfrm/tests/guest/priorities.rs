//! Priorities, against those of the policies that strongSwan installs.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::{ip, kernel, run};
use xfrm::policy::{Action, PriorityClass, priority};

const SWANCTL: &str = "
connections {
    c {
        version = 2
        local_addrs = 192.0.2.1
        remote_addrs = 192.0.2.2
        local { auth = psk }
        remote { auth = psk }
        children {
            nets { local_ts = 10.1.0.0/16
                   remote_ts = 10.2.0.0/24
                   start_action = trap }
            host { local_ts = 10.3.0.1
                   remote_ts = 10.4.0.1[tcp/80]
                   start_action = trap }
            ports { local_ts = 10.5.0.0/20[udp/1024-2047]
                    remote_ts = 10.6.0.0/25[udp/53]
                    start_action = trap }
            six { local_ts = 2001:db8:1::/48
                  remote_ts = 2001:db8:2::1[ipv6-icmp]
                  start_action = trap }
            dev { local_ts = 10.7.0.0/16
                  remote_ts = 10.8.0.0/24[tcp]
                  interface = d0
                  start_action = trap }
            pass { local_ts = 10.9.0.0/16
                   remote_ts = 10.10.0.0/18[udp/123]
                   mode = pass
                   start_action = trap }
            drop { local_ts = 10.11.0.0/16
                   remote_ts = 10.12.0.0/19
                   mode = drop
                   start_action = trap }
        }
    }
}
secrets {
    ike { secret = \"priorities\" }
}
";

/// Ends it, whatever becomes of the test.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn as_strongswan_installs_them() {
    let mut kernel = kernel();
    ip("link add d0 type dummy");
    ip("addr add 192.0.2.1/24 dev d0");
    ip("link set d0 up");
    let folder = std::env::temp_dir().join("priorities");
    std::fs::create_dir_all(&folder).unwrap();
    let (conf, swanctl) = (folder.join("strongswan.conf"), folder.join("swanctl.conf"));
    let socket = folder.join("vici");
    let uri = format!("unix://{}", socket.display());
    let charon = format!(
        "charon {{\n load = random nonce openssl kdf vici kernel-netlink socket-default\n \
         plugins {{ vici {{ socket = {uri} }} }}\n }}\n swanctl {{ load = random }}\n"
    );
    std::fs::write(&conf, charon).unwrap();
    std::fs::write(&swanctl, SWANCTL).unwrap();
    let daemon = Command::new("charon-systemd")
        .env("STRONGSWAN_CONF", &conf)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let _daemon = Daemon(daemon);
    for _ in 0..200 {
        if socket.exists() {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    run("swanctl", &format!("--load-all --uri {uri} --file {}", swanctl.display()));

    let found = kernel.policies().unwrap();
    println!("{}", ip("xfrm policy"));
    let mut seen = [0; 3];
    for found in &found {
        let policy = &found.policy;
        let (which, class) = match &policy.action {
            Action::Allow(templates) if templates.is_empty() => (0, PriorityClass::Pass),
            Action::Allow(_) => (1, PriorityClass::Trap),
            Action::Block => (2, PriorityClass::Fallback),
        };
        seen[which] += 1;
        let ours = priority(&policy.id.selector, class);
        assert_eq!(ours, policy.priority, "{policy:?}");
    }
    // Traps have one direction or three; shunts have all that apply.
    assert!(seen[0] >= 2 && seen[1] >= 5 && seen[2] >= 2, "{seen:?}");
}
