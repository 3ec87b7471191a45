//! Vocabulary and pure rules of Cofferdam.
//!
//! Everything that the other crates say to each other is defined here: ids, policy and its
//! evaluation, the plan of an enclosure ([`spec`]), operations and their outcomes, events, evidence,
//! error codes and limits. Nothing in this crate does I/O, reads a clock or the environment, or
//! knows an async runtime, so that every rule can be shown in a test without a kernel.
//!
//! ```
//! use cofferdam_core::bytes::BytePath;
//!
//! let path = BytePath::from_bytes(b"/srv/caf\xe9".to_vec());
//! assert_eq!(path.to_string(), r"/srv/caf\xe9");
//! ```
//!
//! The design that these types follow is told in `ARCHITECTURE.md`.

pub mod ambient;
pub mod announce;
pub mod approval;
pub mod authority;
pub mod bytes;
pub mod commands;
pub mod decide;
mod digest;
pub mod error;
pub mod event;
pub mod exit;
pub mod facts;
pub mod file;
pub mod hosts;
pub mod id;
pub mod limits;
pub mod mask;
pub mod operation;
pub mod outbox;
pub mod outcome;
pub mod plan;
pub mod policy;
pub mod ports;
pub mod profile;
pub mod spec;
pub mod task;
pub mod tool;
