//! Memory that packets are written to.

use std::ops::{Deref, DerefMut};

/// Octets that grow at their end, like a vector, but without clearing memory that is about to be overwritten:
/// memory that was in use stays initialised. Emptying and filling it again costs nothing.
#[derive(Default)]
pub struct Buffer {
    /// Longer than the part in use.
    octets: Vec<u8>,
    len: usize,
}

impl Buffer {
    /// An empty buffer.
    pub const fn new() -> Self {
        Self { octets: Vec::new(), len: 0 }
    }

    /// An empty buffer with room for `capacity` octets.
    pub fn with_capacity(capacity: usize) -> Self {
        Self { octets: vec![0; capacity], len: 0 }
    }

    /// Octets there is room for without growing.
    pub fn capacity(&self) -> usize {
        self.octets.len()
    }

    /// Empties it.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Shortens it to `len` octets, if it is longer.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Lengthens it by `count` octets and returns these. They contain octets of earlier use.
    #[inline]
    pub fn append(&mut self, count: usize) -> &mut [u8] {
        let start = self.len;
        let end = start + count;
        if end > self.octets.len() {
            self.octets.resize(end.max(2 * self.octets.len()), 0);
        }
        self.len = end;
        &mut self.octets[start..end]
    }

    /// Appends a copy of `octets`.
    pub fn extend_from_slice(&mut self, octets: &[u8]) {
        self.append(octets.len()).copy_from_slice(octets);
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.octets[..self.len]
    }
}

impl DerefMut for Buffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.octets[..self.len]
    }
}

impl From<&[u8]> for Buffer {
    fn from(octets: &[u8]) -> Self {
        Self { octets: octets.to_vec(), len: octets.len() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_and_keeps_its_memory() {
        let mut buffer = Buffer::new();
        buffer.extend_from_slice(&[1, 2, 3]);
        buffer.append(2).copy_from_slice(&[4, 5]);
        assert_eq!(*buffer, [1, 2, 3, 4, 5]);
        buffer.truncate(9);
        buffer.truncate(1);
        assert_eq!(*buffer, [1]);
        let capacity = buffer.capacity();
        buffer.clear();
        assert!(buffer.is_empty());
        assert_eq!(buffer.append(capacity).len(), capacity);
        assert_eq!(buffer.capacity(), capacity);
        assert_eq!(Buffer::with_capacity(7).capacity(), 7);
    }
}
