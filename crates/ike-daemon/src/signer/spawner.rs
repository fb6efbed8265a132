//! Starts signers. The daemon gives up the privileges for that. So the first process that it starts, the *spawner*, starts
//! the signers, one at a time, and hands their sockets to the daemon. It holds no key. Another process starts those that look
//! host names up, in the same way.
//!
//! Before the network reaches the daemon, the daemon tells the spawner once which PKCS#11 modules signers may load, and which
//! limits signers or resolvers have. From then on the spawner sends these to each process before it hands the socket over.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use nix::sys::signal::{SigSet, Signal};
use rustix::io::retry_on_intr;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recv, recvmsg, sendmsg,
};

use super::link::gone;
use super::protocol::{Ask, Limits, Request, frame, receive, send};
use crate::log::LogFormat;

/// The first octet of an order for a signer; the order's number follows. No message to a signer begins with this octet: its
/// length would be above every limit.
const ANOTHER: u8 = 0xff;

/// The first octet of the order to seal signers; an octet follows, and a message with the modules that they may load and
/// their limits.
const SEAL: u8 = 0xfe;

/// How long the spawner has for an order.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long the spawner waits for the end of a killed signer before it starts the next one.
const MOMENT: Duration = Duration::from_millis(200);

/// Room for one descriptor.
const ROOM: usize = rustix::cmsg_space!(ScmRights(1));

/// Orders a new signer from the spawner at the other end of `to`, which ends the former signer. No two orders in a row may
/// have the same `number`.
///
/// # Errors
/// `BrokenPipe` if the spawner is gone.
pub(crate) fn ask(mut to: &UnixStream, number: u8) -> io::Result<UnixStream> {
    to.write_all(&[ANOTHER, number]).map_err(ended)?;
    let end = Instant::now() + PATIENCE;
    loop {
        let left = end.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        to.set_read_timeout(Some(left))?;
        let (answered, given) = take(to)?;
        // The answer may be to an earlier order, which was given up: this order has ended that signer.
        if answered == number {
            let none = || io::Error::other("no new process");
            return given.map(UnixStream::from).ok_or_else(none);
        }
    }
}

/// Has the spawner at the other end of `to` seal each signer that it starts from now on: the signer may load these PKCS#11
/// modules and no others, and does what `limits` leave.
///
/// # Errors
/// If the spawner is gone.
pub(crate) fn seal(mut to: &UnixStream, modules: &[PathBuf], limits: &Limits) -> io::Result<()> {
    to.write_all(&[SEAL, 0])?;
    send(&mut to, &(modules, limits))
}

/// The limits that a spawner has named to this process, as its first message; `None` if the other end has closed.
pub(crate) fn limits(mut from: &UnixStream) -> io::Result<Option<Limits>> {
    match receive::<Request>(&mut from)? {
        Some(Request { what: Ask::Seal(limits), .. }) => Ok(Some(limits)),
        Some(_) => Err(io::Error::other("the first message has no limits")),
        None => Ok(None),
    }
}

/// The number of an order, and the socket of the signer that was started for it.
fn take(from: &UnixStream) -> io::Result<(u8, Option<OwnedFd>)> {
    let mut room = [MaybeUninit::uninit(); ROOM];
    let mut control = RecvAncillaryBuffer::new(&mut room);
    let mut octet = [0];
    let mut octets = [IoSliceMut::new(&mut octet)];
    let receive = || recvmsg(from, &mut octets, &mut control, RecvFlags::CMSG_CLOEXEC);
    let got = retry_on_intr(receive).map_err(|why| ended(why.into()))?;
    let given = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    if got.bytes == 0 {
        return Err(gone());
    }
    Ok((octet[0], given))
}

fn ended(why: io::Error) -> io::Error {
    match why.kind() {
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => gone(),
        _ => why,
    }
}

/// True if this process is to be a spawner, by the first octet from the daemon at the other end of `from`.
pub(crate) fn is_meant(from: &UnixStream) -> io::Result<bool> {
    let mut first = [0];
    let (count, _) = retry_on_intr(|| recv(from, &mut first, RecvFlags::PEEK))?;
    Ok(count == 1 && matches!(first, [ANOTHER | SEAL]))
}

