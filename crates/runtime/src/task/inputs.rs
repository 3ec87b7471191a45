//! What a check reads: the files that it names, and those that its program is known to obey.
//!
//! A task that changes what decides about it is not stopped; it is named.

use cofferdam_core::bytes::BytePath;
use cofferdam_core::task::{ChangeKind, ModifiedFile};

/// What the programs of one family read without being told.
struct Family {
    programs: &'static [&'static str],
    /// Names that configure the check, at any depth; whatever happened to them counts.
    settings: &'static [&'static str],
    /// Names of the tests themselves; a new one judges nothing that was there, so only a changed or
    /// removed one counts.
    tests: &'static [&'static str],
}

const FAMILIES: &[Family] = &[
    Family {
        programs: &["make", "gmake", "bmake"],
        settings: &["Makefile", "makefile", "GNUmakefile", "*.mk"],
        tests: &[],
    },
    Family {
        programs: &[
            "npm", "npx", "yarn", "pnpm", "bun", "node", "jest", "vitest", "mocha", "tsc",
        ],
        settings: &[
            "package.json",
            "package-lock.json",
            "npm-shrinkwrap.json",
            "yarn.lock",
            "pnpm-lock.yaml",
            "bun.lock",
            ".npmrc",
            ".yarnrc.yml",
            "jest.config.*",
            "jest.setup.*",
            "vitest.config.*",
            "vite.config.*",
            ".mocharc.*",
            "tsconfig.json",
            "tsconfig.*.json",
            ".eslintrc*",
            "eslint.config.*",
        ],
        tests: &["*.test.*", "*.spec.*", "__tests__/*"],
    },
    Family {
        programs: &[
            "pytest", "py.test", "python", "python3", "tox", "nox", "hatch", "poetry", "uv",
        ],
        settings: &[
            "pyproject.toml",
            "pytest.ini",
            ".pytest.ini",
            "tox.ini",
            "setup.cfg",
            "setup.py",
            "conftest.py",
            "noxfile.py",
            "requirements*.txt",
            "sitecustomize.py",
        ],
        tests: &["test_*.py", "*_test.py"],
    },
    Family {
        programs: &["cargo"],
        settings: &[
            "Cargo.toml",
            "Cargo.lock",
            "build.rs",
            ".cargo/config.toml",
            ".cargo/config",
            ".config/nextest.toml",
            "rust-toolchain.toml",
            "rust-toolchain",
            "clippy.toml",
            ".clippy.toml",
            "rustfmt.toml",
            "deny.toml",
        ],
        tests: &["tests/*"],
    },
    Family {
        programs: &["go", "gotestsum"],
        settings: &["go.mod", "go.sum", "go.work", ".golangci.*"],
        tests: &["*_test.go"],
    },
    Family {
        programs: &["mvn", "mvnw", "gradle", "gradlew"],
        settings: &[
            "pom.xml",
            "mvnw",
            "gradlew",
            "build.gradle",
            "build.gradle.kts",
            "settings.gradle",
            "settings.gradle.kts",
            "gradle.properties",
            "gradle-wrapper.properties",
        ],
        tests: &["src/test/*"],
    },
    Family {
        programs: &["cmake", "ctest", "ninja", "meson"],
        settings: &[
            "CMakeLists.txt",
            "CMakePresets.json",
            "*.cmake",
            "meson.build",
            "build.ninja",
        ],
        tests: &[],
    },
    Family {
        programs: &["just"],
        settings: &["justfile", "Justfile", ".justfile"],
        tests: &[],
    },
    Family {
        programs: &["bazel", "bazelisk"],
        settings: &[
            "BUILD",
            "BUILD.bazel",
            "WORKSPACE",
            "MODULE.bazel",
            ".bazelrc",
        ],
        tests: &[],
    },
    Family {
        programs: &["rake", "bundle", "rspec"],
        settings: &[
            "Rakefile",
            "Gemfile",
            "Gemfile.lock",
            ".rspec",
            "spec_helper.rb",
        ],
        tests: &["*_spec.rb", "*_test.rb"],
    },
    Family {
        programs: &["composer", "phpunit"],
        settings: &[
            "composer.json",
            "composer.lock",
            "phpunit.xml",
            "phpunit.xml.dist",
        ],
        tests: &["*Test.php"],
    },
    Family {
        programs: &["dotnet"],
        settings: &[
            "*.csproj",
            "*.fsproj",
            "*.sln",
            "Directory.Build.props",
            "global.json",
        ],
        tests: &[],
    },
    Family {
        programs: &["pre-commit"],
        settings: &[".pre-commit-config.yaml"],
        tests: &[],
    },
];

/// Gives the changed files that one of the checks reads, in order; `cwd` is where the checks run,
/// below the top of the tree.
pub(crate) fn tampered(
    checks: &[String],
    changes: &[ModifiedFile],
    cwd: &BytePath,
) -> Vec<BytePath> {
    let words: Vec<Vec<String>> = checks.iter().map(|check| words(check)).collect();
    let mut found: Vec<BytePath> = Vec::new();
    for change in changes {
        let paths = std::iter::once(&change.path).chain(&change.from);
        for path in paths {
            let is_read = words
                .iter()
                .any(|words| reads(words, path, change.change, cwd));
            if is_read && !found.contains(path) {
                found.push(path.clone());
            }
        }
    }
    found
}

/// Takes a shell command apart into words, roughly: what is quoted may hold a command too.
fn words(check: &str) -> Vec<String> {
    check
        .split(|one: char| one.is_whitespace() || "|&;<>(){}`\"'$=,".contains(one))
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect()
}

