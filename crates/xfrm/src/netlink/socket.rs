//! The socket.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use netlink_packet_core::{
    Emitable, NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST,
    NetlinkHeader, NetlinkMessage, NetlinkPayload,
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
    fn append(&mut self, message: XfrmMessage, flags: u16, buffer: &mut Vec<u8>) -> u32 {
        // 0 is the kernel's own, of events.
        self.sequence = self.sequence.checked_add(1).unwrap_or(1);
        let mut header = NetlinkHeader::default();
        header.flags = flags;
        header.sequence_number = self.sequence;
        let mut request = NetlinkMessage::new(header, message.into());
        request.finalize();
        let start = buffer.len().next_multiple_of(4);
        buffer.resize(start + request.buffer_len(), 0);
        request.serialize(&mut buffer[start..]);
        if let NetlinkPayload::InnerMessage(message) = &mut request.payload {
            wipe::message(message);
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
            wipe::octets(&mut self.received);
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
        let mut buffer = Vec::with_capacity(length(&message));
        let sequence = self.append(message, flags(kind), &mut buffer);
        let sent = self.send(request, &buffer);
        buffer.zeroize();
        sent?;
        let result = self.collect(request, sequence, kind, each);
        wipe::octets(&mut self.received);
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

    fn batch(&mut self, requests: Vec<(XfrmMessage, Kind)>) -> Vec<Result<(), Error>> {
        let mut results = Vec::with_capacity(requests.len());
        let mut requests = requests.into_iter().peekable();
        while requests.peek().is_some() {
            let together = requests.by_ref().take(TOGETHER).collect();
            results.extend(self.send_together(together));
        }
        results
    }
}

impl Socket {
    /// Sends `requests` in one datagram. The last one alone asks for an acknowledgement: the kernel works
    /// in order, and reports an error whether asked to or not.
    fn send_together(&mut self, requests: Vec<(XfrmMessage, Kind)>) -> Vec<Result<(), Error>> {
        // Exactly: a vector that grows leaves keys behind.
        let mut buffer = Vec::with_capacity(requests.iter().map(|r| length(&r.0)).sum());
        let last = requests.len().saturating_sub(1);
        let mut sent: Vec<(u32, &'static str, Result<(), Error>)> = Vec::new();
        for (at, (message, kind)) in requests.into_iter().enumerate() {
            let name = request_name(&message);
            let quiet = if at == last { 0 } else { NLM_F_ACK };
            let sequence = self.append(message, flags(kind) & !quiet, &mut buffer);
            sent.push((sequence, name, Ok(())));
        }
        let name = sent.last().map_or("request", |last| last.1);
        let mut result = self.send(name, &buffer);
        buffer.zeroize();
        let mut ended = false;
        while result.is_ok() && !ended {
            result = self.receive(name).and_then(|()| self.sort_in(&mut sent, &mut ended));
        }
        if let Err(error) = result {
            // Which of them were done is not known, but for those that were refused.
            for (_, request, outcome) in sent.iter_mut().filter(|sent| sent.2.is_ok()) {
                *outcome = Err(Error { request, ..error.clone() });
            }
        }
        sent.into_iter().map(|(_, _, outcome)| outcome).collect()
    }

    /// Notes the refusals in the received octets; the answer to the last request sets `ended`.
    fn sort_in(
        &self,
        sent: &mut [(u32, &'static str, Result<(), Error>)],
        ended: &mut bool,
    ) -> Result<(), Error> {
        let last = sent.last().map_or(0, |last| last.0);
        for frame in answer::frames(&self.received) {
            let frame = frame.map_err(|text| Error::unreadable("request", text))?;
            let Some((_, request, outcome)) = sent.iter_mut().find(|s| s.0 == frame.sequence)
            else {
                continue;
            };
            let answer =
                answer::classify(&frame).map_err(|text| Error::unreadable(request, text))?;
            if let answer::Answer::End { errno, text: message } = answer {
                if errno != 0 {
                    *outcome = Err(Error { request, errno, message });
                }
                *ended |= frame.sequence == last;
            }
        }
        Ok(())
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.netlink.as_fd()
    }
}

/// Octets of `message` with its header and padding.
fn length(message: &XfrmMessage) -> usize {
    NetlinkHeader::default().buffer_len() + Emitable::buffer_len(message).next_multiple_of(4)
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

/// Requests in one datagram: all their refusals fit into the receive buffer of a default system.
const TOGETHER: usize = 64;
