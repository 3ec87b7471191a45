//! Reading git's configuration without running git.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use globset::GlobBuilder;

/// How deep files may include each other, as git has it.
const INCLUDE_DEPTH: usize = 10;
/// Most bytes of one configuration file that are read.
const FILE_BYTES: u64 = 1 << 20;

/// One setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Setting {
    /// Section in lowercase.
    pub(super) section: String,
    /// Subsection as written.
    pub(super) subsection: Option<String>,
    /// Name in lowercase.
    pub(super) name: String,
    /// Value; `None` where there is no `=`.
    pub(super) value: Option<String>,
}

impl Setting {
    /// Gives the key as git prints it.
    pub(super) fn key(&self) -> String {
        match &self.subsection {
            Some(subsection) => format!("{}.{subsection}.{}", self.section, self.name),
            None => format!("{}.{}", self.section, self.name),
        }
    }
}

/// What conditional includes ask about.
#[derive(Debug, Clone, Default)]
pub(super) struct Conditions {
    /// The home directory, for `~/`.
    pub(super) home: PathBuf,
    /// The git directory, when there is a repository.
    pub(super) git_dir: Option<PathBuf>,
    /// The branch that is checked out.
    pub(super) branch: Option<String>,
}

/// Reads a file and what it includes; no file is no settings.
pub(super) fn read(path: &Path, conditions: &Conditions) -> Vec<Setting> {
    let mut settings = Vec::new();
    read_into(path, conditions, 0, &mut settings);
    settings
}

fn read_into(path: &Path, conditions: &Conditions, depth: usize, settings: &mut Vec<Setting>) {
    let Some(text) = super::files::read_small(path, FILE_BYTES) else {
        return;
    };
    for setting in parse(&text) {
        let included = match (setting.section.as_str(), &setting.subsection) {
            ("include", None) => true,
            ("includeif", Some(condition)) => holds(condition, conditions, path),
            _ => false,
        };
        let is_path = setting.name == "path";
        if let Some(value) = setting.value.as_ref().filter(|_| included && is_path)
            && depth < INCLUDE_DEPTH
        {
            let target = expand(value, &conditions.home, path);
            read_into(&target, conditions, depth + 1, settings);
        }
        if !matches!(setting.section.as_str(), "include" | "includeif") {
            settings.push(setting);
        }
    }
}

/// Resolves a path of a configuration: `~/`, or relative to the file that names it.
fn expand(value: &str, home: &Path, file: &Path) -> PathBuf {
    match value.strip_prefix("~/") {
        Some(rest) => home.join(rest),
        None => file.parent().unwrap_or(Path::new("/")).join(value),
    }
}

fn holds(condition: &str, conditions: &Conditions, file: &Path) -> bool {
    if let Some(branch) = condition.strip_prefix("onbranch:") {
        let pattern = with_rest(branch.to_owned());
        return conditions
            .branch
            .as_ref()
            .is_some_and(|own| glob_matches(&pattern, Path::new(own), false));
    }
    let (pattern, fold) = if let Some(pattern) = condition.strip_prefix("gitdir:") {
        (pattern, false)
    } else if let Some(pattern) = condition.strip_prefix("gitdir/i:") {
        (pattern, true)
    } else {
        return false;
    };
    let Some(git_dir) = &conditions.git_dir else {
        return false;
    };
    let full = if let Some(rest) = pattern.strip_prefix("~/") {
        conditions.home.join(rest).to_string_lossy().into_owned()
            + if rest.is_empty() { "/" } else { "" }
    } else if let Some(rest) = pattern.strip_prefix("./") {
        let top = file.parent().unwrap_or(Path::new("/"));
        top.join(rest).to_string_lossy().into_owned()
    } else if pattern.starts_with('/') {
        pattern.to_owned()
    } else {
        format!("**/{pattern}")
    };
    glob_matches(&with_rest(full), git_dir, fold)
}

/// A pattern that ends in a slash means everything below.
fn with_rest(pattern: String) -> String {
    if pattern.ends_with('/') {
        pattern + "**"
    } else {
        pattern
    }
}

fn glob_matches(pattern: &str, path: &Path, fold: bool) -> bool {
    GlobBuilder::new(pattern)
        .literal_separator(true)
        .case_insensitive(fold)
        .build()
        .is_ok_and(|glob| glob.compile_matcher().is_match(path))
}

/// Reads settings from text; what cannot be understood is passed over to the next line.
pub(super) fn parse(text: &[u8]) -> Vec<Setting> {
    let text = String::from_utf8_lossy(text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text));
    let mut settings = Vec::new();
    let mut section = String::new();
    let mut subsection = None;
    let mut rest = text.as_ref();
    while !rest.is_empty() {
        rest = rest.trim_start();
        if rest.starts_with(['#', ';']) {
            rest = after_line(rest);
        } else if let Some(head) = rest.strip_prefix('[') {
            match section_head(head) {
                Some((name, sub, after)) => {
                    section = name;
                    subsection = sub;
                    rest = after;
                }
                None => rest = after_line(rest),
            }
        } else if !rest.is_empty() {
            let end = rest
                .find(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '-'))
                .unwrap_or(rest.len());
            let name = rest[..end].to_ascii_lowercase();
            let after = rest[end..].trim_start_matches([' ', '\t']);
            let value = if let Some(after) = after.strip_prefix('=') {
                let (value, after) = value_text(after);
                rest = after;
                Some(value)
            } else {
                rest = after_line(after);
                None
            };
            if !name.is_empty() && !section.is_empty() {
                settings.push(Setting {
                    section: section.clone(),
                    subsection: subsection.clone(),
                    name,
                    value,
                });
            }
        }
    }
    settings
}

