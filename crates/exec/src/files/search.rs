//! Search through the files of a folder (E5), by a program of its own behind the same walls.

use std::os::fd::OwnedFd;
use std::time::Duration;

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::file::{MatchBlock, MatchedLine, SearchOptions, search};
use cofferdam_core::limits;
use cofferdam_core::operation::{FileMatches, FilesSearched, SearchFiles};
use cofferdam_core::spec::{CommandSpec, ProviderKind, ResourceLimits, StreamPlan};
use cofferdam_keeper::{
    FileReply, FileRequest, FoundFile, FoundLine, SearchOrder, SearchRefusal, SearchReport,
};
use cofferdam_sandbox::FileKind;

use super::path::Located;
use super::read::{AFTER_CAP, BEFORE_CAP};
use super::{FileDoor, worker};
use crate::backend::Extra;
use crate::quiet;

/// Matching lines unless a request says how many.
const MATCHES: usize = 100;
/// Under which number the program finds itself.
const PROGRAM: i32 = 9;
/// How long a search may take.
const TIME: Duration = Duration::from_secs(30);

impl FileDoor<'_> {
    /// Searches the files of a folder.
    ///
    /// # Errors
    ///
    /// `invalid_request` naming the field; `file_missing`, `path_outside`, `denied`; `file_timeout`.
    pub fn search(&self, request: &SearchFiles) -> Result<FilesSearched, Problem> {
        let at = self.locate(&request.path)?;
        if *at.root() != self.standing.spec().workspace {
            let message = format!(
                "{} lies outside the workspace, where no search goes",
                request.path
            );
            return Err(Problem::new(ErrorCode::PathOutside, message).with_field("path"));
        }
        let order = order(&at, request)?;
        self.may_read(&at)?;
        let report = match self.standing.spec().provider {
            ProviderKind::Memory => self.search_double(&at, &order)?,
            _ => self.start_search(&order)?,
        };
        match report.refused {
            None => Ok(self.told(report)),
            Some(SearchRefusal::Place(errno)) => Err(worker::refused(at.shown(), errno)),
            Some(SearchRefusal::Query(why)) => Err(wrong("query", why)),
            Some(SearchRefusal::Glob(why)) => Err(wrong("globs", why)),
        }
    }

    fn start_search(&self, order: &SearchOrder) -> Result<SearchReport, Problem> {
        let program: OwnedFd = self.plane.search_program()?;
        let command = CommandSpec {
            argv: vec![format!("/proc/self/fd/{PROGRAM}").as_str().into()],
            cwd: self.standing.spec().workspace.clone(),
            environment: Vec::new(),
            streams: StreamPlan::PipesWithInput,
            timeout_ms: Some(TIME.as_millis() as u64),
            idle_timeout_ms: None,
            limits: ResourceLimits::default(),
        };
        let extra = Extra {
            descriptors: vec![(program, PROGRAM)],
            ..Extra::default()
        };
        let input = order.to_bytes();
        let backend = self.standing.backend();
        let ambient = self.plane.ambient();
        let until = ambient.monotonic() + TIME;
        let output = quiet::run(self.plane, backend, &command, Some(&input), extra);
        let output = output.map_err(|problem| {
            if ambient.monotonic() < until {
                return problem;
            }
            let why = format!("the search did not end within {} s", TIME.as_secs());
            Problem::new(ErrorCode::FileTimeout, why).with_hint("search a smaller folder")
        })?;
        SearchReport::from_bytes(&output.stdout).ok_or_else(|| {
            let said = String::from_utf8_lossy(&output.stderr);
            let why = format!("the search ended without an answer: {}", said.trim());
            Problem::new(ErrorCode::Io, why)
        })
    }

    /// Tells what was found, without what may not be read by its name: walls that cannot hide a file
    /// let the program see it.
    fn told(&self, report: SearchReport) -> FilesSearched {
        let mut told = FilesSearched {
            files: Vec::with_capacity(report.files.len()),
            matching_lines: 0,
            searched_files: report.searched,
            binary_files: report.binary,
            unreadable: report.unreadable,
            truncated: report.truncated,
        };
        for file in report.files {
            let source = self.standing.spec().workspace_source.join(&file.path);
            if self.terms.denied.rule(&source).is_some() {
                told.searched_files -= 1;
                told.unreadable += 1;
                continue;
            }
            let lines = file.lines.iter();
            told.matching_lines += lines.filter(|line| line.is_match).count() as u64;
            told.files.push(FileMatches {
                path: BytePath::from_bytes(file.path),
                matches: blocks(file.lines),
            });
        }
        told
    }

    /// The same where nothing is real: plain text, in every file of the double.
    fn search_double(&self, at: &Located, order: &SearchOrder) -> Result<SearchReport, Problem> {
        if order.is_pattern || !order.globs.is_empty() {
            let why = "the memory provider searches for plain text, in all files";
            return Err(Problem::new(ErrorCode::UnsupportedField, why).with_field("pattern"));
        }
        let mut report = SearchReport::default();
        let mut places = vec![at.clone()];
        while let Some(place) = places.pop() {
            let list = FileRequest::List {
                path: place.relative().to_vec(),
                limit: u32::MAX,
            };
            let FileReply::Entries { entries, .. } = self.ask(&place, &list)?.0 else {
                continue;
            };
            for entry in entries {
                let child = place.child(&entry.name);
                match entry.kind {
                    FileKind::Directory => places.push(child),
                    FileKind::File => {
                        let (_, whole) = self.content_of(&child, limits::FILE_READ_BYTES)?;
                        report.searched += 1;
                        let found = search(&whole.bytes, &options(order));
                        let lines = lines_of(found.blocks);
                        if !lines.is_empty() {
                            let path = child.relative().to_vec();
                            report.files.push(FoundFile { path, lines });
                        }
                    }
                    FileKind::Symlink | FileKind::Other => {}
                }
            }
        }
        report.files.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(report)
    }
}