/// The connection to the daemon, which is standard input. This process is kept from signals that are for the daemon.
pub(crate) fn inherited() -> io::Result<UnixStream> {
    // A signal to the terminal's processes is for the daemon, whose end ends this one.
    rustix::process::setsid().map_err(io::Error::from)?;
    // Nor is one to all processes of a service, as systemd's that stops it: whoever ended first would make an
    // orderly end look like a lost signer. Threads inherit it.
    SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP]).thread_block()?;
    let stream = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    stream.peer_addr()?;
    Ok(stream)
}

/// Ends this process with the spawner that has started it and has made its socket `from`. So the daemon notices the end of
/// the spawner.
///
/// # Errors
/// `BrokenPipe` if the spawner has ended already: the kernel then sends no signal.
pub(crate) fn end_with_spawner(from: &UnixStream) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    let maker = rustix::net::sockopt::socket_peercred(from)?.pid;
    match rustix::process::getppid() {
        Some(parent) if parent == maker => Ok(()),
        _ => Err(io::Error::new(
            ErrorKind::BrokenPipe,
            "the process that started this one has ended",
        )),
    }
}

/// Serves orders from `from` until its end, and then ends the process that it has started last, by the command `what`.
pub(crate) fn serve(from: &UnixStream, what: &str, log: LogFormat) -> io::Result<()> {
    serve_by(from, |its| program(what, log).stdin(Stdio::from(its)).spawn())
}

/// This program with the command `what`, as a spawner or as what that starts. The name is that of the running program, also
/// after the file has been replaced.
pub(crate) fn program(what: &str, log: LogFormat) -> Command {
    let mut program = Command::new("/proc/self/exe");
    program.arg(what).stdout(Stdio::null());
    if let Some(format) = log.to_possible_value().filter(|_| log != LogFormat::default()) {
        program.args(["--log-format", format.get_name()]);
    }
    program
}

fn serve_by(
    mut from: &UnixStream,
    mut make: impl FnMut(OwnedFd) -> io::Result<Child>,
) -> io::Result<()> {
    let mut made: Vec<Child> = Vec::new();
    let mut order = [0; 2];
    let mut sealing: Option<Vec<u8>> = None;
    loop {
        match from.read_exact(&mut order) {
            Ok(()) => {}
            Err(why) if why.kind() == ErrorKind::UnexpectedEof => break,
            Err(why) => return Err(why),
        }
        if order[0] == SEAL {
            let (modules, limits) =
                receive::<(Vec<PathBuf>, Limits)>(&mut from)?.ok_or_else(gone)?;
            match sealing {
                None => sealing = Some(sealing_requests(modules, limits)?),
                Some(_) => tracing::error!(
                    "spawner: its limits were named a second time, and ignored; somebody may have taken the daemon over"
                ),
            }
            continue;
        }
        // A signer that the kernel does not end yet delays nothing: the next order tries again.
        made.retain_mut(|child| !has_ended(child));
        let (ours, its) = UnixStream::pair()?;
        // On an error the daemon gets an answer without a socket, and may order again.
        let signer = make(OwnedFd::from(its)).and_then(|child| {
            made.push(child);
            // The signer reads these requests first. They also tell it that it is no spawner.
            (&ours).write_all(sealing.as_deref().unwrap_or_default())
        });
        let given = [ours.as_fd()];
        let mut room = [MaybeUninit::uninit(); ROOM];
        let mut control = SendAncillaryBuffer::new(&mut room);
        match signer {
            Ok(()) => _ = control.push(SendAncillaryMessage::ScmRights(&given)),
            Err(error) => tracing::error!(%error, "cannot start a new process"),
        }
        sendmsg(from, &[IoSlice::new(&order[1..])], &mut control, SendFlags::NOSIGNAL)?;
    }
    made.retain_mut(|child| !has_ended(child));
    Ok(())
}

