//! Files through the plane, in bwrap walls, beside what the same costs without any.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cofferdam_core::bytes::BytePath;
use cofferdam_core::event::Subject;
use cofferdam_core::file::{AmbiguousMatch, Replacement};
use cofferdam_core::operation::{
    EditFile, Encoding, ReadFile, ReadFiles, SearchFiles, WriteFile, WriteMode,
};
use cofferdam_exec::{Enclosure, FileDoor, FileTerms};

use super::{Run, Subject as Measured, Yardstick, plain};

const READ_SMALL: &str = "plain read, 1 KiB";
const READ_MANY: &str = "plain read, 1 000 files";
const READ_LARGE: &str = "plain read, 10 MiB";
const WRITE_LARGE: &str = "plain write, 10 MiB";
const COPY_LARGE: &str = "plain copy, 10 MiB";
const LARGE: usize = 10 * 1024 * 1024;
const MANY: usize = 1_000;
/// A little longer than the door waits until it remembers a file.
const SETTLED: Duration = Duration::from_millis(3_200);
const SEARCH: &str = "rg, 50 000 files";
/// Folders of so many files each, in which one file in a thousand holds what is looked for.
const FOLDERS: usize = 500;
const FILES_OF_A_FOLDER: usize = 100;
const SOUGHT: &str = "what is looked for";

/// Everything about files; `enclosure` stands over `workspace`.
#[expect(
    clippy::print_stdout,
    reason = "what is not measured, for want of its yardstick, is told"
)]
pub(super) fn subjects(
    workspace: &Path,
    enclosure: &Result<Arc<Enclosure>, String>,
) -> Vec<Measured> {
    let place = workspace.join("bench-files");
    let prepared = prepare(&place).map_err(|error| error.to_string());
    let plain = |name, run: Run| Measured {
        name,
        yardstick: Yardstick::Itself,
        bar: None,
        run: prepared.clone().map(|()| run),
    };
    let ours = |name, of, bar, make: fn(Arc<Enclosure>, PathBuf) -> Run| Measured {
        name,
        yardstick: Yardstick::Plain(of),
        bar: Some(bar),
        run: prepared
            .clone()
            .and_then(|()| enclosure.clone())
            .map(|enclosure| make(enclosure, place.clone())),
    };
    let tree = place.join("tree");
    let rg = plain::program("rg").map(|rg| -> Run {
        let tree = tree.clone();
        Box::new(move || {
            plant(&tree)?;
            let mut rg = Command::new(&rg);
            rg.arg("--fixed-strings")
                .arg(SOUGHT)
                .arg(&tree)
                .stdout(Stdio::null());
            plain::once(rg)
        })
    });
    let at = |name: &str| place.join(name);
    let (small, large, new, copy) = (at("small"), at("large"), at("new-plain"), at("copy"));
    let many: Vec<PathBuf> = (0..MANY)
        .map(|number| at(&format!("many/{number}")))
        .collect();
    let mut all = vec![
        plain(READ_SMALL, Box::new(move || timed(|| read(&small)))),
        ours(
            "file door, read of 1 KiB",
            READ_SMALL,
            20.0,
            |enclosure, place| {
                let path = path(&place, "small");
                through(enclosure, move |door| {
                    door.read(&ReadFile::whole(path.clone())).map(drop)
                })
            },
        ),
        plain(
            READ_MANY,
            Box::new(move || timed(|| many.iter().try_for_each(|path| read(path)))),
        ),
        ours(
            "file door, 1 000 files at once",
            READ_MANY,
            4.0,
            |enclosure, place| {
                let request = ReadFiles {
                    paths: (0..MANY)
                        .map(|number| path(&place, &format!("many/{number}")))
                        .collect(),
                    max_chars: None,
                    encoding: Encoding::Utf8,
                };
                through(enclosure, move |door| door.read_many(&request).map(drop))
            },
        ),
        plain(READ_LARGE, {
            let large = large.clone();
            Box::new(move || timed(|| read(&large)))
        }),
        ours(
            "file door, read of 10 MiB",
            READ_LARGE,
            1.5,
            |enclosure, place| {
                let large = place.join("large");
                let mut read = through(enclosure, read_whole(&place, "large"));
                Box::new(move || {
                    settle(&large)?;
                    read()
                })
            },
        ),
        // No figure is set for it: a digest of so much takes longer than to read it.
        Measured {
            bar: None,
            ..ours(
                "file door, read of 10 MiB, changed",
                READ_LARGE,
                f64::MAX,
                |enclosure, place| {
                    let changed = place.join("changed");
                    let mut read = through(enclosure, read_whole(&place, "changed"));
                    Box::new(move || {
                        fs::File::open(&changed)?.set_modified(std::time::SystemTime::now())?;
                        read()
                    })
                },
            )
        },
        plain(
            WRITE_LARGE,
            Box::new(move || {
                let bytes = vec![b'x'; LARGE];
                let _ = fs::remove_file(&new);
                timed(|| fs::File::create(&new)?.write_all(&bytes))
            }),
        ),
        ours(
            "file door, write of 10 MiB",
            WRITE_LARGE,
            1.5,
            |enclosure, place| {
                let target = place.join("new-ours");
                let path = path(&place, "new-ours");
                Box::new(move || {
                    let _ = fs::remove_file(&target);
                    let request = WriteFile {
                        path: path.clone(),
                        content: "x".repeat(LARGE),
                        encoding: Encoding::Utf8,
                        mode: WriteMode::Write,
                        expected_digest: None,
                        durable: false,
                    };
                    let door = enclosure.files(&Subject::default(), FileTerms::default())?;
                    let start = Instant::now();
                    door.write(request)?;
                    Ok(start.elapsed())
                })
            },
        ),
        plain(
            COPY_LARGE,
            Box::new(move || {
                let _ = fs::remove_file(&copy);
                timed(|| {
                    let mut bytes = Vec::new();
                    fs::File::open(&large)?.read_to_end(&mut bytes)?;
                    fs::write(&copy, bytes)
                })
            }),
        ),
        ours(
            "file door, edit in 10 MiB",
            COPY_LARGE,
            3.0,
            |enclosure, place| {
                let path = path(&place, "edited");
                // To and fro, so that what is kept for the way back stays two files.
                let mut turn = 0_u64;
                through(enclosure, move |door| {
                    turn = 1 - turn;
                    door.edit(&EditFile {
                        path: path.clone(),
                        replacements: vec![Replacement {
                            old_string: format!("turn {}\n", 1 - turn),
                            new_string: format!("turn {turn}\n"),
                            replace_all: false,
                        }],
                        ambiguous: AmbiguousMatch::default(),
                        expected_digest: None,
                        durable: false,
                    })
                    .map(drop)
                })
            },
        ),
    ];
    match rg {
        Ok(rg) => all.extend([
            Measured {
                name: SEARCH,
                yardstick: Yardstick::Itself,
                bar: None,
                run: Ok(rg),
            },
            ours(
                "file door, search of 50 000 files",
                SEARCH,
                1.5,
                |enclosure, place| {
                    let tree = place.join("tree");
                    let mut request = SearchFiles::text(SOUGHT);
                    request.path = BytePath::from(tree.clone());
                    request.case_sensitive = true;
                    Box::new(move || {
                        plant(&tree)?;
                        let door = enclosure.files(&Subject::default(), FileTerms::default())?;
                        let start = Instant::now();
                        let found = door.search(&request)?;
                        let time = start.elapsed();
                        let sought = FOLDERS * FILES_OF_A_FOLDER / 1_000;
                        anyhow::ensure!(found.files.len() == sought, "{found:?}");
                        Ok(time)
                    })
                },
            ),
        ]),
        Err(why) => println!("skipped: search of 50 000 files: {why}"),
    }
    all
}

