//! What every exporter of Prometheus says of its own process: time, memory, threads, and open files.
//!
//! All of it is read in /proc, which the sandbox leaves readable. A figure that cannot be read is left out.

use std::fs;

use super::Make;

/// Units of a second in `/proc/PID/stat`: `USER_HZ`, a constant of Linux' interface.
const TICKS: u64 = 100;

/// This process, and when it began.
#[derive(Debug)]
pub(super) struct Process {
    /// Seconds since 1970. It is looked up once, so that it stays when the clock is set.
    begun: Option<u64>,
}

impl Process {
    pub(super) fn new() -> Self {
        let begun = Stat::look_up()
            .zip(number("/proc/stat", "btime"))
            .map(|(stat, boot)| boot + stat.started / TICKS);
        Self { begun }
    }

    /// Adds the figures of this moment.
    pub(super) fn measure(&self, make: &Make) {
        let gauge = |name: &str, help: &str, value: Option<u64>| {
            if let Some(value) = value.and_then(|value| i64::try_from(value).ok()) {
                make.gauge(name, help).set(value);
            }
        };
        let stat = Stat::look_up();
        if let Some(stat) = &stat {
            let help = "Total user and system CPU time spent in seconds.";
            make.counter("process_cpu_seconds_total", help).inc_by(stat.cpu / TICKS);
        }
        gauge("process_open_fds", "Number of open file descriptors.", open_files());
        let most = number("/proc/self/limits", "Max open files");
        gauge("process_max_fds", "Maximum number of open file descriptors.", most);
        let size = stat.as_ref().map(|stat| stat.size);
        gauge("process_virtual_memory_bytes", "Virtual memory size in bytes.", size);
        let resident = number("/proc/self/status", "VmRSS:").map(|kib| kib * 1024);
        gauge("process_resident_memory_bytes", "Resident memory size in bytes.", resident);
        let help = "Start time of the process since unix epoch in seconds.";
        gauge("process_start_time_seconds", help, self.begun);
        let threads = stat.map(|stat| stat.threads);
        gauge("process_threads", "Number of OS threads in the process.", threads);
    }
}

/// Some fields of `/proc/self/stat`, proc_pid_stat(5).
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    /// Ticks spent, by the program and by the kernel for it.
    cpu: u64,
    threads: u64,
    /// Ticks from the boot to the start.
    started: u64,
    /// Octets of address space.
    size: u64,
}

impl Stat {
    fn look_up() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/self/stat").ok()?)
    }

    fn parse(line: &str) -> Option<Self> {
        // The program's name may hold spaces and parentheses. The third field comes after it.
        let (_, fields) = line.rsplit_once(')')?;
        let field = |number: usize| fields.split_whitespace().nth(number - 3)?.parse::<u64>().ok();
        Some(Self {
            cpu: field(14)?.checked_add(field(15)?)?,
            threads: field(20)?,
            started: field(22)?,
            size: field(23)?,
        })
    }
}

/// The number after `name` at the beginning of a line of `file`.
fn number(file: &str, name: &str) -> Option<u64> {
    first_number(&fs::read_to_string(file).ok()?, name)
}

fn first_number(text: &str, name: &str) -> Option<u64> {
    let after = text.lines().find_map(|line| line.strip_prefix(name))?;
    after.split_whitespace().next()?.parse().ok()
}

