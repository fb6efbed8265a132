//! A responder's half-open SA whose peer does not come back costs no key derivation: time and garbage do
//! not change that.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ike_proto::crypto::{CryptoProvider, Prf, Secret};
use ike_proto::wire::encode_message;
use ike_proto::wire::payload::{Notify, Payload};
use ike_proto::wire::registry::{ExchangeType, NotifyType, PrfId};
use ike_proto::wire::{Header, Message};
use ike_proto::{DropReason, Event, Failure};
use ike_tests::bench::{Bench, PSK, auth_payloads};
use ike_tests::cheap;
use ike_tests::handmade::Handmade;
use ike_tests::setup::{identity, side};

/// Counts what is derived.
#[derive(Debug)]
struct Counting {
    prf: &'static dyn Prf,
    expanded: &'static AtomicUsize,
}

impl Prf for Counting {
    fn id(&self) -> PrfId {
        self.prf.id()
    }

    fn output_len(&self) -> usize {
        self.prf.output_len()
    }

    fn prf(&self, key: &[u8], parts: &[&[u8]]) -> Secret {
        self.prf.prf(key, parts)
    }

    fn prf_plus(&self, key: &[u8], seed: &[&[u8]], len: usize) -> Secret {
        self.expanded.fetch_add(1, Ordering::Relaxed);
        self.prf.prf_plus(key, seed, len)
    }
}

/// An endpoint, and how many times it or its peers have expanded keys.
fn bench() -> (Bench, &'static AtomicUsize) {
    let expanded: &'static AtomicUsize = Box::leak(Box::default());
    let mut crypto = CryptoProvider::clone(&*cheap::provider());
    for prf in &mut crypto.prf {
        *prf = Box::leak(Box::new(Counting { prf: *prf, expanded }));
    }
    let mut side = side(1, 2);
    side.crypto = Arc::new(crypto);
    (Bench::with(side), expanded)
}

fn auth(peer: &mut Handmade, spi: u32) -> Vec<u8> {
    let (id, auth) = (identity(2), peer.auth(&identity(2), PSK));
    peer.next_request(ExchangeType::IKE_AUTH, &auth_payloads(&id, &auth, spi, true))
}

/// `request` with another header, or with the body of its SK payload cut.
fn altered(request: &[u8], header: impl Fn(&mut Header), body: Option<usize>) -> Vec<u8> {
    let Message { header: mut changed, mut payloads } = Message::decode(request).unwrap();
    header(&mut changed);
    if let (Some(len), Some(Payload::Sk(sk))) = (body, payloads.last_mut()) {
        sk.body = &sk.body[..len];
    }
    encode_message(&changed, &payloads)
}

#[test]
fn garbage_and_time_derive_no_keys() {
    let (mut bench, expanded) = bench();
    let mut peer = bench.half_open();
    let others: Vec<_> = (0..10).map(|_| bench.half_open()).collect();
    let genuine = auth(&mut peer, 1007);
    let plain = |header: &Header| {
        let notify = [Payload::Notify(Notify::new(NotifyType::INVALID_SYNTAX, &[]))];
        encode_message(header, &notify)
    };
    let header = Message::decode(&genuine).unwrap().header;
    let garbage = [
        (DropReason::Unprotected, plain(&header)),
        (DropReason::SpisOfNoSa, altered(&genuine, |header| header.spi_i ^= 1, None)),
        (DropReason::UsedMessageId, altered(&genuine, |header| header.message_id = 0, None)),
        (DropReason::MessageIdOutOfWindow, altered(&genuine, |header| header.message_id = 2, None)),
        (DropReason::UsedMessageId, altered(&genuine, |header| header.flags.response = true, None)),
        (DropReason::BadIntegrity, altered(&genuine, |_| {}, Some(0))),
        // An IV and an ICV, and nothing between them.
        (DropReason::BadIntegrity, altered(&genuine, |_| {}, Some(24))),
    ];
    let before = expanded.load(Ordering::Relaxed);
    for (why, datagram) in &garbage {
        assert!(bench.give(datagram).is_empty(), "{why}");
        let dropped = &bench.host().dropped;
        assert_eq!(dropped.last(), Some(why), "{dropped:?}");
    }
    bench.world.run_for(Duration::from_secs(10));
    bench.world.wake(0);
    assert_eq!(bench.host().endpoint.half_open(), 1 + others.len());
    assert_eq!(expanded.load(Ordering::Relaxed), before, "garbage has woken it");
    // The same SA goes on all the same.
    assert_eq!(bench.give(&genuine).len(), 1, "{:?}", bench.host().dropped);
    bench.host().child();
    let before = expanded.load(Ordering::Relaxed);
    bench.world.run_for(Duration::from_secs(120));
    assert_eq!(bench.host().endpoint.half_open(), 0);
    assert_eq!(expanded.load(Ordering::Relaxed), before, "its end has woken one");
    let timed_out = |event: &Event| match event {
        Event::IkeDown { established: false, reason: Failure::Timeout, .. } => Some(()),
        _ => None,
    };
    assert_eq!(bench.host().events(timed_out).len(), others.len());
    bench.host().ike();
}
