//! Containers of Docker and Podman: the engine, the image that holds nothing, what is asked for.
//!
//! Nothing is pulled: the root is made here, and what a command needs is mounted. The engine is only
//! asked to put a container up and to take it away; everything in between goes through the keeper,
//! which is the container's first process.

mod engine;
mod image;
mod request;
mod sweep;
mod unix;

pub(crate) use engine::{Engine, found_socket};
pub(crate) use image::root_image;
pub(crate) use request::create_request;
pub(crate) use sweep::{clear_of, labels, remember_engine, staging_of};
