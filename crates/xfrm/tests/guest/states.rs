//! States in a kernel with ESP, compared with what `ip xfrm` says of them.

use std::time::Duration;

use crate::support::{addr, ip, ip_words, kernel, state};
use ike_wire::registry::{EncrId, IntegId};
use ipsec_types::crypto::{CipherSuite, Secret};
use xfrm::selector::{Prefix, Selector};
use xfrm::state::{
    Direction, EncapPorts, Encapsulation, Iptfs, Lifetime, Mark, Mode, Protection, Replay, State,
    StateId,
};

/// Every field of a state is what `ip` says it is, and what the kernel says back.
pub(crate) fn what_is_asked_for_is_installed() {
    let mut kernel = kernel();
    let mark = Mark { value: 0x2a, mask: 0xff };
    let spec = State {
        id: StateId { mark, ..StateId::new(0xc000_0001, addr("192.0.2.2")) },
        replay: Replay { window: 32, ..Replay::default() },
        encapsulation: Some(Encapsulation::Udp(EncapPorts { src_port: 4500, dst_port: 4501 })),
        direction: Some(Direction::In),
        if_id: 9,
        set_mark: Mark { value: 5, mask: 0xf },
        lifetime: Lifetime {
            soft_bytes: 1000,
            hard_bytes: 2000,
            soft_packets: 10,
            hard_packets: 20,
            soft_seconds: 100,
            hard_seconds: 200,
        },
        decapsulate_dscp: true,
        icmp: true,
        any_family: true,
        no_ecn: true,
        ..state(0, "192.0.2.1", "192.0.2.2")
    };
    kernel.add_state(&spec).unwrap();
    let said = ip_words("-s xfrm state");
    for word in [
        "src 192.0.2.1 dst 192.0.2.2",
        "proto esp spi 0xc0000001",
        "reqid 7",
        "mode tunnel",
        "replay-window 32",
        "flag noecn decap-dscp icmp af-unspec",
        "mark 0x2a/0xff",
        "output-mark 0x5/0xf",
        "rfc4106(gcm(aes)) 0x0102030405060708090a0b0c0d0e0f1011121314 (160 bits) 128",
        "encap type espinudp sport 4500 dport 4501",
        "if_id 0x9",
        "limit: soft 1000(bytes), hard 2000(bytes)",
        "limit: soft 10(packets), hard 20(packets)",
        "expire add: soft 100(sec), hard 200(sec)",
        "dir in",
    ] {
        assert!(said.contains(word), "{word} in {said}");
    }
    let info = kernel.state(&spec.id).unwrap().unwrap();
    assert_eq!(info.id, spec.id);
    assert_eq!((info.src, info.reqid, info.mode), (spec.src, spec.reqid, Some(Mode::Tunnel)));
    assert_eq!(info.lifetime, spec.lifetime);
    assert_eq!(info.encapsulation, spec.encapsulation);
    assert_eq!((info.if_id, info.direction, info.set_mark), (9, spec.direction, spec.set_mark));
    assert_eq!(info.algorithms, ["rfc4106(gcm(aes))"]);
    assert_eq!((info.bytes, info.packets, info.last_used), (0, 0, None));
    assert!(info.added > 1_700_000_000 && info.offload.is_none());
    assert_eq!(kernel.states().unwrap(), [info]);

    let again = kernel.add_state(&spec).unwrap_err();
    assert!(again.is_present(), "{again}");
    assert!(!kernel.delete_state(&StateId::new(0xc000_0001, addr("192.0.2.2"))).unwrap());
    assert!(kernel.delete_state(&spec.id).unwrap());
    assert!(!kernel.delete_state(&spec.id).unwrap());
    assert_eq!(kernel.state(&spec.id), Ok(None));
    assert_eq!(ip("xfrm state"), "");
}

