//! Vendor ID payload (RFC 7296 §3.12).
