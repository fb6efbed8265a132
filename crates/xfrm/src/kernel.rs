//! The kernel's IPsec by typed calls.

mod batch;
mod info;
mod migrate;
mod policies;
mod states;

pub use batch::Change;
pub use info::{Counts, DefaultPolicy};
pub use migrate::{Migration, Move};

use std::io;

use netlink_packet_xfrm::XfrmMessage;

use crate::netlink::{Error, Kind, Socket, Transport, gaps, request_name, wipe};

/// States and policies of the kernel, in the network namespace its transport was opened in.
#[derive(Debug)]
pub struct Kernel<T> {
    transport: T,
    /// Whether it knows XFRMA_SA_DIR; `None` before it was asked.
    directions: Option<bool>,
    /// The number that the next policy asks for; 0 leaves it to the kernel.
    next_index: u32,
}

impl Kernel<Socket> {
    /// The kernel, in the network namespace of this thread.
    pub fn open() -> io::Result<Self> {
        Ok(Self::new(Socket::open()?))
    }
}

impl<T> Kernel<T> {
    /// The transport.
    pub fn transport_mut(&mut self) -> &mut T {
        &mut self.transport
    }
}

impl<T: Transport> Kernel<T> {
    /// Speaks over `transport`.
    pub fn new(transport: T) -> Self {
        Self { transport, directions: None, next_index: 0 }
    }

    /// True if the kernel knows directions of states (XFRMA_SA_DIR, 6.10).
    pub fn knows_directions(&mut self) -> Result<bool, Error> {
        if let Some(known) = self.directions {
            return Ok(known);
        }
        let known = self.knows_attribute(gaps::XFRMA_SA_DIR, &[0xff])?;
        self.directions = Some(known);
        Ok(known)
    }

    /// True if the kernel refuses `malformed` as a value of attribute `kind`: it knows the attribute. An
    /// older one skips it and finds that there is no state with SPI 0. Leaves nothing behind.
    pub(crate) fn knows_attribute(&mut self, kind: u16, malformed: &[u8]) -> Result<bool, Error> {
        let mut message = netlink_packet_xfrm::state::DelGetMessage::default();
        message.user_sa_id.family = netlink_packet_xfrm::constants::AF_INET;
        message.user_sa_id.proto = netlink_packet_xfrm::constants::IPPROTO_ESP;
        message.nlas.push(gaps::attribute(kind, malformed));
        match self.transport.request(XfrmMessage::GetSa(message), Kind::Get) {
            Ok(answers) => {
                answers.into_iter().for_each(|mut answer| wipe::message(&mut answer));
                Ok(false)
            }
            Err(error) if error.is_absent() => Ok(false),
            Err(error) if matches!(error.errno, libc::EINVAL | libc::ERANGE) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Sends a request for one item and returns the result of `take` for the answer.
    fn read<R>(
        &mut self,
        message: XfrmMessage,
        take: impl Fn(&XfrmMessage) -> Option<R>,
    ) -> Result<R, Error> {
        let request = request_name(&message);
        let answers = self.transport.request(message, Kind::Get)?;
        let found = answers.iter().find_map(take);
        answers.into_iter().for_each(|mut answer| wipe::message(&mut answer));
        found.ok_or_else(|| Error::unreadable(request, "the answer is about something else"))
    }

    /// As [`Self::read`]; `None` if it is not there.
    fn read_if_there<R>(
        &mut self,
        message: XfrmMessage,
        take: impl Fn(&XfrmMessage) -> Option<R>,
    ) -> Result<Option<R>, Error> {
        match self.read(message, take) {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.is_absent() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sends a request that is answered by an acknowledgement alone.
    fn tell(&mut self, message: XfrmMessage, kind: Kind) -> Result<(), Error> {
        self.transport.request(message, kind).map(drop)
    }

    /// As [`Self::tell`]; false if the item does not exist.
    fn tell_if_there(&mut self, message: XfrmMessage) -> Result<bool, Error> {
        match self.tell(message, Kind::Ack) {
            Ok(()) => Ok(true),
            Err(error) if error.is_absent() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Sends a dump request and collects the results of `take` for the answers. If the table changed during a
    /// dump, the dump is repeated, a few times.
    fn list<R>(
        &mut self,
        message: &XfrmMessage,
        take: impl Fn(&XfrmMessage) -> Option<R>,
    ) -> Result<Vec<R>, Error> {
        let mut left = DUMPS;
        loop {
            left -= 1;
            let mut list = Vec::new();
            let result = self.transport.dump(message.clone(), &mut |mut answer| {
                list.extend(take(&answer));
                wipe::message(&mut answer);
            });
            match result {
                Ok(()) => return Ok(list),
                Err(error) if left > 0 && may_retry(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Interrupted, cut short, or overrun.
fn may_retry(error: &Error) -> bool {
    matches!(error.errno, libc::EINTR | libc::EMSGSIZE | libc::ENOBUFS)
}

/// How often a dump is made before its interruption is an error.
const DUMPS: u32 = 8;
