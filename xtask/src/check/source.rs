//! Rust source seen without its comments and literals, so that a rule about code reads code only.

/// Blanks comments, strings and character literals with spaces; lines stay where they are.
pub(super) fn code_only(text: &str) -> String {
    let mut scanner = Scanner {
        rest: text,
        out: String::with_capacity(text.len()),
    };
    while let Some(next) = scanner.rest.chars().next() {
        scanner.step(next);
    }
    scanner.out
}

struct Scanner<'a> {
    rest: &'a str,
    out: String,
}

impl Scanner<'_> {
    fn step(&mut self, next: char) {
        let rest = self.rest;
        if rest.starts_with("//") {
            self.blank(rest.find('\n').unwrap_or(rest.len()));
        } else if rest.starts_with("/*") {
            self.blank(block_comment(rest));
        } else if let Some(length) = self.at_word_start().then(|| raw_string(rest)).flatten() {
            self.blank(length);
        } else if next == '"' {
            self.blank(string(rest));
        } else if next == '\'' {
            match character(rest) {
                Some(length) => self.blank(length),
                None => self.keep(next),
            }
        } else {
            self.keep(next);
        }
    }

    fn at_word_start(&self) -> bool {
        !self
            .out
            .ends_with(|last: char| last.is_alphanumeric() || last == '_')
    }

    fn keep(&mut self, next: char) {
        self.out.push(next);
        self.rest = &self.rest[next.len_utf8()..];
    }

    fn blank(&mut self, length: usize) {
        let (gone, rest) = self.rest.split_at(length);
        self.out
            .extend(gone.chars().map(|one| if one == '\n' { '\n' } else { ' ' }));
        self.rest = rest;
    }
}

/// Length of the block comment that `text` begins with; they nest.
fn block_comment(text: &str) -> usize {
    let bytes = text.as_bytes();
    let (mut at, mut depth) = (0, 0_usize);
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if bytes[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    text.len()
}

/// Length of the raw string (`r"…"`, `r#"…"#`, `br"…"`, `cr"…"`) that `text` begins with.
fn raw_string(text: &str) -> Option<usize> {
    let after = text
        .strip_prefix('b')
        .or_else(|| text.strip_prefix('c'))
        .unwrap_or(text);
    let after = after.strip_prefix('r')?;
    let fence = after.len() - after.trim_start_matches('#').len();
    let body = after[fence..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(fence));
    let body_length = body.find(&end).map_or(body.len(), |at| at + end.len());
    Some(text.len() - body.len() + body_length)
}

/// Length of the string literal that `text` begins with.
fn string(text: &str) -> usize {
    let mut escaped = false;
    for (at, next) in text.char_indices().skip(1) {
        match next {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Length of the character literal that `text` begins with; nothing for a lifetime.
fn character(text: &str) -> Option<usize> {
    let mut chars = text.char_indices().skip(1);
    let (_, first) = chars.next()?;
    if first == '\\' {
        chars.next()?;
        return text[2..]
            .char_indices()
            .skip(1)
            .find(|(_, c)| *c == '\'')
            .map(|(at, _)| at + 3);
    }
    match chars.next()? {
        (at, '\'') => Some(at + 1),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked_and_lines_kept() {
        let text =
            "a // unsafe {\nb /* x /* y */ unsafe */ c\n\"unsafe { \\\" \" d r#\"un\"safe\"# e\n";
        let code = code_only(text);
        assert!(!code.contains("unsafe"), "{code}");
        assert_eq!(code.matches('\n').count(), 3);
        for kept in ["a", "b", "c", "d", "e"] {
            assert!(code.contains(kept), "{kept} in {code}");
        }
    }

    #[test]
    fn lifetimes_stay_and_characters_go() {
        let code = code_only("fn f<'a>(x: &'a str) { g('\"', '\\'', '\\u{41}', b'x'); unsafe {} }");
        assert!(code.contains("<'a>"), "{code}");
        assert!(code.contains("unsafe {}"), "{code}");
        assert!(!code.contains('"'), "{code}");
    }

    #[test]
    fn names_that_end_in_r_are_no_raw_strings() {
        assert!(code_only("writer\"x\"; for y in z {}").contains("for y in z"));
    }
}
