//! Builds the keeper and the search as small static programs of their own, to be carried inside this
//! crate.
//!
//! They have another profile and another target directory than what is being built, so that plain
//! `cargo build` suffices and neither disturbs the other.

#![expect(
    clippy::disallowed_methods,
    reason = "a build script is told everything by variables, and cargo is started by it"
)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The programs, each of the package of the same name.
const PROGRAMS: [&str; 2] = ["cofferdam-keeper", "cofferdam-search"];

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let workspace = manifest
        .ancestors()
        .nth(2)
        .expect("crates/exec lies two levels deep");
    for watched in ["crates/keeper", "crates/sandbox", "crates/search"] {
        println!(
            "cargo::rerun-if-changed={}",
            workspace.join(watched).join("src").display()
        );
        println!(
            "cargo::rerun-if-changed={}",
            workspace.join(watched).join("Cargo.toml").display()
        );
    }
    println!("cargo::rerun-if-changed=build.rs");
    if env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("linux") {
        for program in PROGRAMS {
            fs::write(out.join(program), []).expect("OUT_DIR can be written");
        }
        return;
    }
    build(workspace, &out);
}

fn build(workspace: &Path, out: &Path) {
    let target = env::var("TARGET").expect("cargo sets TARGET");
    let target_dir = out.join("keeper-target");
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    // What the outer cargo set for this script is not meant for the inner one.
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_") && text != "CARGO_HOME" || text.starts_with("RUSTC") {
            command.env_remove(&name);
        }
    }
    let status = command
        .current_dir(workspace)
        .env_remove("RUSTFLAGS")
        .env_remove("MAKEFLAGS")
        .env(
            "CARGO_ENCODED_RUSTFLAGS",
            "-Ctarget-feature=+crt-static\u{1f}-Crelocation-model=static",
        )
        .args(["build", "--quiet", "--features", "cofferdam-search/program"])
        .args(PROGRAMS.iter().flat_map(|name| ["--package", name]))
        .args(PROGRAMS.iter().flat_map(|name| ["--bin", name]))
        .args(["--profile", "keeper", "--locked", "--target", &target])
        .arg("--target-dir")
        .arg(&target_dir)
        .status()
        .expect("cargo can be started");
    assert!(status.success(), "the programs inside do not build");
    for program in PROGRAMS {
        let built = target_dir.join(&target).join("keeper").join(program);
        fs::copy(built, out.join(program)).expect("it was built");
    }
}
