//! The queue of log lines. A thread of its own writes them, so that no other thread waits for the reader of standard error.
//! If the reader stops reading, lines are lost, and nothing else.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use tracing::Level;

/// Octets that may wait.
const ROOM: usize = 1 << 20;
/// The part of [`ROOM`] that only lines of WARN and ERROR may use.
const RESERVED: usize = ROOM / 5;
/// After a loss, lines below WARN are taken again once no more than this waits. So the log has one gap, and not lost lines
/// between any two lines.
const ENOUGH: usize = ROOM / 2;

/// A number for each level, in the order of [`LEVELS`].
pub(super) type ByLevel = [u64; 5];

/// Levels and their names in the metric.
const LEVELS: [(Level, &str); 5] = [
    (Level::ERROR, "error"),
    (Level::WARN, "warn"),
    (Level::INFO, "info"),
    (Level::DEBUG, "debug"),
    (Level::TRACE, "trace"),
];

pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    /// There is something to write.
    more: Condvar,
    /// Something was written.
    less: Condvar,
    /// All dropped lines, by level.
    dropped: [AtomicU64; 5],
}

struct Waiting {
    lines: Vec<u8>,
    /// Octets that the thread has taken and not yet written.
    taken: usize,
    /// Dropped lines that no log line has told of yet.
    dropped: ByLevel,
    /// The thread is logging the number of dropped lines.
    telling: bool,
}

impl Waiting {
    fn octets(&self) -> usize {
        self.lines.len() + self.taken
    }

    fn has_gap(&self) -> bool {
        self.dropped.iter().any(|lines| *lines > 0)
    }
}

impl Queue {
    pub(super) const fn new() -> Self {
        let waiting = Waiting { lines: Vec::new(), taken: 0, dropped: [0; 5], telling: false };
        Self {
            waiting: Mutex::new(waiting),
            more: Condvar::new(),
            less: Condvar::new(),
            dropped: [const { AtomicU64::new(0) }; 5],
        }
    }

    /// Takes a line, or drops it. Never waits for a reader.
    pub(super) fn push(&self, level: Level, line: &[u8]) {
        let mut waiting = self.lock();
        let room = match waiting.has_gap() {
            _ if level <= Level::WARN => ROOM,
            true => ENOUGH,
            false => ROOM - RESERVED,
        };
        if waiting.octets() + line.len() <= room {
            waiting.lines.extend_from_slice(line);
            self.more.notify_one();
            return;
        }
        let place = LEVELS.iter().position(|(known, _)| *known == level).unwrap_or(0);
        waiting.dropped[place] += 1;
        self.dropped[place].fetch_add(1, Ordering::Relaxed);
    }

    /// Writes lines to `out`, for ever. Calls `tell` with the numbers of dropped lines as soon as there is room for a line.
    pub(super) fn serve(&self, mut out: File, tell: impl Fn(ByLevel)) {
        loop {
            let lines = self.take();
            // One write for each line keeps lines whole if other processes write there, too.
            for line in lines.split_inclusive(|octet| *octet == b'\n') {
                // If nobody can read standard error, an error cannot be told either.
                let _ = write(&mut out, line);
                self.written(line.len(), &tell);
            }
        }
    }

    fn take(&self) -> Vec<u8> {
        let idle = |waiting: &mut Waiting| waiting.lines.is_empty();
        let waiting = self.more.wait_while(self.lock(), idle);
        let mut waiting = waiting.unwrap_or_else(PoisonError::into_inner);
        waiting.taken = waiting.lines.len();
        mem::take(&mut waiting.lines)
    }

    fn written(&self, octets: usize, tell: &impl Fn(ByLevel)) {
        let mut waiting = self.lock();
        waiting.taken -= octets;
        if waiting.has_gap() && waiting.octets() <= ENOUGH {
            let dropped = mem::take(&mut waiting.dropped);
            waiting.telling = true;
            drop(waiting);
            // `tell` logs, and so adds a line to this queue.
            tell(dropped);
            waiting = self.lock();
            waiting.telling = false;
        }
        drop(waiting);
        self.less.notify_all();
    }

    /// Waits until all is written, but no longer than `limit`.
    pub(super) fn flush(&self, limit: Duration) {
        let busy =
            |waiting: &mut Waiting| waiting.octets() > 0 || waiting.has_gap() || waiting.telling;
        // What is left then is lost, with the process.
        let _ = self.less.wait_timeout_while(self.lock(), limit, busy);
    }

