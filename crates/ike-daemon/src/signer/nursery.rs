//! Makes signers. The daemon gives up what it takes to start one, so the first process that it starts, the *nursery*,
//! starts them, one at a time, and hands their sockets over. It holds no key.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::io::retry_on_intr;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recv, recvmsg, sendmsg,
};

use super::link::gone;

/// Asks for a signer. No message to a signer begins so: its length would be above every limit.
const ANOTHER: u8 = 0xff;

/// How long the nursery has.
const PATIENCE: Duration = Duration::from_secs(10);

/// Room for one descriptor.
const ROOM: usize = rustix::cmsg_space!(ScmRights(1));

/// Has the nursery at the other end of `to` end the signer that it has made, and make another.
pub(super) fn ask(mut to: &UnixStream) -> io::Result<UnixStream> {
    to.set_read_timeout(Some(PATIENCE))?;
    to.write_all(&[ANOTHER])?;
    let mut room = [MaybeUninit::uninit(); ROOM];
    let mut control = RecvAncillaryBuffer::new(&mut room);
    let mut octet = [0];
    let mut octets = [IoSliceMut::new(&mut octet)];
    retry_on_intr(|| recvmsg(to, &mut octets, &mut control, RecvFlags::CMSG_CLOEXEC))?;
    let given = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    given.map(UnixStream::from).ok_or_else(gone)
}

/// Whether the daemon at the other end of `from` takes this process for a nursery.
pub(super) fn is_meant(from: &UnixStream) -> io::Result<bool> {
    let mut first = [0];
    let (count, _) = retry_on_intr(|| recv(from, &mut first, RecvFlags::PEEK))?;
    Ok(count == 1 && first == [ANOTHER])
}

/// Serves `from` until its end, which is that of the signer as well.
pub(super) fn serve(mut from: &UnixStream) -> io::Result<()> {
    let mut last: Option<Child> = None;
    let mut order = [0];
    while from.read(&mut order)? > 0 {
        end(last.take());
        let (ours, its) = UnixStream::pair()?;
        let child = Command::new("/proc/self/exe")
            .arg("signer")
            .stdin(Stdio::from(OwnedFd::from(its)))
            .stdout(Stdio::null())
            .spawn()?;
        last = Some(child);
        let given = [ours.as_fd()];
        let mut room = [MaybeUninit::uninit(); ROOM];
        let mut control = SendAncillaryBuffer::new(&mut room);
        control.push(SendAncillaryMessage::ScmRights(&given));
        sendmsg(from, &[IoSlice::new(&order)], &mut control, SendFlags::empty())?;
    }
    end(last);
    Ok(())
}

fn end(child: Option<Child>) {
    if let Some(mut child) = child {
        // It may have ended, and one that hangs ends by nothing else.
        let _ = child.kill();
        let _ = child.wait();
    }
}
