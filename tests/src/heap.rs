//! What is on the heap: an allocator that counts, and the process's resident memory. All `unsafe` code of this
//! crate.
//!
//! Counts are of one thread, so that tests beside one another do not see each other's memory. What C code
//! allocates is not counted; it is in [`resident`].

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ops::{Add, AddAssign, Sub};
use std::sync::atomic::{AtomicBool, Ordering};

/// Counts what the system's allocator gives out. A program installs it by
/// `#[global_allocator] static HEAP: Counting = Counting;`.
#[derive(Debug, Clone, Copy)]
pub struct Counting;

/// An amount of heap memory. Differences may be negative.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Amount {
    /// Octets asked for.
    pub octets: i64,
    /// Allocations.
    pub blocks: i64,
    /// Octets of glibc's chunks that hold them: 8 more each, in steps of 16, and 32 at the least.
    pub chunks: i64,
}

impl Amount {
    fn of(size: usize) -> Self {
        let chunk = (size.saturating_add(8 + 15) & !15).max(32);
        let signed = |n| i64::try_from(n).unwrap_or(i64::MAX);
        Self { octets: signed(size), blocks: 1, chunks: signed(chunk) }
    }
}

impl Add for Amount {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            octets: self.octets + other.octets,
            blocks: self.blocks + other.blocks,
            chunks: self.chunks + other.chunks,
        }
    }
}

impl Sub for Amount {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            octets: self.octets - other.octets,
            blocks: self.blocks - other.blocks,
            chunks: self.chunks - other.chunks,
        }
    }
}

impl AddAssign for Amount {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

thread_local! {
    static LIVE: Cell<Amount> = const { Cell::new(Amount { octets: 0, blocks: 0, chunks: 0 }) };
    static MADE: Cell<u64> = const { Cell::new(0) };
    static SIZES: [Cell<i64>; LARGEST + 1] = const { [const { Cell::new(0) }; LARGEST + 1] };
}

/// Allocations up to this size are counted by their sizes.
pub const LARGEST: usize = 4096;

/// What this thread has allocated less what it has freed since [`begin`].
pub fn live() -> Amount {
    LIVE.get()
}

/// How often this thread has allocated, or made an allocation larger or smaller.
pub fn allocations() -> u64 {
    MADE.get()
}

/// Allocations of each size that are there, up to [`LARGEST`] octets.
pub fn sizes() -> Vec<i64> {
    SIZES.with(|sizes| sizes.iter().map(Cell::get).collect())
}

/// Begins to count, in all threads; until then nothing is, so that what else the program measures costs no
/// more. False if the program does not have [`Counting`].
pub fn begin() -> bool {
    ON.store(true, Ordering::Relaxed);
    let before = allocations();
    drop(std::hint::black_box(Box::new(0_u64)));
    allocations() != before
}

static ON: AtomicBool = AtomicBool::new(false);

fn note(taken: Option<usize>, freed: Option<usize>) {
    if !ON.load(Ordering::Relaxed) {
        return;
    }
    let taken_amount = taken.map(Amount::of).unwrap_or_default();
    let change = taken_amount - freed.map(Amount::of).unwrap_or_default();
    let _ = SIZES.try_with(|sizes| {
        for (size, change) in [(taken, 1), (freed, -1)] {
            if let Some(count) = size.and_then(|size| sizes.get(size)) {
                count.set(count.get() + change);
            }
        }
    });
    // A thread that ends frees when its counters are gone.
    let _ = LIVE.try_with(|live| live.set(live.get() + change));
    if taken.is_some() {
        let _ = MADE.try_with(|made| made.set(made.get() + 1));
    }
}

// SAFETY: every call goes to the system's allocator as it came. Counting allocates nothing: the counters are
// initialised by constants and need no destructor.
#[expect(unsafe_code, reason = "an allocator is an unsafe trait")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise is System's condition.
        let memory = unsafe { System.alloc(layout) };
        if !memory.is_null() {
            note(Some(layout.size()), None);
        }
        memory
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        let memory = unsafe { System.alloc_zeroed(layout) };
        if !memory.is_null() {
            note(Some(layout.size()), None);
        }
        memory
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        note(None, Some(layout.size()));
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        let moved = unsafe { System.realloc(memory, layout, size) };
        if !moved.is_null() {
            note(Some(size), Some(layout.size()));
        }
        moved
    }
}

/// Octets of this process in memory (`VmRSS`).
///
/// # Errors
///
/// If the system has no `/proc/self/status` that says so.
pub fn resident() -> Result<u64, String> {
    let path = "/proc/self/status";
    let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    number.map(|kilo| kilo * 1024).ok_or_else(|| format!("{path} has no VmRSS"))
}