/// How many file descriptors are open.
fn open_files() -> Option<u64> {
    const FOLDER: &str = "/proc/self/fd";
    // Since Linux 6.2 the folder's size says it.
    match fs::metadata(FOLDER).ok()?.len() {
        // One descriptor is that of the folder.
        0 => u64::try_from(fs::read_dir(FOLDER).ok()?.count()).ok()?.checked_sub(1),
        count => Some(count),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Instant, SystemTime};

    use prometheus::proto::MetricType;

    use super::*;

    /// Name, type and help of each figure: dashboards of others know them.
    const FIGURES: [(&str, MetricType, &str); 7] = [
        (
            "process_cpu_seconds_total",
            MetricType::COUNTER,
            "Total user and system CPU time spent in seconds.",
        ),
        ("process_max_fds", MetricType::GAUGE, "Maximum number of open file descriptors."),
        ("process_open_fds", MetricType::GAUGE, "Number of open file descriptors."),
        ("process_resident_memory_bytes", MetricType::GAUGE, "Resident memory size in bytes."),
        (
            "process_start_time_seconds",
            MetricType::GAUGE,
            "Start time of the process since unix epoch in seconds.",
        ),
        ("process_threads", MetricType::GAUGE, "Number of OS threads in the process."),
        ("process_virtual_memory_bytes", MetricType::GAUGE, "Virtual memory size in bytes."),
    ];

    /// What is measured now, in the order of [`FIGURES`].
    fn measured() -> [f64; 7] {
        let make = Make::default();
        Process::new().measure(&make);
        let families = make.gather();
        let figures = families.iter().map(|f| (f.name(), f.get_field_type(), f.help()));
        assert_eq!(figures.collect::<Vec<_>>(), FIGURES);
        let values = families.iter().map(|family| {
            let metric = &family.get_metric()[0];
            match family.get_field_type() {
                MetricType::COUNTER => metric.get_counter().get_value(),
                _ => metric.get_gauge().get_value(),
            }
        });
        values.collect::<Vec<_>>().try_into().unwrap()
    }

    /// Fault: let `TICKS` be 1000.
    #[test]
    fn a_second_has_as_many_ticks_as_the_system_says() {
        let told = std::process::Command::new("getconf").arg("CLK_TCK").output().unwrap();
        assert_eq!(String::from_utf8(told.stdout).unwrap().trim(), TICKS.to_string());
    }

    /// Fault: in `Stat::parse`, take each field beside the right one.
    #[test]
    fn the_figures_of_this_process_are_plausible() {
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
        let begun = Instant::now();
        let [cpu, most, open, resident, started, threads, size] = measured();
        // A second of the processor is a second of the clock at the most, for each thread.
        assert!(cpu < (now - started + 2.0) * 1000.0, "{cpu}");
        assert!((8.0..1e10).contains(&most) && (3.0..most).contains(&open), "{open} of {most}");
        assert!((1e6..1e10).contains(&resident) && resident < size, "{resident} of {size}");
        assert!((now - 3600.0..=now + 1.0).contains(&started), "{started}, and it is {now}");
        assert!((1.0..1000.0).contains(&threads), "{threads}");

        // A file, a thread, memory and work are seen.
        let file = fs::File::open("/proc/self/stat").unwrap();
        let memory = vec![1u8; 64 << 20];
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || ended.recv());
        let mut sum = 0u64;
        while Stat::look_up().unwrap().cpu < (cpu as u64 + 1) * TICKS {
            assert!(begun.elapsed().as_secs() < 60, "no time passes");
            sum = memory.iter().fold(sum, |sum, octet| sum.wrapping_add(u64::from(*octet)));
        }
        std::hint::black_box(sum);
        let after = measured();
        drop((file, end));
        assert!(thread.join().unwrap().is_err());
        assert!(after[0] >= cpu + 1.0, "{cpu} and then {}", after[0]);
        assert!(after[3] > 64e6 && after[6] > 64e6, "{after:?}");
        assert_eq!(after[4], started);
        drop(memory);
    }

    /// Fault: in `Stat::parse`, split at the first `)`.
    #[test]
    fn a_program_may_have_any_name() {
        let fields = "S 1 2 3 4 5 6 7 8 9 10 250 31 14 15 20 0 7 0 4711 8192 99 1";
        let stat = Stat { cpu: 281, threads: 7, started: 4711, size: 8192 };
        assert_eq!(Stat::parse(&format!("17 (a) b (c) {fields}")), Some(stat));
        assert_eq!(Stat::parse("17 (a) S 1 2 3"), None);
        assert_eq!(Stat::parse(""), None);
    }

    /// Fault: in `first_number`, search `name` anywhere in a line.
    #[test]
    fn a_limit_may_be_unlimited() {
        let text =
            "Max cpu time     unlimited  unlimited  seconds\nMax open files   1024   4096  files\n";
        assert_eq!(first_number(text, "Max open files"), Some(1024));
        assert_eq!(first_number(text, "Max cpu time"), None);
        assert_eq!(first_number(text, "open files"), None);
    }
}
