//! Files beneath a root.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;

use cofferdam_sandbox::{Create, FileKind, OpenHow, Root};

fn scene() -> (tempfile::TempDir, Root) {
    let folder = tempfile::tempdir().expect("a folder");
    let inside = folder.path().join("root");
    std::fs::create_dir(&inside).expect("made");
    std::fs::write(folder.path().join("secret"), "planted").expect("written");
    std::fs::write(inside.join("plain"), "hello").expect("written");
    std::os::unix::fs::symlink("plain", inside.join("near")).expect("linked");
    std::os::unix::fs::symlink("../secret", inside.join("far")).expect("linked");
    std::os::unix::fs::symlink(folder.path().join("secret"), inside.join("absolute"))
        .expect("linked");
    let root = Root::open(inside.as_os_str().as_bytes()).expect("opened");
    (folder, root)
}

const NEW: OpenHow = OpenHow::Write {
    create: Create::New,
    truncate: false,
    append: false,
    mode: 0o644,
};

#[test]
fn nothing_leads_out() {
    let (_folder, root) = scene();
    for path in [
        "../secret",
        "far",
        "absolute",
        "/etc/passwd",
        "near/../../secret",
        "..",
        "/",
    ] {
        let error = root
            .open_file(path.as_bytes(), OpenHow::Read)
            .map(drop)
            .expect_err(path);
        assert!(
            matches!(error.errno, libc::EXDEV | libc::ENOTDIR),
            "{path}: {error}"
        );
        assert!(root.metadata(path.as_bytes(), true).is_err(), "{path}");
    }
    for path in ["../new", "/new", "far/../../new"] {
        assert!(root.open_file(path.as_bytes(), NEW).is_err(), "{path}");
        assert!(
            root.make_directory(path.as_bytes(), 0o755, true).is_err(),
            "{path}"
        );
        assert!(
            root.rename(b"plain", path.as_bytes(), true).is_err(),
            "{path}"
        );
    }
    assert!(root.remove(b"../secret", false).is_err());
    let (mut file, _) = root
        .open_file(b"near", OpenHow::Read)
        .map(|(file, meta)| (std::fs::File::from(file), meta))
        .expect("a link that stays inside");
    let mut text = String::new();
    file.read_to_string(&mut text).expect("read");
    assert_eq!(text, "hello");
}

#[test]
fn a_fifo_is_neither_waited_for_nor_handed_out() {
    let (folder, root) = scene();
    let path = folder.path().join("root/fifo");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &path,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .expect("made");
    assert_eq!(
        root.open_file(b"fifo", OpenHow::Read)
            .map(drop)
            .expect_err("refused")
            .errno,
        libc::ENODEV
    );
    assert_eq!(
        root.metadata(b"fifo", false).expect("seen").kind,
        FileKind::Other
    );
}

#[test]
fn an_opened_file_waits_like_any_other() {
    let (_folder, root) = scene();
    let (file, metadata) = root.open_file(b"plain", OpenHow::Read).expect("opened");
    assert_eq!((metadata.kind, metadata.size), (FileKind::File, 5));
    let flags = rustix::fs::fcntl_getfl(&file).expect("flags");
    assert!(!flags.contains(rustix::fs::OFlags::NONBLOCK));
}

/// A file system may be slow at freeing a file: whoever replaces one does not wait for that.
#[test]
fn what_is_replaced_is_freed_when_it_is_dropped() {
    use rustix::fs::inotify::{CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init};
    let (folder, root) = scene();
    let watch = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).expect("a watch");
    let path = folder.path().join("root/plain");
    add_watch(&watch, &path, WatchFlags::DELETE_SELF).expect("watched");
    let is_freed = || {
        let mut buffer = [std::mem::MaybeUninit::uninit(); 512];
        let mut events = Reader::new(&watch, &mut buffer);
        events
            .next()
            .is_ok_and(|event| event.events().contains(ReadFlags::DELETE_SELF))
    };
    let temporary = root.temporary(b"", 0o640).expect("made");
    let replaced = root.commit(temporary, b"plain", true).expect("committed");
    assert!(!is_freed());
    drop(replaced);
    assert!(is_freed());
}

