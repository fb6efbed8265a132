//! Bare hashes.

use aws_lc_rs::digest;

/// SHA-1 over the concatenated `parts`: for NAT detection (RFC 7296 §2.23), which needs no collision
/// resistance, and for nothing else.
pub fn sha1(parts: &[&[u8]]) -> [u8; 20] {
    let mut context = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    for part in parts {
        context.update(part);
    }
    let mut out = [0; 20];
    out.copy_from_slice(context.finish().as_ref());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FIPS 180-2 Appendix A.1, whole and in parts.
    #[test]
    fn fips_180_abc() {
        let expected = [
            0xa9, 0x99, 0x3e, 0x36, 0x47, 0x06, 0x81, 0x6a, 0xba, 0x3e, 0x25, 0x71, 0x78, 0x50,
            0xc2, 0x6c, 0x9c, 0xd0, 0xd8, 0x9d,
        ];
        assert_eq!(sha1(&[b"abc"]), expected);
        assert_eq!(sha1(&[b"a", b"", b"bc"]), expected);
    }
}
