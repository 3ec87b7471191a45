//! The plane, driven as an embedding program drives it.

#![expect(clippy::print_stdout, reason = "a test that cannot run here says why")]

#[path = "main/cases.rs"]
mod cases;
#[path = "main/conformance.rs"]
mod conformance;
#[path = "main/engine.rs"]
mod engine;
#[path = "main/fuzzed.rs"]
mod fuzzed;
#[path = "main/home.rs"]
mod home;
#[path = "main/kills.rs"]
mod kills;
#[path = "main/limits.rs"]
mod limits;
#[path = "main/network.rs"]
mod network;
#[path = "main/pool.rs"]
mod pool;
#[path = "main/ports.rs"]
mod ports;
#[path = "main/requests.rs"]
mod requests;
#[path = "main/session.rs"]
mod session;
#[path = "main/smoke.rs"]
mod smoke;
#[path = "main/worktree.rs"]
mod worktree;
#[path = "main/worktree_content.rs"]
mod worktree_content;
#[path = "main/worktree_create.rs"]
mod worktree_create;
#[path = "main/worktree_dispose.rs"]
mod worktree_dispose;
#[path = "main/worktree_harvest.rs"]
mod worktree_harvest;
