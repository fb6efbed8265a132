//! Which process this is, without asking the kernel each time: a system call takes as long as three HMACs.

use std::ptr::{self, NonNull};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// The id of this process. After a fork it is that of the child, however the fork was made.
pub(crate) fn id() -> u32 {
    let Some(page) = PAGE.get_or_init(Page::new) else { return std::process::id() };
    match page.number().load(Ordering::Relaxed) {
        0 => {
            let id = std::process::id();
            page.number().store(id, Ordering::Relaxed);
            id
        }
        id => id,
    }
}

/// `None` if the kernel has no such pages (before Linux 4.14).
static PAGE: OnceLock<Option<Page>> = OnceLock::new();

/// A page that is all zeros again in a child process. It is never unmapped.
struct Page(NonNull<AtomicU32>);

// SAFETY: it points to an atomic integer that lives as long as the process does.
unsafe impl Send for Page {}
// SAFETY: as above; atomic integers may be used by all threads at once.
unsafe impl Sync for Page {}

impl Page {
    fn new() -> Option<Self> {
        let size = size_of::<AtomicU32>();
        let (prot, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANON);
        // SAFETY: a new mapping at an address of the kernel's choice touches no other memory. The kernel
        // rounds its length up to a page.
        let page = unsafe { libc::mmap(ptr::null_mut(), size, prot, flags, -1, 0) };
        if page == libc::MAP_FAILED {
            return None;
        }
        let number = NonNull::new(page.cast())?;
        // SAFETY: the mapping is the one made above, and nothing is in it.
        let wiped = unsafe { libc::madvise(page, size, libc::MADV_WIPEONFORK) } == 0;
        if !wiped {
            // SAFETY: as above; it is not used after this.
            unsafe { libc::munmap(page, size) };
        }
        wiped.then_some(Self(number))
    }

    fn number(&self) -> &AtomicU32 {
        // SAFETY: the mapping is readable, writable, aligned to a page, never unmapped, and all zeros, which
        // an integer may be; nothing but this integer is ever in it.
        unsafe { self.0.as_ref() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_this_process() {
        assert_eq!(id(), std::process::id());
        assert_eq!(id(), std::process::id());
        assert!(PAGE.get().is_some_and(Option::is_some), "this kernel has such pages");
    }

    #[test]
    fn a_child_has_its_own() {
        let parents = id();
        // SAFETY: the child calls nothing but what is safe after a fork of a process with threads: it
        // loads and stores an integer, asks for its id, and leaves.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let own = id();
            let good = own != parents && own == std::process::id() && own == id();
            // SAFETY: it ends the process at once.
            unsafe { libc::_exit(i32::from(!good)) };
        }
        assert!(child > 0, "fork");
        let mut status = 0;
        // SAFETY: the pointer is to a live integer.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0, "the child saw its parent's id, or another");
        assert_eq!(id(), parents);
    }
}
