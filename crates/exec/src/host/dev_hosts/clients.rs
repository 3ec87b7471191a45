//! What package clients are configured to use, by their files and variables.

use std::path::{Path, PathBuf};

use super::address::{Address, bare, urls};
use super::{Findings, Look};
use crate::host::files::read_small;

/// Most bytes of one file that are read.
const MOST_BYTES: u64 = 1 << 20;

/// Where one person's clients are configured.
struct Scene<'a> {
    look: &'a Look<'a>,
    home: PathBuf,
    config: PathBuf,
}

impl Scene<'_> {
    /// Gives a variable of the caller, where it speaks for the owner.
    fn variable(&self, name: &str) -> Option<String> {
        let found = self
            .look
            .surroundings
            .get(name)
            .filter(|_| self.look.is_own)?;
        found.to_str().map(str::to_owned)
    }

    fn path(&self, name: &str) -> Option<PathBuf> {
        self.variable(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute() && !path.starts_with(self.look.root))
    }

    fn read(&self, path: &Path) -> Option<String> {
        // A file in the workspace is no configuration of the machine, wherever a variable points.
        let real = path.canonicalize().ok()?;
        if real.starts_with(self.look.root) {
            return None;
        }
        let text = read_small(&real, MOST_BYTES)?;
        Some(String::from_utf8_lossy(&text).into_owned())
    }

    /// Names a file for people.
    fn shown(&self, path: &Path) -> String {
        match path.strip_prefix(&self.home) {
            Ok(rest) => format!("~/{}", rest.display()),
            Err(_) => path.display().to_string(),
        }
    }
}

pub(super) fn look(look: &Look<'_>, findings: &mut Findings) {
    let home = look.owner.home.as_path().to_owned();
    let config = look
        .surroundings
        .path("XDG_CONFIG_HOME")
        .filter(|_| look.is_own)
        .map_or_else(|| home.join(".config"), Path::to_owned);
    let scene = Scene { look, home, config };
    npm(&scene, findings);
    pip(&scene, findings);
    uv(&scene, findings);
    cargo(&scene, findings);
    go(&scene, findings);
    java(&scene, findings);
}

fn npm(scene: &Scene<'_>, findings: &mut Findings) {
    for name in [
        "npm_config_registry",
        "NPM_CONFIG_REGISTRY",
        "YARN_REGISTRY",
    ] {
        if let Some(value) = scene.variable(name)
            && findings.note(&value, &format!("npm: {name}"))
        {
            findings.set(name, &bare(&value));
        }
    }
    let user = scene
        .path("NPM_CONFIG_USERCONFIG")
        .unwrap_or_else(|| scene.home.join(".npmrc"));
    for (path, is_hidden) in [
        (user, true),
        (PathBuf::from("/etc/npmrc"), false),
        (PathBuf::from("/usr/local/etc/npmrc"), false),
    ] {
        let Some(text) = scene.read(&path) else {
            continue;
        };
        let origin = format!("npm: {}", scene.shown(&path));
        for line in text.lines() {
            let Some((key, value)) = line.split_once('=') else {
                continue;
            };
            let (key, value) = (key.trim(), value.trim());
            let is_registry = key == "registry" || key.ends_with(":registry");
            if is_registry && findings.note(value, &origin) && is_hidden {
                findings.set(&format!("npm_config_{key}"), &bare(value));
            }
        }
    }
    for name in [".yarnrc.yml", ".yarnrc"] {
        let path = scene.home.join(name);
        note_urls(scene, &path, "yarn", findings, |line| {
            line.contains("egistry")
        });
    }
}

fn note_urls(
    scene: &Scene<'_>,
    path: &Path,
    client: &str,
    findings: &mut Findings,
    wanted: impl Fn(&str) -> bool,
) {
    let Some(text) = scene.read(path) else { return };
    let origin = format!("{client}: {}", scene.shown(path));
    for line in text.lines().filter(|line| wanted(line)) {
        for url in urls(line) {
            findings.note(url, &origin);
        }
    }
}

