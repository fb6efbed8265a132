//! What the tests need of the kernel. A lack of ESP is a failure with `IKE_KERNEL_TESTS_ESP=must`, as in the lab.

use std::process::Command;

use ike_test_namespace::{Lack, MUST, Need, Place};
use xfrm::probe::Features;

use crate::nsim::NEW_DEVICE;
use crate::support::{kernel, state};

const MUST_ESP: &str = "IKE_KERNEL_TESTS_ESP";

/// Network namespaces, which the test's thread may enter, and `ip`.
pub const NAMESPACES: Need = Need { met: namespaces };

/// A kernel with ESP.
pub const ESP: Need = Need { met: esp };

/// One that has IP-TFS.
pub const IPTFS: Need = Need { met: || feature("IP-TFS", |features| features.iptfs) };

/// One that changes outer addresses in place.
pub const MIGRATE: Need = Need { met: || feature("XFRM_MIGRATE", |features| features.migrate) };

/// One that has SAs for each CPU.
pub const PER_CPU: Need = Need { met: || feature("SAs for each CPU", |features| features.per_cpu) };

/// A kernel whose clock may be set: a guest's.
pub const CLOCK: Need = Need {
    met: || {
        let machine = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let guest = machine.contains("User Mode Linux");
        esp().and_then(|place| if guest { Ok(place) } else { lack("clock that may be set") })
    },
};

/// The lab's strongSwan.
pub const STRONGSWAN: Need = Need {
    met: || match std::env::var_os("IKE_LAB_KERNEL") {
        Some(_) => esp(),
        None => lack("strongSwan of the lab"),
    },
};

/// Simulated NICs. The lab's kernel `netdevsim` must have them.
pub const NETDEVSIM: Need = Need {
    met: || {
        let place = esp()?;
        if std::fs::exists(NEW_DEVICE).unwrap_or_default() {
            return Ok(place);
        }
        let fails = std::env::var("IKE_LAB_KERNEL").is_ok_and(|kernel| kernel == "netdevsim");
        Err(Lack { what: "no netdevsim".to_owned(), fails })
    },
};

/// The program `ip`.
pub const IP: Need = Need { met: || program("ip", "-V", MUST) };

/// The program `ethtool`.
pub const ETHTOOL: Need = Need { met: || program("ethtool", "--version", MUST_ESP) };

fn namespaces() -> Result<Place, Lack> {
    program("ip", "-V", MUST)?;
    let new = || nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET);
    let refused = |error: nix::Error| Lack::of(format!("no network namespace: {error}"), MUST);
    aside(move || new().map_err(refused)).map(|()| Place::Here)
}

fn esp() -> Result<Place, Lack> {
    let place = namespaces()?;
    let added = aside(|| kernel().add_state(&state(0xffff_ff01, "192.0.2.1", "192.0.2.2")));
    added.map(|_| place).map_err(|error| Lack::of(format!("no ESP: {error}"), MUST_ESP))
}

fn feature(name: &str, has: fn(&Features) -> bool) -> Result<Place, Lack> {
    let place = esp()?;
    match aside(|| kernel().features()) {
        Ok(features) if has(&features) => Ok(place),
        Ok(_) => lack(name),
        Err(error) => Err(Lack { what: format!("no {name}: {error}"), fails: true }),
    }
}

fn program(name: &str, argument: &str, must: &str) -> Result<Place, Lack> {
    let found = Command::new(name).arg(argument).output();
    found.map(|_| Place::Here).map_err(|error| Lack::of(format!("no {name}: {error}"), must))
}

/// A lack that is no failure anywhere.
fn lack(name: &str) -> Result<Place, Lack> {
    Err(Lack { what: format!("no {name}"), fails: false })
}

/// Does `work` on a thread of its own, whose namespace goes with it.
fn aside<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| scope.spawn(work).join()).expect("a probe does not panic")
}
