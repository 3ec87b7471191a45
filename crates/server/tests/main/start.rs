//! How a server begins, and when it will not.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use cofferdam_core::error::ErrorCode;
use cofferdam_server::{Server, ServerError};

use crate::client::{Running, options};

fn refused(result: Result<Server, ServerError>) -> ErrorCode {
    result.expect_err("refused").code()
}

#[test]
fn f8_only_loopback_without_a_token_of_ones_own() {
    let directory = tempfile::tempdir().expect("a directory");
    for listen in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let (mut options, _) = options(&directory);
        options.listen = listen.parse().expect("an address");
        assert_eq!(
            refused(Server::bind(options)),
            ErrorCode::ListenRefused,
            "{listen}"
        );
    }
    let file = directory.path().join("token");
    fs::write(&file, "0123456789abcdef0123456789abcdef\n").expect("written");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("set");
    let (mut options, _) = options(&directory);
    options.listen = "0.0.0.0:0".parse().expect("an address");
    options.token_file = Some(file);
    Server::bind(options).expect("with a token it is the owner's wish");
}

#[test]
fn a_token_file_that_is_no_secret_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("token");
    let try_it = || {
        let (mut options, _) = options(&directory);
        options.token_file = Some(file.clone());
        Server::bind(options)
    };
    let _ = refused(try_it());
    for (text, mode) in [
        ("short", 0o600),
        ("0123456789abcdef", 0o644),
        ("with a space in between", 0o600),
    ] {
        fs::write(&file, text).expect("written");
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("set");
        assert_eq!(
            refused(try_it()),
            ErrorCode::InvalidRequest,
            "{text} {mode:o}"
        );
    }
    fs::write(&file, "0123456789abcdef").expect("written");
    try_it().expect("good");
}

#[test]
fn the_token_of_the_data_directory_is_private_and_stays() {
    let directory = tempfile::tempdir().expect("a directory");
    let read = || {
        let (options, _) = options(&directory);
        let server = Server::bind(options).expect("bound");
        let mode = fs::metadata(server.token_path())
            .expect("there")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        fs::read_to_string(server.token_path()).expect("readable")
    };
    let token = read();
    assert_eq!(token.trim().len(), 64);
    assert_eq!(read(), token);
    let path = directory.path().join("data/server.token");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("set");
    assert_ne!(read(), token, "a token that others could read is made anew");
}

#[test]
fn one_server_for_each_data_directory() {
    let server = Running::start();
    let (again, _) = options(&server.directory);
    let error = Server::bind(again).expect_err("refused");
    assert_eq!(error.code(), ErrorCode::ServerRunning);
    assert!(
        error
            .to_string()
            .ends_with(&format!("process {}", std::process::id()))
    );
    let directory = tempfile::tempdir().expect("a directory");
    let (first, _) = options(&directory);
    drop(Server::bind(first).expect("bound"));
    let (second, _) = options(&directory);
    Server::bind(second).expect("the first is gone");
}

#[test]
fn it_is_ready_at_once_and_ends_soon() {
    let directory = tempfile::tempdir().expect("a directory");
    let (options, _) = options(&directory);
    let begun = Instant::now();
    let server = Server::bind(options).expect("bound");
    let ready = begun.elapsed();
    println!("bound after {ready:?}, bar 50 ms");
    assert!(ready < Duration::from_millis(500));
    drop(server);
    let server = Running::start();
    let mut stream = server.stream("", None);
    let idle = server.connect();
    let begun = Instant::now();
    server.stop();
    assert!(
        begun.elapsed() < Duration::from_millis(2_500),
        "{:?}",
        begun.elapsed()
    );
    while stream.next().is_some() {}
    drop(idle);
}
