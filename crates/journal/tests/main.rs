//! Shows that both journals keep the same promises, and what the file on disk survives.

#[path = "main/conformance.rs"]
mod conformance;
#[path = "main/faults.rs"]
mod faults;
#[path = "main/leases.rs"]
mod leases;
#[path = "main/processes.rs"]
mod processes;
#[path = "main/speed.rs"]
mod speed;
#[path = "main/support.rs"]
mod support;
