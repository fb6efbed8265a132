//! The socket that takes transactions.

use std::io;
use std::time::Duration;

use netlink_packet_core::{ErrorBuffer, NLMSG_ERROR};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};
use socket2::SockRef;

use super::batch::{self, Batch};

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
}
