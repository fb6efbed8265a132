//! A connection to one signer: questions, and the answers to them.

use std::collections::HashMap;
use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender, SyncSender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use zeroize::Zeroizing;

use super::lock;
use super::protocol::{Ask, Request, Response, Told, frame, receive, send};

/// After so many questions without an answer a signer is asked no more.
pub(super) const PATIENCE: u32 = 2;

pub(super) struct Link {
    stream: UnixStream,
    /// Where frames go; written at once as long as there is no thread.
    out: Mutex<Option<Sender<Zeroizing<Vec<u8>>>>>,
    answers: Mutex<Answers>,
    /// The numbers that this signer has for keys.
    keys: Mutex<HashMap<u64, u64>>,
    /// Another one takes its place.
    retired: AtomicBool,
}

struct Answers {
    /// Who waits for which; `None` once there will be none any more.
    waiting: Option<HashMap<u64, SyncSender<Told>>>,
    /// How many there were.
    count: u64,
    /// Questions without an answer in time since the last answer, of those that were asked after it.
    unanswered: u32,
    /// When the last of them was given up.
    last: Option<Instant>,
}

impl Link {
    pub(super) fn new(stream: UnixStream) -> Self {
        let waiting = Some(HashMap::new());
        let answers = Answers { waiting, count: 0, unanswered: 0, last: None };
        let (out, keys) = (Mutex::default(), Mutex::default());
        Self { stream, out, answers: Mutex::new(answers), keys, retired: AtomicBool::new(false) }
    }

    /// Has threads write questions and take answers from now on, so that nobody waits for a signer that does not read.
    /// `lost` is called when there are no more answers, unless it is retired.
    pub(super) fn start(self: &Arc<Self>, lost: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let (frames, written) = mpsc::channel::<Zeroizing<Vec<u8>>>();
        let mut to = self.stream.try_clone()?;
        thread::Builder::new().name("signer-ask".to_owned()).spawn(move || {
            for frame in written {
                // The other thread notices that it is gone.
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
                let asker = answers.waiting.as_mut().and_then(|waiting| waiting.remove(&number));
                drop(answers);
                if let Some(asker) = asker {
                    // There is room for one.
                    let _ = asker.send(what);
                }
            }
            // Whoever waits hears by the end of its channel.
            lock(&link.answers).waiting = None;
            if !link.retired.load(Ordering::SeqCst) {
                lost();
            }
        })?;
        Ok(())
    }

    /// Whether so many questions had no answer in time.
    pub(super) fn is_silent(&self, questions: u32) -> bool {
        lock(&self.answers).unanswered >= questions
    }

    /// Counts a question that is not even asked, if the last one still has no answer after as long again.
    pub(super) fn spare(&self, limit: Duration) {
        let mut answers = lock(&self.answers);
        if answers.last.is_some_and(|last| last.elapsed() >= limit) {
            answers.unanswered += 1;
            answers.last = Some(Instant::now());
        }
    }

    /// The answer to `what`, the question of this number, within `limit`.
    pub(super) fn ask(&self, number: u64, what: Ask, limit: Duration) -> io::Result<Told> {
        if lock(&self.out).is_none() {
            self.say(number, what)?;
            return self.answer_here(number, limit);
        }
        let (answer, answered) = mpsc::sync_channel(1);
        let before = {
            let mut answers = lock(&self.answers);
            answers.waiting.as_mut().ok_or_else(gone)?.insert(number, answer);
            answers.count
        };
        self.say(number, what)?;
        answered.recv_timeout(limit).map_err(|why| {
            if why == RecvTimeoutError::Disconnected {
                return gone();
            }
            let mut answers = lock(&self.answers);
            // One that answers others has but one slow token.
            if answers.count == before {
                answers.unanswered += 1;
                answers.last = Some(Instant::now());
            }
            if let Some(waiting) = &mut answers.waiting {
                waiting.remove(&number);
            }
            silent()
        })
    }

    /// The answer where there is no thread that takes answers.
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
                // Nobody has waited for it until it came.
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

    /// The signer has its number `its` for the key `key`.
    pub(super) fn learn(&self, key: u64, its: u64) {
        lock(&self.keys).insert(key, its);
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

    /// Ends it for both.
    pub(super) fn close(&self) {
        // It reads the end of its orders, and the thread that of the answers.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

pub(super) fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the signer is gone")
}

pub(super) fn silent() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the signer does not answer")
}
