//! Each wall really tried, in a child behind it.

#[path = "main/files.rs"]
mod files;
#[path = "main/helper.rs"]
mod helper;
#[path = "main/landlock.rs"]
mod landlock;
#[path = "main/seccomp.rs"]
mod seccomp;
#[path = "main/spawning.rs"]
mod spawning;
