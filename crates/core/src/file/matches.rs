//! Lines of one text that hold what is looked for, with the lines around them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is looked for and how much of it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchOptions {
    /// Plain text, never a pattern; must not be empty.
    pub query: String,
    /// Whether capital letters are told from small ones.
    pub is_case_sensitive: bool,
    /// Most matching lines that are shown.
    pub most_matches: usize,
    /// Lines shown before each.
    pub context_before: usize,
    /// Lines shown after each.
    pub context_after: usize,
}

/// One line of a block.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MatchedLine {
    /// Its number, from 1.
    pub line: u64,
    /// Its text without the end of the line; bytes that are no UTF-8 are replaced.
    pub text: String,
    /// Whether it holds what was looked for; else it stands around such a line.
    pub is_match: bool,
}

/// Neighbouring lines: matches whose surroundings touch are one block.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MatchBlock {
    /// First line, from 1.
    pub start_line: u64,
    /// Last line.
    pub end_line: u64,
    /// All its lines.
    pub lines: Vec<MatchedLine>,
}

/// What a search of one text found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Searched {
    /// Blocks in their order.
    pub blocks: Vec<MatchBlock>,
    /// How many lines match in all, shown or not.
    pub matching_lines: u64,
}

/// Looks through a text.
pub fn search(bytes: &[u8], options: &SearchOptions) -> Searched {
    let wanted = Needle::new(&options.query, options.is_case_sensitive);
    let lines: Vec<&[u8]> = split_lines(bytes);
    let matching: Vec<bool> = lines.iter().map(|line| wanted.is_in(line)).collect();
    let all = || (0..lines.len()).filter(|index| matching[*index]);
    let hits: Vec<usize> = all().take(options.most_matches).collect();
    let mut blocks: Vec<MatchBlock> = Vec::new();
    // The next line that is in no block yet.
    let mut next = 0;
    for (position, hit) in hits.iter().copied().enumerate() {
        let first = hit.saturating_sub(options.context_before).max(next);
        let bound = hits.get(position + 1).copied().unwrap_or(lines.len());
        let last = (hit + options.context_after).min(lines.len() - 1);
        // What lies from the next match on comes with that one.
        let last = last.min(bound.saturating_sub(1)).max(hit);
        let shown = (first..=last).map(|index| MatchedLine {
            line: index as u64 + 1,
            text: String::from_utf8_lossy(lines[index]).into_owned(),
            is_match: matching[index],
        });
        match blocks.last_mut() {
            Some(block) if block.end_line == first as u64 => {
                block.lines.extend(shown);
                block.end_line = last as u64 + 1;
            }
            _ => blocks.push(MatchBlock {
                start_line: first as u64 + 1,
                end_line: last as u64 + 1,
                lines: shown.collect(),
            }),
        }
        next = last + 1;
    }
    Searched {
        blocks,
        matching_lines: all().count() as u64,
    }
}

/// Splits at line feeds; the end of a line, also one of two bytes, belongs to none.
fn split_lines(bytes: &[u8]) -> Vec<&[u8]> {
    let mut lines: Vec<&[u8]> = bytes
        .split(|byte| *byte == b'\n')
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
        .collect();
    if bytes.last().is_none_or(|last| *last == b'\n') {
        lines.pop();
    }
    lines
}

/// Plain text to be found in lines.
struct Needle {
    text: String,
    is_case_sensitive: bool,
}

impl Needle {
    fn new(query: &str, is_case_sensitive: bool) -> Self {
        let text = if is_case_sensitive {
            query.to_owned()
        } else {
            query.to_lowercase()
        };
        Self {
            text,
            is_case_sensitive,
        }
    }

    fn is_in(&self, line: &[u8]) -> bool {
        let text = String::from_utf8_lossy(line);
        if self.is_case_sensitive {
            text.contains(&self.text)
        } else {
            text.to_lowercase().contains(&self.text)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str, query: &str, most: usize, before: usize, after: usize) -> Vec<String> {
        let options = SearchOptions {
            query: query.to_owned(),
            is_case_sensitive: false,
            most_matches: most,
            context_before: before,
            context_after: after,
        };
        let searched = search(text.as_bytes(), &options);
        let mut told: Vec<String> = searched
            .blocks
            .iter()
            .map(|block| {
                let lines = block.lines.iter().map(|line| {
                    let mark = if line.is_match { '*' } else { ' ' };
                    format!("{}{mark}{}", line.line, line.text)
                });
                let lines: Vec<String> = lines.collect();
                format!(
                    "{}-{}: {}",
                    block.start_line,
                    block.end_line,
                    lines.join("|")
                )
            })
            .collect();
        told.push(format!("of {}", searched.matching_lines));
        told
    }

    #[test]
    fn row_29_neighbouring_matches_merge() {
        let text = "a\nX1\nb\nX2\nc\nd\ne\nf\nX3\r\n";
        assert_eq!(
            found(text, "x", 9, 1, 1),
            ["1-5: 1 a|2*X1|3 b|4*X2|5 c", "8-9: 8 f|9*X3", "of 3"]
        );
        assert_eq!(found(text, "x", 1, 0, 0), ["2-2: 2*X1", "of 3"]);
        assert_eq!(found(text, "nothing", 9, 1, 1), ["of 0"]);
        assert_eq!(found("", "x", 9, 1, 1), ["of 0"]);
        assert_eq!(found("x\nx\n", "x", 9, 5, 5), ["1-2: 1*x|2*x", "of 2"]);
    }

    #[test]
    fn a_match_beyond_the_limit_is_still_told_as_one_where_it_is_shown() {
        assert_eq!(
            found("x1\nx2\ny\n", "x", 1, 0, 1),
            ["1-2: 1*x1|2*x2", "of 2"]
        );
    }
}
