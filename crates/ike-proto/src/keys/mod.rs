//! Key derivation (RFC 7296 §2.13–2.18) and the octets an AUTH payload covers.
