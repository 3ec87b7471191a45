//! The search itself.

use std::ffi::OsStr;
use std::io::{self, Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use cofferdam_keeper::{FoundFile, FoundLine, SearchOrder, SearchRefusal, SearchReport};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{
    BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkFinish, SinkMatch,
};
use ignore::overrides::OverrideBuilder;
use ignore::{DirEntry, WalkBuilder, WalkParallel, WalkState};
use rustix::fs::{Mode, OFlags, ResolveFlags, openat, openat2};

/// Threads at most, however many processors there are: the disk is the same.
const MOST_THREADS: usize = 12;

/// Reads the order, searches, writes the report. Gives the exit code.
pub fn run() -> ExitCode {
    let mut order = Vec::new();
    if io::stdin().lock().read_to_end(&mut order).is_err() {
        return ExitCode::FAILURE;
    }
    let Some(order) = SearchOrder::from_bytes(&order) else {
        return ExitCode::FAILURE;
    };
    let report = search(&order);
    match io::stdout().lock().write_all(&report.to_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn search(order: &SearchOrder) -> SearchReport {
    let found = Found::default();
    match prepare(order) {
        Ok((walk, matcher)) => look(walk, order, &matcher, &found),
        Err(refusal) => {
            return SearchReport {
                refused: Some(refusal),
                ..SearchReport::default()
            };
        }
    }
    let mut files = found
        .files
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    files.sort_by(|one, other| one.path.cmp(&other.path));
    SearchReport {
        files,
        searched: found.searched.into_inner(),
        binary: found.binary.into_inner(),
        unreadable: found.unreadable.into_inner(),
        truncated: found.is_enough.into_inner(),
        refused: None,
    }
}

fn prepare(order: &SearchOrder) -> Result<(WalkParallel, RegexMatcher), SearchRefusal> {
    let matcher = RegexMatcherBuilder::new()
        .case_insensitive(!order.is_case_sensitive)
        .fixed_strings(!order.is_pattern)
        .line_terminator(Some(b'\n'))
        .build(&order.query)
        .map_err(|error| SearchRefusal::Query(error.to_string()))?;
    enter(order).map_err(|errno| SearchRefusal::Place(errno.raw_os_error()))?;
    let start = if order.place.is_empty() {
        Path::new(".")
    } else {
        Path::new(OsStr::from_bytes(&order.place))
    };
    let mut overrides = OverrideBuilder::new(".");
    for glob in &order.globs {
        overrides
            .add(glob)
            .map_err(|error| SearchRefusal::Glob(error.to_string()))?;
    }
    let overrides = overrides
        .build()
        .map_err(|error| SearchRefusal::Glob(error.to_string()))?;
    let threads = match order.threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        asked => asked,
    };
    let walk = WalkBuilder::new(start)
        .hidden(!order.hidden)
        .ignore(!order.ignored)
        .git_ignore(!order.ignored)
        .git_exclude(!order.ignored)
        // What lies above the root, or in somebody's home, is not this search's.
        .parents(false)
        .git_global(false)
        .require_git(false)
        .follow_links(false)
        .overrides(overrides)
        .threads(threads.clamp(1, MOST_THREADS))
        // The repository itself is no text of anybody's.
        .filter_entry(|entry| entry.file_name() != ".git")
        .build_parallel();
    Ok((walk, matcher))
}

/// Goes to the root, and proves that the place lies beneath it without a link on the way.
fn enter(order: &SearchOrder) -> rustix::io::Result<()> {
    let directory = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = openat(
        rustix::fs::CWD,
        OsStr::from_bytes(&order.root),
        directory,
        Mode::empty(),
    )?;
    if !order.place.is_empty() {
        openat2(
            &root,
            OsStr::from_bytes(&order.place),
            OFlags::PATH | OFlags::CLOEXEC,
            Mode::empty(),
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS,
        )?;
    }
    rustix::process::fchdir(&root)
}

/// What the threads have found so far.
#[derive(Default)]
struct Found {
    files: Mutex<Vec<FoundFile>>,
    matches: AtomicUsize,
    searched: AtomicU64,
    binary: AtomicU64,
    unreadable: AtomicU64,
    is_enough: AtomicBool,
}

fn look(walk: WalkParallel, order: &SearchOrder, matcher: &RegexMatcher, found: &Found) {
    walk.run(|| {
        let mut searcher = SearcherBuilder::new()
            .binary_detection(BinaryDetection::quit(0))
            .line_number(true)
            .before_context(order.context_before)
            .after_context(order.context_after)
            .build();
        Box::new(move |entry| {
            let Ok(entry) = entry else {
                found.unreadable.fetch_add(1, Ordering::Relaxed);
                return WalkState::Continue;
            };
            if entry.file_type().is_some_and(|kind| kind.is_file()) {
                look_into(&entry, &mut searcher, order, matcher, found);
            }
            if found.is_enough.load(Ordering::Relaxed) {
                WalkState::Quit
            } else {
                WalkState::Continue
            }
        })
    });
}

fn look_into(
    entry: &DirEntry,
    searcher: &mut Searcher,
    order: &SearchOrder,
    matcher: &RegexMatcher,
    found: &Found,
) {
    // What became a pipe or a link since it was listed is not waited for, and not followed.
    let opened = openat(
        rustix::fs::CWD,
        entry.path(),
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC,
        Mode::empty(),
    );
    let Ok(file) = opened else {
        found.unreadable.fetch_add(1, Ordering::Relaxed);
        return;
    };
    found.searched.fetch_add(1, Ordering::Relaxed);
    let mut lines = Lines {
        order,
        found,
        taken: Vec::new(),
        is_binary: false,
    };
    let done = searcher.search_file(matcher, &std::fs::File::from(file), &mut lines);
    if done.is_err() {
        found.unreadable.fetch_add(1, Ordering::Relaxed);
    }
    if lines.is_binary {
        found.binary.fetch_add(1, Ordering::Relaxed);
    } else if !lines.taken.is_empty() {
        let path = entry.path().as_os_str().as_bytes();
        let file = FoundFile {
            path: path.strip_prefix(b"./").unwrap_or(path).to_vec(),
            lines: lines.taken,
        };
        // The list is whole after every statement that changes it.
        found
            .files
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(file);
    }
}

/// Takes the lines of one file.
struct Lines<'f> {
    order: &'f SearchOrder,
    found: &'f Found,
    taken: Vec<FoundLine>,
    is_binary: bool,
}

impl Lines<'_> {
    fn take(&mut self, number: Option<u64>, bytes: &[u8], is_match: bool) {
        let line = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        self.taken.push(FoundLine {
            number: number.unwrap_or_default(),
            bytes: line[..line.len().min(self.order.line_bytes)].to_vec(),
            is_match,
        });
    }
}

