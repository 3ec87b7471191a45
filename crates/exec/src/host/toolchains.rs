//! Toolchains that live in home directories: where they are, which part is cache, what is secret.

use std::path::{Path, PathBuf};

use cofferdam_core::bytes::BytePath;
use cofferdam_core::facts::Toolchain;
use cofferdam_core::spec::Variable;

use super::surroundings::Surroundings;

/// How a toolchain is found and what of it is shown.
struct Known {
    name: &'static str,
    /// The variable that names its top, and whether it is set for commands.
    variable: Option<&'static str>,
    /// Its top below the home directory when no variable names it.
    below_home: &'static str,
    /// What is shown read-only, below the top; an empty name is the whole.
    read: &'static [&'static str],
    /// What is a cache, below the top.
    caches: &'static [&'static str],
}

const fn known(
    name: &'static str,
    variable: Option<&'static str>,
    below_home: &'static str,
    read: &'static [&'static str],
    caches: &'static [&'static str],
) -> Known {
    Known {
        name,
        variable,
        below_home,
        read,
        caches,
    }
}

/// Known toolchains. Where a top also holds credentials, its parts are named one by one.
const KNOWN: &[Known] = &[
    known(
        "cargo",
        Some("CARGO_HOME"),
        ".cargo",
        &["bin"],
        &["registry", "git"],
    ),
    known("rustup", Some("RUSTUP_HOME"), ".rustup", &[""], &[]),
    known("pyenv", Some("PYENV_ROOT"), ".pyenv", &[""], &[]),
    known("rbenv", Some("RBENV_ROOT"), ".rbenv", &[""], &[]),
    known("rvm", Some("rvm_path"), ".rvm", &[""], &[]),
    known("nvm", Some("NVM_DIR"), ".nvm", &[""], &[]),
    known("fnm", Some("FNM_DIR"), ".local/share/fnm", &[""], &[]),
    known(
        "volta",
        Some("VOLTA_HOME"),
        ".volta",
        &["bin", "tools"],
        &["cache"],
    ),
    known(
        "pnpm",
        Some("PNPM_HOME"),
        ".local/share/pnpm",
        &[""],
        &["store"],
    ),
    known(
        "bun",
        Some("BUN_INSTALL"),
        ".bun",
        &["bin", "install/global"],
        &["install/cache"],
    ),
    known("deno", Some("DENO_INSTALL"), ".deno", &["bin"], &[]),
    known("deno cache", Some("DENO_DIR"), ".cache/deno", &[], &[""]),
    known(
        "npm cache",
        Some("npm_config_cache"),
        ".npm",
        &[],
        &["_cacache"],
    ),
    known(
        "yarn cache",
        Some("YARN_CACHE_FOLDER"),
        ".cache/yarn",
        &[],
        &[""],
    ),
    known("go", Some("GOPATH"), "go", &["bin", "src"], &["pkg"]),
    known("go sdk", None, "sdk", &[""], &[]),
    known("go cache", Some("GOCACHE"), ".cache/go-build", &[], &[""]),
    known("uv", None, ".local/share/uv", &["python", "tools"], &[]),
    known("uv cache", Some("UV_CACHE_DIR"), ".cache/uv", &[], &[""]),
    known("pip cache", Some("PIP_CACHE_DIR"), ".cache/pip", &[], &[""]),
    known("pipx", Some("PIPX_HOME"), ".local/share/pipx", &[""], &[]),
    known(
        "poetry",
        Some("POETRY_HOME"),
        ".local/share/pypoetry",
        &[""],
        &[],
    ),
    known(
        "pre-commit",
        Some("PRE_COMMIT_HOME"),
        ".cache/pre-commit",
        &[],
        &[""],
    ),
    known("miniconda", None, "miniconda3", &[""], &[]),
    known("miniforge", None, "miniforge3", &[""], &[]),
    known("anaconda", None, "anaconda3", &[""], &[]),
    known(
        "sdkman",
        Some("SDKMAN_DIR"),
        ".sdkman",
        &["bin", "candidates", "src", "libexec"],
        &[],
    ),
    known("jenv", Some("JENV_ROOT"), ".jenv", &[""], &[]),
    known("maven", None, ".m2", &["wrapper"], &["repository"]),
    known(
        "gradle",
        Some("GRADLE_USER_HOME"),
        ".gradle",
        &["wrapper", "jdks"],
        &["caches"],
    ),
    known("coursier", None, ".cache/coursier", &[], &[""]),
    known("asdf", Some("ASDF_DATA_DIR"), ".asdf", &[""], &[]),
    known(
        "mise",
        Some("MISE_DATA_DIR"),
        ".local/share/mise",
        &[""],
        &[],
    ),
    known("dotnet", Some("DOTNET_ROOT"), ".dotnet", &[""], &[]),
    known(
        "nuget",
        Some("NUGET_PACKAGES"),
        ".nuget/packages",
        &[],
        &[""],
    ),
    known("ghcup", None, ".ghcup", &[""], &[]),
    known("opam", Some("OPAMROOT"), ".opam", &[""], &[]),
    known(
        "julia",
        None,
        ".julia",
        &["juliaup", "bin"],
        &["packages", "artifacts", "compiled"],
    ),
    known("swiftly", None, ".local/share/swiftly", &[""], &[]),
    known(
        "npm prefix",
        None,
        ".npm-global",
        &["bin", "lib", "share"],
        &[],
    ),
    known(
        "playwright",
        Some("PLAYWRIGHT_BROWSERS_PATH"),
        ".cache/ms-playwright",
        &[""],
        &[],
    ),
    known("ccache", Some("CCACHE_DIR"), ".cache/ccache", &[], &[""]),
    known("own programs", None, ".local", &["bin", "lib"], &[]),
    known("own bin", None, "bin", &[""], &[]),
];

