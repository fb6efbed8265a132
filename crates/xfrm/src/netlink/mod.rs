//! NETLINK_XFRM: one request at a time, its answers, and what the kernel says of a refusal.

use std::fmt;

use netlink_packet_xfrm::XfrmMessage;

/// What a request of this kind is answered with.
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
    /// Sends `message` and returns what the kernel answers, acknowledgements left out.
    fn request(&mut self, message: XfrmMessage, kind: Kind) -> Result<Vec<XfrmMessage>, Error>;
}

/// Why the kernel did not do what was asked. It never holds key material.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// What was asked, in a few words.
    pub request: &'static str,
    /// errno, positive; 0 if the answer could not be read.
    pub errno: i32,
    /// The kernel's extended ACK text, if it gave one.
    pub message: Option<String>,
}

impl Error {
    /// True if what was to be read or removed is not there.
    pub fn is_absent(&self) -> bool {
        matches!(self.errno, libc::ENOENT | libc::ESRCH)
    }

    /// True if what was to be made is there already.
    pub fn is_present(&self) -> bool {
        self.errno == libc::EEXIST
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.request, std::io::Error::from_raw_os_error(self.errno))?;
        self.message.as_ref().map_or(Ok(()), |text| write!(f, " ({text})"))
    }
}

impl std::error::Error for Error {}
