//! Tickets that are void (RFC 5723 §9.8) stay so when the daemon starts again: a file, a line for each IKE SA.
//!
//! ```text
//! SPI of the initiator, SPI of the responder (hexadecimal), until when (seconds since 1970)
//! ```
//!
//! A thread of its own appends new entries every second, and the rest at the end. Each start leaves out expired
//! entries.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ike_proto::{Registry, Void};
use ike_tokio::now;

/// How long changes are collected. Who crashes within that forgets them.
const COLLECT: Duration = Duration::from_secs(1);
/// Lines after which the file is made anew, of what counts yet.
const MOST_LINES: usize = 1 << 18;

/// Keeps them. Dropping it writes the rest.
#[derive(Debug)]
pub(crate) struct VoidTickets {
    bell: Option<mpsc::Sender<()>>,
    writer: Option<JoinHandle<()>>,
}

impl VoidTickets {
    /// Tells `registry` what the file at `path` has, and keeps there what becomes void from now on.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub(crate) fn keep_in(path: PathBuf, registry: Registry) -> io::Result<Self> {
        let now = now();
        for (spis, until) in load(&path, now.wall)? {
            registry.make_void(spis, now, until);
        }
        let (seen, all) = registry.void_since(0);
        let file = rewrite(&path, &all)?;
        tracing::info!(file = %path.display(), tickets = all.len(), "void tickets of earlier runs");
        let mut kept = Kept { path, file, lines: all.len(), seen, registry };
        let (bell, rung) = mpsc::channel();
        let name = thread::Builder::new().name("ike-void-tickets".into());
        let writer = name.spawn(move || {
            while rung.recv_timeout(COLLECT) != Err(RecvTimeoutError::Disconnected) {
                kept.write();
            }
            kept.write();
        })?;
        Ok(Self { bell: Some(bell), writer: Some(writer) })
    }
}

impl Drop for VoidTickets {
    fn drop(&mut self) {
        drop(self.bell.take());
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

/// The file, and how much of what there is it has.
struct Kept {
    path: PathBuf,
    file: File,
    lines: usize,
    seen: u64,
    registry: Registry,
}

impl Kept {
    /// Writes what is new. What cannot be written is tried again.
    fn write(&mut self) {
        let (seen, new) = self.registry.void_since(self.seen);
        if new.is_empty() {
            return;
        }
        let written = if self.lines + new.len() > MOST_LINES {
            let (_, all) = self.registry.void_since(0);
            rewrite(&self.path, &all).map(|file| (self.file, self.lines) = (file, all.len()))
        } else {
            let appended = self.file.write_all(&encode(&new)).and_then(|()| self.file.sync_data());
            appended.map(|()| self.lines += new.len())
        };
        match written {
            Ok(()) => self.seen = seen,
            Err(error) => {
                // Half a line may have been.
                self.lines = MOST_LINES;
                tracing::error!(file = %self.path.display(), %error, "void tickets not written");
            }
        }
    }
}

fn encode(tickets: &[Void]) -> Vec<u8> {
    let mut lines = Vec::with_capacity(48 * tickets.len());
    for ((spi_i, spi_r), until) in tickets {
        let until = until.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        // To a Vec nothing fails.
        let _ = writeln!(lines, "{spi_i:016x} {spi_r:016x} {until}");
    }
    lines
}

fn decode(line: &str) -> Option<Void> {
    let mut words = line.split(' ');
    let mut spi = || u64::from_str_radix(words.next()?, 16).ok();
    let spis = (spi()?, spi()?);
    let until = UNIX_EPOCH.checked_add(Duration::from_secs(words.next()?.parse().ok()?))?;
    words.next().is_none().then_some((spis, until))
}

/// What the file has that counts yet. Lines that are not understood are left out: the last one of a crash, perhaps.
fn load(path: &Path, now: SystemTime) -> io::Result<Vec<Void>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut found = Vec::new();
    for line in BufReader::new(file).split(b'\n') {
        let line = line?;
        let void = std::str::from_utf8(&line).ok().and_then(decode);
        found.extend(void.filter(|(_, until)| *until > now));
    }
    Ok(found)
}

/// The file is the old one or the new one, whatever happens meanwhile.
fn rewrite(path: &Path, tickets: &[Void]) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let new = path.with_extension("new");
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(&encode(tickets))?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    // The name of the file is in its folder, which a crash of the host may take back otherwise.
    if let Some(folder) = path.parent() {
        File::open(folder)?.sync_all()?;
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_void_stays_so_until_it_is_over() {
        let folder = std::env::temp_dir().join(format!("ike-void-{}", std::process::id()));
        let path = folder.join("state").join("void-tickets");
        let now = SystemTime::now();
        let soon = now + Duration::from_secs(3600);
        let run = |add: &[(u64, u64)], until: SystemTime| {
            let registry = Registry::default();
            let kept = VoidTickets::keep_in(path.clone(), registry.clone()).expect("kept");
            let known: Vec<_> = registry.void_since(0).1.iter().map(|(spis, _)| *spis).collect();
            for spis in add {
                registry.make_void(*spis, ike_tokio::now(), until);
            }
            drop(kept);
            known
        };
        let (one, other) = ((0x1122_3344_5566_7788, u64::MAX), (1, 2));
        assert_eq!(run(&[one, other], soon), []);
        assert_eq!(run(&[(3, 4)], now - Duration::from_secs(1)), [one, other]);
        // The end of a line that a crash has cut off, and what nobody has written.
        let mut file = OpenOptions::new().append(true).open(&path).expect("there");
        file.write_all(b"\xff\n1 2\n1 2 3 4\n-1 2 99999999999\n0000000000000007 00")
            .expect("written");
        assert_eq!(run(&[(5, 6)], soon), [one, other], "(3, 4) is over");
        assert_eq!(run(&[], soon), [one, other, (5, 6)]);
        let text = fs::read_to_string(&path).expect("text");
        assert_eq!(text.lines().count(), 3, "{text}");
        fs::remove_dir_all(folder).expect("removed");
    }

    #[test]
    fn a_file_that_cannot_be_written_is_said_so() {
        let folder = std::env::temp_dir().join(format!("ike-void-no-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("made");
        assert!(VoidTickets::keep_in(folder.clone(), Registry::default()).is_err(), "a folder");
        fs::remove_dir_all(folder).expect("removed");
    }
}