    /// How many lines were ever dropped, by level.
    #[cfg(any(test, feature = "metrics"))]
    pub(super) fn dropped(&self) -> [(&'static str, u64); 5] {
        let mut count = self.dropped.iter().map(|lines| lines.load(Ordering::Relaxed));
        LEVELS.map(|(_, name)| (name, count.next().unwrap_or(0)))
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes all of it, however long that takes.
fn write(out: &mut File, mut line: &[u8]) -> io::Result<()> {
    while !line.is_empty() {
        match out.write(line) {
            Ok(count) => line = line.get(count..).unwrap_or_default(),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // Another process with this descriptor has made it nonblocking.
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                poll(&mut [PollFd::new(out, PollFlags::OUT)], None)?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, PipeReader};
    use std::os::fd::OwnedFd;
    use std::sync::{Arc, mpsc};
    use std::thread;

    use super::*;

    /// A queue into a pipe that nobody reads yet. A line tells what was dropped.
    fn stuck() -> (Arc<Queue>, PipeReader, File) {
        let (reader, writer) = io::pipe().unwrap();
        let out = File::from(OwnedFd::from(writer));
        let queue = Arc::new(Queue::new());
        let (serving, its) = (Arc::clone(&queue), out.try_clone().unwrap());
        thread::spawn(move || {
            let told = Arc::clone(&serving);
            serving.serve(its, move |dropped| {
                told.push(Level::WARN, format!("dropped {dropped:?}\n").as_bytes());
            });
        });
        (queue, reader, out)
    }

    /// All lines from now on.
    fn lines(reader: PipeReader) -> mpsc::Receiver<String> {
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(reader).lines().map_while(Result::ok) {
                sender.send(line).unwrap();
            }
        });
        lines
    }

    fn line(word: &str, number: usize) -> Vec<u8> {
        format!("{word} {number:094}\n").into_bytes()
    }

    /// Faults, each by itself: in `Queue::push`, let the room be ROOM for every level, or do not count; in
    /// `Queue::written`, never tell.
    #[test]
    fn a_reader_who_stands_still_costs_lines_that_are_counted_and_nobody_waits() {
        let (queue, reader, out) = stuck();
        let flags = rustix::fs::fcntl_getfl(&out).unwrap();
        for number in 0..20_000 {
            queue.push(Level::INFO, &line("info", number));
        }
        for number in 0..1_000 {
            queue.push(Level::WARN, &line("warn", number));
        }
        queue.push(Level::DEBUG, b"debug\n");
        queue.flush(Duration::from_millis(20));
        assert_eq!(rustix::fs::fcntl_getfl(&out).unwrap(), flags, "those of others as well");

        let lines = lines(reader);
        queue.flush(Duration::from_secs(20));
        queue.push(Level::INFO, b"after\n");
        let mut read: Vec<String> = Vec::new();
        while read.last().is_none_or(|line| line != "after") {
            read.push(lines.recv_timeout(Duration::from_secs(20)).unwrap());
        }
        let count = |word: &str| read.iter().filter(|line| line.starts_with(word)).count();
        let (infos, told) = (count("info"), read[read.len() - 2].clone());
        assert_eq!(count("warn"), 1_000, "there is room left for them");
        // What is in the pipe counts no more.
        assert!((8_300..9_500).contains(&infos), "{infos}");
        assert_eq!(told, format!("dropped [0, 0, {}, 1, 0]", 20_000 - infos));
        assert_eq!(queue.dropped()[2], ("info", 20_000 - infos as u64));
        assert_eq!(read[infos - 1].as_bytes(), &line("info", infos - 1)[..100 - 1], "in order");
    }

    /// Fault: in `write`, return at `WouldBlock`.
    #[test]
    fn a_pipe_that_others_have_made_nonblocking_loses_nothing() {
        let (queue, reader, out) = stuck();
        rustix::io::ioctl_fionbio(&out, true).unwrap();
        for number in 0..5_000 {
            queue.push(Level::INFO, &line("info", number));
        }
        let lines = lines(reader);
        for number in 0..5_000 {
            let read = lines.recv_timeout(Duration::from_secs(20)).unwrap();
            assert_eq!(read.as_bytes(), &line("info", number)[..100 - 1]);
        }
    }

    /// Fault: let `Queue::flush` return at once.
    #[test]
    fn the_end_waits_for_a_slow_reader_and_not_for_one_who_sleeps() {
        let (queue, reader, _out) = stuck();
        for number in 0..2_000 {
            queue.push(Level::INFO, &line("info", number));
        }
        let before = std::time::Instant::now();
        queue.flush(Duration::from_millis(50));
        assert!(before.elapsed() < Duration::from_secs(10));
        let slow = thread::spawn(move || {
            thread::sleep(Duration::from_millis(100));
            BufReader::new(reader).lines().nth(1_999).unwrap().unwrap()
        });
        queue.flush(Duration::from_secs(20));
        assert_eq!(queue.lock().octets(), 0);
        assert_eq!(slow.join().unwrap().as_bytes(), &line("info", 1_999)[..100 - 1]);
    }
}