fn pip(scene: &Scene<'_>, findings: &mut Findings) {
    for name in ["PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS"] {
        if let Some(value) = scene.variable(name) {
            let all: Vec<String> = value.split_whitespace().map(bare).collect();
            let mut is_known = false;
            for url in &all {
                is_known |= findings.note(url, &format!("pip: {name}"));
            }
            if is_known {
                findings.set(name, &all.join(" "));
            }
        }
    }
    for (path, is_hidden) in [
        (scene.path("PIP_CONFIG_FILE").unwrap_or_default(), true),
        (scene.config.join("pip/pip.conf"), true),
        (scene.home.join(".pip/pip.conf"), true),
        (PathBuf::from("/etc/pip.conf"), false),
        (PathBuf::from("/etc/xdg/pip/pip.conf"), false),
    ] {
        let Some(text) = scene.read(&path) else {
            continue;
        };
        let origin = format!("pip: {}", scene.shown(&path));
        for (key, values) in ini(&text) {
            let variable = match key.as_str() {
                "index-url" | "index_url" => "PIP_INDEX_URL",
                "extra-index-url" | "extra_index_url" => "PIP_EXTRA_INDEX_URL",
                "find-links" | "find_links" => "PIP_FIND_LINKS",
                _ => continue,
            };
            let known = values.iter().filter(|url| findings.note(url, &origin));
            let known: Vec<String> = known.map(|url| bare(url)).collect();
            if is_hidden && !known.is_empty() {
                findings.set(variable, &known.join(" "));
            }
        }
    }
}

/// Reads keys and values of an INI file; a value may go on in indented lines.
fn ini(text: &str) -> Vec<(String, Vec<String>)> {
    let mut found: Vec<(String, Vec<String>)> = Vec::new();
    for line in text.lines() {
        let is_more = line.starts_with([' ', '\t']);
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';', '[']) {
            continue;
        }
        let words = |value: &str| value.split_whitespace().map(str::to_owned).collect();
        match (is_more, line.split_once('=')) {
            (false, Some((key, value))) => {
                found.push((key.trim().to_ascii_lowercase(), words(value)));
            }
            (true, _) => {
                if let Some((_, values)) = found.last_mut() {
                    values.extend::<Vec<String>>(words(line));
                }
            }
            (false, None) => {}
        }
    }
    found
}

fn uv(scene: &Scene<'_>, findings: &mut Findings) {
    for name in [
        "UV_DEFAULT_INDEX",
        "UV_INDEX",
        "UV_INDEX_URL",
        "UV_EXTRA_INDEX_URL",
    ] {
        let Some(value) = scene.variable(name) else {
            continue;
        };
        let mut known = false;
        let mut all = Vec::new();
        for word in value.split_whitespace() {
            // `name=https://…`
            let (label, url) = match word.split_once('=') {
                Some((label, url)) if !label.contains("://") => (format!("{label}="), url),
                _ => (String::new(), word),
            };
            known |= findings.note(url, &format!("uv: {name}"));
            all.push(format!("{label}{}", bare(url)));
        }
        if known {
            findings.set(name, &all.join(" "));
        }
    }
    for path in [
        scene.config.join("uv/uv.toml"),
        PathBuf::from("/etc/uv/uv.toml"),
    ] {
        note_urls(scene, &path, "uv", findings, |line| {
            line.contains("url") || line.contains("index")
        });
        let Some(text) = scene.read(&path) else {
            continue;
        };
        let urls: Vec<String> = text
            .lines()
            .filter(|line| line.trim_start().starts_with("url"))
            .flat_map(urls)
            .map(bare)
            .collect();
        if path.starts_with(&scene.config) && !urls.is_empty() {
            let is_default = text.lines().any(|line| {
                let line: String = line.split_whitespace().collect();
                line == "default=true"
            });
            let name = if is_default && urls.len() == 1 {
                "UV_DEFAULT_INDEX"
            } else {
                "UV_INDEX"
            };
            findings.set(name, &urls.join(" "));
        }
    }
}

fn cargo_home(scene: &Scene<'_>) -> PathBuf {
    scene
        .path("CARGO_HOME")
        .unwrap_or_else(|| scene.home.join(".cargo"))
}

