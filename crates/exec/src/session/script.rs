//! How a script reaches a shell: word for word through a descriptor, never through its arguments,
//! its standard input or a terminal.
//!
//! Each command of a shell session is a shell of its own. A few lines of ours around the script make
//! it write, as it leaves, what the next one begins with (see [`super::state`]).

use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::os::fd::OwnedFd;

use cofferdam_core::bytes::BytePath;
use rustix::fs::{MemfdFlags, memfd_create};

/// The numbers that script and state get: high, where scripts that count on descriptors do not look.
const SCRIPT: i32 = 87;
const STATE: i32 = 88;

/// What an exported state may be, in bytes; more is not read.
const STATE_BYTES: u64 = 4 * 1024 * 1024;

/// A script on its way to a shell.
#[derive(Debug)]
pub(super) struct Shipment {
    /// The shell and its arguments.
    pub(super) argv: Vec<BytePath>,
    /// What it is given, each with its number.
    pub(super) descriptors: Vec<(OwnedFd, i32)>,
    state: Option<(File, String)>,
}

/// What is said of a state that was written, see [`super::state::ShellState::read`].
#[derive(Debug)]
pub(super) struct Told {
    pub(super) bytes: Vec<u8>,
    pub(super) mark: String,
}

impl Shipment {
    /// Packs a script. With a mark the shell tells its state as it leaves, and begins with a mask.
    pub(super) fn pack(
        shell: &BytePath,
        script: &str,
        told: Option<(String, Option<&str>)>,
    ) -> std::io::Result<Self> {
        let mut descriptors = vec![(memory("script", script.as_bytes())?, SCRIPT)];
        let is_bash = shell.file_name() == b"bash";
        let mut text = String::new();
        let mut state = None;
        if let Some((mark, mask)) = told {
            let file = memory("state", b"")?;
            state = Some((File::from(file.try_clone()?), mark.clone()));
            descriptors.push((file, STATE));
            // A shell of POSIX knows descriptors of one digit only in redirections.
            let to = if is_bash {
                format!(">&{STATE}")
            } else {
                format!(">>/proc/self/fd/{STATE}")
            };
            if let Some(mask) = mask {
                text = format!("umask {mask}; ");
            }
            let tell = format!(
                "__cofferdam_tell() {{ {{ set +xveuf; }} 2>/dev/null; {{ printf '%s\\0' {mark} \"$PWD\" \
                 \"${{OLDPWD-}}\"; umask; printf '\\0'; export -p; printf '\\0%s\\0' {mark}; }} \
                 2>/dev/null {to}; }}; trap '{{ __cofferdam_tell; }} 2>/dev/null' EXIT; "
            );
            text.push_str(&tell);
        }
        // On one line, so that the script's own lines keep their numbers.
        let read = if is_bash {
            format!("mapfile -d '' -u {SCRIPT}; exec {SCRIPT}<&-; eval -- \"${{MAPFILE-}}\"")
        } else {
            format!(". /proc/self/fd/{SCRIPT}")
        };
        text.push_str(&read);
        if state.is_some() {
            // The trap may be the script's own by now.
            text.push_str("; { set -- \"$?\"; __cofferdam_tell; } 2>/dev/null; exit \"$1\"");
        }
        let name = BytePath::from_bytes(shell.file_name());
        Ok(Self {
            argv: vec![shell.clone(), "-c".into(), text.as_str().into(), name],
            descriptors,
            state,
        })
    }

    /// Packs a script that is only looked at: the shell reads it to its end and runs nothing.
    pub(super) fn pack_for_check(shell: &BytePath, script: &str) -> std::io::Result<Self> {
        let file = format!("/proc/self/fd/{SCRIPT}");
        Ok(Self {
            argv: vec![shell.clone(), "-n".into(), file.as_str().into()],
            descriptors: vec![(memory("script", script.as_bytes())?, SCRIPT)],
            state: None,
        })
    }

    /// Takes the descriptors out, for the start.
    pub(super) fn take_descriptors(&mut self) -> Vec<(OwnedFd, i32)> {
        std::mem::take(&mut self.descriptors)
    }

    /// Reads what the shell told.
    pub(super) fn told(self) -> Option<Told> {
        let (mut file, mark) = self.state?;
        let mut bytes = Vec::new();
        file.rewind().ok()?;
        file.take(STATE_BYTES).read_to_end(&mut bytes).ok()?;
        Some(Told { bytes, mark })
    }
}

