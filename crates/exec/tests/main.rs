//! The plane, driven as an embedding program drives it.

#[path = "main/smoke.rs"]
mod smoke;
