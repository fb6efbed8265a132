//! What a kernel has, migration, and speed, on a kernel with ESP.

use crate::support::{addr, ip, ip_words, kernel, state};
use ike_wire::registry::{EncrId, IntegId};
use ipsec_types::crypto::CipherSuite;
use ipsec_types::dataplane::Mode;
use xfrm::kernel::{Change, Migration, Move};
use xfrm::policy::{Action, Policy, PolicyDirection, PolicyId, Template};
use xfrm::selector::{Prefix, Selector};
use xfrm::state::{Direction, EncapPorts, Encapsulation, Replay, State, StateId};

/// What is known of the lab's kernels is found, and nothing is left behind.
pub(crate) fn features() {
    let mut kernel = kernel();
    let features = kernel.features().unwrap();
    println!("{features}");
    assert_eq!(ip("xfrm state") + &ip("xfrm policy"), "", "left behind");
    assert!(features.esp4 && features.esp6 && features.esn && features.udp_encapsulation);
    assert!(features.beet && features.allocate_spi && features.directions && features.if_id);
    assert!(features.packet_offload && features.mapping_interval && features.nat_keepalive);
    // The lab says which kernel it is; trixie's is 6.12, the others have what came later.
    match std::env::var("IKE_LAB_KERNEL").as_deref() {
        Ok("trixie") => assert!(!features.iptfs),
        // Debian's newer one knows IP-TFS and does not have its module.
        Ok("forky") => assert!(!features.iptfs && features.per_cpu),
        Ok("netdevsim") => assert!(features.iptfs && features.per_cpu),
        _ => {}
    }
    if features.per_cpu {
        let spec = State {
            cpu: Some(0),
            direction: Some(Direction::Out),
            ..state(0x8100, "192.0.2.1", "192.0.2.2")
        };
        kernel.add_state(&spec).unwrap();
        assert_eq!(kernel.state(&spec.id).unwrap().unwrap().cpu, Some(0));
        assert!(ip_words("xfrm state").contains("pcpu-num 0"));
        assert!(kernel.delete_state(&spec.id).unwrap());
    }
    assert_eq!(kernel.features().unwrap(), features, "asked twice");
    let json = serde_json::to_value(features).unwrap();
    assert_eq!(json["esp4"], true);
    assert_eq!(json.as_object().unwrap().len(), features.list().len());

    let suite = |encr, key_bits, integ| CipherSuite { encr, key_bits, integ };
    let none = IntegId::NONE;
    for (suite, there) in [
        (suite(EncrId::AES_GCM_16, 256, none), true),
        (suite(EncrId::CHACHA20_POLY1305, 0, none), true),
        (suite(EncrId::AES_CBC, 128, IntegId::HMAC_SHA2_256_128), true),
        (suite(EncrId::AES_GCM_16_IIV, 128, none), false),
        (suite(EncrId::AES_GCM_16, 64, none), false),
        (suite(EncrId::KUZNYECHIK_MGM_KTREE, 256, none), false),
    ] {
        assert_eq!(kernel.takes_suite(suite), Ok(there), "{suite:?}");
    }
    assert_eq!(ip("xfrm state"), "");
}

/// A kernel without ESP says so as well. (Passes where there is ESP, too.)
pub(crate) fn features_of_any_kernel() {
    let mut kernel = kernel();
    let features = kernel.features().unwrap();
    println!("{features}");
    assert!(features.allocate_spi);
    assert_eq!(features.to_string().contains("lacks ESP over IPv4"), !features.esp4);
    assert_eq!(ip("xfrm state") + &ip("xfrm policy"), "");
}

