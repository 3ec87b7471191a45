//! Runs programs with and without walls, and raw system calls in a copy of this test program.

use std::ffi::CString;
use std::io::Read;
use std::os::fd::AsFd;

use cofferdam_sandbox::{ExitStatus, Program, Spawn, candidates, spawn, wait_pid};

pub(crate) fn words(words: &[&str]) -> Vec<CString> {
    words
        .iter()
        .map(|word| CString::new(*word).expect("no NUL"))
        .collect()
}

pub(crate) fn program(argv: &[&str]) -> Spawn<'static> {
    let paths = candidates(argv[0].as_bytes(), None).expect("a name");
    let mut spec = Spawn::new(Program::Paths(paths), words(argv));
    spec.environment = words(&["PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C"]);
    spec
}

/// Runs a program to its end and gives what it wrote to both outputs.
pub(crate) fn run(spec: Spawn<'_>) -> (ExitStatus, String) {
    let null = std::fs::File::open("/dev/null").expect("null");
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    // A binding of its own, for a shorter lifetime than the caller's.
    let mut spec = spec;
    spec.descriptors
        .extend([(null.as_fd(), 0), (writer.as_fd(), 1), (writer.as_fd(), 2)]);
    let child = spawn(&spec).expect("started");
    drop(spec);
    drop(writer);
    let mut output = String::new();
    reader.read_to_string(&mut output).expect("text");
    (wait_pid(child.pid).expect("ours").status, output)
}

pub(crate) const ATTEMPT: &str = "COFFERDAM_TEST_ATTEMPT";

/// Runs one named attempt in a copy of this program; gives the errno, 0 when it worked, or the
/// signal as a negative number.
pub(crate) fn attempt(name: &str, prepare: impl FnOnce(&mut Spawn<'_>)) -> i32 {
    let own = std::env::current_exe().expect("a path");
    let own = own.to_str().expect("text");
    let argv = [
        "attempt",
        "seccomp::the_attempt_itself",
        "--exact",
        "--nocapture",
    ];
    let mut spec = Spawn::new(Program::Paths(words(&[own])), words(&argv));
    spec.environment = words(&[&format!("{ATTEMPT}={name}")]);
    prepare(&mut spec);
    match run(spec) {
        (ExitStatus::Code(code), _) => code,
        (ExitStatus::Signal { number, .. }, _) => -number,
    }
}