/// The requests that seal a signer.
fn sealing_requests(modules: Vec<PathBuf>, limits: Limits) -> io::Result<Vec<u8>> {
    let mut requests = Vec::new();
    for what in modules.into_iter().map(Ask::Admit).chain([Ask::Seal(limits)]) {
        requests.extend_from_slice(&frame(&Request { number: 0, what })?);
    }
    Ok(requests)
}

/// Ends `child`; true once it has ended.
fn has_ended(child: &mut Child) -> bool {
    // An error means that it has ended. Nothing else ends a signer that hangs.
    let _ = child.kill();
    let end = Instant::now() + MOMENT;
    loop {
        match child.try_wait() {
            Ok(None) if Instant::now() < end => thread::sleep(Duration::from_millis(1)),
            ended => return !matches!(ended, Ok(None)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::protocol::{Response, Told};
    use super::super::{TokenKey, server};
    use super::*;

    /// Faults, each by itself: in `serve_by`, write nothing to a signer; take the second list.
    #[test]
    fn a_new_signer_loads_no_other_module_once_the_spawner_is_told_to_seal() {
        let (ours, its) = UnixStream::pair().unwrap();
        let make = |end: OwnedFd| {
            thread::spawn(|| {
                server::serve(&UnixStream::from(end), super::super::Local::default(), || Ok(()))
            });
            Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn()
        };
        let spawner = thread::spawn(move || serve_by(&its, make));
        let said = |mut signer: &UnixStream, module: &str| {
            let key = TokenKey { module: module.into(), slot: None, handle: vec![1] };
            for what in [Ask::Admit(module.into()), Ask::Token { key, pin: None }] {
                send(&mut signer, &Request { number: 1, what }).unwrap();
            }
            match receive(&mut signer).unwrap() {
                Some(Response { what: Told::Loaded(Err(why)), .. }) => why.to_string(),
                other => panic!("{other:?}"),
            }
        };
        let is_refused =
            |signer: &UnixStream, module: &str| said(signer, module).contains("restart");
        assert!(!is_refused(&ask(&ours, 1).unwrap(), "/none/before.so"), "it is tried");
        let limits = Limits::default();
        seal(&ours, &["/none/known.so".into()], &limits).unwrap();
        seal(&ours, &["/none/other.so".into()], &limits).unwrap();
        let signer = ask(&ours, 2).unwrap();
        let modules = ["/none/known.so", "/none/other.so", "/none/before.so"];
        assert_eq!(modules.map(|module| is_refused(&signer, module)), [false, true, true]);
        ours.shutdown(std::net::Shutdown::Write).unwrap();
        spawner.join().unwrap().unwrap();
    }

    /// Faults, each by itself: in `serve_by`, return the error of `make`; in `ask`, take the first answer.
    #[test]
    fn a_signer_that_cannot_be_made_ends_no_spawner_and_late_answers_count_for_nothing() {
        let (ours, its) = UnixStream::pair().unwrap();
        let mut orders = 0;
        let make = move |end: OwnedFd| {
            orders += 1;
            match orders {
                2 => Err(io::Error::other("no room")),
                _ => Command::new("cat").stdin(Stdio::from(end)).stdout(Stdio::null()).spawn(),
            }
        };
        let spawner = thread::spawn(move || serve_by(&its, make));
        ask(&ours, 1).unwrap();
        let none = ask(&ours, 2).unwrap_err();
        assert_ne!(none.kind(), ErrorKind::BrokenPipe, "the spawner is there");
        // Nobody takes the answer to this one.
        (&ours).write_all(&[ANOTHER, 3]).unwrap();
        let mut signer = ask(&ours, 4).unwrap();
        signer.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let alive = signer.read(&mut [0]).unwrap_err();
        assert_eq!(alive.kind(), ErrorKind::WouldBlock, "the last one, and not one that was ended");
        ours.shutdown(std::net::Shutdown::Write).unwrap();
        spawner.join().unwrap().unwrap();
        assert_eq!(ask(&ours, 5).unwrap_err().kind(), ErrorKind::BrokenPipe);
    }
}
