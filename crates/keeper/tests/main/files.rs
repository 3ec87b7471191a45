//! The file worker: behind the same walls, and replaceable.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;

use cofferdam_keeper::{ChannelError, ClientError, FileClient, FileReply, FileRequest, Setup};
use cofferdam_sandbox::{Create, OpenHow};

use crate::harness::Host;
use crate::walls::{landlock_is_there, walls};

fn open(client: &FileClient, path: &[u8], how: OpenHow) -> Result<OwnedFd, ClientError> {
    match client.call(&FileRequest::Open {
        path: path.to_vec(),
        how,
    })? {
        (FileReply::Opened(_), Some(file)) => Ok(file),
        other => panic!("{other:?}"),
    }
}

#[test]
fn files_are_written_read_and_replaced() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path().to_str().expect("text").as_bytes();
    let mut host = Host::start(&Setup::default(), 0);
    let client = FileClient::start(host.keeper(), root).expect("started");
    let how = OpenHow::Write {
        create: Create::New,
        truncate: false,
        append: false,
        mode: 0o644,
    };
    let mut file = std::fs::File::from(open(&client, b"new", how).expect("made"));
    file.write_all(b"text").expect("written");
    let mut text = String::new();
    std::fs::File::from(open(&client, b"new", OpenHow::Read).expect("opened"))
        .read_to_string(&mut text)
        .expect("read");
    assert_eq!(text, "text");
    match open(&client, b"../out", how) {
        Err(ClientError::Refused(error)) => assert_eq!(error.errno, libc::EXDEV),
        other => panic!("{other:?}"),
    }
    match open(&client, b".", OpenHow::Read) {
        Err(ClientError::Refused(error)) => assert_eq!(error.errno, libc::EISDIR),
        other => panic!("{other:?}"),
    }
    let make = FileRequest::Temporary {
        directory: Vec::new(),
        mode: 0o600,
    };
    let (FileReply::Temporary { token }, Some(file)) = client.call(&make).expect("made") else {
        panic!("no file came along");
    };
    std::fs::File::from(file)
        .write_all(b"other")
        .expect("written");
    let commit = FileRequest::Commit {
        token,
        path: b"new".to_vec(),
        replace: true,
    };
    assert_eq!(client.call(&commit).expect("committed").0, FileReply::Done);
    assert!(client.call(&commit).is_err(), "a token counts once");
    assert_eq!(
        std::fs::read(folder.path().join("new")).expect("read"),
        b"other"
    );
    drop(client);
    host.close();
}

#[test]
fn what_a_command_cannot_reach_the_worker_cannot_either() {
    if !landlock_is_there() {
        return;
    }
    let (inside, outside) = (
        tempfile::tempdir().expect("a folder"),
        tempfile::tempdir().expect("a folder"),
    );
    std::fs::write(outside.path().join("secret"), "planted").expect("written");
    let mut host = Host::start(&walls(inside.path()), 0);
    // Even with a root that is wider than the walls.
    let client = FileClient::start(host.keeper(), b"/").expect("started");
    let below = |path: &std::path::Path| path.to_str().expect("text").as_bytes()[1..].to_vec();
    match open(
        &client,
        &below(&outside.path().join("secret")),
        OpenHow::Read,
    ) {
        Err(ClientError::Refused(error)) => assert_eq!(error.errno, libc::EACCES),
        other => panic!("{other:?}"),
    }
    let make = FileRequest::MakeDirectory {
        path: below(&inside.path().join("a/b")),
        mode: 0o755,
        parents: true,
    };
    // Parents that are there already but closed to us are no obstacle.
    assert_eq!(client.call(&make).expect("made").0, FileReply::Done);
    drop(client);
    host.close();
}

#[test]
fn a_worker_is_ended_and_replaced() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path().to_str().expect("text").as_bytes();
    let mut host = Host::start(&Setup::default(), 0);
    let client = FileClient::start(host.keeper(), root).expect("started");
    cofferdam_sandbox::signal_pid(client.pid(), 19).expect("stopped");
    client.send(&FileRequest::Ping).expect("sent");
    host.keeper().end_child(client.pid()).expect("ended");
    let gone = client.receive();
    assert!(
        matches!(gone, Err(ClientError::Channel(ChannelError::Closed))),
        "{gone:?}"
    );
    let client = FileClient::start(host.keeper(), root).expect("another");
    assert_eq!(
        client.call(&FileRequest::Ping).expect("it lives").0,
        FileReply::Done
    );
    drop(client);
    let missing = FileClient::start(host.keeper(), b"/no/such/root").expect("forked");
    assert!(matches!(
        missing.call(&FileRequest::Ping),
        Err(ClientError::Refused(_) | ClientError::Channel(_))
    ));
    drop(missing);
    host.close();
}
