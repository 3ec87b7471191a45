//! What one proxy may use.

use std::time::Duration;

/// Bounds what the clients of one proxy can make it use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Connections served at once; more are refused with 503.
    pub connections: usize,
    /// Bytes of a request's or response's head.
    pub head_bytes: usize,
    /// How long a client may take to say what it wants, from its first byte to its last.
    pub head_time: Duration,
    /// How long a connection may stand without a byte in either direction.
    pub idle_time: Duration,
    /// How long one address may take to answer.
    pub dial_time: Duration,
    /// Addresses of a name that are tried.
    pub addresses: usize,
    /// How long a miss is held for an answer.
    pub hold_time: Duration,
    /// Questions that may be open at once; further misses are refused at once.
    pub questions: usize,
    /// How long a host that was not allowed is not asked about again.
    pub quiet_time: Duration,
    /// How long [`crate::ProxyHandle::stop`] waits for the threads that serve connections.
    pub stop_time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 256,
            head_bytes: 64 * 1024,
            head_time: Duration::from_secs(10),
            idle_time: Duration::from_mins(30),
            dial_time: Duration::from_secs(10),
            addresses: 8,
            hold_time: Duration::from_secs(20),
            questions: 8,
            quiet_time: Duration::from_mins(1),
            stop_time: Duration::from_secs(2),
        }
    }
}