#[test]
fn replacing_is_one_step_and_leaves_no_litter() {
    let (folder, root) = scene();
    let temporary = root.temporary(b"", 0o640).expect("made");
    rustix::io::write(temporary.as_fd(), b"new content").expect("written");
    drop(root.commit(temporary, b"plain", true).expect("committed"));
    assert_eq!(
        std::fs::read(folder.path().join("root/plain")).expect("read"),
        b"new content"
    );
    let temporary = root.temporary(b"", 0o640).expect("made");
    let error = root.commit(temporary, b"plain", false).expect_err("taken");
    assert_eq!(error.errno, libc::EEXIST);
    root.discard(root.temporary(b"", 0o600).expect("made"));
    let (entries, more) = root.list(b"", 100).expect("listed");
    let mut names: Vec<_> = entries.iter().map(|entry| entry.name.as_slice()).collect();
    names.sort_unstable();
    assert_eq!(
        (names, more),
        (vec![&b"absolute"[..], b"far", b"near", b"plain"], false)
    );
}

#[test]
fn directories_are_made_listed_and_removed() {
    let (_folder, root) = scene();
    assert!(root.make_directory(b"a/b//c", 0o755, true).expect("made"));
    assert!(!root.make_directory(b"a/b/c", 0o755, true).expect("there"));
    assert_eq!(
        root.make_directory(b"a", 0o755, false)
            .expect_err("there")
            .errno,
        libc::EEXIST
    );
    assert_eq!(
        root.make_directory(b"plain/x", 0o755, true)
            .expect_err("a file")
            .errno,
        libc::ENOTDIR
    );
    let (file, _) = root.open_file(b"a/b/c/\xff", NEW).expect("made");
    std::fs::File::from(file).write_all(b"x").expect("written");
    assert_eq!(root.list(b"a/b/c", 10).expect("listed").0[0].name, b"\xff");
    assert_eq!(
        root.remove(b"a/b/c", true).expect_err("not empty").errno,
        libc::ENOTEMPTY
    );
    root.rename(b"a/b/c/\xff", b"moved", false)
        .expect("renamed");
    assert_eq!(
        root.rename(b"moved", b"plain", false)
            .expect_err("taken")
            .errno,
        libc::EEXIST
    );
    root.remove(b"a/b/c/", true).expect("removed");
    assert_eq!(root.read_link(b"far").expect("read"), b"../secret");
    assert!(root.list(b"", 2).expect("listed").1);
}

/// Says that something is over, also when a test fails: who swaps would go on for ever otherwise.
struct Over<'a>(&'a std::sync::atomic::AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

/// Rounds of the race below.
const ROUNDS: u32 = 10_000;

#[test]
fn d4_row_35_a_race_of_ten_thousand_swaps_never_leads_out() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let (folder, root) = scene();
    let top = folder.path().join("root");
    let outside = folder.path().join("outside");
    for name in ["spot", "outside"] {
        let place = if name == "spot" { &top } else { folder.path() }.join(name);
        std::fs::create_dir(&place).expect("made");
        std::fs::write(place.join("there"), name).expect("written");
    }
    std::os::unix::fs::symlink(&outside, top.join("lure")).expect("linked");
    let look = || -> Vec<(std::ffi::OsString, Vec<u8>)> {
        let mut all: Vec<_> = std::fs::read_dir(&outside)
            .expect("listed")
            .map(|entry| entry.expect("an entry"))
            .map(|entry| {
                (
                    entry.file_name(),
                    std::fs::read(entry.path()).expect("read"),
                )
            })
            .collect();
        all.sort();
        all
    };
    let before = look();
    let is_over = AtomicBool::new(false);
    let shown = top.as_os_str().as_bytes();
    let mut written = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (spot, lure) = (top.join("spot"), top.join("lure"));
            while !is_over.load(Ordering::Relaxed) {
                let _ = rustix::fs::renameat_with(
                    rustix::fs::CWD,
                    &spot,
                    rustix::fs::CWD,
                    &lure,
                    rustix::fs::RenameFlags::EXCHANGE,
                );
            }
        });
        let _over = Over(&is_over);
        for round in 0..ROUNDS {
            let done = root.temporary(b"spot", 0o644).and_then(|file| {
                rustix::io::write(&file, b"x").expect("written");
                root.commit(file, b"spot/planted", true)
            });
            written += u32::from(done.is_ok());
            let _ = root.open_file(format!("spot/new-{round}").as_bytes(), NEW);
            let _ = root.make_directory(b"spot/directory", 0o755, false);
            let _ = root.rename(b"spot/there", b"spot/moved", true);
            let _ = root.rename(b"spot/moved", b"spot/there", true);
            let _ = root.remove(b"spot/planted", false);
            if let Ok((file, path, _)) = root.read_real(shown, b"spot/there") {
                let mut text = String::new();
                std::fs::File::from(file)
                    .read_to_string(&mut text)
                    .expect("read");
                assert_eq!(text, "spot", "{}", path.escape_ascii());
            }
        }
    });
    assert!(
        look() == before,
        "something outside was changed: {:?}",
        look()
    );
    assert!(written > 0, "no round wrote anything");
}