/// Each suite is taken with the name `ip` uses, in both families.
pub(crate) fn the_suites_of_ike() {
    let mut kernel = kernel();
    let suites = [
        (EncrId::AES_GCM_16, 128, 20, IntegId::NONE, 0, "aead rfc4106(gcm(aes))", "128 "),
        (EncrId::AES_GCM_16, 256, 36, IntegId::NONE, 0, "aead rfc4106(gcm(aes))", "128 "),
        (EncrId::AES_GCM_12, 192, 28, IntegId::NONE, 0, "aead rfc4106(gcm(aes))", "96 "),
        (EncrId::AES_GCM_8, 256, 36, IntegId::NONE, 0, "aead rfc4106(gcm(aes))", "64 "),
        (EncrId::AES_CCM_16, 256, 35, IntegId::NONE, 0, "aead rfc4309(ccm(aes))", "128 "),
        (EncrId::AES_CCM_8, 128, 19, IntegId::NONE, 0, "aead rfc4309(ccm(aes))", "64 "),
        (EncrId::NULL_AES_GMAC, 256, 36, IntegId::NONE, 0, "aead rfc4543(gcm(aes))", "128 "),
        (
            EncrId::CHACHA20_POLY1305,
            0,
            36,
            IntegId::NONE,
            0,
            "aead rfc7539esp(chacha20,poly1305)",
            "128 ",
        ),
        (
            EncrId::AES_CBC,
            256,
            32,
            IntegId::HMAC_SHA2_256_128,
            32,
            "enc cbc(aes)",
            "auth-trunc hmac(sha256) 0x",
        ),
        (
            EncrId::AES_CBC,
            128,
            16,
            IntegId::HMAC_SHA1_96,
            20,
            "enc cbc(aes)",
            "auth-trunc hmac(sha1) 0x",
        ),
        (
            EncrId::AES_CTR,
            128,
            20,
            IntegId::HMAC_SHA2_384_192,
            48,
            "enc rfc3686(ctr(aes))",
            "auth-trunc hmac(sha384) 0x",
        ),
        (
            EncrId::NULL,
            0,
            0,
            IntegId::HMAC_SHA2_512_256,
            64,
            "enc ecb(cipher_null)",
            "auth-trunc hmac(sha512) 0x",
        ),
        (
            EncrId::AES_CBC,
            192,
            24,
            IntegId::AES_XCBC_96,
            16,
            "enc cbc(aes)",
            "auth-trunc xcbc(aes) 0x",
        ),
        (
            EncrId::AES_CBC,
            192,
            24,
            IntegId::AES_CMAC_96,
            16,
            "enc cbc(aes)",
            "auth-trunc cmac(aes) 0x",
        ),
        (
            EncrId::DES3,
            0,
            24,
            IntegId::HMAC_SHA2_256_128,
            32,
            "enc cbc(des3_ede)",
            "auth-trunc hmac(sha256) 0x",
        ),
    ];
    let (mut taken, mut lacking) = (0, Vec::new());
    for (encr, key_bits, octets, integ, mac, name, other) in suites {
        let suite = CipherSuite { encr, key_bits, integ };
        let key = Secret::new((1..).take(octets).collect());
        let integ_key = Secret::new((100..).take(mac).collect());
        for (src, dst) in [("192.0.2.1", "192.0.2.2"), ("2001:db8::1", "2001:db8::2")] {
            let protection = Protection::of_suite(suite, &key, &integ_key).unwrap();
            let spec = State { protection, ..state(0x1234_5678, src, dst) };
            if let Err(error) = kernel.add_state(&spec) {
                // Not every kernel is built with every algorithm; those of IKE's defaults must be there.
                assert!(error.errno == libc::ENOSYS || error.errno == libc::ENOENT, "{error}");
                lacking.push(name);
                continue;
            }
            taken += 1;
            let said = ip_words("xfrm state") + " ";
            assert!(said.contains(name) && said.contains(other), "{name} {other} in {said}");
            assert!(kernel.delete_state(&spec.id).unwrap());
        }
    }
    println!("taken: {taken}, lacking: {lacking:?}");
    for name in lacking {
        assert!(
            ["xcbc", "cmac", "des3", "cipher_null", "4309"].iter().any(|part| name.contains(part))
                || name.contains("cbc(aes)"),
            "{name} is lacking"
        );
    }
    assert!(taken >= 16);
}

