//! The socket.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkHeader,
    NetlinkMessage,
};
use netlink_packet_xfrm::XfrmMessage;
use netlink_sys::protocols::NETLINK_XFRM;
use netlink_sys::{Socket as Netlink, SocketAddr};
use rustix::net::sockopt::{self, Timeout};
use tracing::debug;
use zeroize::Zeroize;

use super::{Error, Kind, Transport, answer, request_name, wipe};

/// A blocking NETLINK_XFRM socket in the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct Socket {
    netlink: Netlink,
    sequence: u32,
    received: Vec<u8>,
}

impl Socket {
    /// Opens a socket. Needs no privilege; requests need CAP_NET_ADMIN.
    pub fn open() -> io::Result<Self> {
        let mut netlink = Netlink::new(NETLINK_XFRM)?;
        netlink.bind_auto()?;
        // Acknowledgements without the request, which may hold keys, and with the kernel's text.
        netlink.set_cap_ack(true)?;
        netlink.set_ext_ack(true)?;
        sockopt::set_socket_timeout(&netlink, Timeout::Recv, Some(PATIENCE))?;
        Ok(Self { netlink, sequence: 0, received: Vec::with_capacity(DATAGRAM) })
    }

    /// How long to wait for each answer before a request fails with "no answer"; 10 seconds unless set.
    pub fn set_patience(&self, patience: Duration) -> io::Result<()> {
        Ok(sockopt::set_socket_timeout(&self.netlink, Timeout::Recv, Some(patience))?)
    }

    /// Appends `message` to `buffer` with its header, and wipes its keys. Returns its sequence number.
    fn append(&mut self, mut message: XfrmMessage, kind: Kind, buffer: &mut Vec<u8>) -> u32 {
        // 0 is the kernel's own, of events.
        self.sequence = self.sequence.checked_add(1).unwrap_or(1);
        let mut header = NetlinkHeader::default();
        header.flags = flags(kind);
        header.sequence_number = self.sequence;
        let mut request = NetlinkMessage::new(header, message.into());
        request.finalize();
        let start = buffer.len();
        buffer.resize(start + request.buffer_len(), 0);
        request.serialize(&mut buffer[start..]);
        if let netlink_packet_core::NetlinkPayload::InnerMessage(inner) = request.payload {
            message = inner;
            wipe::message(&mut message);
        }
        self.sequence
    }

    fn send(&self, request: &'static str, buffer: &[u8]) -> Result<(), Error> {
        loop {
            match self.netlink.send_to(buffer, &SocketAddr::new(0, 0), 0) {
                Ok(sent) if sent == buffer.len() => return Ok(()),
                Ok(_) => return Err(Error::unreadable(request, "the request was sent in part")),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(request, &error)),
            }
        }
    }

    /// Receives one datagram from the kernel.
    fn receive(&mut self, request: &'static str) -> Result<(), Error> {
        loop {
            self.received.zeroize();
            match self.netlink.recv_from(&mut self.received, libc::MSG_TRUNC) {
                Ok((_, sender)) if sender.port_number() != 0 => {}
                Ok((length, _)) if length > self.received.len() => {
                    let text = format!("an answer of {length} octets was cut short");
                    // The next one of its size fits.
                    self.received.reserve(length);
                    return Err(Error { errno: libc::EMSGSIZE, message: Some(text), request });
                }
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(Error::unanswered(request));
                }
                Err(error) => return Err(failed(request, &error)),
            }
        }
    }

    /// Reads answers to request `sequence` until its end. All messages go to `each`; the last error
    /// counts, so that nothing of this request is left in the socket if it can be helped.
    fn collect(
        &mut self,
        request: &'static str,
        sequence: u32,
        kind: Kind,
        each: &mut dyn FnMut(XfrmMessage),
    ) -> Result<(), Error> {
        let mut trouble = None;
        loop {
            self.receive(request)?;
            let mut ended = None;
            for frame in answer::frames(&self.received) {
                let frame = frame.map_err(|text| Error::unreadable(request, text))?;
                if frame.sequence != sequence {
                    continue; // of a request that was given up
                }
                if frame.flags & answer::NLM_F_DUMP_INTR != 0 && kind == Kind::Dump {
                    trouble = Some(Error::interrupted(request));
                }
                match answer::classify(&frame).map_err(|text| Error::unreadable(request, text))? {
                    answer::Answer::Nothing => {}
                    answer::Answer::End { errno: 0, text } => {
                        if let Some(text) = text {
                            debug!(request, text, "the kernel warns");
                        }
                        ended = Some(Ok(()));
                    }
                    answer::Answer::End { errno, text: message } => {
                        ended = Some(Err(Error { request, errno, message }));
                    }
                    answer::Answer::Message(kind, payload) => match answer::parse(kind, payload) {
                        Ok(message) => each(message),
                        Err(text) => trouble = Some(Error::unreadable(request, text)),
                    },
                }
            }
            if let Some(ended) = ended {
                return ended.and(trouble.map_or(Ok(()), Err));
            }
        }
    }

    fn transact(
        &mut self,
        message: XfrmMessage,
        kind: Kind,
        each: &mut dyn FnMut(XfrmMessage),
    ) -> Result<(), Error> {
        let request = request_name(&message);
        let mut buffer = Vec::with_capacity(REQUEST);
        let sequence = self.append(message, kind, &mut buffer);
        let sent = self.send(request, &buffer);
        buffer.zeroize();
        sent?;
        let result = self.collect(request, sequence, kind, each);
        self.received.zeroize();
        result
    }
}

impl Transport for Socket {
    fn request(&mut self, message: XfrmMessage, kind: Kind) -> Result<Vec<XfrmMessage>, Error> {
        let mut answers = Vec::new();
        let result = self.transact(message, kind, &mut |answer| answers.push(answer));
        if result.is_err() {
            answers.iter_mut().for_each(wipe::message);
        }
        result.map(|()| answers)
    }

    fn dump(
        &mut self,
        message: XfrmMessage,
        each: &mut dyn FnMut(XfrmMessage),
    ) -> Result<(), Error> {
        self.transact(message, Kind::Dump, each)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.netlink.as_fd()
    }
}

fn flags(kind: Kind) -> u16 {
    NLM_F_REQUEST
        | match kind {
            Kind::Ack | Kind::Get => NLM_F_ACK,
            Kind::Dump => NLM_F_DUMP,
            Kind::Create => NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL,
            Kind::Replace => NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE,
        }
}

fn failed(request: &'static str, error: &io::Error) -> Error {
    match error.raw_os_error() {
        Some(errno) => Error { request, errno, message: None },
        None => Error::unreadable(request, error.to_string()),
    }
}

/// How long the kernel may take for an answer. Loading the module of an algorithm is part of it.
const PATIENCE: Duration = Duration::from_secs(10);

/// Datagrams of a dump are 32 KiB at most; an answer of another kind is one message.
const DATAGRAM: usize = 64 * 1024;

/// More than any request but a large migration.
const REQUEST: usize = 2048;
