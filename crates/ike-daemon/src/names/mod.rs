//! Host names are looked up by a process of its own, the *resolver*. It calls getaddrinfo, and hands over the text of the
//! files that name the system's name servers. The process that the network reaches then reads no file of the C library's
//! resolver, loads none of its plugins, and parses no response of a name server but those to its own questions outside
//! tunnels.
//!
//! The two talk over a pair of sockets. The daemon replaces a resolver that has ended, that does not answer, or that may
//! not read files that have been replaced since its start: a third process starts a new one (`signer/spawner.rs`).

mod client;
mod server;

use std::net::IpAddr;

use ike_tokio::net::resolver::{FOR_PEERS, FOR_REVOCATION, FOR_STRANGERS};
use serde::{Deserialize, Serialize};

pub(crate) use client::Lookups;
pub(crate) use server::serve_stdin;

/// The command of the program as a resolver, and as the process that starts resolvers.
const COMMAND: &str = "resolver";

/// Look-ups at a time: as many as the daemon begins, so that each has a thread. If look-ups that the daemon has given up still
/// have some, the others wait in the resolver, up to [`MOST`], and beyond that it answers that there are too many.
const THREADS: usize = FOR_PEERS + FOR_REVOCATION + FOR_STRANGERS;

/// Addresses of a name that count.
const ADDRESSES: usize = 256;

/// Octets of an answer: the text of files has half as many at the most.
const LARGEST: u32 = 128 << 10;

/// Questions that wait for an answer at the most. As many have room in the socket, so that no question waits to be sent.
const MOST: usize = 128;

/// What the daemon asks. Each question has a number, which its answer repeats. Answers come in any order.
#[derive(Serialize, Deserialize)]
struct Question {
    number: u64,
    what: Ask,
}

#[derive(Serialize, Deserialize)]
enum Ask {
    /// The addresses of a name.
    Name(String),
    /// The text of the files with name servers.
    Files,
}

/// What the resolver answers.
#[derive(Debug, Serialize, Deserialize)]
struct Answer {
    number: u64,
    what: Told,
}

#[derive(Debug, Serialize, Deserialize)]
enum Told {
    Addresses(Vec<IpAddr>),
    NoSuchName,
    Failed(String),
    Files(String),
    /// Files of the resolver have been replaced, and only a new process may read them.
    Replace,
}

#[cfg(test)]
mod tests;