/// Tools that fail where they cannot write to their cache.
const NEEDS_CACHE: &[&str] = &[
    "ccache",
    "deno cache",
    "go cache",
    "gradle",
    "npm cache",
    "pre-commit",
    "uv cache",
    "yarn cache",
];

/// Files at the top of a workspace that say whose project it is, by the first word of a toolchain's
/// name. A tool that is not listed counts as used everywhere.
const PROJECTS: &[(&str, &[&str])] = &[
    ("cargo", &["Cargo.toml"]),
    ("npm", &["package.json"]),
    ("pnpm", &["package.json"]),
    ("yarn", &["package.json"]),
    ("bun", &["package.json"]),
    ("deno", &["deno.json", "deno.jsonc", "package.json"]),
    ("go", &["go.mod", "go.work"]),
    (
        "pip",
        &[
            "pyproject.toml",
            "setup.py",
            "requirements.txt",
            "setup.cfg",
        ],
    ),
    (
        "uv",
        &["pyproject.toml", "setup.py", "requirements.txt", "uv.lock"],
    ),
    ("poetry", &["pyproject.toml"]),
    ("maven", &["pom.xml"]),
    (
        "gradle",
        &[
            "build.gradle",
            "build.gradle.kts",
            "settings.gradle",
            "settings.gradle.kts",
        ],
    ),
];

/// Tells whether the workspace looks like a project of a toolchain.
fn is_used(name: &str, workspace: &Path) -> bool {
    let first = name.split(' ').next().unwrap_or_default();
    PROJECTS
        .iter()
        .find(|(tool, _)| *tool == first)
        .is_none_or(|(_, files)| files.iter().any(|file| workspace.join(file).exists()))
}

/// Names of secrets that may lie in a top that is shown as a whole.
const SECRET_NAMES: &[&str] = &[
    "credentials",
    "credentials.toml",
    ".npmrc",
    ".netrc",
    "auth.json",
];

/// Parts of a program's prefix that belong to what stands in its `bin`.
const PREFIX: &[&str] = &["lib", "libexec", "share", "include"];