fn after_line(text: &str) -> &str {
    text.find('\n').map_or("", |end| &text[end + 1..])
}

/// Reads `name "sub"]`, the bracket being gone already.
fn section_head(text: &str) -> Option<(String, Option<String>, &str)> {
    let name_end = text.find([']', ' ', '\t', '\n'])?;
    let name = &text[..name_end];
    let after = text[name_end..].trim_start_matches([' ', '\t']);
    if let Some(after) = after.strip_prefix(']') {
        // The old form puts the subsection behind a dot.
        return Some(match name.split_once('.') {
            Some((name, sub)) => (
                name.to_ascii_lowercase(),
                Some(sub.to_ascii_lowercase()),
                after,
            ),
            None => (name.to_ascii_lowercase(), None, after),
        });
    }
    let mut sub = String::new();
    let quoted = after.strip_prefix('"')?;
    let mut letters = quoted.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => {
                let after = quoted[at + 1..].trim_start().strip_prefix(']')?;
                return Some((name.to_ascii_lowercase(), Some(sub), after));
            }
            '\\' => sub.push(letters.next()?.1),
            '\n' => return None,
            other => sub.push(other),
        }
    }
    None
}

/// Reads a value up to the end of its line, with quotes, escapes and continued lines.
fn value_text(text: &str) -> (String, &str) {
    let mut value = String::new();
    // How much of the value is more than trailing white space.
    let mut solid = 0;
    let mut quoted = false;
    let mut letters = text.trim_start_matches([' ', '\t']).char_indices();
    let start = text.trim_start_matches([' ', '\t']);
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\n' => {
                value.truncate(solid);
                return (value, &start[at + 1..]);
            }
            '#' | ';' if !quoted => {
                value.truncate(solid);
                return (value, after_line(&start[at..]));
            }
            '"' => {
                quoted = !quoted;
                solid = value.len();
            }
            '\\' => {
                match letters.next().map(|one| one.1) {
                    Some('n') => value.push('\n'),
                    Some('t') => value.push('\t'),
                    Some('b') => value.push('\u{8}'),
                    Some('\n') | None => continue,
                    Some(other) => value.push(other),
                }
                solid = value.len();
            }
            '\r' if !quoted => {}
            ' ' | '\t' if !quoted => value.push(letter),
            other => {
                value.push(other);
                solid = value.len();
            }
        }
    }
    value.truncate(solid);
    (value, "")
}

/// Gives the last value of a key without subsection.
pub(super) fn last<'a>(settings: &'a [Setting], section: &str, name: &str) -> Option<&'a str> {
    settings
        .iter()
        .rev()
        .find(|one| one.section == section && one.subsection.is_none() && one.name == name)
        .and_then(|one| one.value.as_deref())
}

/// Resolves a path-valued setting as git does: `~/` and relative to where hooks run.
pub(super) fn path_value(value: &str, home: &Path, base: &Path) -> PathBuf {
    match value.strip_prefix("~/") {
        Some(rest) => home.join(rest),
        None => base.join(OsStr::from_bytes(value.as_bytes())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(settings: &[Setting]) -> Vec<String> {
        settings
            .iter()
            .map(|one| format!("{}={}", one.key(), one.value.as_deref().unwrap_or("(none)")))
            .collect()
    }

    #[test]
    fn quotes_comments_and_continued_lines_are_read_as_git_reads_them() {
        let text = b"; c\n[user]\n\tname = A \"B # C\" ; no\n\temail=a@b\n[Alias]\n\tx = \"!f() { \\\n echo \\\"hi\\\"; }; f\"\n[branch \"a\\\"b\"] merge = m\n[core.Old]\n\tbare\n[bad\n\tz = 1";
        insta::assert_debug_snapshot!(keys(&parse(text)), @r#"
        [
            "user.name=A B # C",
            "user.email=a@b",
            "alias.x=!f() {  echo \"hi\"; }; f",
            "branch.a\"b.merge=m",
            "core.old.bare=(none)",
            "core.old.z=1",
        ]
        "#);
    }

    #[test]
    fn includes_follow_conditions() {
        let place = tempfile::tempdir().expect("a directory");
        let base = place.path().canonicalize().expect("real");
        std::fs::write(
            base.join("config"),
            "[include]\n\tpath = more\n[includeIf \"gitdir:~/work/\"]\n\tpath = ~/work.config\n[includeIf \"gitdir:~/other/\"]\n\tpath = ~/other.config\n",
        )
        .expect("written");
        std::fs::write(
            base.join("more"),
            "[user]\n\tname = A\n[include]\n\tpath = config\n",
        )
        .expect("written");
        std::fs::write(base.join("work.config"), "[user]\n\tname = W\n").expect("written");
        std::fs::write(base.join("other.config"), "[user]\n\tname = O\n").expect("written");
        let conditions = Conditions {
            home: base.clone(),
            git_dir: Some(base.join("work/repo/.git")),
            branch: None,
        };
        let found = read(&base.join("config"), &conditions);
        assert_eq!(last(&found, "user", "name"), Some("W"));
        assert!(keys(&found).iter().all(|one| !one.ends_with("=O")));
    }
}
