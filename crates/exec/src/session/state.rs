//! What one command of a shell session hands to the next: its directory, its mask and what it
//! exported.
//!
//! The shell writes it, as it leaves, to a nameless file of ours: a record between two marks that
//! nobody else knows. What is not a whole record is no state, and the last good one stays.

use cofferdam_core::bytes::BytePath;
use cofferdam_core::spec::Variable;

/// Most bytes that all exported variables may have: beyond that the kernel starts no program.
const ENVIRONMENT_BYTES: usize = 1024 * 1024;

/// Variables that belong to one shell and not to the session, or that would run something before the
/// next command.
const NOT_CARRIED: &[&[u8]] = &[
    b"PWD",
    b"OLDPWD",
    b"SHLVL",
    b"_",
    b"BASH_ENV",
    b"ENV",
    b"BASHOPTS",
    b"SHELLOPTS",
];

/// The state of a shell between two commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ShellState {
    /// Where it is.
    pub(super) directory: BytePath,
    /// Where it was before, for `cd -`.
    pub(super) previous_directory: Option<BytePath>,
    /// Its mask, as the shell writes it.
    pub(super) mask: Option<String>,
    /// What it exported; `None` before the first command: the enclosure's own environment.
    pub(super) exported: Option<Vec<Variable>>,
}

/// Why what a shell left is no state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoState {
    /// There is no whole record: the shell was replaced or ended, or had a trap of its own.
    Nothing,
    /// What it exported is more than the kernel gives to a program.
    TooLarge,
    /// The record is not understood.
    NotUnderstood,
}

impl NoState {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Nothing => {
                "the shell left without telling: it was ended or replaced, or the command has an EXIT trap of its own"
            }
            Self::TooLarge => {
                "what the command exported is more than the kernel gives to a program"
            }
            Self::NotUnderstood => "what the shell told is not understood",
        }
    }
}

impl ShellState {
    pub(super) const fn at(directory: BytePath) -> Self {
        Self {
            directory,
            previous_directory: None,
            mask: None,
            exported: None,
        }
    }

    /// Reads the last whole record of a file.
    pub(super) fn read(bytes: &[u8], mark: &str) -> Result<Self, NoState> {
        let end = [b"\0", mark.as_bytes(), b"\0"].concat();
        let begin = [mark.as_bytes(), b"\0"].concat();
        let body = bytes.strip_suffix(&*end).ok_or(NoState::Nothing)?;
        let start = body
            .windows(begin.len())
            .rposition(|window| window == begin)
            .ok_or(NoState::Nothing)?;
        let mut fields = body[start + begin.len()..].splitn(4, |byte| *byte == 0);
        let mut field = || fields.next().ok_or(NoState::NotUnderstood);
        let (directory, previous, mask, exported) = (field()?, field()?, field()?, field()?);
        if !directory.starts_with(b"/") {
            return Err(NoState::NotUnderstood);
        }
        let exported = exports(exported).ok_or(NoState::NotUnderstood)?;
        let sizes = exported
            .iter()
            .map(|one| one.name.as_bytes().len() + one.value.as_bytes().len() + 2);
        let largest = sizes.clone().max().unwrap_or_default();
        if sizes.sum::<usize>() > ENVIRONMENT_BYTES
            || largest >= cofferdam_core::limits::ARGUMENT_BYTES
        {
            return Err(NoState::TooLarge);
        }
        let mask = std::str::from_utf8(mask).map_err(|_| NoState::NotUnderstood)?;
        let mask = mask.trim();
        let is_mask = !mask.is_empty() && mask.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
        Ok(Self {
            directory: BytePath::from_bytes(directory),
            previous_directory: previous
                .starts_with(b"/")
                .then(|| BytePath::from_bytes(previous)),
            mask: is_mask.then(|| mask.to_owned()),
            exported: Some(exported),
        })
    }

    /// Takes back what was given to one command only, where the command left it as it was.
    pub(super) fn without(&mut self, given: &[Variable], before: &Self, place: &[Variable]) {
        let Some(exported) = &mut self.exported else {
            return;
        };
        for one in given {
            let Some(index) = exported.iter().position(|own| own == one) else {
                continue;
            };
            let earlier = before.exported.as_deref().unwrap_or(place);
            match earlier.iter().find(|own| own.name == one.name) {
                Some(earlier) => exported[index] = earlier.clone(),
                None => drop(exported.remove(index)),
            }
        }
    }

