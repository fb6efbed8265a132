//! What the tests on a real kernel share: a network namespace for each, and what `ip` says.
#![expect(clippy::unwrap_used, reason = "test code")]
#![allow(dead_code, reason = "each program uses its part of this")]

use std::net::IpAddr;
use std::process::Command;

use ipsec_types::crypto::Secret;
use xfrm::kernel::Kernel;
use xfrm::netlink::Socket;
use xfrm::state::{Algorithm, Mode, Protection, State, StateId};

/// A kernel to test with, in a network namespace of this thread alone.
pub fn kernel() -> Kernel<Socket> {
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
    ip("link set lo up");
    Kernel::open().unwrap()
}

/// What `ip` prints; it must succeed.
pub fn ip(arguments: &str) -> String {
    run("ip", arguments)
}

/// What a program prints; it must succeed.
pub fn run(program: &str, arguments: &str) -> String {
    let output = Command::new(program).args(arguments.split_whitespace()).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// What `ip` prints, with runs of white space as one blank, so that lines can be searched for.
pub fn ip_words(arguments: &str) -> String {
    ip(arguments).split_whitespace().collect::<Vec<_>>().join(" ")
}

pub fn addr(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// AES-GCM-16 with a key of `bits`.
pub fn gcm(bits: usize) -> Protection {
    Protection::Aead(Algorithm {
        name: "rfc4106(gcm(aes))".into(),
        key: Secret::new((1..).take(bits / 8 + 4).collect()),
        icv_bits: 128,
    })
}

/// A state in tunnel mode.
pub fn state(spi: u32, src: &str, dst: &str) -> State {
    let id = StateId::new(spi, addr(dst));
    State { reqid: 7, ..State::new(id, addr(src), Mode::Tunnel, gcm(128)) }
}

/// UDP_ENCAP on `socket`: ESP in UDP goes to the kernel's states.
pub fn encapsulate(socket: &impl std::os::fd::AsRawFd) {
    let kind: libc::c_int = 2; // UDP_ENCAP_ESPINUDP
    // SAFETY: the kernel copies `kind`, which outlives the call.
    #[expect(unsafe_code, reason = "no crate has this socket option")]
    let rc = unsafe {
        let at = (&raw const kind).cast();
        libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_UDP, 100, at, 4)
    };
    assert_eq!(rc, 0, "{}", std::io::Error::last_os_error());
}

/// An ESP packet with one UDP datagram inside, transport mode, sealed with the key of [`gcm`] (128).
pub fn esp_packet(spi: u32, sequence: u32) -> Vec<u8> {
    let key: Vec<u8> = (1..=20).collect();
    let mut packet = [spi.to_be_bytes(), sequence.to_be_bytes()].concat();
    let iv = u64::from(sequence).to_be_bytes();
    let nonce: [u8; 12] = [&key[16..], &iv].concat().try_into().unwrap();
    // A UDP header without a checksum, two octets, and ESP's trailer: no padding but for alignment.
    let mut plain = vec![0, 7, 0, 7, 0, 10, 0, 0, 1, 2, 1, 2, 3, 4, 4, 17];
    let sealing = aws_lc_rs::aead::LessSafeKey::new(
        aws_lc_rs::aead::UnboundKey::new(&aws_lc_rs::aead::AES_128_GCM, &key[..16]).unwrap(),
    );
    let tag = sealing
        .seal_in_place_separate_tag(
            aws_lc_rs::aead::Nonce::assume_unique_for_key(nonce),
            aws_lc_rs::aead::Aad::from(packet.clone()),
            &mut plain,
        )
        .unwrap();
    packet.extend(iv);
    packet.extend(plain);
    packet.extend(tag.as_ref());
    packet
}
