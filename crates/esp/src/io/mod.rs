//! Sockets and devices.
