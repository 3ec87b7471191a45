//! The plane, driven as an embedding program drives it.

#[path = "main/conformance.rs"]
mod conformance;
#[path = "main/kills.rs"]
mod kills;
#[path = "main/smoke.rs"]
mod smoke;
