//! Encoding, decoding, sealing and opening of messages.

mod clock;

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use ike_proto::crypto::CipherSuite;
use ike_proto::keys::{Epoch, IkeKeys, Nonces, Outgoing, Seed, Spis};
use ike_proto::wire::payload::{Ke, Notify, Payload, Spi};
use ike_proto::wire::registry::{
    EncrId, ExchangeType, IntegId, KeMethodId, NotifyType, PayloadType, PrfId, ProtocolId,
};
use ike_proto::wire::{Flags, Header, Message, encode_message};
use ike_tests::Seeded;
use ike_tests::handmade::proposal;

/// Octets of content, up to what one Encrypted payload holds.
const SIZES: [usize; 6] = [64, 256, 1_024, 4_096, 16_384, 65_000];

fn coding(criterion: &mut Criterion<clock::Counter>) {
    let mut group = criterion.benchmark_group("message");
    let hashes = [0x5a; 20];
    let public = [0x31; 1184];
    let keywords =
        "aes256gcm16-aes128gcm16-prfsha384-prfsha256-x25519-ecp256-ke1_mlkem768-ke1_none";
    let sa = proposal(ProtocolId::IKE, keywords, Spi::None);
    let payloads = [
        Payload::Sa(sa),
        Payload::Ke(Ke { method: KeMethodId::ML_KEM_768, data: &public }),
        Payload::Nonce(&[7; 32]),
        Payload::Notify(Notify::new(NotifyType::NAT_DETECTION_SOURCE_IP, &hashes)),
        Payload::Notify(Notify::new(NotifyType::NAT_DETECTION_DESTINATION_IP, &hashes)),
        Payload::Notify(Notify::new(NotifyType::IKEV2_FRAGMENTATION_SUPPORTED, &[])),
    ];
    let header = Header {
        spi_i: 1,
        spi_r: 0,
        next_payload: PayloadType::NONE,
        minor_version: 0,
        exchange: ExchangeType::IKE_SA_INIT,
        flags: Flags { initiator: true, version: false, response: false },
        message_id: 0,
        length: 0,
    };
    group.bench_function("encode", |b| b.iter(|| encode_message(&header, black_box(&payloads))));
    let datagram = encode_message(&header, &payloads);
    group.bench_function("decode", |b| b.iter(|| Message::decode(black_box(&datagram))));
    group.finish();
}

/// Both ends of an IKE SA.
fn epochs() -> [Epoch; 2] {
    let crypto = pq_kem::provider();
    let prf = crypto.prf(PrfId::HMAC_SHA2_256).expect("a PRF");
    let suite = CipherSuite { encr: EncrId::AES_GCM_16, key_bits: 256, integ: IntegId::NONE };
    let lengths = crypto.ciphers.lengths(suite).expect("a suite");
    let nonces = Nonces { i: &[1; 32], r: &[2; 32] };
    let keys = IkeKeys::initial(prf, &[], &Seed::new(nonces, Spis::new(1, 2)), &lengths);
    [true, false].map(|end| Epoch::new(crypto.ciphers, suite, &keys, end).expect("keys"))
}

fn outgoing<'a>(payloads: &'a [Payload<'a>], max_datagram: Option<usize>) -> Outgoing<'a> {
    Outgoing {
        spi_i: 1,
        spi_r: 2,
        exchange: ExchangeType::INFORMATIONAL,
        flags: Flags { initiator: true, version: false, response: false },
        message_id: 1,
        payloads,
        max_datagram,
        force_fragment: false,
    }
}

fn sealing(criterion: &mut Criterion<clock::Counter>) {
    let [mut initiator, responder] = epochs();
    let mut rng = Seeded::new(1);
    for fragmented in [false, true] {
        let mut group =
            criterion.benchmark_group(if fragmented { "fragments" } else { "encrypted" });
        for size in SIZES {
            let data = vec![0x5a; size];
            let payloads = [Payload::Notify(Notify::new(NotifyType(40_000), &data))];
            let message = outgoing(&payloads, fragmented.then_some(1_252));
            group.throughput(Throughput::Bytes(size as u64));
            group.bench_function(BenchmarkId::new("seal", size), |b| {
                b.iter(|| initiator.seal(black_box(&message), &mut rng).expect("sealed"));
            });
            let sealed = initiator.seal(&message, &mut rng).expect("sealed");
            group.bench_function(BenchmarkId::new("open", size), |b| {
                b.iter(|| {
                    sealed.iter().map(|datagram| opened(&responder, datagram)).sum::<usize>()
                });
            });
        }
        group.finish();
    }
}

/// Octets inside `datagram`.
fn opened(epoch: &Epoch, datagram: &[u8]) -> usize {
    let message = Message::decode(datagram).expect("a message");
    match message.payloads.last() {
        Some(Payload::Sk(sk)) => epoch.open(datagram, sk).expect("sealed for it").octets.len(),
        Some(Payload::Skf(skf)) => epoch.open_fragment(datagram, skf).expect("sealed for it").len(),
        _ => 0,
    }
}

criterion_group! {
    name = benches;
    config = clock::criterion();
    targets = coding, sealing
}
criterion_main!(benches);
