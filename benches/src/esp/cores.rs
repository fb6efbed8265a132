//! Throughput of several threads that share one SA: sequence numbers, counters and the replay window are
//! all they have in common.

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use esp::Buffer;

use super::{BATCH, Suite, Tunnel, packet};

/// Prints packets per second of sealing and of opening for each number of threads.
pub fn cores(
    suites: &[Suite],
    sizes: &[usize],
    threads: &[usize],
    time: Duration,
) -> Result<(), String> {
    let there = thread::available_parallelism().map_or(1, |n| n.get());
    println!(
        "{there} cores; threads of one SA, millions of packets a second (times that of one thread)"
    );
    println!(
        "{:<17} {:>5} {:>7} | {:>18} | {:>18}",
        "suite", "size", "threads", "seal", "seal + open"
    );
    for suite in suites {
        for &size in sizes {
            let mut first = None;
            for &count in threads {
                let seal = run(*suite, size, count, time, false)?;
                let both = run(*suite, size, count, time, true)?;
                let (seal1, both1) =
                    *first.get_or_insert((seal / count as f64, both / count as f64));
                println!(
                    "{:<17} {size:>5} {count:>7} | {:>9.3} ({:>5.2} x) | {:>9.3} ({:>5.2} x)",
                    suite.name,
                    seal / 1e6,
                    seal / seal1,
                    both / 1e6,
                    both / both1
                );
            }
        }
    }
    Ok(())
}

/// Packets. A thread that waits for a core is overtaken by what the others do meanwhile.
const WINDOW: u32 = 1 << 22;

/// Packets per second of `count` threads, each with a sender and, if they are opened too, a receiver.
fn run(suite: Suite, size: usize, count: usize, time: Duration, open: bool) -> Result<f64, String> {
    let tunnel = Tunnel::with_window(suite.suite, WINDOW)?;
    let (ready, stop) = (Barrier::new(count + 1), AtomicBool::new(false));
    let work = |flow: u16| {
        let (mut sender, mut receiver) = (tunnel.sender(), tunnel.receiver());
        let packets = vec![packet(size, flow); BATCH];
        let mut sealed = Buffer::new();
        let mut opened: Vec<_> = (0..BATCH).map(|_| Buffer::new()).collect();
        let mut done = 0u64;
        ready.wait();
        while !stop.load(Ordering::Relaxed) {
            sealed.clear();
            let len = tunnel.seal_batch(&mut sender, black_box(&packets), &mut sealed);
            if open {
                opened.iter_mut().for_each(Buffer::clear);
                tunnel.open_batch(&mut receiver, &sealed, len, &mut opened);
            }
            done += BATCH as u64;
        }
        done
    };
    thread::scope(|scope| {
        let work = &work;
        let workers: Vec<_> = (0..count).map(|n| scope.spawn(move || work(n as u16))).collect();
        ready.wait();
        let start = Instant::now();
        thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
        let elapsed = start.elapsed();
        let mut sum = 0;
        for worker in workers {
            sum += worker.join().map_err(|_| "a thread panicked")?;
        }
        Ok(sum as f64 / elapsed.as_secs_f64())
    })
}
