//! The resolver's end: looks names up.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use ike_tokio::Unresolved;
use ike_tokio::net::resolver::{self, Found};

use super::{ADDRESSES, Answer, Ask, COMMAND, LARGEST, MOST, Question, THREADS, Told};
use crate::log::{self, LogFormat};
use crate::service::sandbox::names as sandbox;
use crate::signer::protocol::{receive, send};
use crate::signer::spawner;

/// Octets of the text of files at the most.
const LONGEST: usize = LARGEST as usize / 2;

/// Serves the daemon that has started this process, over its standard input, until that is gone.
///
/// # Errors
/// If standard input is no socket, or the daemon says what is not understood.
pub(crate) fn serve_stdin(format: LogFormat) -> io::Result<()> {
    let stream = spawner::inherited()?;
    if spawner::is_meant(&stream)? {
        sandbox::enter_spawner()?;
        log::queue_lines()?;
        return spawner::serve(&stream, COMMAND, format);
    }
    spawner::end_with_spawner(&stream)?;
    let Some(limits) = spawner::limits(&stream)? else { return Ok(()) };
    let files = sandbox::enter(limits.landlock, limits.seccomp)?;
    // After that, because a thread has the restrictions of the one that begins it.
    log::queue_lines()?;
    serve(&stream, resolver::of_system, || files.are_replaced())
}

/// Serves `stream` until its end.
pub(super) fn serve(
    stream: &UnixStream,
    look_up: impl Fn(&str) -> Found + Send + Sync + 'static,
    is_outdated: impl Fn() -> bool,
) -> io::Result<()> {
    let out = Mutex::new(stream.try_clone()?);
    let desk = Arc::new(Desk { look_up, waiting: Mutex::default(), out });
    let mut from = stream;
    while let Some(Question { number, what }) = receive::<Question>(&mut from)? {
        match what {
            // Neither finds in the files what is there now.
            Ask::Name(_) | Ask::Files if is_outdated() => desk.answer(number, Told::Replace)?,
            Ask::Name(name) => desk.put(number, name)?,
            Ask::Files => {
                let mut text = resolver::files();
                // One that is longer has other things in it than name servers.
                let is_end = |end: &usize| text.is_char_boundary(*end);
                text.truncate((0..=LONGEST.min(text.len())).rev().find(is_end).unwrap_or(0));
                desk.answer(number, Told::Files(text))?;
            }
        }
    }
    Ok(())
}

struct Desk<L> {
    look_up: L,
    waiting: Mutex<Waiting>,
    out: Mutex<UnixStream>,
}

#[derive(Default)]
struct Waiting {
    names: Vec<(u64, String)>,
    threads: usize,
}

impl<L: Fn(&str) -> Found + Send + Sync + 'static> Desk<L> {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a thread look a name up: a new one, unless there are enough.
    fn put(self: &Arc<Self>, number: u64, name: String) -> io::Result<()> {
        let mut waiting = self.lock();
        if waiting.names.len() >= MOST {
            drop(waiting);
            return self.answer(number, Told::Failed("too many questions".to_owned()));
        }
        waiting.names.push((number, name));
        if waiting.threads < THREADS {
            let desk = Arc::clone(self);
            let begun = thread::Builder::new().name("names".to_owned()).spawn(move || desk.work());
            match begun {
                Ok(_) => waiting.threads += 1,
                // Another thread takes it, if there is one.
                Err(why) if waiting.threads == 0 => {
                    waiting.names.clear();
                    drop(waiting);
                    return self.answer(number, Told::Failed(why.to_string()));
                }
                Err(error) => tracing::debug!(%error, "no further thread for names"),
            }
        }
        Ok(())
    }

    /// Looks names up until none is left.
    fn work(&self) {
        loop {
            let mut waiting = self.lock();
            if waiting.names.is_empty() {
                waiting.threads -= 1;
                break;
            }
            let (number, name) = waiting.names.remove(0);
            drop(waiting);
            let told = match (self.look_up)(&name) {
                Ok(mut addresses) => {
                    addresses.truncate(ADDRESSES);
                    Told::Addresses(addresses)
                }
                Err(Unresolved::NoSuchName) => Told::NoSuchName,
                Err(Unresolved::Failed(why)) => Told::Failed(why.to_string()),
            };
            // If the daemon is gone, this process soon is.
            let _ = self.answer(number, told);
        }
    }

    fn answer(&self, number: u64, what: Told) -> io::Result<()> {
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        send(&mut *out, &Answer { number, what })
    }
}
