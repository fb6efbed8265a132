use super::*;

async fn pair(wildcard: &str, address: &str) {
    let server =
        PktSocket::bind(SocketAddr::new(wildcard.parse().unwrap(), 0), SocketOptions::default())
            .unwrap();
    let client =
        PktSocket::bind(SocketAddr::new(wildcard.parse().unwrap(), 0), SocketOptions::default())
            .unwrap();
    let address: IpAddr = address.parse().unwrap();
    let to = SocketAddr::new(address, server.bound().port());
    client.send(address, to, &[b"ab", b"c"]).unwrap();
    let mut buffer = [0; 16];
    let received = server.recv(&mut buffer).await.unwrap();
    assert_eq!(&buffer[..received.len], b"abc");
    assert_eq!(received.local, to);
    assert_eq!(received.remote, SocketAddr::new(address, client.bound().port()));
    server.send(received.local.ip(), received.remote, &[b"", b"d"]).unwrap();
    let reply = client.recv(&mut buffer).await.unwrap();
    assert_eq!((reply.remote, &buffer[..reply.len]), (to, &b"d"[..]));
}

#[tokio::test]
async fn replies_come_from_the_address_that_was_asked() {
    pair("0.0.0.0", "127.0.0.1").await;
    pair("0.0.0.0", "127.8.7.6").await;
}

/// The DSCP that a datagram from `one` arrives with at `other`.
async fn codepoint(other: &PktSocket) -> u8 {
    let io = &other.io;
    let mut octets = [0; 64];
    let receive = || {
        let mut slices = [IoSliceMut::new(&mut octets)];
        let mut control = nix::cmsg_space!(libc::in6_pktinfo, libc::c_int);
        let (fd, flags) = (io.as_raw_fd(), MsgFlags::MSG_DONTWAIT);
        let message = recvmsg::<SockaddrStorage>(fd, &mut slices, Some(&mut control), flags)?;
        let found = message.cmsgs()?.find_map(|control| match control {
            ControlMessageOwned::Ipv4Tos(tos) => Some(tos >> 2),
            ControlMessageOwned::Ipv6TClass(class) => Some((class >> 2) as u8),
            _ => None,
        });
        Ok(found.unwrap_or(u8::MAX))
    };
    io.async_io(Interest::READABLE, receive).await.unwrap()
}

#[tokio::test]
async fn each_datagram_has_its_codepoint() {
    for address in ["127.0.0.1", "::1"] {
        let [one, other] = [(); 2].map(|()| {
            let address = SocketAddr::new(address.parse().unwrap(), 0);
            PktSocket::bind(address, SocketOptions::default()).unwrap()
        });
        let socket = SockRef::from(&other.io);
        match one.bound {
            SocketAddr::V4(_) => socket.set_recv_tos_v4(true).unwrap(),
            SocketAddr::V6(_) => socket.set_recv_tclass_v6(true).unwrap(),
        }
        for dscp in [0, 46, 63, 0] {
            let from = Origin { address: one.bound.ip(), dscp };
            one.send(from, other.bound, &[b"a", b"b"]).unwrap();
            assert_eq!(codepoint(&other).await, dscp, "{address}");
            one.send_run(from, other.bound, b"p", &[b"cc", b"dd", b"e"]).unwrap();
            for _ in 0..3 {
                assert_eq!(codepoint(&other).await, dscp, "{address}");
            }
        }
    }
}

#[tokio::test]
async fn many_are_taken_at_once_and_in_order() {
    let [one, other] = [(); 2].map(|()| {
        let address = "127.0.0.1:0".parse().unwrap();
        PktSocket::bind(address, SocketOptions::default()).unwrap()
    });
    let mut batch = Batch::default();
    let (mut got, mut more) = (Vec::new(), Vec::new());
    for round in [3, 2 * BATCH, 1] {
        for n in 0..round {
            let text = format!("{round} {n}");
            one.send(one.bound.ip(), other.bound, &[b"", text.as_bytes()]).unwrap();
        }
        got.clear();
        while got.len() < round {
            std::future::poll_fn(|context| other.poll_readable(context)).await;
            more.push(other.recv_batch(&mut batch).unwrap());
            for (received, octets) in batch.datagrams() {
                assert_eq!((received.remote, received.local), (one.bound, other.bound));
                got.push(String::from_utf8(octets.to_vec()).unwrap());
            }
        }
        assert_eq!(got, (0..round).map(|n| format!("{round} {n}")).collect::<Vec<_>>());
    }
    assert!(more.contains(&true), "a full batch says that there may be more");
    // Nothing is waited for in vain, and nothing is there twice.
    assert!(!other.recv_batch(&mut batch).unwrap());
    assert_eq!(batch.datagrams().count(), 0);
}

async fn runs(address: &str) {
    let [one, other] = [(); 2].map(|()| {
        let address = SocketAddr::new(address.parse().unwrap(), 0);
        PktSocket::bind(address, SocketOptions::default()).unwrap()
    });
    // As fragments are; more than there is room for in one call; one alone.
    for (count, octets, last) in [(3, 1200, 17), (200, 20, 20), (1, 5, 5)] {
        let datagrams: Vec<Vec<u8>> =
            (0..count).map(|n| vec![n; if n + 1 == count { last } else { octets }]).collect();
        let all: Vec<&[u8]> = datagrams.iter().map(Vec::as_slice).collect();
        for prefix in [&b""[..], b"\0\0\0\0"] {
            one.send_run(one.bound.ip(), other.bound, prefix, &all).unwrap();
            for datagram in &all {
                let mut buffer = [0; 2000];
                let received = other.recv(&mut buffer).await.unwrap();
                assert_eq!(buffer[..received.len], [prefix, datagram].concat());
                assert_eq!(received.remote, one.bound);
            }
        }
    }
}

#[tokio::test]
async fn sending_takes_no_memory() {
    use ike_tests::heap;

    assert!(heap::begin());
    let address = "127.0.0.1:0".parse().unwrap();
    let socket = PktSocket::bind(address, SocketOptions::default()).unwrap();
    let (local, remote) = (socket.bound.ip(), socket.bound);
    let before = heap::allocations();
    for _ in 0..3 {
        socket.send(local, remote, &[b"\0\0\0\0", b"message"]).unwrap();
        socket.send_run(local, remote, b"", &[&[1; 1200], &[2; 1200], &[3; 7]]).unwrap();
    }
    assert_eq!(heap::allocations(), before);
}

#[tokio::test]
async fn runs_arrive_as_what_they_were_made_of() {
    runs("127.0.0.1").await;
}

#[tokio::test]
async fn ipv6_as_well() {
    // A machine without IPv6 cannot show it.
    if std::net::UdpSocket::bind("[::1]:0").is_ok() {
        pair("::", "::1").await;
        runs("::1").await;
    }
}
