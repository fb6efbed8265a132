//! Traffic of the demonstration: packets handed to the memory devices of the two planes.

use std::time::{Duration, Instant};

use esp::io::MemoryHost;
use serde::Serialize;

/// Octets of the inner packets when throughput is measured.
const SIZE: usize = 1400;
/// Packets under way at most, so that socket buffers of an unprivileged process hold them.
const WINDOW: u64 = 64;
/// A packet that has not come by then is lost.
const LOST: Duration = Duration::from_secs(2);
/// Octets of the IPv4 and UDP headers.
const HEADERS: usize = 28;

/// Packets that went there and came back.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Traffic {
    /// Packets each way.
    pub packets: u64,
    /// Octets of inner packets, both ways.
    pub bytes: u64,
    /// Microseconds there and back, on average.
    pub round_trip_us: f64,
}

/// How much went through in one direction.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Throughput {
    /// Which way.
    pub direction: String,
    /// Packets that arrived.
    pub packets: u64,
    /// Packets that did not.
    pub lost: u64,
    /// Octets of inner packets that arrived.
    pub bytes: u64,
    /// Seconds it took.
    pub seconds: f64,
    /// Millions of bits of inner packets per second.
    pub mbit_per_second: f64,
}

/// Sends `count` packets from `left` to `right`, each answered by one.
pub(super) async fn ping(
    left: &mut MemoryHost,
    right: &mut MemoryHost,
    count: u64,
) -> Result<Traffic, String> {
    let start = Instant::now();
    let mut bytes = 0;
    for number in 0..count {
        let there = packet(LEFT, RIGHT, number, 84);
        let back = packet(RIGHT, LEFT, number, 84);
        bytes += (there.len() + back.len()) as u64;
        expect(left, right, there).await?;
        expect(right, left, back).await?;
    }
    let round_trip_us = start.elapsed().as_secs_f64() * 1e6 / count as f64;
    Ok(Traffic { packets: count, bytes, round_trip_us })
}

async fn expect(from: &MemoryHost, to: &mut MemoryHost, packet: Vec<u8>) -> Result<(), String> {
    if !from.send(packet.clone()).await {
        return Err("the plane is gone".to_owned());
    }
    match tokio::time::timeout(LOST, to.recv()).await {
        Ok(Some(received)) if received == packet => Ok(()),
        Ok(Some(_)) => Err("a packet arrived changed".to_owned()),
        Ok(None) => Err("the plane is gone".to_owned()),
        Err(_) => Err("a packet was lost".to_owned()),
    }
}

/// Sends as fast as a window of packets allows, for `time`.
pub(super) async fn measure(
    direction: &str,
    from: &mut MemoryHost,
    to: &mut MemoryHost,
    time: Duration,
) -> Result<Throughput, String> {
    let (src, dst) = if direction.starts_with("left") { (LEFT, RIGHT) } else { (RIGHT, LEFT) };
    let template = packet(src, dst, 0, SIZE);
    let start = Instant::now();
    let (mut sent, mut received, mut lost) = (0, 0, 0);
    while start.elapsed() < time || sent > received + lost {
        while start.elapsed() < time && sent - received - lost < WINDOW {
            if !from.send(template.clone()).await {
                return Err("the plane is gone".to_owned());
            }
            sent += 1;
        }
        match tokio::time::timeout(LOST, to.recv()).await {
            Ok(Some(packet)) if packet.len() == SIZE => received += 1,
            Ok(Some(_)) => return Err("a packet arrived changed".to_owned()),
            Ok(None) => return Err("the plane is gone".to_owned()),
            Err(_) => lost = sent - received,
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let bytes = received * SIZE as u64;
    if received == 0 {
        return Err(format!("nothing arrived {direction}"));
    }
    Ok(Throughput {
        direction: direction.to_owned(),
        packets: received,
        lost,
        bytes,
        seconds,
        mbit_per_second: bytes as f64 * 8.0 / 1e6 / seconds,
    })
}

const LEFT: [u8; 4] = [10, 1, 0, 1];
const RIGHT: [u8; 4] = [10, 2, 0, 1];

/// An IPv4 packet of `size` octets with a UDP datagram that carries `number`.
fn packet(src: [u8; 4], dst: [u8; 4], number: u64, size: usize) -> Vec<u8> {
    let total = size as u16;
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0];
    packet[2..4].copy_from_slice(&total.to_be_bytes());
    packet.extend(src);
    packet.extend(dst);
    let checksum = checksum(&packet);
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    // Ports, length, and 0 for no checksum (RFC 768).
    packet.extend(4000_u16.to_be_bytes());
    packet.extend(4000_u16.to_be_bytes());
    packet.extend((total - 20).to_be_bytes());
    packet.extend([0, 0]);
    debug_assert_eq!(packet.len(), HEADERS);
    packet.extend(number.to_be_bytes());
    packet.resize(size, 0xA5);
    packet
}

/// The Internet checksum (RFC 1071).
fn checksum(header: &[u8]) -> u16 {
    let words =
        header.chunks(2).map(|pair| pair.iter().fold(0, |w, octet| w << 8 | u32::from(*octet)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
