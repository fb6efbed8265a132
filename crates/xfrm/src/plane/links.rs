//! The kernel's events and the changes of its devices, from one descriptor.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use super::Source;
use crate::event::Event as KernelEvent;
use crate::offload::LinkWatch;

/// A source of events that tells of devices, too, as hardware offload needs it.
#[derive(Debug)]
pub struct WithLinks<S> {
    events: S,
    links: LinkWatch,
    /// Readable when one of the others is.
    either: OwnedFd,
}

impl<S: AsFd> WithLinks<S> {
    /// Adds the devices of the calling thread's network namespace to `events`.
    pub fn new(events: S) -> io::Result<Self> {
        let links = LinkWatch::open()?;
        let either = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&either, &events, EventData::new_u64(0), EventFlags::IN)?;
        epoll::add(&either, &links, EventData::new_u64(1), EventFlags::IN)?;
        Ok(Self { events, links, either })
    }
}

impl<S: Source> Source for WithLinks<S> {
    fn next(&mut self) -> io::Result<Option<KernelEvent>> {
        match self.links.next_change() {
            Ok(Some(change)) => return Ok(Some(KernelEvent::Link(change))),
            Ok(None) => {}
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                return Ok(Some(KernelEvent::Lost));
            }
            Err(error) => tracing::warn!(%error, "changes of devices"),
        }
        self.events.next()
    }
}

impl<S> AsFd for WithLinks<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.either.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;

    struct Quiet(UnixStream);

    impl Source for Quiet {
        fn next(&mut self) -> io::Result<Option<KernelEvent>> {
            Ok(None)
        }
    }

    impl AsFd for Quiet {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }
    }

    #[test]
    fn either_wakes() {
        use std::io::Write;
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let source = WithLinks::new(Quiet(ours)).unwrap();
        let ready = || {
            let now = Duration::ZERO.try_into().unwrap();
            poll(&mut [PollFd::new(&source, PollFlags::IN)], Some(&now)).unwrap()
        };
        assert_eq!(ready(), 0);
        theirs.write_all(b"x").unwrap();
        assert_eq!(ready(), 1);
    }
}