fn cargo(scene: &Scene<'_>, findings: &mut Findings) {
    if scene.look.is_own {
        for (name, value) in scene.look.surroundings.variables() {
            let (Some(name), Some(value)) = (name.to_str(), value.to_str()) else {
                continue;
            };
            let is_address = (name.starts_with("CARGO_REGISTRIES_") && name.ends_with("_INDEX"))
                || (name.starts_with("CARGO_SOURCE_") && name.ends_with("_REGISTRY"));
            if is_address && findings.note(value, &format!("cargo: {name}")) {
                findings.set(name, &bare(value));
            }
        }
    }
    let home = cargo_home(scene);
    for name in ["config.toml", "config"] {
        note_urls(scene, &home.join(name), "cargo", findings, |line| {
            let key = line.split('=').next().unwrap_or_default();
            ["registry", "index", "git"]
                .iter()
                .any(|one| key.contains(one))
        });
    }
    cargo_indexes(scene.look, &home, findings);
}

/// Takes what the indexes themselves say about where crates are loaded from: cargo keeps it of each
/// index that it has used.
pub(super) fn cargo_indexes(look: &Look<'_>, home: &Path, findings: &mut Findings) -> bool {
    let mut any = false;
    let Ok(entries) = std::fs::read_dir(home.join("registry/index")) else {
        return false;
    };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = entry.path().join("config.json");
        if path.starts_with(look.root) {
            continue;
        }
        let Some(text) = read_small(&path, MOST_BYTES) else {
            continue;
        };
        let Ok(config) = serde_json::from_slice::<serde_json::Value>(&text) else {
            continue;
        };
        let origin = format!("cargo: index {name}");
        // The directory is called by the host of the index and a hash.
        if let Some((host, _)) = name.rsplit_once('-')
            && let Some(address) = Address::by_https(host)
        {
            findings.note_host(&address, &origin);
        }
        for key in ["dl", "api"] {
            if let Some(url) = config.get(key).and_then(serde_json::Value::as_str) {
                any |= findings.note(url, &origin);
            }
        }
    }
    any
}

fn go(scene: &Scene<'_>, findings: &mut Findings) {
    let file = scene
        .path("GOENV")
        .unwrap_or_else(|| scene.config.join("go/env"));
    let text = scene.read(&file).unwrap_or_default();
    for name in ["GOPROXY", "GOSUMDB"] {
        let in_file = || {
            text.lines()
                .filter_map(|line| line.trim().split_once('='))
                .find(|(key, _)| *key == name)
                .map(|(_, value)| (value.to_owned(), format!("go: {}", scene.shown(&file))))
        };
        let found = scene
            .variable(name)
            .map(|value| (value, format!("go: {name}")))
            .or_else(in_file);
        if let Some((value, origin)) = found {
            go_setting(name, &value, &origin, findings);
            let pieces: Vec<String> = value.split(',').map(bare).collect();
            findings.set(name, &pieces.join(","));
        }
    }
}

/// Notes the hosts of a list of proxies, or of a checksum database by its name.
pub(super) fn go_setting(name: &str, value: &str, origin: &str, findings: &mut Findings) {
    for piece in value.split([',', '|', ' ', '+']) {
        if piece.contains("://") {
            findings.note(piece, origin);
        } else if name == "GOSUMDB"
            && piece.contains('.')
            && let Some(address) = Address::by_https(piece)
        {
            findings.note_host(&address, origin);
        }
    }
}

fn java(scene: &Scene<'_>, findings: &mut Findings) {
    for path in [
        scene.home.join(".m2/settings.xml"),
        PathBuf::from("/etc/maven/settings.xml"),
    ] {
        let Some(text) = scene.read(&path) else {
            continue;
        };
        let origin = format!("maven: {}", scene.shown(&path));
        let text = without_comments(&text);
        for piece in text.split("<url>").skip(1) {
            if let Some((url, _)) = piece.split_once("</url>") {
                findings.note(url, &origin);
            }
        }
    }
    let gradle = scene
        .path("GRADLE_USER_HOME")
        .unwrap_or_else(|| scene.home.join(".gradle"));
    let mut scripts = vec![gradle.join("init.gradle"), gradle.join("init.gradle.kts")];
    let more = std::fs::read_dir(gradle.join("init.d"))
        .into_iter()
        .flatten();
    scripts.extend(more.flatten().map(|entry| entry.path()));
    for script in scripts {
        note_urls(scene, &script, "gradle", findings, |line| {
            !line.trim_start().starts_with("//")
        });
    }
}

fn without_comments(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("<!--") {
        kept.push_str(before);
        rest = after.split_once("-->").map_or("", |(_, after)| after);
    }
    kept.push_str(rest);
    kept
}
