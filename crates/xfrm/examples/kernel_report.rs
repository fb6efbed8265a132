//! What the kernel of this host has, and the states and policies in this network namespace. Needs root.
//!
//!     cargo run -p xfrm --example kernel_report

use std::error::Error;

use xfrm::kernel::Kernel;
use xfrm::policy::Action;

fn main() -> Result<(), Box<dyn Error>> {
    let mut kernel = Kernel::open()?;
    println!("The kernel {}.", kernel.features()?);
    let counts = kernel.counts()?;
    println!("{} states, {} policies of sockets.", counts.states, counts.policies_sockets);
    for state in kernel.states()? {
        print!("state {:#010x} {} to {}", state.id.spi, state.src, state.id.dst);
        print!(" {}", state.algorithms.join(" "));
        println!(": {} packets, {} octets, {:?}", state.packets, state.bytes, state.offload);
    }
    for found in kernel.policies()? {
        let selector = found.policy.id.selector;
        print!("policy {} ", found.policy.priority);
        print!("{}/{} to ", selector.src.address, selector.src.length);
        print!(
            "{}/{} {:?}: ",
            selector.dst.address, selector.dst.length, found.policy.id.direction
        );
        match &found.policy.action {
            Action::Block => println!("blocked"),
            Action::Allow(templates) if templates.is_empty() => println!("in clear"),
            Action::Allow(templates) => {
                for template in templates {
                    print!("{:?} {} to {} ", template.mode, template.src, template.dst);
                }
                println!();
            }
        }
    }
    Ok(())
}
