//! Nonce payload (RFC 7296 §3.9): 16 to 256 octets.