fn order(at: &Located, request: &SearchFiles) -> Result<SearchOrder, Problem> {
    let query = &request.query;
    if query.is_empty() || query.contains('\n') {
        let why = "a query is text of one line, and not empty";
        return Err(wrong("query", why.to_owned()));
    }
    let bounded = |field: &str, value: usize, (least, most): (usize, usize)| {
        if (least..=most).contains(&value) {
            return Ok(value);
        }
        let why = format!("{field} is {least} to {most}, not {value}");
        Err(wrong(field, why))
    };
    bounded("globs", request.globs.len(), (0, limits::SEARCH_GLOBS))?;
    let most = request.max_matches.unwrap_or(MATCHES);
    let before = request.context_before.unwrap_or(0);
    let after = request.context_after.unwrap_or(0);
    Ok(SearchOrder {
        root: at.root().as_bytes().to_vec(),
        place: at.relative().to_vec(),
        query: query.clone(),
        is_pattern: request.pattern,
        is_case_sensitive: request.case_sensitive,
        globs: request.globs.clone(),
        hidden: request.hidden,
        ignored: request.ignored,
        most_matches: bounded("max_matches", most, (1, limits::SEARCH_FILES_MATCHES))?,
        context_before: bounded("context_before", before, (0, BEFORE_CAP))?,
        context_after: bounded("context_after", after, (0, AFTER_CAP))?,
        line_bytes: limits::SEARCH_LINE_BYTES,
        threads: 0,
    })
}

fn options(order: &SearchOrder) -> SearchOptions {
    SearchOptions {
        query: order.query.clone(),
        is_case_sensitive: order.is_case_sensitive,
        most_matches: order.most_matches,
        context_before: order.context_before,
        context_after: order.context_after,
    }
}

fn lines_of(blocks: Vec<MatchBlock>) -> Vec<FoundLine> {
    let lines = blocks.into_iter().flat_map(|block| block.lines);
    lines
        .map(|line| FoundLine {
            number: line.line,
            bytes: line.text.into_bytes(),
            is_match: line.is_match,
        })
        .collect()
}

fn wrong(field: &str, why: String) -> Problem {
    Problem::new(ErrorCode::InvalidRequest, why).with_field(field)
}

/// Joins neighbouring lines.
fn blocks(lines: Vec<FoundLine>) -> Vec<MatchBlock> {
    let mut blocks: Vec<MatchBlock> = Vec::new();
    for line in lines {
        let number = line.number;
        let line = MatchedLine {
            line: number,
            text: String::from_utf8_lossy(&line.bytes).into_owned(),
            is_match: line.is_match,
        };
        match blocks.last_mut() {
            Some(block) if block.end_line + 1 == number => {
                block.end_line = number;
                block.lines.push(line);
            }
            _ => blocks.push(MatchBlock {
                start_line: number,
                end_line: number,
                lines: vec![line],
            }),
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_lines_are_one_block() {
        let line = |number, is_match| FoundLine {
            number,
            bytes: vec![0xff],
            is_match,
        };
        let joined = blocks(vec![line(1, false), line(2, true), line(5, true)]);
        let spans: Vec<_> = joined
            .iter()
            .map(|block| (block.start_line, block.end_line, block.lines.len()))
            .collect();
        assert_eq!(spans, [(1, 2, 2), (5, 5, 1)]);
        assert_eq!(joined[1].lines[0].text, "\u{fffd}");
    }
}