impl Sink for Lines<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, hit: &SinkMatch<'_>) -> Result<bool, io::Error> {
        if self.found.matches.fetch_add(1, Ordering::Relaxed) >= self.order.most_matches {
            self.found.is_enough.store(true, Ordering::Relaxed);
            return Ok(false);
        }
        self.take(hit.line_number(), hit.bytes(), true);
        Ok(true)
    }

    fn context(&mut self, _: &Searcher, context: &SinkContext<'_>) -> Result<bool, io::Error> {
        self.take(context.line_number(), context.bytes(), false);
        Ok(true)
    }

    fn finish(&mut self, _: &Searcher, finish: &SinkFinish) -> Result<(), io::Error> {
        self.is_binary = finish.binary_byte_offset().is_some();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn order(root: &Path, query: &str) -> SearchOrder {
        SearchOrder {
            root: root.as_os_str().as_bytes().to_vec(),
            place: Vec::new(),
            query: query.to_owned(),
            is_pattern: false,
            is_case_sensitive: true,
            globs: Vec::new(),
            hidden: false,
            ignored: false,
            most_matches: 100,
            context_before: 0,
            context_after: 0,
            line_bytes: 20,
            threads: 2,
        }
    }

    fn names(report: &SearchReport) -> Vec<String> {
        report
            .files
            .iter()
            .map(|file| String::from_utf8_lossy(&file.path).into_owned())
            .collect()
    }

    /// One test, since the search goes to its root and a process has one current directory.
    #[test]
    fn a_folder_is_searched_as_its_ignore_files_say() {
        let place = tempfile::tempdir().expect("a directory");
        let root = place.path();
        let put = |name: &str, content: &[u8]| {
            let path = root.join(name);
            fs::create_dir_all(path.parent().expect("one")).expect("room");
            fs::write(path, content).expect("room");
        };
        put("a.txt", b"one\nNeedle here\r\nthree\nneedle again\n");
        put("src/b.rs", b"let needle = 1;\n");
        put("out/built.rs", b"needle\n");
        put(".gitignore", b"out/\n");
        put(".hidden", b"needle\n");
        put(".git/config", b"needle\n");
        put("binary", b"needle\0needle\n");
        put("long", format!("{}needle\n", "x".repeat(50)).as_bytes());
        std::os::unix::fs::symlink("/etc", root.join("outside")).expect("a link");

        let report = search(&order(root, "needle"));
        assert_eq!(names(&report), ["a.txt", "long", "src/b.rs"]);
        assert_eq!((report.binary, report.truncated), (1, false));
        assert_eq!(report.files[0].lines[0].number, 4);
        assert_eq!(report.files[1].lines[0].bytes, b"x".repeat(20));

        let mut wide = order(root, "NEEDLE");
        wide.is_case_sensitive = false;
        wide.hidden = true;
        wide.ignored = true;
        wide.context_before = 1;
        let report = search(&wide);
        assert_eq!(
            names(&report),
            [".hidden", "a.txt", "long", "out/built.rs", "src/b.rs"]
        );
        let lines: Vec<(u64, bool)> = report.files[1]
            .lines
            .iter()
            .map(|line| (line.number, line.is_match))
            .collect();
        assert_eq!(lines, [(1, false), (2, true), (3, false), (4, true)]);
        assert_eq!(report.files[1].lines[1].bytes, b"Needle here");

        let mut pattern = order(root, r"^let \w+ =");
        pattern.is_pattern = true;
        assert_eq!(names(&search(&pattern)), ["src/b.rs"]);
        let mut globs = order(root, "needle");
        globs.globs = vec!["*.txt".to_owned()];
        assert_eq!(names(&search(&globs)), ["a.txt"]);
        globs.globs = vec!["!*.txt".to_owned(), "!long".to_owned()];
        assert_eq!(names(&search(&globs)), ["src/b.rs"]);
        let mut few = order(root, "needle");
        few.most_matches = 1;
        let report = search(&few);
        assert!(report.truncated && report.files.len() == 1);

        let mut within = order(root, "needle");
        within.place = b"src".to_vec();
        assert_eq!(names(&search(&within)), ["src/b.rs"]);
        within.place = b"a.txt".to_vec();
        assert_eq!(names(&search(&within)), ["a.txt"]);
        for outside in [&b"outside"[..], b"../", b"/etc"] {
            within.place = outside.to_vec();
            within.query = "root".to_owned();
            let report = search(&within);
            assert!(
                report.files.is_empty(),
                "{:?}",
                String::from_utf8_lossy(outside)
            );
        }
        let mut wrong = order(root, "(");
        wrong.is_pattern = true;
        assert!(matches!(
            search(&wrong).refused,
            Some(SearchRefusal::Query(_))
        ));
        wrong = order(root, "x");
        wrong.globs = vec!["[".to_owned()];
        assert!(matches!(
            search(&wrong).refused,
            Some(SearchRefusal::Glob(_))
        ));
        wrong = order(&root.join("absent"), "x");
        assert_eq!(search(&wrong).refused, Some(SearchRefusal::Place(2)));
    }
}
