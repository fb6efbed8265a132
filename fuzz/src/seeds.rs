//! Inputs to begin with: what the trees of tests hold, and scripts of ordinary lives.

use std::sync::Arc;
use std::time::Duration;

use ike_proto::config::TicketKey;
use ike_proto::crypto::Secret;
use ike_proto::wire::Reader;
use ike_tests::{A, B, Pair, Setup};

/// Inputs that fuzzing found for other parsers; see the README beside the file.
const PARSER_CORPORA: &[u8] =
    include_bytes!("../../crates/ike-wire/tests/data/parser-corpora/inputs.bin");

/// Seeds of target `message`: those inputs, and the datagrams of a life.
pub fn messages() -> Vec<Vec<u8>> {
    let mut seeds: Vec<_> = parser_corpora().collect();
    let mut pair = Pair::established(3);
    pair.rekey_child(A);
    pair.settle();
    pair.rekey_ike(B);
    pair.settle();
    seeds.extend(pair.net.trace.iter().map(|packet| packet.octets.to_vec()));
    seeds.extend(resumption());
    seeds
}

/// Seeds of target `configuration`: the examples of the daemon, and one in the syntax of swanctl.conf(5).
pub fn configurations() -> Vec<Vec<u8>> {
    const CONF: &str = "connections { c { local { auth = psk\n id = a }\n remote { auth = psk\n id = b }\n\
                        children { net { remote_ts = 10.1.0.0/16 } } } }\n\
                        base { secret = 0x0102 }\nsecrets { ike-c : base { } }\n";
    let toml = [
        include_str!("../../crates/ike-daemon/examples/gateway.toml"),
        include_str!("../../crates/ike-daemon/examples/host-to-host.toml"),
        include_str!("../../crates/ike-daemon/examples/post-quantum.toml"),
        include_str!("../../crates/ike-daemon/examples/site-to-site.toml"),
    ];
    let toml = toml.into_iter().map(|text| [b"t", text.as_bytes()].concat());
    toml.chain([[b"s", CONF.as_bytes()].concat()]).collect()
}

/// The datagrams of a client that has lost its IKE SA, and resumes it.
fn resumption() -> Vec<Vec<u8>> {
    let mut setup = Setup::new(4);
    setup.both(|side| {
        side.connection.session_resumption = true;
        side.connection.dpd_delay = Duration::from_secs(10);
        let secret = Secret::new(vec![1; TicketKey::SECRET_LEN]);
        side.settings.resumption.keys = vec![Arc::new(TicketKey { id: [1; 8], secret })];
    });
    let mut pair = setup.build();
    pair.establish();
    // Nothing arrives for a while.
    pair.net.manual = true;
    pair.run_for(Duration::from_secs(250));
    (pair.net.manual, pair.net.mailbox) = (false, Vec::new());
    let from = pair.net.trace.len();
    pair.initiate(A, Some("net"));
    pair.run_for(Duration::from_secs(10));
    pair.net.trace[from..].iter().map(|packet| packet.octets.to_vec()).collect()
}

/// Undoes the coding of the file.
fn parser_corpora() -> impl Iterator<Item = Vec<u8>> {
    let mut r = Reader::new(PARSER_CORPORA);
    let mut input: Vec<u8> = Vec::new();
    std::iter::from_fn(move || {
        let shared = r.u16("record").ok()?;
        let fresh = r.u16("record").ok()?;
        input.truncate(shared.into());
        input.extend_from_slice(r.take(fresh.into(), "record").ok()?);
        Some(input.clone())
    })
}

/// Seeds of target `fragments`.
pub fn fragments() -> Vec<Vec<u8>> {
    vec![
        // A long message of the friend, in order, reversed, rotated, one missing, one twice.
        vec![
            2, 10, 0x10, 0, 0, 2, 10, 0x10, 0, 1, 2, 10, 0x10, 0, 2, 2, 10, 0x10, 0, 4, 2, 1, 1, 0,
            8,
        ],
        // A stranger's IKE_AUTH, then time.
        vec![0, 0x22, 1, 0, 10, 0, 1, 0xff, 0xff],
        // Loose fragments of a stranger: many of a large set, then another total.
        [
            &[0][..],
            &[0x2a, 0, 1, 5, 35, 4, 1, 2, 3, 4].repeat(4),
            &[0x2a, 2, 1, 0xff, 0xff, 35, 1, 9],
        ]
        .concat(),
        // A response nobody asked for, another exchange, a mangled fragment.
        vec![10, 16, 1, 1, 0, 0, 12, 0x40, 1, 2, 0, 0, 0x1e, 4, 2, 3, 1, 0, 40, 2, 1, 1, 0, 30, 4],
    ]
}

