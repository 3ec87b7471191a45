//! Search through many files: what commands cannot read is not found.

use std::os::unix::fs::symlink;

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::ErrorCode;
use cofferdam_core::event::Subject;
use cofferdam_core::operation::{Encoding, FilesSearched, SearchFiles, WriteFile, WriteMode};

use super::{Check, Need, Scene, check, hold};
use crate::FileTerms;

pub(super) const CHECKS: &[Check] = &[
    check("a folder is searched for text", Need::Contract, text),
    check(
        "a search that makes no sense is refused",
        Need::Contract,
        senseless,
    ),
    check(
        "a search honours ignore files, takes patterns, and stays inside",
        Need::Processes,
        boundary,
    ),
];

fn put(scene: &Scene<'_>, path: &str, content: &str) -> Result<(), String> {
    let door = scene
        .enclosure
        .files(&Subject::default(), FileTerms::default());
    let write = WriteFile {
        path: BytePath::from(path),
        content: content.to_owned(),
        encoding: Encoding::Utf8,
        mode: WriteMode::Write,
        expected_digest: None,
        durable: false,
    };
    door.and_then(|door| door.write(write))
        .map(drop)
        .map_err(|problem| problem.to_string())
}

fn search(scene: &Scene<'_>, request: &SearchFiles) -> Result<FilesSearched, ErrorCode> {
    let door = scene
        .enclosure
        .files(&Subject::default(), FileTerms::default());
    door.and_then(|door| door.search(request))
        .map_err(|problem| problem.code)
}

fn found(searched: &FilesSearched) -> Vec<(String, u64)> {
    let files = searched.files.iter();
    files
        .flat_map(|file| {
            let path = file.path.to_string();
            let lines = file.matches.iter().flat_map(|block| &block.lines);
            lines
                .filter(|line| line.is_match)
                .map(move |line| (path.clone(), line.line))
        })
        .collect()
}

fn text(scene: &Scene<'_>) -> Result<(), String> {
    put(scene, "sought/a.txt", "one\nan Otter here\n")?;
    put(scene, "sought/deep/b.txt", "otter\nx\nOTTER")?;
    let mut request = SearchFiles::text("otter");
    request.path = BytePath::from("sought");
    let searched = search(scene, &request).map_err(|code| code.as_str().to_owned())?;
    let expected = [
        ("sought/a.txt".to_owned(), 2),
        ("sought/deep/b.txt".to_owned(), 1),
        ("sought/deep/b.txt".to_owned(), 3),
    ];
    hold(found(&searched) == expected, &searched)?;
    hold(
        searched.matching_lines == 3 && !searched.truncated,
        &searched,
    )?;
    request.case_sensitive = true;
    let searched = search(scene, &request).map_err(|code| code.as_str().to_owned())?;
    hold(found(&searched) == expected[1..2], &searched)
}

fn senseless(scene: &Scene<'_>) -> Result<(), String> {
    let refused = |request: &SearchFiles, code: ErrorCode| {
        let outcome = search(scene, request);
        hold(outcome.as_ref().err() == Some(&code), &outcome)
    };
    refused(&SearchFiles::text(""), ErrorCode::InvalidRequest)?;
    refused(&SearchFiles::text("a\nb"), ErrorCode::InvalidRequest)?;
    let mut request = SearchFiles::text("x");
    request.max_matches = Some(0);
    refused(&request, ErrorCode::InvalidRequest)?;
    request = SearchFiles::text("x");
    request.path = BytePath::from("../elsewhere");
    refused(&request, ErrorCode::PathOutside)
}

fn boundary(scene: &Scene<'_>) -> Result<(), String> {
    put(scene, "kept/.gitignore", "built/\n")?;
    put(scene, "kept/built/a.txt", "heron 1\n")?;
    put(scene, "kept/a.txt", "heron 22\nheron x\n")?;
    let workspace = &scene.candidate.workspace;
    symlink(scene.outside(), workspace.join("kept/out")).map_err(|error| error.to_string())?;
    let mut request = SearchFiles::text(r"heron \d+$");
    request.pattern = true;
    request.path = BytePath::from("kept");
    let searched = search(scene, &request).map_err(|code| code.as_str().to_owned())?;
    let expected = [("kept/a.txt".to_owned(), 1)];
    hold(found(&searched) == expected, &searched)?;
    request.ignored = true;
    let searched = search(scene, &request).map_err(|code| code.as_str().to_owned())?;
    let expected = [
        ("kept/a.txt".to_owned(), 1),
        ("kept/built/a.txt".to_owned(), 1),
    ];
    hold(found(&searched) == expected, &searched)?;
    request.path = BytePath::from("kept/out");
    let outcome = search(scene, &request);
    hold(
        outcome.as_ref().err() == Some(&ErrorCode::PathOutside),
        &outcome,
    )?;
    request.path = BytePath::from("kept");
    let request = SearchFiles {
        query: "(".to_owned(),
        ..request
    };
    let outcome = search(scene, &request);
    hold(
        outcome.as_ref().err() == Some(&ErrorCode::InvalidRequest),
        &outcome,
    )
}
