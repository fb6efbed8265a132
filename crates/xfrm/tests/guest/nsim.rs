//! netdevsim devices, and what is logged.

use std::fs;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use crate::support::ip;

/// A device in the network namespace of this thread, up, with the address 192.0.2.1/24. Gone when dropped.
pub struct Nsim {
    pub id: u32,
    pub index: u32,
    pub name: String,
}

impl Nsim {
    /// `packet`: it takes whole packets, too.
    pub fn new(packet: bool) -> Self {
        let word = if packet { "Y" } else { "N" };
        fs::write("/sys/module/netdevsim/parameters/ipsec_packet", word).unwrap();
        let id = NEXT.fetch_add(1, Ordering::Relaxed) + std::process::id() * 100;
        fs::write(NEW_DEVICE, format!("{id} 1")).unwrap();
        let (index, name) = link(id);
        ip(&format!("address add 192.0.2.1/24 dev {name}"));
        ip(&format!("link set {name} up"));
        Self { id, index, name }
    }

    /// The SAs the NIC has, as it prints them: SPI, salt and key are words in the CPU's order.
    pub fn sas(&self) -> String {
        let file = format!("/sys/kernel/debug/netdevsim/netdevsim{}/ports/0/ipsec", self.id);
        fs::read_to_string(file).unwrap()
    }
}

impl Drop for Nsim {
    fn drop(&mut self) {
        _ = fs::write("/sys/bus/netdevsim/del_device", self.id.to_string());
    }
}

/// Index and name; not from sysfs, which may be another network namespace's.
fn link(id: u32) -> (u32, String) {
    let links = ip("-o -d link");
    let parent = format!("parentdev netdevsim{id} ");
    let line = links.lines().find(|line| line.contains(&parent)).unwrap();
    let mut parts = line.split(':').map(str::trim);
    (parts.next().unwrap().parse().unwrap(), parts.next().unwrap().to_owned())
}

/// The file that makes devices.
pub const NEW_DEVICE: &str = "/sys/bus/netdevsim/new_device";

static NEXT: AtomicU32 = AtomicU32::new(1);

/// What `work` logs at info and above.
pub fn log_of<R>(work: impl FnOnce() -> R) -> (R, String) {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_max_level(tracing::Level::INFO)
        .with_writer(move || writer.clone())
        .finish();
    let result = tracing::subscriber::with_default(subscriber, work);
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    (result, text)
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(octets);
        Ok(octets.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
