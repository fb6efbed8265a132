//! The system calls of a process that reads files and changes nothing: the resolver and a sealed signer.

use std::collections::BTreeMap;

use nix::libc;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

use super::{PORTS, PROGRAMS, REFUSED};

/// Refuses what [`super::filter`] refuses, and calls that change a file, accept a connection, signal another process, or change
/// the limits, priority or memory of another process.
pub(super) fn calls(programs: bool) -> Result<BpfProgram, seccompiler::Error> {
    let programs = if programs { &[][..] } else { PROGRAMS };
    let refused = REFUSED.iter().chain(PORTS).chain(programs).chain(CHANGES).chain(OLD_CHANGES);
    let mut rules: BTreeMap<i64, Vec<_>> = refused.map(|call| (*call, Vec::new())).collect();
    let when = |argument: u8, mask: libc::c_int, value: libc::c_int| {
        let flags = SeccompCmpOp::MaskedEq(mask as u64);
        let length = SeccompCmpArgLen::Dword;
        SeccompRule::new(vec![SeccompCondition::new(argument, length, flags, value as u64)?])
    };
    let user = libc::CLONE_NEWUSER;
    rules.insert(libc::SYS_clone, vec![when(0, user, user)?]);
    for (call, argument) in OPEN {
        let for_writing = [
            when(*argument, libc::O_ACCMODE, libc::O_WRONLY)?,
            when(*argument, libc::O_ACCMODE, libc::O_RDWR)?,
            when(*argument, libc::O_ACCMODE, libc::O_ACCMODE)?,
            when(*argument, libc::O_CREAT, libc::O_CREAT)?,
            when(*argument, libc::O_TRUNC, libc::O_TRUNC)?,
        ];
        rules.insert(*call, for_writing.into());
    }
    // To itself, as abort(3) does.
    let own = u64::from(std::process::id());
    let other = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, own)?;
    rules.insert(libc::SYS_tgkill, vec![SeccompRule::new(vec![other])?]);
    for (call, argument, operator, value) in TO_OTHERS {
        let length = SeccompCmpArgLen::Dword;
        let one = SeccompCondition::new(*argument, length, operator.clone(), *value)?;
        rules.entry(*call).or_default().push(SeccompRule::new(vec![one])?);
    }
    let eperm = SeccompAction::Errno(libc::EPERM as u32);
    let arch = std::env::consts::ARCH.try_into()?;
    Ok(SeccompFilter::new(rules, SeccompAction::Allow, eperm, arch)?.try_into()?)
}

/// Calls with flags of open(2), and which argument has them.
#[cfg(target_arch = "x86_64")]
const OPEN: &[(i64, u8)] = &[(libc::SYS_openat, 2), (libc::SYS_open, 1)];
#[cfg(not(target_arch = "x86_64"))]
const OPEN: &[(i64, u8)] = &[(libc::SYS_openat, 2)];

/// Calls that can reach another process by an argument: they make it the owner of a descriptor, so that
/// the kernel signals it, or they change its limits.
const TO_OTHERS: &[(i64, u8, SeccompCmpOp, u64)] = &[
    // F_SETOWN, F_SETSIG and F_SETOWN_EX. libc has some of these numbers on some architectures.
    (libc::SYS_fcntl, 1, SeccompCmpOp::Eq, 8),
    (libc::SYS_fcntl, 1, SeccompCmpOp::Eq, 10),
    (libc::SYS_fcntl, 1, SeccompCmpOp::Eq, 15),
    // FIOSETOWN and SIOCSPGRP.
    (libc::SYS_ioctl, 1, SeccompCmpOp::Eq, 0x8901),
    (libc::SYS_ioctl, 1, SeccompCmpOp::Eq, 0x8902),
    // 0 is the caller.
    (libc::SYS_prlimit64, 0, SeccompCmpOp::Ne, 0),
    (libc::SYS_sched_setaffinity, 0, SeccompCmpOp::Ne, 0),
    (libc::SYS_sched_setattr, 0, SeccompCmpOp::Ne, 0),
    (libc::SYS_sched_setparam, 0, SeccompCmpOp::Ne, 0),
    (libc::SYS_sched_setscheduler, 0, SeccompCmpOp::Ne, 0),
    (libc::SYS_migrate_pages, 0, SeccompCmpOp::Ne, 0),
    (libc::SYS_move_pages, 0, SeccompCmpOp::Ne, 0),
];

/// The same number on all architectures; libc has it for some of them.
const FCHMODAT2: i64 = 452;

const CHANGES: &[i64] = &[
    // A filter cannot read its flags. The C library's resolver does not call it.
    libc::SYS_openat2,
    libc::SYS_truncate,
    libc::SYS_renameat2,
    libc::SYS_unlinkat,
    libc::SYS_mkdirat,
    libc::SYS_mknodat,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    FCHMODAT2,
    libc::SYS_utimensat,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_setpriority,
    libc::SYS_ioprio_set,
    // Memory, semaphores and messages of other processes.
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_semctl,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
];

#[cfg(target_arch = "x86_64")]
const OLD_CHANGES: &[i64] = &[
    libc::SYS_creat,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_unlink,
    libc::SYS_mkdir,
    libc::SYS_rmdir,
    libc::SYS_mknod,
    libc::SYS_link,
    libc::SYS_symlink,
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_futimesat,
];
#[cfg(not(target_arch = "x86_64"))]
const OLD_CHANGES: &[i64] = &[libc::SYS_renameat];
