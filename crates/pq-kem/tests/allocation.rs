//! Sealing and opening a packet takes no memory from Rust's heap, with any suite.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use ike_wire::registry::{EncrId, IntegId};
use ipsec_types::crypto::{CipherProvider, CipherSuite, Frame};
use pq_kem::sym::Ciphers;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

#[expect(unsafe_code, reason = "a counting allocator cannot be written without")]
// SAFETY: every call goes to the system's allocator unchanged; the counter is a plain thread-local
// that neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn no_allocation_per_packet() {
    let (none, mac) = (IntegId::NONE, IntegId::HMAC_SHA2_256_128);
    for (encr, key_bits, integ) in [
        (EncrId::AES_GCM_16, 256, none),
        (EncrId::CHACHA20_POLY1305, 0, none),
        (EncrId::AES_CCM_16, 256, none),
        (EncrId::AES_CBC, 256, mac),
        (EncrId::AES_CTR, 256, mac),
        (EncrId::NULL, 0, mac),
    ] {
        let suite = CipherSuite { encr, key_bits, integ };
        let lengths = Ciphers.lengths(suite).unwrap();
        let (encr_key, integ_key) = (vec![1; lengths.encr_key], vec![2; lengths.integ_key]);
        let iv = vec![3; lengths.iv];
        let frame = Frame { iv: &iv, aad: &[4; 8], trailer: &[] };
        let (mut data, mut icv) = (vec![5; 1408], vec![0; lengths.icv]);
        let before_key = ALLOCATIONS.get();
        let key = Ciphers.key(suite, &encr_key, &integ_key).unwrap();
        let before = ALLOCATIONS.get();
        assert_ne!(before, before_key, "the counter counts");
        key.seal(frame, &mut data, &mut icv).unwrap();
        key.open(frame, &mut data, &icv).unwrap();
        assert_eq!(ALLOCATIONS.get(), before, "{suite:?}");
    }
}