    /// Gives the whole environment of the next command.
    pub(super) fn environment(&self, place: &[Variable], given: &[Variable]) -> Vec<Variable> {
        let own = self.exported.as_deref().unwrap_or(place);
        let mut all: Vec<Variable> = own
            .iter()
            .filter(|one| !is_own_of_shell(one.name.as_bytes()))
            .cloned()
            .collect();
        let mut put = |name: &str, value: &BytePath| {
            all.push(Variable {
                name: name.into(),
                value: value.clone(),
            });
        };
        put("PWD", &self.directory);
        if let Some(previous) = &self.previous_directory {
            put("OLDPWD", previous);
        }
        for one in given {
            all.retain(|own| own.name != one.name);
            all.push(one.clone());
        }
        all
    }
}

fn is_own_of_shell(name: &[u8]) -> bool {
    NOT_CARRIED.contains(&name)
}

/// Reads what `export -p` writes: bash's `declare -x NAME="value"`, also with more attributes, and
/// the `export NAME='value'` of POSIX shells.
fn exports(mut text: &[u8]) -> Option<Vec<Variable>> {
    let mut found: Vec<Variable> = Vec::new();
    loop {
        while let Some(rest) = text.strip_prefix(b"\n") {
            text = rest;
        }
        if text.is_empty() {
            return Some(found);
        }
        let is_array;
        (text, is_array) = prefix(text)?;
        let length = text
            .iter()
            .position(|byte| matches!(byte, b'=' | b'\n'))
            .unwrap_or(text.len());
        let (name, rest) = text.split_at(length);
        text = rest;
        // Exported without a value: there is none in an environment.
        let Some(rest) = text.strip_prefix(b"=") else {
            continue;
        };
        let (value, rest) = word(rest)?;
        text = rest;
        if !is_array && !name.is_empty() && !is_own_of_shell(name) {
            found.push(Variable {
                name: BytePath::from_bytes(name),
                value: BytePath::from_bytes(value),
            });
        }
    }
}

/// Takes `export ` or `declare -…x… ` away; tells whether it is an array, which no environment holds.
fn prefix(text: &[u8]) -> Option<(&[u8], bool)> {
    if let Some(rest) = text.strip_prefix(b"export ") {
        return Some((rest, false));
    }
    let rest = text.strip_prefix(b"declare -")?;
    let end = rest.iter().position(|byte| *byte == b' ')?;
    let flags = &rest[..end];
    Some((
        &rest[end + 1..],
        flags.contains(&b'a') || flags.contains(&b'A'),
    ))
}

/// Reads one word as a shell quotes it, up to the end of the line.
fn word(mut text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut value = Vec::new();
    loop {
        match text {
            [] | [b'\n', ..] => return Some((value, text)),
            [b'\'', rest @ ..] => {
                let end = rest.iter().position(|byte| *byte == b'\'')?;
                value.extend_from_slice(&rest[..end]);
                text = &rest[end + 1..];
            }
            [b'"', rest @ ..] => text = double_quoted(rest, &mut value)?,
            [b'$', b'\'', rest @ ..] => text = ansi_quoted(rest, &mut value)?,
            [b'(', rest @ ..] => {
                // An array; its end is all that is looked for.
                text = rest;
                while !text.is_empty() && text[0] != b')' {
                    text = skip_in_array(text)?;
                }
                text = text.get(1..)?;
            }
            [b'\\', byte, rest @ ..] | [byte, rest @ ..] => {
                value.push(*byte);
                text = rest;
            }
        }
    }
}

/// Passes over one sign or one quoted text.
fn skip_in_array(text: &[u8]) -> Option<&[u8]> {
    let mut value = Vec::new();
    match text {
        [b'"', rest @ ..] => double_quoted(rest, &mut value),
        [b'$', b'\'', rest @ ..] => ansi_quoted(rest, &mut value),
        [_, rest @ ..] => Some(rest),
        [] => None,
    }
}

fn double_quoted<'t>(mut text: &'t [u8], value: &mut Vec<u8>) -> Option<&'t [u8]> {
    loop {
        match text {
            [] => return None,
            [b'"', rest @ ..] => return Some(rest),
            [b'\\', b'\n', rest @ ..] => text = rest,
            [b'\\', byte @ (b'$' | b'`' | b'"' | b'\\'), rest @ ..] | [byte, rest @ ..] => {
                value.push(*byte);
                text = rest;
            }
        }
    }
}

