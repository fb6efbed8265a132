//! A connection to one signer: questions, and the answers to them.

use std::collections::HashMap;
use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use zeroize::Zeroizing;

use super::lock;
use super::protocol::{Ask, Request, Response, Told, frame, receive, send};

/// After so many questions without an answer a signer is replaced.
pub(super) const PATIENCE: u32 = 2;

pub(super) struct Link {
    stream: UnixStream,
    /// Frames for the thread that writes; `None` before there is one: then frames are written directly.
    out: Mutex<Option<Sender<Zeroizing<Vec<u8>>>>>,
    answers: Mutex<Answers>,
    /// There is another answer, or will be none.
    news: Condvar,
    /// The numbers that this signer has for keys.
    keys: Mutex<HashMap<u64, u64>>,
    /// A new signer replaces this one.
    retired: AtomicBool,
}

#[derive(Default)]
struct Answers {
    /// The numbers of questions that somebody waits on, each with its answer once that has arrived.
    waiting: Vec<(u64, Option<Told>)>,
    /// There will be no other answer.
    ended: bool,
    /// How many answers there were.
    count: u64,
    /// How many questions that were asked after the last answer had no answer in time.
    unanswered: u32,
    /// When the last of these questions was given up.
    last: Option<Instant>,
}

impl Link {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self {
            stream,
            out: Mutex::default(),
            answers: Mutex::default(),
            news: Condvar::new(),
            keys: Mutex::default(),
            retired: AtomicBool::new(false),
        }
    }

    /// Starts threads that write questions and take answers, so that no other thread waits for a signer that does not read.
    /// `lost` is called after the last answer, unless the link is retired.
    pub(super) fn start(self: &Arc<Self>, lost: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let (frames, written) = mpsc::channel::<Zeroizing<Vec<u8>>>();
        let mut to = self.stream.try_clone()?;
        thread::Builder::new().name("signer-ask".to_owned()).spawn(move || {
            for frame in written {
                // The other thread notices that the signer is gone.
                if io::Write::write_all(&mut to, &frame).is_err() {
                    return;
                }
            }
        })?;
        *lock(&self.out) = Some(frames);
        let (link, mut from) = (Arc::clone(self), self.stream.try_clone()?);
        thread::Builder::new().name("signer".to_owned()).spawn(move || {
            while let Ok(Some(Response { number, what })) = receive::<Response>(&mut from) {
                let mut answers = lock(&link.answers);
                answers.unanswered = 0;
                answers.count += 1;
                let mut waiting = answers.waiting.iter_mut();
                if let Some((_, answer)) = waiting.find(|(question, _)| *question == number) {
                    *answer = Some(what);
                    link.news.notify_all();
                }
            }
            lock(&link.answers).ended = true;
            link.news.notify_all();
            if !link.is_retired() {
                lost();
            }
        })?;
        Ok(())
    }

    /// True if so many questions in a row had no answer in time.
    pub(super) fn is_silent(&self, questions: u32) -> bool {
        lock(&self.answers).unanswered >= questions
    }

    /// Counts a question that is not asked because the signer is silent, if `limit` has passed since the last question was
    /// given up.
    pub(super) fn count_unasked(&self, limit: Duration) {
        let mut answers = lock(&self.answers);
        if answers.last.is_some_and(|last| last.elapsed() >= limit) {
            answers.unanswered += 1;
            answers.last = Some(Instant::now());
        }
    }

    /// Forgets the questions that had no answer in time.
    pub(super) fn forgive(&self) {
        let mut answers = lock(&self.answers);
        (answers.unanswered, answers.last) = (0, None);
    }

    /// The answer to `what`, the question of this number, within `limit`.
    pub(super) fn ask(&self, number: u64, what: Ask, limit: Duration) -> io::Result<Told> {
        if lock(&self.out).is_none() {
            self.say(number, what)?;
            return self.answer_here(number, limit);
        }
        let before = {
            let mut answers = lock(&self.answers);
            if answers.ended {
                return Err(gone());
            }
            answers.waiting.push((number, None));
            answers.count
        };
        self.say(number, what)?;
        let waited = self.news.wait_timeout_while(lock(&self.answers), limit, |answers| {
            let mut waiting = answers.waiting.iter();
            !answers.ended && waiting.any(|one| one.0 == number && one.1.is_none())
        });
        let mut answers = waited.unwrap_or_else(PoisonError::into_inner).0;
        let place = answers.waiting.iter().position(|(question, _)| *question == number);
        let answer = place.and_then(|place| answers.waiting.swap_remove(place).1);
        if answer.is_none() && answers.ended {
            return Err(gone());
        }
        // A signer that has answered another question meanwhile is not silent: one token is slow.
        if answer.is_none() && answers.count == before {
            answers.unanswered += 1;
            answers.last = Some(Instant::now());
        }
        answer.ok_or_else(silent)
    }

    /// The answer, read by this thread, before there is a thread that takes answers.
    fn answer_here(&self, number: u64, limit: Duration) -> io::Result<Told> {
        let end = Instant::now() + limit;
        loop {
            let left = end.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            self.stream.set_read_timeout(Some(left))?;
            let answer = receive::<Response>(&mut &self.stream);
            self.stream.set_read_timeout(None)?;
            let late = |error: io::Error| match error.kind() {
                io::ErrorKind::WouldBlock => silent(),
                _ => error,
            };
            match answer.map_err(late)? {
                Some(told) if told.number == number => return Ok(told.what),
                // A late answer to a question that was given up.
                Some(told) if told.number < number => {}
                _ => return Err(gone()),
            }
        }
    }

    pub(super) fn say(&self, number: u64, what: Ask) -> io::Result<()> {
        let request = Request { number, what };
        match &*lock(&self.out) {
            None => send(&mut &self.stream, &request),
            Some(frames) => frames.send(frame(&request)?).map_err(|_| gone()),
        }
    }

    /// Notes that the signer knows the key `key` by the number `its`. Returns the number before.
    pub(super) fn learn(&self, key: u64, its: u64) -> Option<u64> {
        lock(&self.keys).insert(key, its)
    }

    /// The signer's number of `key`.
    pub(super) fn number_of(&self, key: u64) -> Option<u64> {
        lock(&self.keys).get(&key).copied()
    }

    pub(super) fn forget(&self, key: u64) -> Option<u64> {
        lock(&self.keys).remove(&key)
    }

    pub(super) fn retire(&self, retired: bool) {
        self.retired.store(retired, Ordering::SeqCst);
    }

    pub(super) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::SeqCst)
    }

    /// Closes the connection at both ends.
    pub(super) fn close(&self) {
        // The signer reads the end of its orders, and the thread here the end of the answers.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

pub(super) fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the signer is gone")
}

pub(super) fn silent() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the signer does not answer")
}
