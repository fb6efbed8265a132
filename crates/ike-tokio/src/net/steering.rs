//! Which of several sockets of one port the kernel gives a datagram to: a classic BPF program on
//! SO_REUSEPORT sockets that computes [`Shard::steer`].

use std::io;
use std::os::fd::AsFd;

use ike_proto::config::Shard;
use nix::libc::{self, sock_filter, sock_fprog};
use nix::sys::socket::{setsockopt, sockopt};

use super::marker::NON_ESP_MARKER;

/// Offsets in the IKE header (RFC 7296 §3.1).
const SPI_I: u32 = 0;
const SPI_R: u32 = 8;
const FLAGS: u32 = 19;
/// The sender is the original initiator.
const INITIATOR: u32 = 0x08;

/// No socket: the kernel takes one by addresses and ports.
const ANY: u32 = u32::MAX;

/// Has the kernel steer datagrams among the sockets bound to one address and port, of which `socket` is one;
/// they are numbered in the order they were bound. `marked` says that messages come behind the non-ESP
/// marker; ESP goes by the top octet of its SPI there.
pub fn steer(socket: &impl AsFd, count: u8, marked: bool) -> io::Result<()> {
    let mut program = program(count, marked);
    let len = u16::try_from(program.len()).map_err(io::Error::other)?;
    let program = sock_fprog { len, filter: program.as_mut_ptr() };
    Ok(setsockopt(socket, sockopt::AttachReusePortCbpf, &program)?)
}

/// Loads beyond the end of a datagram end the program with 0.
fn program(count: u8, marked: bool) -> Vec<sock_filter> {
    let at = if marked { NON_ESP_MARKER.len() as u32 } else { 0 };
    let count = u32::from(count.max(1));
    let mut code = Vec::new();
    if marked {
        // ESP: to where the octet is judged.
        code.extend([word(0), jump(EQUAL, 0, 2, 0), octet(0), always(15)]);
    }
    code.extend([
        octet(at + FLAGS),
        jump(SET, INITIATOR, 2, 0),
        // From the responder: the initiator's SPI is of this end.
        octet(at + SPI_I),
        always(11),
        // From the initiator: the responder's SPI is, if there is one.
        word(at + SPI_R),
        jump(EQUAL, 0, 0, 2),
        word(at + SPI_R + 4),
        jump(EQUAL, 0, 2, 0),
        octet(at + SPI_R),
        always(5),
        // A first request: by a hash of the initiator's SPI, kept in X and A.
        word(at + SPI_I),
        statement(libc::BPF_MISC | libc::BPF_TAX, 0),
        word(at + SPI_I + 4),
        statement(libc::BPF_ALU | libc::BPF_XOR | libc::BPF_X, 0),
        always(3),
    ]);
    code.extend([
        // An octet that names no shard leaves the choice to the kernel.
        jump(AT_LEAST, count, 1, 0),
        statement(libc::BPF_RET | libc::BPF_A, 0),
        statement(libc::BPF_RET | libc::BPF_K, ANY),
        statement(libc::BPF_ALU | libc::BPF_MUL | libc::BPF_K, Shard::HASH_FACTOR),
        statement(libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K, 16),
        statement(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, count),
        statement(libc::BPF_RET | libc::BPF_A, 0),
    ]);
    code
}

const EQUAL: u32 = libc::BPF_JEQ;
const SET: u32 = libc::BPF_JSET;
/// Of the accumulator.
const AT_LEAST: u32 = libc::BPF_JGE;

fn statement(code: u32, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

fn word(at: u32) -> sock_filter {
    statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at)
}

fn octet(at: u32) -> sock_filter {
    statement(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, at)
}

/// Skips so many if the condition holds, else so many.
fn jump(condition: u32, k: u32, holds: u8, fails: u8) -> sock_filter {
    let code = (libc::BPF_JMP | condition | libc::BPF_K) as u16;
    sock_filter { code, jt: holds, jf: fails, k }
}

fn always(skip: u32) -> sock_filter {
    statement(libc::BPF_JMP | libc::BPF_JA, skip)
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, UdpSocket};
    use std::time::Duration;

    use socket2::{Domain, Protocol, Socket, Type};

    use super::*;

    const COUNT: u8 = 3;

    /// Sockets of one port, steered.
    fn sockets(marked: bool) -> Vec<UdpSocket> {
        let mut all: Vec<UdpSocket> = Vec::new();
        for _ in 0..COUNT {
            let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP)).unwrap();
            socket.set_reuse_port(true).unwrap();
            let port = all.first().map_or(0, |first| first.local_addr().unwrap().port());
            socket.bind(&SocketAddr::from(([127, 0, 0, 1], port)).into()).unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
            all.push(socket.into());
        }
        steer(&all[0], COUNT, marked).unwrap();
        all
    }

    fn header(spi_i: u64, spi_r: u64, flags: u8) -> Vec<u8> {
        let mut octets = [spi_i.to_be_bytes(), spi_r.to_be_bytes()].concat();
        octets.extend([33, 0x20, 34, flags, 0, 0, 0, 0, 0, 0, 0, 28]);
        octets
    }

    /// The kernel and the engine agree about every kind of message.
    #[test]
    fn the_kernel_steers_as_the_engine_does() {
        let spis = [0, 7, 0x0100_0000_0000_0001, 0x02ff_0000_0000_1234, 0xfe01_0203_0405_0607];
        let mut messages = Vec::new();
        for spi_i in spis.into_iter().chain((0..16).map(|n| 0x9e37_79b9_7f4a_7c15_u64 << n)) {
            for spi_r in spis.into_iter().chain([0x0000_0001_0000_0000]) {
                messages.extend([0, 0x08, 0x20, 0x28].map(|flags| header(spi_i, spi_r, flags)));
            }
        }
        for marked in [false, true] {
            let sockets = sockets(marked);
            let to = sockets[0].local_addr().unwrap();
            let from = UdpSocket::bind("127.0.0.1:0").unwrap();
            let mut buffer = [0; 64];
            for message in &messages {
                let Some(index) = Shard::steer(COUNT, message) else { continue };
                let marker: &[u8] = if marked { &NON_ESP_MARKER } else { &[] };
                let datagram = [marker, message].concat();
                from.send_to(&datagram, to).unwrap();
                let received = sockets[usize::from(index)].recv(&mut buffer);
                assert_eq!(received.ok(), Some(datagram.len()), "{message:02x?} is for {index}");
            }
        }
    }

    #[test]
    fn esp_goes_by_its_spi_and_nothing_is_lost() {
        let sockets = sockets(true);
        let to = sockets[0].local_addr().unwrap();
        let from = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut buffer = [0; 64];
        for index in 0..COUNT {
            from.send_to(&[index, 1, 2, 3, 0, 0, 0, 1], to).unwrap();
            assert_eq!(sockets[usize::from(index)].recv(&mut buffer).ok(), Some(8), "{index}");
        }
        // Of no shard, a keepalive, a runt: whoever.
        for odd in [&[0xc0, 1, 2, 3, 0, 0, 0, 1][..], &[0xff], &[0, 0, 0, 0, 1]] {
            from.send_to(odd, to).unwrap();
            assert!(sockets.iter().any(|s| s.recv(&mut buffer).is_ok()), "{odd:02x?}");
        }
    }
}
