//! Workers on several threads that are given the same packets.

use esp::{Buffer, DropReason};

use crate::common::{Tunnel, arrival};

/// Of two copies of a packet, on two threads at once, one is let through: the window is looked at without
/// a lock and written under one.
#[test]
fn of_two_copies_at_once_one_passes() {
    const PACKETS: usize = 5000;
    let tunnel = Tunnel { window: 8192, ..Tunnel::v4() };
    let mut pair = tunnel.connect();
    let packet = tunnel.packet(10);
    let sealed: Vec<_> = (0..PACKETS).map(|_| pair.seal(&packet).expect("sealed")).collect();
    let outer = arrival(&sealed[0].0);
    let (now, start) = (pair.now, std::sync::Barrier::new(2));
    let workers = [pair.right.inbound(), pair.right.inbound()];
    let passed: usize = std::thread::scope(|scope| {
        let threads = workers.map(|mut worker| {
            let (sealed, outer, start) = (&sealed, &outer, &start);
            scope.spawn(move || {
                start.wait();
                let mut out = Buffer::new();
                let opened = sealed.iter().map(|(_, esp)| {
                    out.truncate(0);
                    worker.handle(now, outer, esp, &mut out)
                });
                let judged = |result| match result {
                    Ok(_) => true,
                    Err(DropReason::Replay) => false,
                    Err(other) => panic!("{other}"),
                };
                opened.map(judged).filter(|passed| *passed).count()
            })
        });
        threads.map(|thread| thread.join().expect("a worker that ends")).into_iter().sum()
    });
    assert_eq!(passed, PACKETS);
    assert_eq!(pair.right.stats().opened(), PACKETS as u64);
    assert_eq!(pair.right.stats().dropped(DropReason::Replay), PACKETS as u64);
}
