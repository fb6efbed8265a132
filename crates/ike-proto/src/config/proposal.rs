//! Algorithm proposals in strongSwan's spelling, and choosing among them (RFC 7296 §2.7, §3.3).