/// Finds what is there.
///
/// `homes` are the owner's home directory and, where another one is written for them, that too: the
/// first is the one whose places are named by variables.
pub(super) fn toolchains(
    surroundings: &Surroundings,
    is_own: bool,
    homes: &[PathBuf],
    workspace: &Path,
) -> Vec<Toolchain> {
    let mut found: Vec<Toolchain> = Vec::new();
    for one in KNOWN {
        let named = one
            .variable
            .and_then(|name| surroundings.path(name))
            .filter(|_| is_own);
        let tops: Vec<(PathBuf, bool)> = match named {
            Some(top) => vec![(top.to_owned(), true)],
            None => homes
                .iter()
                .enumerate()
                .map(|(number, home)| (home.join(one.below_home), number == 0))
                .collect(),
        };
        for (top, is_named) in tops {
            let holds_home = homes.iter().any(|home| home.starts_with(&top));
            if holds_home || top.starts_with(workspace) || !top.is_dir() {
                continue;
            }
            if let Some(toolchain) = look(one, &top, is_named, workspace)
                && !found
                    .iter()
                    .any(|other| other.read == toolchain.read && other.caches == toolchain.caches)
            {
                found.push(toolchain);
            }
        }
    }
    if is_own {
        add_path_entries(&mut found, surroundings, homes, workspace);
    }
    if let Some(prefix) = homes.first().and_then(|home| npm_prefix(home)) {
        let read: Vec<BytePath> = ["bin", "lib", "share"]
            .iter()
            .map(|name| prefix.join(name))
            .filter(|path| path.is_dir() && !homes.iter().any(|home| home.starts_with(path)))
            .map(BytePath::from)
            .filter(|path| !is_shown(&found, path))
            .collect();
        if !read.is_empty() {
            found.push(plain("npm prefix", read));
        }
    }
    found
}

fn plain(name: &str, read: Vec<BytePath>) -> Toolchain {
    Toolchain {
        name: name.to_owned(),
        read,
        caches: Vec::new(),
        needs_cache: false,
        in_use: false,
        secrets: Vec::new(),
        environment: Vec::new(),
    }
}

fn is_shown(found: &[Toolchain], path: &BytePath) -> bool {
    found
        .iter()
        .flat_map(|one| one.read.iter().chain(&one.caches))
        .any(|top| path.is_within(top))
}

fn look(one: &Known, top: &Path, is_named: bool, workspace: &Path) -> Option<Toolchain> {
    let existing = |names: &[&str]| -> Vec<BytePath> {
        names
            .iter()
            .map(|name| {
                if name.is_empty() {
                    top.to_owned()
                } else {
                    top.join(name)
                }
            })
            .filter(|path| path.exists())
            .map(BytePath::from)
            .collect()
    };
    let mut toolchain = Toolchain {
        name: one.name.to_owned(),
        read: existing(one.read),
        caches: existing(one.caches),
        needs_cache: NEEDS_CACHE.contains(&one.name),
        in_use: is_used(one.name, workspace),
        secrets: Vec::new(),
        environment: Vec::new(),
    };
    if one.name == "cargo" {
        // Its configuration names mirrors, and sometimes a token.
        for name in ["config.toml", "config"] {
            let path = top.join(name);
            let content = super::files::read_small(&path, 1 << 20);
            if content.is_some_and(|text| !holds_token(&text)) {
                toolchain.read.push(BytePath::from(path));
            }
        }
    }
    if one.read.contains(&"") {
        toolchain.secrets = SECRET_NAMES
            .iter()
            .map(|name| top.join(name))
            .filter(|path| path.is_file())
            .map(BytePath::from)
            .collect();
    }
    if toolchain.read.is_empty() && toolchain.caches.is_empty() {
        return None;
    }
    if let Some(variable) = one.variable.filter(|_| is_named) {
        toolchain.environment.push(Variable {
            name: BytePath::from(variable),
            value: BytePath::from(top),
        });
    }
    Some(toolchain)
}

fn holds_token(text: &[u8]) -> bool {
    String::from_utf8_lossy(text).lines().any(|line| {
        let line = line.trim_start();
        let is_key = |word: &str| line.split('=').next().unwrap_or("").contains(word);
        !line.starts_with('#') && (is_key("token") || is_key("secret") || is_key("password"))
    })
}