/// Seeds of target `fragment_ack`.
pub fn fragment_acks() -> Vec<Vec<u8>> {
    // Fragments 1 and 3 are missing, a second later fragments 2 to 4.
    let asks = [4, 0, 2, 1, 3, 0, 16, 0, 4, 0x40, 1, 2, 0, 4];
    vec![
        [&[0, 16, 0][..], &asks].concat(),
        // Played back twice, then changed.
        [&[0, 16, 0][..], &asks, &[26, 0, 26, 1, 0xfa, 0, 0, 60, 1]].concat(),
        // Contradictions: reversed, beyond the end, twice, an odd octet.
        vec![0, 16, 0, 4, 0, 2, 3, 1, 4, 0x40, 1, 1, 0xff, 0xff, 4, 0, 2, 2, 2, 4, 0x80, 1, 1],
        // Of requests, other message IDs and other exchanges.
        vec![0, 16, 0, 4, 3, 1, 1, 4, 8, 7, 1, 1, 4, 0x10, 1, 1, 4, 0x20, 1, 1],
        // Fragments with gaps, one again, and time for the endpoint to acknowledge.
        vec![16, 2, 0, 16, 3, 0, 16, 9, 0, 0, 16, 0, 26, 0, 0, 16, 0, 26, 1, 0, 0xff, 0xff],
        // Of another set with more, an acknowledgement between.
        vec![16, 1, 0, 0, 1, 0, 16, 2, 1, 4, 0, 1, 1, 0, 16, 0, 16, 1, 1, 0, 16, 0],
    ]
}

/// Seeds of target `endpoint_script`: commands, and deliveries between them.
pub fn scripts() -> Vec<Vec<u8>> {
    // Initiate "net" at A, deliver everything.
    const UP: &[u8] = &[70, 0, 0, 0, 0, 67];
    const REKEY_CHILD_A: &[u8] = &[70, 0, 0, 0, 7];
    const REKEY_CHILD_B: &[u8] = &[198, 0, 0, 0, 7];
    const REKEY_IKE_A: &[u8] = &[70, 0, 0, 0, 5];
    const REKEY_IKE_B: &[u8] = &[198, 0, 0, 0, 5];
    const DELETE_CHILD_A: &[u8] = &[70, 0, 0, 0, 11];
    const DELETE_IKE_B: &[u8] = &[198, 0, 0, 0, 10];
    const REAUTHENTICATE_A: &[u8] = &[70, 0, 0, 0, 13];
    const ALL: &[u8] = &[67];
    const SECONDS: &[u8] = &[60, 5, 0];
    // Nothing arrives for a minute.
    const MINUTE: &[u8] = &[60, 0x3a, 0x98];
    const FIRST: &[u8] = &[0, 0];
    const TWICE: &[u8] = &[20, 0];
    // Packet 2, one octet in the body changed.
    const MANGLE: &[u8] = &[30, 2, 0, 0, 60, 0x55, 0, 0];
    const FAULT: &[u8] = &[108, 1, 0];
    // The path from A to B carries 576 octets.
    const NARROW: &[u8] = &[117, 2, 0x40];
    // The first connection is reset; its opener loses it; B hears of one that is not there.
    const RESET: &[u8] = &[118, 0, 0];
    const LOST: &[u8] = &[118, 1, 0];
    const UNKNOWN: &[u8] = &[246, 2, 0, 246, 6, 0, 246, 3, 0, 1];
    let lives: &[&[&[u8]]] = &[
        &[UP],
        &[UP, REKEY_CHILD_A, ALL, DELETE_IKE_B, ALL],
        &[UP, REKEY_CHILD_A, REKEY_CHILD_B, ALL, SECONDS, ALL],
        &[UP, REKEY_IKE_A, REKEY_IKE_B, ALL, SECONDS, ALL],
        &[UP, REKEY_IKE_A, REKEY_CHILD_B, FIRST, FIRST, TWICE, ALL],
        &[UP, DELETE_CHILD_A, REKEY_CHILD_B, ALL],
        &[UP, MANGLE, MANGLE, REKEY_CHILD_A, MANGLE, ALL],
        &[UP, REAUTHENTICATE_A, ALL, SECONDS],
        &[UP, FAULT, REKEY_CHILD_A, ALL, FAULT, DELETE_CHILD_A, ALL],
        &[&[70, 0, 0, 0, 0], FIRST, MANGLE, FIRST, TWICE, MANGLE, ALL],
        &[&[70, 0, 0, 0, 0], FIRST, FIRST, FIRST, NARROW, SECONDS, ALL],
        &[UP, MINUTE, UP, SECONDS, REKEY_IKE_A, ALL, MINUTE, UP, MANGLE, MINUTE, UP, ALL],
        &[UP, RESET, SECONDS, ALL, REKEY_CHILD_A, LOST, UNKNOWN, SECONDS, ALL],
    ];
    let mut seeds = Vec::new();
    for life in lives {
        for variant in [
            [0, 0, 0],
            [1, 1, 0],
            [2, 2, 0],
            [0, 4, 0],
            [8, 8, 0],
            [0, 32, 0],
            [16, 16, 0],
            [0, 0, 1],
            [1, 1, 3],
            [0, 0, 12],
            [1, 1, 4],
            [0, 0, 64],
            [0, 0, 20],
            [0, 0, 44],
            [0, 0, 128],
        ] {
            seeds.push([&variant[..], &life.concat()].concat());
        }
    }
    seeds
}

