//! A tunnel with fixed keys, as `ip xfrm` makes one: two states, three policies. Needs root and a kernel
//! with ESP. Without an argument it says what it would do; with `install` or `remove` it does.
//!
//!     cargo run -p xfrm --example manual_tunnel -- install 192.0.2.1 192.0.2.2 10.1.0.0/16 10.2.0.0/16
//!
//! On the other host the same with both pairs exchanged. Fixed keys are for trying it out: nothing
//! replaces them, and AES-GCM is broken when a sequence number comes twice under one key.

use std::error::Error;
use std::net::IpAddr;

use ipsec_types::crypto::Secret;
use ipsec_types::dataplane::{Direction, Mode};
use xfrm::kernel::Kernel;
use xfrm::policy::{Action, Policy, PolicyDirection, PolicyId, PriorityClass, Template};
use xfrm::selector::{Prefix, Selector};
use xfrm::state::{Algorithm, Protection, State, StateId};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [command, ours, theirs, inside, beyond] = arguments.as_slice() else {
        println!(
            "manual_tunnel install|remove OUR_ADDRESS THEIR_ADDRESS OUR_NET/BITS THEIR_NET/BITS"
        );
        return Ok(());
    };
    let (ours, theirs): (IpAddr, IpAddr) = (ours.parse()?, theirs.parse()?);
    let (inside, beyond) = (prefix(inside)?, prefix(beyond)?);
    let states = [state(ours, theirs, Direction::Out), state(theirs, ours, Direction::In)];
    let policies = [
        policy(PolicyDirection::Out, (ours, theirs), (inside, beyond)),
        policy(PolicyDirection::In, (theirs, ours), (beyond, inside)),
        policy(PolicyDirection::Forward, (theirs, ours), (beyond, inside)),
    ];
    let mut kernel = Kernel::open()?;
    match command.as_str() {
        "install" => {
            for state in &states {
                kernel.add_state(state)?;
            }
            for policy in &policies {
                kernel.set_policy(policy)?;
            }
        }
        "remove" => {
            for policy in &policies {
                kernel.delete_policy(&policy.id)?;
            }
            for state in &states {
                kernel.delete_state(&state.id)?;
            }
        }
        other => return Err(format!("{other}: neither install nor remove").into()),
    }
    for state in kernel.states()? {
        println!("{:#010x} to {}: {}", state.id.spi, state.id.dst, state.algorithms.join(", "));
    }
    Ok(())
}

/// One half. Both directions have keys of their own: here the last octet of the sender makes them differ.
fn state(src: IpAddr, dst: IpAddr, direction: Direction) -> State {
    let sender = match src {
        IpAddr::V4(address) => address.octets()[3],
        IpAddr::V6(address) => address.octets()[15],
    };
    let protection = Protection::Aead(Algorithm {
        name: "rfc4106(gcm(aes))".into(),
        key: Secret::new(vec![sender; 36]),
        icv_bits: 128,
    });
    let id = StateId::new(0x1000 + u32::from(sender), dst);
    let state = State::new(id, src, Mode::Tunnel, protection);
    State { reqid: 1, direction: Some(direction), ..state }
}

fn policy(
    direction: PolicyDirection,
    (src, dst): (IpAddr, IpAddr),
    (from, to): (Prefix, Prefix),
) -> Policy {
    let selector = Selector::between(from, to);
    let template = Template::new(src, dst, 1, Mode::Tunnel);
    let priority = xfrm::policy::priority(&selector, PriorityClass::Protect);
    Policy::new(PolicyId::new(selector, direction), priority, Action::Allow(vec![template]))
}

fn prefix(text: &str) -> Result<Prefix, Box<dyn Error>> {
    let (address, bits) = text.split_once('/').ok_or_else(|| format!("{text}: no /bits"))?;
    Ok(Prefix::new(address.parse()?, bits.parse()?))
}
