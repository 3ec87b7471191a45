//! Asking git's index which names it holds, without running git.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

/// Most entries that are looked at; a larger index counts as not holding the name.
const MOST_ENTRIES: u32 = 2_000_000;
/// Fixed part of an entry before its flags, in bytes.
const FIXED: usize = 60;

/// Tells for each name whether the index holds it, or something below it.
///
/// Entries are sorted, so reading ends behind the last name that was asked for. An index that cannot
/// be understood holds nothing: then a name is protected rather than not.
pub(crate) fn holds(index: &Path, names: &[&[u8]]) -> Vec<bool> {
    let mut found = vec![false; names.len()];
    if let Some(file) = super::files::open_regular(index) {
        let _ = look(BufReader::with_capacity(64 * 1024, file), names, &mut found);
    }
    found
}

fn look(mut reader: BufReader<File>, names: &[&[u8]], found: &mut [bool]) -> Option<()> {
    let mut header = [0; 12];
    reader.read_exact(&mut header).ok()?;
    let version = u32::from_be_bytes(header[4..8].try_into().ok()?);
    let entries = u32::from_be_bytes(header[8..12].try_into().ok()?);
    if &header[..4] != b"DIRC" || !(2..=4).contains(&version) || entries > MOST_ENTRIES {
        return None;
    }
    let last = names.iter().max()?;
    let mut name = Vec::with_capacity(256);
    for _ in 0..entries {
        let mut fixed = [0; FIXED + 2];
        reader.read_exact(&mut fixed).ok()?;
        let flags = u16::from_be_bytes([fixed[FIXED], fixed[FIXED + 1]]);
        let mut size = FIXED + 2;
        if flags & 0x4000 != 0 && version >= 3 {
            reader.read_exact(&mut [0; 2]).ok()?;
            size += 2;
        }
        if version == 4 {
            let strip = variable_length(&mut reader)?;
            name.truncate(name.len().checked_sub(strip)?);
            until_zero(&mut reader, &mut name)?;
        } else {
            name.clear();
            until_zero(&mut reader, &mut name)?;
            // Padded with zero bytes to a multiple of eight, one of which is read already.
            let padding = 8 - (size + name.len()) % 8;
            let mut rest = [0; 8];
            reader.read_exact(&mut rest[..padding - 1]).ok()?;
        }
        for (wanted, found) in names.iter().zip(found.iter_mut()) {
            let below = name.strip_prefix(*wanted);
            if below.is_some_and(|rest| rest.is_empty() || rest[0] == b'/') {
                *found = true;
            }
        }
        // Everything below a name sorts before `name0`: `/` comes right before `0`.
        let is_past = name.as_slice() > *last && !name.starts_with(last);
        if is_past || found.iter().all(|one| *one) {
            break;
        }
    }
    Some(())
}

fn until_zero(reader: &mut BufReader<File>, name: &mut Vec<u8>) -> Option<()> {
    use std::io::BufRead as _;
    let before = name.len();
    let read = reader.read_until(0, name).ok()?;
    (read > 0 && name.last() == Some(&0)).then_some(())?;
    name.pop();
    (name.len() - before < 64 * 1024).then_some(())
}

/// Reads git's offset encoding of a number.
fn variable_length(reader: &mut BufReader<File>) -> Option<usize> {
    let mut byte = [0];
    reader.read_exact(&mut byte).ok()?;
    let mut value = usize::from(byte[0] & 0x7f);
    while byte[0] & 0x80 != 0 {
        reader.read_exact(&mut byte).ok()?;
        value = value.checked_add(1)?.checked_shl(7)? | usize::from(byte[0] & 0x7f);
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes an index by hand.
    fn index(version: u32, names: &[&str]) -> Vec<u8> {
        let mut bytes = b"DIRC".to_vec();
        bytes.extend(version.to_be_bytes());
        bytes.extend((names.len() as u32).to_be_bytes());
        let mut previous = String::new();
        for name in names {
            bytes.extend([0; FIXED]);
            bytes.extend((name.len() as u16).to_be_bytes());
            if version == 4 {
                let same = name
                    .bytes()
                    .zip(previous.bytes())
                    .take_while(|(left, right)| left == right)
                    .count();
                bytes.push((previous.len() - same) as u8);
                bytes.extend(name[same..].bytes());
                bytes.push(0);
            } else {
                bytes.extend(name.bytes());
                let padding = 8 - (FIXED + 2 + name.len()) % 8;
                bytes.extend(vec![0; padding]);
            }
            (*name).clone_into(&mut previous);
        }
        bytes
    }

    #[test]
    fn names_and_what_lies_below_them_are_found() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("index");
        let names = [
            ".claude/a/settings.json",
            ".envrc",
            ".vscode/tasks.json",
            "src/main.rs",
        ];
        for version in [2, 3, 4] {
            std::fs::write(&path, index(version, &names)).expect("written");
            let asked: [&[u8]; 5] = [
                b".claude",
                b".mcp.json",
                b".envrc",
                b".vscode/tasks.json",
                b"src",
            ];
            assert_eq!(
                holds(&path, &asked),
                [true, false, true, true, true],
                "{version}"
            );
        }
    }

    #[test]
    fn a_broken_index_holds_nothing() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("index");
        assert_eq!(holds(&path, &[b".envrc"]), [false]);
        std::fs::write(&path, b"DIRC\0\0\0\x02\xff\xff\xff\xff").expect("written");
        assert_eq!(holds(&path, &[b".envrc"]), [false]);
        std::fs::write(&path, b"DIRC\0\0\0\x02\0\0\0\x05abc").expect("written");
        assert_eq!(holds(&path, &[b".envrc"]), [false]);
    }
}