/// Seeds of target `esp`: every suite, mode and encapsulation, with packets that fit the selectors.
pub fn esp() -> Vec<Vec<u8>> {
    // A UDP packet from 10.1.0.1 to 10.2.0.1, port 53.
    const V4: &[u8] = &[
        0x45, 0, 0, 30, 0, 0, 0x40, 0, 64, 17, 0x25, 0xcc, 10, 1, 0, 1, 10, 2, 0, 1, 0, 9, 0, 53,
        0, 10, 0, 0, 1, 2,
    ];
    // An echo request from fd01::1 to fd02::1.
    const V6: &[u8] = &[
        0x60, 0, 0, 0, 0, 8, 58, 64, 0xfd, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xfd, 2, 0,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 128, 0, 0, 0, 0, 1, 0, 1,
    ];
    // What both ends of transport mode say to each other.
    const HOSTS: &[u8] = &[
        0x45, 0, 0, 28, 0, 0, 0x40, 0, 64, 17, 0, 0, 192, 0, 2, 1, 198, 51, 100, 1, 0, 9, 0, 53, 0,
        8, 0, 0,
    ];
    // By the owner of the keys, one sequence number on.
    let sealed = |next: u8, inner: &[u8]| {
        let len = u16::try_from(inner.len()).unwrap_or(0).to_be_bytes();
        [&[1, 0, next], &len[..], inner].concat()
    };
    let sent = |inner: &[u8]| {
        let len = u16::try_from(inner.len()).unwrap_or(0).to_be_bytes();
        [&[5], &len[..], inner].concat()
    };
    let replay = vec![3, 0];
    let mangle = vec![4, 0, 0, 20, 0x80];
    let stranger = [&[8, 4, 0, 0, 0, 1][..], &[9; 28]].concat();
    let clear = [&[6, V4.len() as u8][..], V4].concat();
    let time = vec![7, 4, 0];
    let lives = [
        [
            sealed(0, V4),
            replay.clone(),
            mangle.clone(),
            sealed(1, V6),
            sealed(2, &V4[20..]),
            time.clone(),
        ]
        .concat(),
        [sent(V4), sent(V6), sent(HOSTS), sealed(2, &V4[20..]), sealed(3, &[]), clear].concat(),
        [
            stranger,
            sealed(0, V6),
            sealed(1, V4),
            sealed(0, &V4[..20]),
            sealed(2, &HOSTS[20..]),
            replay,
            mangle,
            time,
        ]
        .concat(),
    ];
    let mut seeds = Vec::new();
    for flags in 0..=255_u8 {
        let life = &lives[usize::from(flags) % lives.len()];
        seeds.push([&[flags], &life[..]].concat());
    }
    seeds
}

/// Seeds of target `stream`: IKE, ESP, what is passed over, and each way to be wrong.
pub fn streams() -> Vec<Vec<u8>> {
    const ACCEPTED: &[u8] = &[0, 5];
    const OPENED: &[u8] = &[1, 1];
    const PREFIX: &[u8] = b"IKETCP";
    const ESP: &[u8] = &[0, 12, 0xc0, 0, 0, 1, 0, 0, 0, 1, 7, 7];
    const KEEPALIVE: &[u8] = &[0, 3, 0xff];
    const EMPTY: &[u8] = &[0, 2];
    const SHORT: &[u8] = &[0, 4, 1, 2];
    let ike = [&[0, 34][..], &[0; 4], &[9; 16], &[0x21, 0x20, 34, 8, 0, 0, 0, 0, 0, 0, 0, 28]];
    let ike = &ike.concat()[..];
    let streams: &[&[&[u8]]] = &[
        &[ACCEPTED, PREFIX, ike, ESP, ike],
        &[OPENED, ike, KEEPALIVE, ESP, EMPTY, ESP],
        &[ACCEPTED, PREFIX, KEEPALIVE, EMPTY, SHORT, ike],
        &[OPENED, ESP, SHORT, ESP, SHORT, ike, ESP],
        &[OPENED, ike, &[0, 1], ike],
        &[ACCEPTED, PREFIX, ESP, &[0, 0], ESP],
        &[ACCEPTED, b"IKETCQ", ike],
        &[OPENED, ESP, &[0xff, 0xff, 1, 2, 3]],
        &[OPENED, &SHORT.repeat(17)],
    ];
    streams.iter().map(|parts| parts.concat()).collect()
}
