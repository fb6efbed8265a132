//! The socket that takes transactions.

use std::ffi::CStr;
use std::io;
use std::time::Duration;

use netlink_packet_core::{ErrorBuffer, NLMSG_DONE, NLMSG_ERROR, NetlinkBuffer};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};
use socket2::SockRef;

use super::batch::{self, Batch, Question};

/// The kernel answers at once, or never.
const PATIENCE: Duration = Duration::from_secs(10);

/// Transactions with the kernel, one after the other.
pub(super) struct Transactions {
    socket: Socket,
    sequence: u32,
}

impl Transactions {
    pub(super) fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_NETFILTER)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        socket.set_cap_ack(true)?;
        SockRef::from(&socket).set_read_timeout(Some(PATIENCE))?;
        Ok(Self { socket, sequence: 0 })
    }

    /// An empty transaction.
    pub(super) fn begin(&self) -> Batch {
        Batch::new(self.sequence)
    }

    /// Sends a transaction and waits for its outcome: the handles of the rules it made, in its order. After an error of
    /// the socket it may be in force or not.
    pub(super) fn commit(&mut self, batch: Batch) -> io::Result<Vec<u64>> {
        let first = self.sequence;
        let (octets, last) = batch.finish();
        self.sequence = last.wrapping_add(2);
        let sent = self.socket.send(&octets, 0)?;
        if sent != octets.len() {
            return Err(io::Error::other("netlink took a part of the message"));
        }
        let mut outcome = Ok(Vec::new());
        loop {
            let (answer, _) = self.socket.recv_from_full()?;
            for message in batch::messages(&answer) {
                // What an earlier transaction has left in the socket after an error is not of this one.
                if message.sequence_number().wrapping_sub(first) > last.wrapping_sub(first) {
                    continue;
                }
                if let (Some(handle), Ok(handles)) = (batch::rule_handle(&message), &mut outcome) {
                    handles.push(handle);
                }
                if message.message_type() != NLMSG_ERROR {
                    continue;
                }
                let error = ErrorBuffer::new_checked(message.payload()).ok();
                if let (Some(code), Ok(_)) = (error.and_then(|e| e.code()), &outcome) {
                    outcome = Err(io::Error::from_raw_os_error(code.get().saturating_neg()));
                }
                // The last message asks for an answer; about the whole, the first one gets it.
                if [first, last].contains(&message.sequence_number()) {
                    return outcome;
                }
            }
        }
    }

    /// Whether there is this table.
    pub(super) fn has_table(&mut self, table: &CStr) -> io::Result<bool> {
        self.is_there(Question::Table(table))
    }

    /// Whether there is this chain.
    pub(super) fn has_chain(&mut self, table: &CStr, chain: &CStr) -> io::Result<bool> {
        self.is_there(Question::Chain(table, chain))
    }

    /// The handles of all rules of a table. None if there is no such table.
    pub(super) fn rules(&mut self, table: &CStr) -> io::Result<Vec<u64>> {
        let mut handles = Vec::new();
        self.ask(Question::Rules(table), |message| handles.extend(batch::rule_handle(message)))?;
        Ok(handles)
    }

    /// The comments of the rules of a table that have one. None if there is no such table.
    pub(super) fn comments(&mut self, table: &CStr) -> io::Result<Vec<String>> {
        let mut comments = Vec::new();
        self.ask(Question::Rules(table), |message| comments.extend(batch::comment(message)))?;
        Ok(comments)
    }

    /// Whether the kernel ignores the rules of a table. An error (ENOENT) if there is no such table.
    pub(super) fn is_dormant(&mut self, table: &CStr) -> io::Result<bool> {
        let mut told = None;
        self.ask(Question::Table(table), |message| told = told.or(batch::is_dormant(message)))?;
        told.ok_or_else(|| io::Error::other("the kernel has not told the flags of the table"))
    }

    /// The values of a set of a table, in no order.
    pub(super) fn values(&mut self, table: &CStr, set: &CStr) -> io::Result<Vec<Vec<u8>>> {
        let mut all = Vec::new();
        self.ask(Question::Values(table, set), |message| all.extend(batch::values(message)))?;
        Ok(all)
    }

    /// The number of the last transaction, whoever has made it.
    pub(super) fn generation(&mut self) -> io::Result<u32> {
        let mut told = None;
        self.ask(Question::Generation, |message| told = told.or(batch::generation(message)))?;
        told.ok_or_else(|| io::Error::other("the kernel has not told the generation of its rules"))
    }

    fn is_there(&mut self, question: Question<'_>) -> io::Result<bool> {
        match self.ask(question, |_| ()) {
            Ok(()) => Ok(true),
            Err(error) if error.raw_os_error() == Some(ENOENT) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Asks, and waits for the end of the answer.
    fn ask(
        &mut self,
        question: Question<'_>,
        mut each: impl FnMut(&NetlinkBuffer<&[u8]>),
    ) -> io::Result<()> {
        let sequence = self.sequence;
        self.sequence = sequence.wrapping_add(1);
        self.socket.send(&question.message(sequence), 0)?;
        loop {
            let (answer, _) = self.socket.recv_from_full()?;
            for message in batch::messages(&answer) {
                if message.sequence_number() != sequence {
                    continue;
                }
                match message.message_type() {
                    NLMSG_DONE => return Ok(()),
                    NLMSG_ERROR => {
                        let error = ErrorBuffer::new_checked(message.payload()).ok();
                        let code = error.and_then(|error| error.code());
                        return code.map_or(Ok(()), |code| {
                            Err(io::Error::from_raw_os_error(code.get().saturating_neg()))
                        });
                    }
                    _ => each(&message),
                }
            }
        }
    }
}

const ENOENT: i32 = 2;
