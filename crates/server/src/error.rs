use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use cofferdam_core::error::{ErrorCode, Problem};

/// Says why a server could not begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The address may not be listened on.
    #[error("will not listen on {address}: {why}")]
    ListenRefused {
        /// The address.
        address: SocketAddr,
        /// Why not.
        why: &'static str,
    },
    /// Another server has this data directory.
    #[error("another server has this data directory, process {pid}")]
    Running {
        /// Its process, as its lock file says; 0 when it does not.
        pid: u32,
    },
    /// The token cannot be used.
    #[error("the token in {} cannot be used: {why}", path.display())]
    Token {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// What was listed as an origin is none.
    #[error("{text:?} is no origin of a web page")]
    Origin {
        /// What was listed.
        text: String,
    },
    /// An operation of the system failed.
    #[error("could not {step} {subject}: {source}")]
    Io {
        /// What was tried, a verb.
        step: &'static str,
        /// On what.
        subject: String,
        /// What the system said.
        source: io::Error,
    },
}

impl ServerError {
    /// Gives the stable code.
    pub const fn code(&self) -> ErrorCode {
        match self {
            Self::ListenRefused { .. } => ErrorCode::ListenRefused,
            Self::Running { .. } => ErrorCode::ServerRunning,
            Self::Token { .. } | Self::Origin { .. } => ErrorCode::InvalidRequest,
            Self::Io { .. } => ErrorCode::Io,
        }
    }

    /// Gives what to do about it, where there is something.
    pub const fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Origin { .. } => {
                Some("write it as browsers do: https://example.org or http://localhost:3000")
            }
            Self::ListenRefused { .. } => Some(
                "listen on 127.0.0.1, or give a token of your own with --token-file and put TLS in front",
            ),
            Self::Running { .. } => {
                Some("use that one, end it, or take another data directory (COFFERDAM_DATA_DIR)")
            }
            Self::Token { .. } => {
                Some("a token file holds 16 or more letters and digits and has mode 0600")
            }
            Self::Io { .. } => None,
        }
    }

    /// Tells the failure in the common shape.
    pub fn to_problem(&self) -> Problem {
        let problem = Problem::new(self.code(), self.to_string());
        match self.hint() {
            Some(hint) => problem.with_hint(hint),
            None => problem,
        }
    }
}
