//! Questions to route netlink and generic netlink, asked and answered at once.

use std::io;
use std::time::Duration;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkBuffer, NetlinkDeserializable, NetlinkHeader,
    NetlinkMessage, NetlinkPayload, NetlinkSerializable,
};
use netlink_sys::{Socket, SocketAddr};
use rustix::net::sockopt::{Timeout, set_socket_timeout};

/// How many answers: one, or a whole table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reply {
    One,
    All,
}

/// A netlink socket of one protocol, in the network namespace of the thread that opened it.
#[derive(Debug)]
pub(super) struct Questions {
    socket: Socket,
    sequence: u32,
}

impl Questions {
    /// `protocol` is `NETLINK_ROUTE` or `NETLINK_GENERIC`.
    pub(super) fn open(protocol: isize) -> io::Result<Self> {
        let mut socket = Socket::new(protocol)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        // Best effort: without them there is the errno alone.
        _ = socket.set_cap_ack(true);
        _ = socket.set_ext_ack(true);
        set_socket_timeout(&socket, Timeout::Recv, Some(TIMEOUT))?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Asks and collects the answers. A dump that the kernel says was interrupted is made again.
    pub(super) fn ask<M>(&mut self, question: &M, reply: Reply) -> io::Result<Vec<M>>
    where
        M: NetlinkSerializable + NetlinkDeserializable + Clone,
    {
        for _ in 0..ATTEMPTS {
            if let Some(answers) = self.try_ask(question, reply)? {
                return Ok(answers);
            }
        }
        Err(io::Error::other("the kernel's answer changed while it was read"))
    }

    /// `None` if the dump was interrupted.
    fn try_ask<M>(&mut self, question: &M, reply: Reply) -> io::Result<Option<Vec<M>>>
    where
        M: NetlinkSerializable + NetlinkDeserializable + Clone,
    {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.sequence_number = self.sequence;
        header.flags = NLM_F_REQUEST | if reply == Reply::All { NLM_F_DUMP } else { NLM_F_ACK };
        let mut message =
            NetlinkMessage::new(header, NetlinkPayload::InnerMessage(question.clone()));
        message.finalize();
        let mut octets = vec![0; message.buffer_len()];
        message.serialize(&mut octets);
        self.socket.send(&octets, 0)?;

        let mut answers = Vec::new();
        let mut whole = true;
        loop {
            let (datagram, _) = match self.socket.recv_from_full() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                received => received?,
            };
            let mut rest = &datagram[..];
            while !rest.is_empty() {
                let length = length_of_first(rest)?;
                let (first, others) = rest.split_at(length.next_multiple_of(4).min(rest.len()));
                rest = others;
                let message =
                    NetlinkMessage::<M>::deserialize(first.get(..length).unwrap_or(first));
                let (header, payload) = message.map_err(unreadable)?.into_parts();
                if header.sequence_number != self.sequence {
                    continue;
                }
                whole &= header.flags & DUMP_INTERRUPTED == 0;
                match payload {
                    NetlinkPayload::InnerMessage(answer) => answers.push(answer),
                    NetlinkPayload::Done(_) => return Ok(whole.then_some(answers)),
                    NetlinkPayload::Error(error) => match error.code {
                        None => return Ok(whole.then_some(answers)),
                        Some(_) => return Err(error.to_io()),
                    },
                    _ => {}
                }
            }
        }
    }
}

fn length_of_first(octets: &[u8]) -> io::Result<usize> {
    let header = NetlinkBuffer::new_checked(octets).map_err(unreadable)?;
    Ok(header.length() as usize)
}

fn unreadable(error: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("netlink answer not understood: {error}"))
}

/// A message whose body is encoded and decoded elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Raw {
    /// Message type: a generic netlink family.
    pub(super) kind: u16,
    /// The octets after the netlink header.
    pub(super) body: Vec<u8>,
}

impl NetlinkSerializable for Raw {
    fn message_type(&self) -> u16 {
        self.kind
    }

    fn buffer_len(&self) -> usize {
        self.body.len()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        buffer.copy_from_slice(&self.body);
    }
}

impl NetlinkDeserializable for Raw {
    type Error = std::convert::Infallible;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Self, Self::Error> {
        Ok(Self { kind: header.message_type, body: payload.to_vec() })
    }
}

/// The kernel answers at once or not at all.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Dumps before giving up.
const ATTEMPTS: usize = 5;
/// NLM_F_DUMP_INTR.
const DUMP_INTERRUPTED: u16 = 0x10;
