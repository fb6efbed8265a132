//! NETLINK_XFRM: one request at a time, its answers, and the kernel's reason for a refusal.
//!
//! Messages are those of [`netlink_packet_xfrm`]; `gaps` has the parts that this crate lacks. Messages hold keys
//! and must not be printed: their `Debug` shows the keys.

pub(crate) mod answer;
mod faulty;
pub(crate) mod gaps;
mod socket;
pub(crate) mod wipe;

use std::fmt;

use netlink_packet_xfrm::XfrmMessage;

pub use faulty::{FaultyTransport, NetlinkFault};
pub use socket::Socket;

/// The kind of answer to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// An acknowledgement alone.
    Ack,
    /// One message, then an acknowledgement.
    Get,
    /// Any number of messages.
    Dump,
    /// As [`Self::Ack`], and the object must not exist yet (NLM_F_CREATE | NLM_F_EXCL).
    Create,
    /// As [`Self::Ack`], and the object may exist (NLM_F_CREATE | NLM_F_REPLACE).
    Replace,
}

/// Sends requests to the kernel: the real one or, in tests, one that fails when told to.
pub trait Transport {
    /// Sends `message` and returns the kernel's answers without acknowledgements. Answers may hold keys; the
    /// caller wipes them.
    fn request(&mut self, message: XfrmMessage, kind: Kind) -> Result<Vec<XfrmMessage>, Error>;

    /// Sends the [`Kind::Dump`] request `message` and hands each answer to `each` as it comes. After an
    /// error `each` may have seen some of the answers.
    fn dump(
        &mut self,
        message: XfrmMessage,
        each: &mut dyn FnMut(XfrmMessage),
    ) -> Result<(), Error> {
        self.request(message, Kind::Dump)?.into_iter().for_each(each);
        Ok(())
    }

    /// Sends requests that are answered by an acknowledgement alone, in order, and returns the result of each. A
    /// failed request does not stop the others.
    fn batch(&mut self, requests: Vec<(XfrmMessage, Kind)>) -> Vec<Result<(), Error>> {
        requests.into_iter().map(|(message, kind)| self.request(message, kind).map(drop)).collect()
    }
}

/// Why the kernel did not execute a request. It never holds key material.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// The request, in a few words.
    pub request: &'static str,
    /// errno, positive; 0 if the answer could not be read.
    pub errno: i32,
    /// The kernel's extended ACK text, if it gave one.
    pub message: Option<String>,
}

impl Error {
    /// True if the item to be read or removed does not exist.
    pub fn is_absent(&self) -> bool {
        matches!(self.errno, libc::ENOENT | libc::ESRCH)
    }

    /// True if the item to be made exists already.
    pub fn is_present(&self) -> bool {
        self.errno == libc::EEXIST
    }

    /// True if it is unknown whether the kernel executed the request: its answer did not arrive.
    pub fn is_unanswered(&self) -> bool {
        matches!(self.errno, libc::ETIMEDOUT | libc::ENOBUFS)
    }

    /// A request that this crate does not send, because the kernel would refuse or misread it.
    pub(crate) fn invalid(request: &'static str, text: impl Into<String>) -> Self {
        Self { request, errno: libc::EINVAL, message: Some(text.into()) }
    }

    /// An answer that makes no sense.
    pub(crate) fn unreadable(request: &'static str, text: impl Into<String>) -> Self {
        Self { request, errno: 0, message: Some(text.into()) }
    }

    /// A dump that missed changes or ended early.
    pub(crate) fn interrupted(request: &'static str) -> Self {
        let text = "the table changed while it was read";
        Self { request, errno: libc::EINTR, message: Some(text.into()) }
    }

    /// An answer that did not come.
    pub(crate) fn unanswered(request: &'static str) -> Self {
        let text = "no answer from the kernel";
        Self { request, errno: libc::ETIMEDOUT, message: Some(text.into()) }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.request)?;
        match (&self.message, self.errno) {
            (Some(text), 0) => write!(f, "{text}"),
            (None, 0) => write!(f, "the kernel's answer cannot be read"),
            (Some(text), errno) => {
                write!(f, "{} ({text})", std::io::Error::from_raw_os_error(errno))
            }
            (None, errno) => write!(f, "{}", std::io::Error::from_raw_os_error(errno)),
        }
    }
}

impl std::error::Error for Error {}

/// The request in `message`, in a few words.
pub(crate) fn request_name(message: &XfrmMessage) -> &'static str {
    match message {
        XfrmMessage::AddSa(_) => "add state",
        XfrmMessage::UpdateSa(_) => "update state",
        XfrmMessage::DeleteSa(_) => "delete state",
        XfrmMessage::GetSa(_) => "read state",
        XfrmMessage::GetDumpSa(_) => "list states",
        XfrmMessage::FlushSa(_) => "flush states",
        XfrmMessage::AllocSpi(_) => "allocate SPI",
        XfrmMessage::AddPolicy(_) => "add policy",
        XfrmMessage::UpdatePolicy(_) => "set policy",
        XfrmMessage::DeletePolicy(_) => "delete policy",
        XfrmMessage::GetPolicy(_) => "read policy",
        XfrmMessage::FlushPolicy(_) => "flush policies",
        XfrmMessage::NewAsyncEvent(_) => "set sequence numbers",
        XfrmMessage::GetAsyncEvent(_) => "read sequence numbers",
        XfrmMessage::Migrate(_) => "migrate",
        XfrmMessage::GetSadInfo(_) => "count states",
        XfrmMessage::GetSpdInfo(_) => "count policies",
        XfrmMessage::SetPolicyDefault(_) => "set default policy",
        XfrmMessage::GetPolicyDefault(_) => "read default policy",
        _ => "request",
    }
}