/// Shows the directories of PATH that nothing else shows, with what belongs to their programs.
fn add_path_entries(
    found: &mut Vec<Toolchain>,
    surroundings: &Surroundings,
    homes: &[PathBuf],
    workspace: &Path,
) {
    let Some(path) = surroundings.get("PATH") else {
        return;
    };
    for entry in std::env::split_paths(path) {
        let is_system = ["/usr", "/bin", "/sbin", "/opt", "/nix/store", "/gnu/store"]
            .iter()
            .any(|top| entry.starts_with(top));
        let shown = BytePath::from(entry.as_path());
        if is_system
            || !entry.is_absolute()
            || entry.starts_with(workspace)
            || is_shown(found, &shown)
            || homes.iter().any(|home| home.starts_with(&entry))
            || !entry.is_dir()
        {
            continue;
        }
        let mut read = vec![shown];
        let is_bin = entry.file_name().is_some_and(|name| name == "bin");
        if let Some(prefix) = entry.parent().filter(|_| is_bin)
            && prefix != Path::new("/")
            && !homes.iter().any(|home| home.starts_with(prefix))
        {
            let parts = PREFIX.iter().map(|name| prefix.join(name));
            read.extend(parts.filter(|path| path.is_dir()).map(BytePath::from));
        }
        found.push(plain("PATH", read));
    }
}

/// Reads npm's prefix out of its configuration, and nothing else of it.
fn npm_prefix(home: &Path) -> Option<PathBuf> {
    let text = super::files::read_small(&home.join(".npmrc"), 1 << 20)?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let value = text
        .lines()
        .filter_map(|line| line.split_once('='))
        .find(|(name, _)| name.trim() == "prefix")?
        .1
        .trim()
        .to_owned();
    let path = match value
        .strip_prefix("~/")
        .or_else(|| value.strip_prefix("${HOME}/"))
    {
        Some(rest) => home.join(rest),
        None => PathBuf::from(value),
    };
    path.is_absolute().then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn toolchains_are_found_without_their_credentials() {
        let place = tempfile::tempdir().expect("a directory");
        let home = place.path().to_owned();
        for path in [
            ".cargo/bin",
            ".cargo/registry",
            ".rustup/toolchains",
            "go/bin",
            "tool/bin",
            "tool/lib",
        ] {
            std::fs::create_dir_all(home.join(path)).expect("made");
        }
        std::fs::write(home.join(".cargo/credentials.toml"), "").expect("written");
        std::fs::write(
            home.join(".cargo/config.toml"),
            "[registry]\ntoken = \"t\"\n",
        )
        .expect("written");
        let path = format!("{}:/usr/bin:relative", home.join("tool/bin").display());
        let surroundings = Surroundings::new([("PATH", path)], "/");
        let found = toolchains(
            &surroundings,
            true,
            std::slice::from_ref(&home),
            Path::new("/w"),
        );
        let names: Vec<_> = found.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["cargo", "rustup", "go", "PATH"]);
        assert_eq!(found[0].read, [BytePath::from(home.join(".cargo/bin"))]);
        assert_eq!(
            found[0].caches,
            [BytePath::from(home.join(".cargo/registry"))]
        );
        assert_eq!(
            found[0].environment[0].value,
            BytePath::from(home.join(".cargo"))
        );
        assert_eq!(found[3].read.len(), 2);
        std::fs::write(home.join(".cargo/config.toml"), "[source.x]\n").expect("written");
        let found = toolchains(&surroundings, true, &[home], Path::new("/w"));
        assert_eq!(found[0].read.len(), 2);
    }

    #[test]
    fn a_variable_names_the_place() {
        let place = tempfile::tempdir().expect("a directory");
        let top = place.path().join("elsewhere");
        std::fs::create_dir_all(top.join("toolchains")).expect("made");
        let surroundings = Surroundings::new([("RUSTUP_HOME", top.as_os_str())], "/");
        let found = toolchains(&surroundings, true, &[], Path::new("/w"));
        assert_eq!(found[0].read, [BytePath::from(top.as_path())]);
        assert!(toolchains(&surroundings, false, &[], Path::new("/w")).is_empty());
    }
}
