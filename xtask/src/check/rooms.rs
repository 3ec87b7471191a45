//! What has a room of its own: `unsafe`, processes, and the async runtime.

use super::Finding;
use super::tree::{Role, SourceFile, Tree, find_word};

/// Crates whose code may say `unsafe`.
const UNSAFE: &[&str] = &["sandbox"];
/// Crates whose code may start a process through the standard library.
const PROCESSES: &[&str] = &["exec", "xtask"];
/// Crates that must build without an async runtime.
const SYNCHRONOUS: &[&str] = &["core", "visibility", "sandbox", "keeper", "journal", "exec"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for one in &tree.crates {
        let name = one.name.as_str();
        for file in one.files.iter().filter(|file| file.role != Role::Test) {
            if !UNSAFE.contains(&name)
                && let Some(at) = find_unsafe(&file.code)
            {
                findings.push(found(file, at, "unsafe is only for crates/sandbox"));
            }
            if !PROCESSES.contains(&name)
                && let Some(at) = file.production().find("process::Command")
            {
                findings.push(found(file, at, "processes are started by crates/exec only"));
            }
            if SYNCHRONOUS.contains(&name)
                && let Some(at) = find_word(&file.code, "tokio")
            {
                findings.push(found(file, at, "no async runtime below the server"));
            }
        }
    }
    findings
}

fn found(file: &SourceFile, at: usize, message: &str) -> Finding {
    Finding::new(file.place(at), message)
}

/// The offset of an unsafe block, function, implementation, trait or extern block.
fn find_unsafe(code: &str) -> Option<usize> {
    let mut from = 0;
    while let Some(at) = find_word(&code[from..], "unsafe").map(|at| at + from) {
        let after = code[at + "unsafe".len()..].trim_start();
        if ["{", "fn", "impl", "trait", "extern"]
            .iter()
            .any(|next| after.starts_with(next))
        {
            return Some(at);
        }
        from = at + "unsafe".len();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::tree::samples::sample;
    use super::*;

    #[test]
    fn unsafe_outside_its_room_is_found_with_its_line() {
        let tree = sample(
            "exec",
            "",
            &[("src/lib.rs", "fn a() {}\nfn b() { unsafe { c() } }\n")],
        );
        let place = "crates/exec/src/lib.rs:2";
        assert_eq!(
            check(&tree),
            [Finding::new(place, "unsafe is only for crates/sandbox")]
        );
    }

    #[test]
    fn talk_about_unsafe_is_fine() {
        let text = "// unsafe { }\n#![forbid(unsafe_code)]\nconst A: &str = \"unsafe {\";";
        assert_eq!(check(&sample("exec", "", &[("src/lib.rs", text)])), []);
    }

    #[test]
    fn unsafe_in_the_sandbox_is_fine() {
        assert_eq!(
            check(&sample(
                "sandbox",
                "",
                &[("src/lib.rs", "unsafe fn a() {}")]
            )),
            []
        );
    }

    #[test]
    fn a_process_outside_its_room_is_found_and_one_in_a_test_is_not() {
        let text = "use std::process::Command;\n";
        assert_eq!(
            check(&sample("runtime", "", &[("src/lib.rs", text)])).len(),
            1
        );
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n use std::process::Command;\n}\n";
        assert_eq!(check(&sample("runtime", "", &[("src/lib.rs", text)])), []);
        assert_eq!(
            check(&sample(
                "exec",
                "",
                &[("src/lib.rs", "use std::process::Command;")]
            )),
            []
        );
    }

    #[test]
    fn a_runtime_in_the_plane_is_found() {
        let tree = sample(
            "journal",
            "",
            &[("src/lib.rs", "async fn a() { tokio::spawn(b) }")],
        );
        assert_eq!(check(&tree).len(), 1);
    }
}
