//! Shows that both journals keep the same promises, and what the file on disk survives.

#[path = "main/conformance.rs"]
mod conformance;
#[path = "main/support.rs"]
mod support;