fn reads(words: &[String], path: &BytePath, change: ChangeKind, cwd: &BytePath) -> bool {
    words.iter().any(|word| {
        names(word, path, cwd)
            || FAMILIES.iter().any(|family| {
                let program = word.rsplit('/').next().unwrap_or(word);
                family.programs.contains(&program) && family.reads(path, change)
            })
    })
}

impl Family {
    fn reads(&self, path: &BytePath, change: ChangeKind) -> bool {
        let text = path.to_text();
        let is_setting = self
            .settings
            .iter()
            .any(|pattern| ends_with(&text, pattern));
        let is_test = change != ChangeKind::Added
            && self.tests.iter().any(|pattern| ends_with(&text, pattern));
        is_setting || is_test
    }
}

/// Tells whether a word names a file, or a directory above it.
fn names(word: &str, path: &BytePath, cwd: &BytePath) -> bool {
    let mut pieces: Vec<&[u8]> = if word.starts_with('/') {
        // An absolute path names something of the tree only by the end of it; that is not known here.
        return false;
    } else {
        cwd.as_bytes()
            .split(|byte| *byte == b'/')
            .filter(|one| !one.is_empty())
            .collect()
    };
    for piece in word.as_bytes().split(|byte| *byte == b'/') {
        match piece {
            b"" | b"." => {}
            b".." => {
                pieces.pop();
            }
            name => pieces.push(name),
        }
    }
    // The top itself is no name of anything in particular.
    let named = pieces.join(&b'/');
    !named.is_empty() && word != "." && path.is_within(&BytePath::from_bytes(named))
}

/// Tells whether a path ends as a pattern says; `*` stands for any characters but, at the end of a
/// pattern with a slash, for everything below.
fn ends_with(path: &str, pattern: &str) -> bool {
    if let Some(directory) = pattern.strip_suffix("/*") {
        return path.starts_with(&format!("{directory}/"))
            || path.contains(&format!("/{directory}/"));
    }
    let depth = pattern.matches('/').count() + 1;
    let pieces: Vec<&str> = path.split('/').collect();
    let Some(start) = pieces.len().checked_sub(depth) else {
        return false;
    };
    matches(&pieces[start..].join("/"), pattern)
}

fn matches(name: &str, pattern: &str) -> bool {
    let mut pieces = pattern.split('*');
    let first = pieces.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else {
        return false;
    };
    let mut pieces = pieces.peekable();
    while let Some(piece) = pieces.next() {
        if pieces.peek().is_none() {
            return rest.len() >= piece.len() && rest.ends_with(piece);
        }
        match rest.find(piece) {
            Some(at) => rest = &rest[at + piece.len()..],
            None => return false,
        }
    }
    rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(path: &str, change: ChangeKind) -> ModifiedFile {
        ModifiedFile {
            path: path.into(),
            change,
            from: None,
            binary: false,
            added_lines: 0,
            removed_lines: 0,
            untracked: false,
        }
    }

    fn found(check: &str, changes: &[(&str, ChangeKind)]) -> Vec<String> {
        let changes: Vec<_> = changes
            .iter()
            .map(|(path, kind)| change(path, *kind))
            .collect();
        tampered(&[check.to_owned()], &changes, &BytePath::default())
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn c107_what_decides_is_named() {
        use ChangeKind::{Added, Deleted, Modified};
        let all = [
            ("Makefile", Modified),
            ("sub/rules.mk", Added),
            ("src/a.c", Modified),
        ];
        assert_eq!(found("make -j2 check", &all), ["Makefile", "sub/rules.mk"]);
        assert_eq!(found("CC=gcc make", &all), ["Makefile", "sub/rules.mk"]);
        assert_eq!(
            found("sh -c 'cd x && make'", &all),
            ["Makefile", "sub/rules.mk"]
        );
        assert_eq!(found("remake", &all), Vec::<String>::new());
        let python = [
            ("conftest.py", Added),
            ("tests/test_new.py", Added),
            ("lib/test_old.py", Deleted),
            ("lib/code.py", Modified),
        ];
        assert_eq!(
            found("python3 -m pytest -q", &python),
            ["conftest.py", "lib/test_old.py"]
        );
        assert_eq!(
            found(
                "cargo test",
                &[("a/build.rs", Modified), ("a/src/lib.rs", Modified)]
            ),
            ["a/build.rs"]
        );
    }

    #[test]
    fn c107_what_a_check_names_is_named() {
        use ChangeKind::Modified;
        let all = [
            ("scripts/check.sh", Modified),
            ("scripts2", Modified),
            ("a.txt", Modified),
        ];
        assert_eq!(
            found("./scripts/check.sh --all", &all),
            ["scripts/check.sh"]
        );
        assert_eq!(found("bash scripts/check.sh", &all), ["scripts/check.sh"]);
        assert_eq!(found("ls scripts", &all), ["scripts/check.sh"]);
        assert_eq!(found("grep -q two <a.txt", &all), ["a.txt"]);
        assert_eq!(found("ls .", &all), Vec::<String>::new());
        let below = [change("sub/a.txt", Modified)];
        let words = ["cat ../b a.txt".to_owned()];
        assert_eq!(tampered(&words, &below, &"sub".into()).len(), 1);
        assert_eq!(tampered(&words, &below, &BytePath::default()).len(), 0);
    }

    #[test]
    fn patterns_match_ends() {
        assert!(ends_with("a/b/jest.config.ts", "jest.config.*"));
        assert!(ends_with(".cargo/config.toml", ".cargo/config.toml"));
        assert!(!ends_with("cargo/config.toml", ".cargo/config.toml"));
        assert!(ends_with("x/src/test/A.java", "src/test/*"));
        assert!(!ends_with("xsrc/test/A.java", "src/test/*"));
        assert!(ends_with("a.test.js", "*.test.*"));
        assert!(!ends_with("atest.js", "*.test.*"));
    }
}
