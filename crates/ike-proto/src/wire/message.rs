//! Whole messages: the header and the chain of payloads (RFC 7296 §3.1, §3.2).