/// Modes, address families in any mix, and what only one direction has.
pub(crate) fn modes_and_families() {
    let mut kernel = kernel();
    let inner6 =
        Selector::between(Prefix::host(addr("2001:db8:1::1")), Prefix::host(addr("2001:db8:2::1")));
    let inner4 = Selector::between(Prefix::host(addr("10.1.0.1")), Prefix::host(addr("10.2.0.1")));
    let outer = [("192.0.2.1", "192.0.2.2"), ("2001:db8::1", "2001:db8::2")];
    for (src, dst) in outer {
        for (mode, selector) in [
            (Mode::Tunnel, None),
            (Mode::Tunnel, Some(inner4)),
            (Mode::Tunnel, Some(inner6)),
            (Mode::Transport, None),
            (Mode::Beet, Some(inner4)),
            (Mode::Beet, Some(inner6)),
        ] {
            let spec = State { mode, selector, ..state(0x1000, src, dst) };
            kernel.add_state(&spec).unwrap_or_else(|e| panic!("{mode:?} {selector:?}: {e}"));
            let info = kernel.state(&spec.id).unwrap().unwrap();
            assert_eq!(info.mode, Some(mode));
            match selector {
                Some(_) => assert_eq!(info.selector, selector),
                None => assert!(info.selector.is_some_and(|s| s.src.length == 0), "{info:?}"),
            }
            assert!(kernel.delete_state(&spec.id).unwrap());
        }
    }
    // Each direction is given what both have; the kernel takes what is its own.
    for direction in [Direction::In, Direction::Out] {
        let spec = State {
            direction: Some(direction),
            no_pmtu_discovery: true,
            decapsulate_dscp: true,
            dont_encapsulate_dscp: true,
            icmp: true,
            tfc_padding: 1400,
            mapping_interval: Duration::from_secs(20),
            replay: Replay { window: 64, sent: 7, received: 9, ..Replay::default() },
            ..state(0x1000, "192.0.2.1", "192.0.2.2")
        };
        kernel.add_state(&spec).unwrap_or_else(|error| panic!("{direction:?}: {error}"));
        let info = kernel.state(&spec.id).unwrap().unwrap();
        let (sent, received) = if direction == Direction::In { (0, 9) } else { (7, 0) };
        assert_eq!((info.replay.sent, info.replay.received), (sent, received));
        assert_eq!(info.direction, kernel.knows_directions().unwrap().then_some(direction));
        assert!(kernel.delete_state(&spec.id).unwrap());
    }
}

/// What not every kernel has is taken by those that say they have it, and refused by the others.
pub(crate) fn newer_features() {
    let mut kernel = kernel();
    let features = kernel.features().unwrap();
    let ports = EncapPorts { src_port: 4500, dst_port: 4500 };
    let tcp = State {
        encapsulation: Some(Encapsulation::Tcp(ports)),
        ..state(0x1500, "192.0.2.1", "192.0.2.2")
    };
    assert_eq!(kernel.add_state(&tcp).is_ok(), features.tcp_encapsulation);
    if features.tcp_encapsulation {
        assert!(ip_words("xfrm state").contains("encap type espintcp sport 4500 dport 4500"));
        let info = kernel.state(&tcp.id).unwrap().unwrap();
        assert_eq!(info.encapsulation, tcp.encapsulation);
        assert!(kernel.delete_state(&tcp.id).unwrap());
    }
    if features.nat_keepalive {
        let keepalive = State {
            direction: Some(Direction::Out),
            encapsulation: Some(Encapsulation::Udp(ports)),
            nat_keepalive: Duration::from_secs(20),
            ..state(0x1502, "192.0.2.1", "192.0.2.2")
        };
        kernel.add_state(&keepalive).unwrap();
        let info = kernel.state(&keepalive.id).unwrap().unwrap();
        assert_eq!(info.nat_keepalive, keepalive.nat_keepalive);
        assert!(kernel.delete_state(&keepalive.id).unwrap());
    }
    let sending = Iptfs {
        dont_fragment: true,
        packet_size: Some(1400),
        max_queue_size: Some(1 << 20),
        init_delay: Some(Duration::from_millis(3)),
        ..Iptfs::default()
    };
    let receiving = Iptfs {
        reorder_window: Some(5),
        drop_time: Some(Duration::from_millis(7)),
        ..Iptfs::default()
    };
    for (direction, iptfs) in [(Direction::Out, sending), (Direction::In, receiving)] {
        let spec = State {
            mode: Mode::Iptfs,
            direction: Some(direction),
            iptfs,
            ..state(0x1501, "192.0.2.1", "192.0.2.2")
        };
        if features.iptfs {
            kernel.add_state(&spec).unwrap();
            let info = kernel.state(&spec.id).unwrap().unwrap();
            assert_eq!((info.mode, info.iptfs), (Some(Mode::Iptfs), iptfs));
            assert!(kernel.delete_state(&spec.id).unwrap());
        }
    }
}

