//! A change of a text file as a diff for people.

use cofferdam_core::plan::looks_secret;
use similar::TextDiff;

use super::keys::MASKED;

/// Characters of a diff that are kept.
const CHARACTERS: usize = 64 * 1024;
/// Lines around a change.
const CONTEXT: usize = 2;

/// Gives the difference between two contents; empty where one of them is no text.
pub(super) fn diff(before: Option<&[u8]>, after: Option<&[u8]>) -> String {
    let text = |bytes: Option<&[u8]>| {
        let text = std::str::from_utf8(bytes.unwrap_or_default()).ok()?;
        (!text.contains('\0')).then(|| masked(text))
    };
    let (Some(before), Some(after)) = (text(before), text(after)) else {
        return String::new();
    };
    let diff = TextDiff::from_lines(&before, &after);
    let mut text = diff.unified_diff().context_radius(CONTEXT).to_string();
    if text.len() > CHARACTERS {
        let mut end = CHARACTERS;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push_str("\n… more was changed\n");
    }
    text
}

/// Masks the values of keys that look like secrets, line by line.
fn masked(text: &str) -> String {
    text.split_inclusive('\n')
        .map(|line| match line.find([':', '=']) {
            Some(cut) if has_secret_key(&line[..cut]) => {
                let (key, rest) = line.split_at(cut + 1);
                let end = if rest.ends_with('\n') { "\n" } else { "" };
                // A word that only opens something says nothing that could be one.
                if matches!(rest.trim(), "" | "{" | "[" | "true" | "false" | "null") {
                    line.to_owned()
                } else {
                    format!("{key} {MASKED}{end}")
                }
            }
            _ => line.to_owned(),
        })
        .collect()
}

fn has_secret_key(text: &str) -> bool {
    text.split(|one: char| !(one.is_ascii_alphanumeric() || one == '_' || one == '-'))
        .filter(|word| !word.is_empty())
        .any(|word| looks_secret(&word.replace('-', "_")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diff_shows_what_is_new_and_no_secret() {
        let before = b"{\n  \"model\": \"a\"\n}\n".as_slice();
        let after =
            b"{\n  \"model\": \"a\",\n  \"env\": {\n    \"API_KEY\": \"abc\"\n  }\n}\n".as_slice();
        let text = diff(Some(before), Some(after));
        assert!(text.contains("+    \"API_KEY\": ***\n"), "{text}");
        assert!(!text.contains("abc"), "{text}");
        assert!(text.contains("+  \"env\": {"), "{text}");
    }

    #[test]
    fn what_is_no_text_has_no_diff() {
        assert_eq!(diff(None, Some(b"\xff\0")), "");
    }
}