/// States move with their counters and numbers, templates with them; two pairs in one call.
pub(crate) fn migration() {
    let mut kernel = kernel();
    let nets =
        Selector::between(Prefix::new(addr("10.1.0.0"), 16), Prefix::new(addr("10.2.0.0"), 16));
    let id = PolicyId::new(nets, PolicyDirection::Out);
    let (a, b) = (addr("192.0.2.1"), addr("192.0.2.2"));
    let (c, d) = (addr("2001:db8::1"), addr("2001:db8::2"));
    let template = Template::new(a, b, 7, Mode::Tunnel);
    kernel.set_policy(&Policy::new(id, 1, Action::Allow(vec![template]))).unwrap();
    let spec = State {
        replay: Replay { esn: true, window: 64, sent: 1 << 32 | 5, ..Replay::default() },
        ..state(0x8000, "192.0.2.1", "192.0.2.2")
    };
    kernel.add_state(&spec).unwrap();

    let mut migration = Migration {
        policy: id,
        reqid: 7,
        mode: Mode::Tunnel,
        from: (a, b),
        to: (a, addr("192.0.2.3")),
        encapsulation: None,
    };
    kernel.migrate(&migration).unwrap();
    assert_eq!(kernel.state(&spec.id), Ok(None));
    let moved = StateId::new(0x8000, addr("192.0.2.3"));
    let info = kernel.state(&moved).unwrap().unwrap();
    assert_eq!((info.replay.sent, info.reqid), (1 << 32 | 5, 7));
    let words = ip_words("xfrm policy");
    assert!(words.contains("tmpl src 192.0.2.1 dst 192.0.2.3"), "{words}");

    // To another family, and into UDP.
    migration.from = migration.to;
    migration.to = (c, d);
    kernel.migrate(&migration).unwrap();
    let moved = StateId::new(0x8000, d);
    assert_eq!(kernel.state(&moved).unwrap().unwrap().src, c);
    migration.from = (c, d);
    migration.to = (a, b);
    let udp = Encapsulation::Udp(EncapPorts { src_port: 4500, dst_port: 4500 });
    migration.encapsulation = Some(udp);
    kernel.migrate(&migration).unwrap();
    assert_eq!(kernel.state(&spec.id).unwrap().unwrap().encapsulation, Some(udp));

    // Nothing to move is an error, not a silence.
    assert!(
        kernel
            .migrate(&Migration { policy: PolicyId { if_id: 3, ..id }, ..migration.clone() })
            .is_err()
    );
    let mixed = Migration { to: (a, d), ..migration };
    assert!(kernel.migrate(&mixed).unwrap_err().to_string().contains("two address families"));
}

/// Two templates of one policy move in one call, which takes an array in XFRMA_MIGRATE.
pub(crate) fn migration_of_two() {
    let mut kernel = kernel();
    let hosts = Selector::between(Prefix::host(addr("10.1.0.1")), Prefix::host(addr("10.2.0.1")));
    let id = PolicyId::new(hosts, PolicyDirection::Out);
    let at = |last: u8| std::net::IpAddr::from([192, 0, 2, last]);
    let templates = vec![
        Template::new(at(1), at(2), 7, Mode::Tunnel),
        Template::new(at(1), at(3), 8, Mode::Tunnel),
    ];
    kernel.set_policy(&Policy::new(id, 1, Action::Allow(templates))).unwrap();
    for (spi, dst, reqid) in [(0x8001, "192.0.2.2", 7), (0x8002, "192.0.2.3", 8)] {
        kernel.add_state(&State { reqid, ..state(spi, "192.0.2.1", dst) }).unwrap();
    }
    let entries = [
        Move { reqid: 7, mode: Mode::Tunnel, from: (at(1), at(2)), to: (at(11), at(12)) },
        Move { reqid: 8, mode: Mode::Tunnel, from: (at(1), at(3)), to: (at(11), at(13)) },
    ];
    kernel.migrate_all(&id, &entries, None).unwrap();
    for (spi, dst) in [(0x8001, at(12)), (0x8002, at(13))] {
        assert_eq!(kernel.state(&StateId::new(spi, dst)).unwrap().unwrap().src, at(11));
    }
    let words = ip_words("xfrm policy");
    assert!(words.contains("tmpl src 192.0.2.11 dst 192.0.2.13"), "{words}");
}

/// States in batches, with one that is refused in the middle.
pub(crate) fn batches_of_states() {
    let mut kernel = kernel();
    let states: Vec<_> =
        (0..500_u32).map(|n| state(0x9000 + n, "192.0.2.1", "192.0.2.2")).collect();
    let taken = state(0x9000 + 130, "192.0.2.9", "192.0.2.2");
    kernel.add_state(&taken).unwrap();
    let results = kernel.apply(states.iter().map(Change::AddState));
    for (at, result) in results.iter().enumerate() {
        match at {
            130 => assert!(result.as_ref().is_err_and(xfrm::netlink::Error::is_present)),
            _ => assert_eq!(*result, Ok(true)),
        }
    }
    assert_eq!(kernel.states().unwrap().len(), 500);
    let results = kernel.apply(states.iter().map(|state| Change::DeleteState(&state.id)));
    assert_eq!(results, vec![Ok(true); 500]);
    let results = kernel.apply(states.iter().map(|state| Change::DeleteState(&state.id)));
    assert_eq!(results, vec![Ok(false); 500]);
    assert_eq!(kernel.counts().unwrap().states, 0);
}
