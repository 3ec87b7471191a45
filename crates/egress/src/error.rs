//! Why a proxy does not start.

use std::io;

/// Says what kept the proxy from starting.
#[derive(Debug, thiserror::Error)]
pub enum EgressError {
    /// The listener could not be made non-blocking.
    #[error("the listener cannot be used")]
    Listener {
        /// Why.
        source: io::Error,
    },
    /// The descriptor that ends everything could not be made.
    #[error("no descriptor is left for the proxy")]
    Descriptor {
        /// Why.
        source: io::Error,
    },
    /// The certificate authority, or a certificate of it, could not be made.
    #[error("no certificate can be made: {why}")]
    Certificate {
        /// Why.
        why: String,
    },
    /// There are no certificates by which hosts could be verified.
    #[error("there are no root certificates by which hosts could be verified")]
    NoRoots,
    /// The accepting thread could not be started.
    #[error("no thread is left for the proxy")]
    Thread {
        /// Why.
        source: io::Error,
    },
}

impl EgressError {
    /// Gives the stable word for this failure.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Listener { .. } => "egress_listener",
            Self::Descriptor { .. } => "egress_descriptor",
            Self::Thread { .. } => "egress_thread",
            Self::Certificate { .. } => "egress_certificate",
            Self::NoRoots => "egress_no_roots",
        }
    }
}
