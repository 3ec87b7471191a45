//! The workspace as the checks see it: its crates, their manifests and their source files.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::source::code_only;

/// All crates of the workspace.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) crates: Vec<Crate>,
}

/// One crate.
#[derive(Debug)]
pub(super) struct Crate {
    /// The directory's name: `exec` for `cofferdam-exec`.
    pub(super) name: String,
    pub(super) manifest: toml::Table,
    pub(super) files: Vec<SourceFile>,
}

/// What a source file is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Part of the library or program.
    Source,
    /// Tests, examples and benches.
    Test,
    /// The build script.
    Build,
}

/// One Rust file.
#[derive(Debug)]
pub(super) struct SourceFile {
    /// Path from the workspace's root.
    pub(super) path: PathBuf,
    pub(super) role: Role,
    /// Number of lines.
    pub(super) lines: usize,
    /// The text without comments and literals.
    pub(super) code: String,
}

impl Tree {
    /// Reads every crate below `crates/` and `xtask`.
    pub(super) fn read(root: &Path) -> anyhow::Result<Self> {
        let mut directories = vec![root.join("xtask")];
        for entry in fs::read_dir(root.join("crates")).context("cannot list crates/")? {
            directories.push(entry?.path());
        }
        directories.retain(|directory| directory.join("Cargo.toml").is_file());
        directories.sort();
        let crates = directories.iter().map(|path| Crate::read(root, path));
        Ok(Self {
            crates: crates.collect::<anyhow::Result<_>>()?,
        })
    }

    /// All files of all crates.
    pub(super) fn files(&self) -> impl Iterator<Item = &SourceFile> {
        self.crates.iter().flat_map(|one| &one.files)
    }
}

impl Crate {
    fn read(root: &Path, directory: &Path) -> anyhow::Result<Self> {
        let path = directory.join("Cargo.toml");
        let manifest = fs::read_to_string(&path)
            .with_context(|| format!("cannot read {}", path.display()))?
            .parse()
            .with_context(|| format!("{} is no manifest", path.display()))?;
        let mut files = Vec::new();
        for (place, role) in [
            ("src", Role::Source),
            ("tests", Role::Test),
            ("examples", Role::Test),
            ("benches", Role::Test),
        ] {
            collect(root, &directory.join(place), role, &mut files)?;
        }
        let build = directory.join("build.rs");
        if build.is_file() {
            files.push(SourceFile::read(root, &build, Role::Build)?);
        }
        let name = directory
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        Ok(Self {
            name,
            manifest,
            files,
        })
    }

    /// Names of the packages that the crate is built with; those of its tests are left out.
    pub(super) fn dependencies(&self) -> Vec<Dependency> {
        self.tables(&["dependencies", "build-dependencies"])
    }

    /// As `dependencies`, with those of the tests.
    pub(super) fn all_dependencies(&self) -> Vec<Dependency> {
        self.tables(&["dependencies", "build-dependencies", "dev-dependencies"])
    }

    fn tables(&self, names: &[&str]) -> Vec<Dependency> {
        let targets = self.manifest.get("target").and_then(toml::Value::as_table);
        let places = std::iter::once(&self.manifest).chain(
            targets
                .into_iter()
                .flat_map(toml::Table::values)
                .filter_map(toml::Value::as_table),
        );
        places
            .flat_map(|place| names.iter().filter_map(|name| place.get(*name)?.as_table()))
            .flat_map(|table| table.iter().map(|(key, value)| Dependency::new(key, value)))
            .collect()
    }
}

/// One line of a manifest's dependency table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Dependency {
    /// The package's name.
    pub(super) package: String,
    /// The name it has in the code.
    pub(super) identifier: String,
}

impl Dependency {
    fn new(key: &str, value: &toml::Value) -> Self {
        let package = value
            .get("package")
            .and_then(toml::Value::as_str)
            .unwrap_or(key);
        Self {
            package: package.to_owned(),
            identifier: key.replace('-', "_"),
        }
    }
}

impl SourceFile {
    fn read(root: &Path, path: &Path, role: Role) -> anyhow::Result<Self> {
        let text =
            fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(Self::new(
            path.strip_prefix(root).unwrap_or(path),
            role,
            &text,
        ))
    }

    /// A file of this path and text.
    pub(super) fn new(path: impl Into<PathBuf>, role: Role, text: &str) -> Self {
        Self {
            path: path.into(),
            role,
            lines: text.lines().count(),
            code: code_only(text),
        }
    }

    /// The code that ends up in the library or program: what stands before the unit tests.
    pub(super) fn production(&self) -> &str {
        match self.role {
            Role::Test => "",
            Role::Source | Role::Build => self
                .code
                .split("#[cfg(test)]\nmod ")
                .next()
                .unwrap_or_default(),
        }
    }

    /// The place of a byte offset in the code: `path:line`.
    pub(super) fn place(&self, offset: usize) -> String {
        let line = self.code[..offset].matches('\n').count() + 1;
        format!("{}:{line}", self.path.display())
    }
}

fn collect(
    root: &Path,
    directory: &Path,
    role: Role,
    files: &mut Vec<SourceFile>,
) -> anyhow::Result<()> {
    if !directory.is_dir() {
        return Ok(());
    }
    let mut entries: Vec<_> = fs::read_dir(directory)?.collect::<Result<_, _>>()?;
    entries.sort_by_key(fs::DirEntry::path);
    for entry in entries {
        let path = entry.path();
        let tests = path.file_stem().is_some_and(|stem| stem == "tests");
        let role = if tests { Role::Test } else { role };
        if path.is_dir() {
            collect(root, &path, role, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(SourceFile::read(root, &path, role)?);
        }
    }
    Ok(())
}

/// Whether `word` stands in `code` as a word of its own; gives the offset of the first one.
pub(super) fn find_word(code: &str, word: &str) -> Option<usize> {
    let part = |one: char| one.is_alphanumeric() || one == '_';
    code.match_indices(word)
        .map(|(at, _)| at)
        .find(|at| !code[..*at].ends_with(part) && !code[at + word.len()..].starts_with(part))
}

#[cfg(test)]
pub(super) mod samples {
    use super::*;

    /// A crate made of a manifest and files, as a check would see it.
    pub(in super::super) fn sample(name: &str, manifest: &str, files: &[(&str, &str)]) -> Tree {
        let files = files.iter().map(|(path, text)| {
            let role = if path.starts_with("tests/") {
                Role::Test
            } else {
                Role::Source
            };
            SourceFile::new(format!("crates/{name}/{path}"), role, text)
        });
        let manifest = manifest.parse().expect("the sample's manifest is TOML");
        Tree {
            crates: vec![Crate {
                name: name.to_owned(),
                manifest,
                files: files.collect(),
            }],
        }
    }
}