/// Reads the rest of `$'…'`, as bash writes values with control characters.
fn ansi_quoted<'t>(mut text: &'t [u8], value: &mut Vec<u8>) -> Option<&'t [u8]> {
    loop {
        match text {
            [] => return None,
            [b'\'', rest @ ..] => return Some(rest),
            [b'\\', byte @ b'0'..=b'7', rest @ ..] => {
                let mut number = u32::from(byte - b'0');
                text = rest;
                for _ in 0..2 {
                    if let [byte @ b'0'..=b'7', rest @ ..] = text {
                        number = number * 8 + u32::from(byte - b'0');
                        text = rest;
                    }
                }
                value.push(number as u8);
            }
            [b'\\', byte, rest @ ..] => {
                value.push(match byte {
                    b'a' => 7,
                    b'b' => 8,
                    b'e' | b'E' => 27,
                    b'f' => 12,
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'v' => 11,
                    b'\\' | b'\'' | b'"' | b'?' => *byte,
                    _ => return None,
                });
                text = rest;
            }
            [byte, rest @ ..] => {
                value.push(*byte);
                text = rest;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(text: &str) -> Vec<(String, String)> {
        exports(text.as_bytes())
            .expect("understood")
            .into_iter()
            .map(|one| (one.name.to_string(), one.value.to_text().into_owned()))
            .collect()
    }

    #[test]
    fn what_shells_write_is_read_back() {
        let bash = "declare -x A=\"x y\"\ndeclare -x B=$'a\\nb\\'c\\001\\303\\251'\ndeclare -rx C=\"q\\\"\\$\\`\\\\\"\ndeclare -x OLDPWD\ndeclare -x SHLVL=\"1\"\ndeclare -ax L=([0]=\"a b\" [1]=$'c\\n')\ndeclare -ix N=\"4\"\n";
        insta::assert_debug_snapshot!(variables(bash), @r#"
        [
            (
                "A",
                "x y",
            ),
            (
                "B",
                "a\nb'c\u{1}é",
            ),
            (
                "C",
                "q\"$`\\",
            ),
            (
                "N",
                "4",
            ),
        ]
        "#);
        let dash = "export A='x'\"'\"'y\nz'\nexport B\nexport C=''\n";
        assert_eq!(
            variables(dash),
            [
                ("A".to_owned(), "x'y\nz".to_owned()),
                ("C".to_owned(), String::new())
            ]
        );
    }

    #[test]
    fn only_a_whole_record_counts_and_the_last_one() {
        let record = |directory: &str, tail: &str| {
            format!("m1\0{directory}\0\x000022\n\0export A='1'\n\0{tail}")
        };
        let good = record("/a", "m1\0") + &record("/b", "m1\0");
        let state = ShellState::read(good.as_bytes(), "m1").expect("a state");
        assert_eq!(state.directory, BytePath::from("/b"));
        assert_eq!(state.mask.as_deref(), Some("0022"));
        for bad in [
            record("/a", ""),
            record("/a", "m2\0"),
            String::new(),
            record("/a", "m1\0") + "more",
        ] {
            assert_eq!(
                ShellState::read(bad.as_bytes(), "m1"),
                Err(NoState::Nothing)
            );
        }
        let relative = record("a", "m1\0");
        assert_eq!(
            ShellState::read(relative.as_bytes(), "m1"),
            Err(NoState::NotUnderstood)
        );
    }

    #[test]
    fn more_than_a_program_can_be_given_is_no_state() {
        let text = format!(
            "m\0/\0\x000022\n\0export A='{}'\n\0m\0",
            "x".repeat(200_000)
        );
        assert_eq!(
            ShellState::read(text.as_bytes(), "m"),
            Err(NoState::TooLarge)
        );
    }

    #[test]
    fn what_was_given_to_one_command_does_not_stay() {
        let variable = |name: &str, value: &str| Variable {
            name: name.into(),
            value: value.into(),
        };
        let place = [variable("A", "place")];
        let before = ShellState::at("/".into());
        let given = [
            variable("A", "given"),
            variable("B", "given"),
            variable("C", "given"),
        ];
        let mut state = ShellState {
            exported: Some(vec![
                variable("A", "given"),
                variable("B", "given"),
                variable("C", "changed"),
            ]),
            ..before.clone()
        };
        state.without(&given, &before, &place);
        assert_eq!(
            state.exported.as_deref(),
            Some(&[variable("A", "place"), variable("C", "changed")][..])
        );
    }
}