/// Puts bytes into a nameless file, read from its beginning.
fn memory(name: &str, bytes: &[u8]) -> std::io::Result<OwnedFd> {
    let mut file = File::from(memfd_create(name, MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file.into())
}

/// Tells whether a script is certainly whole: no quote, bracket, here-document or list is left open.
/// Most commands are, and need no shell to look at them first.
pub(super) fn is_surely_whole(script: &str) -> bool {
    let mut bytes = script.bytes().peekable();
    let mut word = Vec::new();
    let mut last = 0;
    while let Some(byte) = bytes.next() {
        match byte {
            b'\'' => {
                let is_closed = bytes.by_ref().any(|byte| byte == b'\'');
                if !is_closed {
                    return false;
                }
            }
            b'"' => loop {
                match bytes.next() {
                    None | Some(b'`') => return false,
                    Some(b'"') => break,
                    Some(b'\\') => drop(bytes.next()),
                    Some(b'$') if matches!(bytes.peek(), Some(b'(' | b'{')) => return false,
                    Some(_) => {}
                }
            },
            b'\\' => {
                let goes_on = bytes.next().is_some();
                if !goes_on {
                    return false;
                }
            }
            b'<' if bytes.peek() == Some(&b'<') => return false,
            b'(' | b')' | b'{' | b'}' | b'`' | b'[' => return false,
            _ => {}
        }
        if byte.is_ascii_alphanumeric() {
            word.push(byte);
        } else {
            if is_keyword(&word) {
                return false;
            }
            word.clear();
        }
        if !byte.is_ascii_whitespace() {
            last = byte;
        }
    }
    !is_keyword(&word) && !matches!(last, b'|' | b'&')
}

fn is_keyword(word: &[u8]) -> bool {
    matches!(
        word,
        b"if" | b"while" | b"until" | b"for" | b"case" | b"select" | b"function" | b"do" | b"then"
    )
}

/// Reads what a shell said about a script that it only read: the sentence by which it is unfinished.
pub(super) fn unfinished(code: Option<i32>, said: &str) -> Option<String> {
    let signs = [
        "unexpected EOF",
        "unexpected end of file",
        "end of file unexpected",
        "Unterminated quoted string",
        "EOF in backquote substitution",
        "Missing '}'",
        "unterminated",
    ];
    let line = said.lines().find(|line| {
        (code != Some(0) && signs.iter().any(|sign| line.contains(sign)))
            || (line.contains("here-document") && line.contains("delimited by end-of-file"))
    })?;
    // What stands before is the name of our descriptor.
    let line = line.split_once("line ").map_or(line, |(_, rest)| rest);
    Some(format!("line {line}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_commands_need_no_second_look() {
        for whole in [
            "",
            "echo hi",
            "cd /tmp; export A=\"x y\"; echo 'it is'",
            "make test && echo ok | tail -1\n",
            "sleep 1 > /dev/null; exit 3",
            "echo \"$HOME\" \\\n  more",
        ] {
            assert!(is_surely_whole(whole), "{whole:?}");
        }
        for open in [
            "cat <<EOF\nabc",
            "echo 'abc",
            "echo \"abc",
            "echo \"$(",
            "if true",
            "for i in 1 2",
            "f() {",
            "echo $((1",
            "echo a &&",
            "echo a |\n",
            "echo a\\",
            "echo `date",
            "case x in",
        ] {
            assert!(!is_surely_whole(open), "{open:?}");
        }
    }

    #[test]
    fn what_shells_say_of_an_open_script_is_known() {
        let bash = "/proc/self/fd/87: line 2: warning: here-document at line 1 delimited by end-of-file (wanted `EOF')\n";
        insta::assert_snapshot!(unfinished(Some(0), bash).expect("open"), @"line 2: warning: here-document at line 1 delimited by end-of-file (wanted `EOF')");
        assert!(unfinished(Some(2), "x: line 3: syntax error: unexpected end of file\n").is_some());
        let wrong = "x: line 1: syntax error near unexpected token `)'\n";
        assert_eq!(unfinished(Some(2), wrong), None);
        assert_eq!(unfinished(Some(0), ""), None);
    }
}