/// Short and long windows, ESN, numbers and bitmaps, set at once and later.
pub(crate) fn sequence_numbers() {
    let mut kernel = kernel();
    for direction in [None, Some(Direction::In), Some(Direction::Out)] {
        for esn in [false, true] {
            for window in [0, 1, 32, 33, 64, 256, 4096] {
                let replay = Replay { esn, window, ..Replay::default() };
                let spec = State {
                    direction,
                    replay: replay.clone(),
                    ..state(0x2000, "192.0.2.1", "192.0.2.2")
                };
                let what = format!("{direction:?} {replay:?}");
                kernel.add_state(&spec).unwrap_or_else(|error| panic!("{what}: {error}"));
                let info = kernel.state(&spec.id).unwrap().unwrap();
                let inbound = direction != Some(Direction::Out);
                let wanted = match window {
                    _ if !inbound => 0,
                    0 if esn => 1,
                    window => window,
                };
                assert_eq!((info.replay.esn, info.replay.window), (esn, wanted), "{what}");

                let high = if esn { 3 << 32 } else { 0 };
                let numbers = Replay {
                    sent: if direction == Some(Direction::In) { 0 } else { high + 1000 },
                    received: if inbound { high + 900 } else { 0 },
                    bitmap: if wanted >= 8 { vec![0b1010_0101] } else { Vec::new() },
                    ..info.replay
                };
                kernel.set_replay(&spec.id, &numbers).unwrap_or_else(|e| panic!("{what}: {e}"));
                let info = kernel.state(&spec.id).unwrap().unwrap();
                assert_eq!(info.replay, numbers, "{what}");
                assert!(kernel.delete_state(&spec.id).unwrap());
            }
        }
    }
    let large = Replay { window: 4097, ..Replay::default() };
    let refused = kernel
        .add_state(&State { replay: large, ..state(0x2000, "192.0.2.1", "192.0.2.2") })
        .unwrap_err();
    assert!(refused.to_string().contains("4097"), "{refused}");
}

/// ALLOCSPI, then UPDSA; and UPDSA of a living state moves its ports and limits.
pub(crate) fn reserved_spis_become_states() {
    let mut kernel = kernel();
    let (src, dst) = (addr("192.0.2.2"), addr("192.0.2.1"));
    let range = (0xc000_0000, 0xc000_00ff);
    let spi = kernel.allocate_spi(src, dst, 7, Mark::default(), range).unwrap();
    assert!((range.0..=range.1).contains(&spi));
    assert!(ip_words("xfrm state").contains(&format!("spi {spi:#x}")));
    let mut spec = State {
        direction: Some(Direction::In),
        encapsulation: Some(Encapsulation::Udp(EncapPorts { src_port: 4500, dst_port: 4500 })),
        ..state(spi, "192.0.2.2", "192.0.2.1")
    };
    kernel.update_state(&spec).unwrap();
    assert_eq!(kernel.state(&spec.id).unwrap().unwrap().algorithms.len(), 1);
    spec.encapsulation = Some(Encapsulation::Udp(EncapPorts { src_port: 61234, dst_port: 4500 }));
    spec.lifetime.soft_bytes = 4096;
    kernel.update_state(&spec).unwrap();
    let info = kernel.state(&spec.id).unwrap().unwrap();
    assert_eq!(info.encapsulation, spec.encapsulation);
    assert_eq!(info.lifetime.soft_bytes, 4096);
    assert_eq!(kernel.counts().unwrap().states, 1);

    let absent = state(0x3000, "192.0.2.2", "192.0.2.1");
    assert!(kernel.update_state(&absent).unwrap_err().is_absent());
    let full = kernel.allocate_spi(src, dst, 7, Mark::default(), (spi, spi)).unwrap_err();
    assert!(full.is_absent() || full.is_present(), "{full}");
    kernel.flush_states().unwrap();
    kernel.flush_states().unwrap();
    assert_eq!(kernel.states().unwrap(), []);
}

/// The kernel's words come back, and no key does.
pub(crate) fn refusals_say_why() {
    let mut kernel = kernel();
    let mut spec = state(0x4000, "192.0.2.1", "192.0.2.2");
    spec.protection = Protection::Aead(xfrm::state::Algorithm {
        name: "rfc4106(gcm(nothing))".into(),
        key: Secret::new(vec![0xd7; 20]),
        icv_bits: 128,
    });
    let refused = kernel.add_state(&spec).unwrap_err();
    assert_eq!(refused.request, "add state");
    assert_eq!(refused.errno, libc::ENOSYS);
    assert!(refused.message.as_ref().is_some_and(|text| !text.is_empty()), "{refused:?}");
    let text = format!("{refused} {refused:?} {spec:?}");
    assert!(!text.contains("215") && !text.contains("d7d7"), "{text}");
}