/// Reads one file of the place whole.
fn read_whole(
    place: &Path,
    name: &str,
) -> impl FnMut(&FileDoor<'_>) -> Result<(), cofferdam_core::error::Problem> + 'static {
    let request = ReadFile {
        max_chars: Some(usize::MAX),
        ..ReadFile::whole(path(place, name))
    };
    move |door| door.read(&request).map(drop)
}

/// Waits until a file has been left alone for so long that the door remembers its digest.
fn settle(file: &Path) -> std::io::Result<()> {
    let age = fs::metadata(file)?
        .modified()?
        .elapsed()
        .unwrap_or_default();
    std::thread::sleep(SETTLED.saturating_sub(age));
    Ok(())
}

fn prepare(place: &Path) -> std::io::Result<()> {
    fs::create_dir_all(place.join("many"))?;
    fs::write(place.join("small"), "line of text\n".repeat(79))?;
    for number in 0..MANY {
        fs::write(
            place.join(format!("many/{number}")),
            "line of text\n".repeat(79),
        )?;
    }
    let large = "a line of the large file that is neither short nor long\n".repeat(LARGE / 56);
    fs::write(place.join("large"), &large)?;
    fs::write(place.join("changed"), &large)?;
    let (first, last) = large.split_at(56 * (LARGE / 112));
    fs::write(place.join("edited"), format!("{first}turn 0\n{last}"))
}

/// Makes the files that are searched, where they are not there yet.
fn plant(tree: &Path) -> std::io::Result<()> {
    if tree.exists() {
        return Ok(());
    }
    let text = "a line of text in which nothing is to be found\n".repeat(40);
    for folder in 0..FOLDERS {
        let place = tree.join(folder.to_string());
        fs::create_dir_all(&place)?;
        for file in 0..FILES_OF_A_FOLDER {
            let is_sought = (folder * FILES_OF_A_FOLDER + file).is_multiple_of(1_000);
            let line = if is_sought { SOUGHT } else { "" };
            fs::write(place.join(file.to_string()), format!("{text}{line}\n"))?;
        }
    }
    Ok(())
}

fn path(place: &Path, name: &str) -> BytePath {
    BytePath::from(place.join(name))
}

fn read(path: &Path) -> std::io::Result<()> {
    let bytes = fs::read(path)?;
    std::hint::black_box(bytes);
    Ok(())
}

fn timed(act: impl FnOnce() -> std::io::Result<()>) -> anyhow::Result<Duration> {
    let start = Instant::now();
    act()?;
    Ok(start.elapsed())
}

fn through(
    enclosure: Arc<Enclosure>,
    mut act: impl FnMut(&FileDoor<'_>) -> Result<(), cofferdam_core::error::Problem> + 'static,
) -> Run {
    Box::new(move || {
        let door = enclosure.files(&Subject::default(), FileTerms::default())?;
        let start = Instant::now();
        act(&door)?;
        Ok(start.elapsed())
    })
}
