//! Secret values that are known from files with credentials, so that they are seen elsewhere.

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use cofferdam_core::mask::Masker;
use cofferdam_core::plan::looks_secret;
use serde_json::Value;

use super::document::{Document, Format};
use super::files::{open_beneath, open_in};
use super::record::HomeRecord;
use super::rules::Rules;
use super::write::read_whole;

/// Bytes of a file that is looked into.
const BYTES: u64 = 4 << 20;
/// Characters of a value from which on it is taken for a secret: `true` and `oauth` stand everywhere.
const SHORTEST: usize = 8;

/// Collects the values of keys that look secret, in files with credentials: the real ones and those of
/// the private home, which may have been renewed.
pub(super) fn known(record: &HomeRecord, rules: &Rules<'_>, home: &OwnedFd) -> Masker {
    let mut values = Vec::new();
    for path in record
        .seeded
        .keys()
        .map(cofferdam_core::bytes::BytePath::as_path)
    {
        if !rules.is_secret(path) {
            continue;
        }
        let (top, below) = record.host(path);
        let real = open_in(&top, &below).ok().flatten();
        let inside = open_beneath(home.as_fd(), path).ok();
        for (file, _) in real.into_iter().chain(inside) {
            if let Ok(Some(bytes)) = read_whole(&file, BYTES) {
                take(path, &bytes, &mut values);
            }
        }
    }
    values.sort();
    values.dedup();
    Masker::new(values)
}

/// Tells whether a file of settings holds a value whose key looks secret.
pub(super) fn has_any(path: &Path) -> bool {
    let mut values = Vec::new();
    if let Ok(bytes) = std::fs::read(path) {
        take(path, &bytes, &mut values);
    }
    !values.is_empty()
}

fn take(path: &Path, bytes: &[u8], values: &mut Vec<String>) {
    match Document::read(Format::of(path), bytes) {
        Some(document) => leaves(&document.value(), false, values),
        None => {
            for line in String::from_utf8_lossy(bytes).lines() {
                if let Some((name, value)) = line.split_once('=')
                    && looks_secret(name.trim_start_matches("export ").trim())
                {
                    keep(value.trim().trim_matches(['"', '\'']), values);
                }
            }
        }
    }
}

fn leaves(value: &Value, secret: bool, values: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                leaves(value, looks_secret(&words(name)), values);
            }
        }
        Value::Array(list) => list.iter().for_each(|one| leaves(one, secret, values)),
        Value::String(text) if secret => keep(text, values),
        _ => {}
    }
}

/// Writes a name of either style with `_` between its words: `accessToken` as `access_Token`.
fn words(name: &str) -> String {
    let mut words = String::with_capacity(name.len() + 4);
    let mut was_small = false;
    for one in name.chars() {
        if one.is_ascii_uppercase() && was_small {
            words.push('_');
        }
        was_small = one.is_ascii_lowercase();
        words.push(if one == '-' { '_' } else { one });
    }
    words
}

fn keep(value: &str, values: &mut Vec<String>) {
    if value.chars().count() >= SHORTEST {
        values.push(value.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(path: &str, text: &str) -> Vec<String> {
        let mut values = Vec::new();
        take(Path::new(path), text.as_bytes(), &mut values);
        values
    }

    #[test]
    fn values_of_secret_keys_are_found_whatever_the_form() {
        let json = r#"{"oauth": {"accessToken": "abcdefgh-1", "kind": "longer than eight"}, "API_KEY": "k"}"#;
        assert_eq!(of("a.json", json), ["abcdefgh-1"]);
        assert_eq!(of("a.toml", "[x]\napi_key = \"12345678\"\n"), ["12345678"]);
        let env = "# mine\nexport GEMINI_API_KEY='secret-value'\nNAME=something-long\n";
        assert_eq!(of(".env", env), ["secret-value"]);
    }
}
