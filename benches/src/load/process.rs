//! What a process on this host has used: CPU time and memory.

use std::fs;
use std::time::Duration;

use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

/// A process that is watched.
#[derive(Debug, Clone, Copy)]
pub struct Process {
    pid: u32,
    clock: ClockId,
}

/// What it has used so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time of all its threads, also of those that have ended.
    pub cpu: Duration,
    /// The kernel's part of it, in whole clock ticks.
    pub system: Duration,
    /// Octets of memory in use (RSS).
    pub rss: u64,
}

impl Process {
    /// The process `pid` of this host.
    ///
    /// # Errors
    /// There is none, or it cannot be looked at.
    pub fn new(pid: u32) -> Result<Self, String> {
        let wrong = |error: &dyn std::fmt::Display| format!("process {pid}: {error}");
        let raw = i32::try_from(pid).map_err(|error| wrong(&error))?;
        let clock = clock_getcpuclockid(Pid::from_raw(raw)).map_err(|error| wrong(&error))?;
        let process = Self { pid, clock };
        process.usage()?;
        Ok(process)
    }

    /// What it has used until now.
    ///
    /// # Errors
    /// It has ended.
    pub fn usage(&self) -> Result<Usage, String> {
        let Self { pid, clock } = *self;
        let wrong = |error: &dyn std::fmt::Display| format!("process {pid}: {error}");
        let read = |name: &str| {
            fs::read_to_string(format!("/proc/{pid}/{name}")).map_err(|error| wrong(&error))
        };
        let cpu = clock_gettime(clock).map_err(|error| wrong(&error))?.into();
        let system = stime(&read("stat")?).ok_or_else(|| wrong(&"/proc has no stime"))?;
        let rss = rss(&read("status")?).ok_or_else(|| wrong(&"it has ended"))?;
        Ok(Usage { cpu, system, rss })
    }
}

/// `stime` of /proc/PID/stat: the fifteenth field; the second, in parentheses, may hold anything.
fn stime(stat: &str) -> Option<Duration> {
    let (_, fields) = stat.rsplit_once(')')?;
    let ticks: u64 = fields.split_whitespace().nth(12)?.parse().ok()?;
    Some(Duration::from_millis(ticks * 1000 / TICKS))
}

/// `VmRSS` of /proc/PID/status.
fn rss(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

/// USER_HZ, which is the same on every Linux that this is built for.
const TICKS: u64 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_hold_anything() {
        let stat = "7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 11 250 13 14";
        assert_eq!(stime(stat), Some(Duration::from_millis(2500)));
        assert_eq!(stime("7 (a"), None);
        assert_eq!(rss("VmHWM: 9 kB\nVmRSS:\t   12 kB\n"), Some(12 * 1024));
        assert_eq!(rss("Name: x\n"), None);
    }

    #[test]
    fn this_process_grows_older() {
        let process = Process::new(std::process::id()).unwrap_or_else(|error| panic!("{error}"));
        let before = process.usage().unwrap_or_else(|error| panic!("{error}"));
        let mut sum = 0_u64;
        while process.usage().is_ok_and(|usage| usage.cpu < before.cpu + Duration::from_millis(5)) {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(before.rss > 100_000, "{before:?}");
        assert!(Process::new(u32::MAX).is_err());
        assert!(Process::new(4_194_305).is_err(), "above the highest pid there can be");
    }
}
