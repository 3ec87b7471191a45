//! Recordings of terminals in asciicast v2: one header, then one line for each event.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cofferdam_core::limits::TERMINAL_RECORDING_BYTES;
use serde_json::json;

use crate::control::TerminalSize;

/// Writes a recording. What cannot be written ends the recording, never the terminal.
#[derive(Debug)]
pub(super) struct Recorder {
    path: PathBuf,
    file: Option<BufWriter<File>>,
    written: u64,
    /// The beginning of a character whose end has not come yet.
    partial: Vec<u8>,
}

/// What a recording begins with.
#[derive(Debug)]
pub(super) struct Header<'a> {
    pub(super) size: TerminalSize,
    pub(super) timestamp: i64,
    pub(super) title: &'a str,
    pub(super) command: String,
}

impl Recorder {
    /// Makes the file, for its owner only.
    pub(super) fn create(path: &Path, header: &Header<'_>) -> io::Result<Self> {
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        let file = File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?;
        // Held as long as it is written: what is locked is not removed, whichever process it is of.
        // Where the file system has no locks, its age keeps it.
        let _ = file.try_lock_shared();
        let mut recorder = Self {
            path: path.to_owned(),
            file: Some(BufWriter::new(file)),
            written: 0,
            partial: Vec::new(),
        };
        recorder.line(&json!({
            "version": 2,
            "width": header.size.columns,
            "height": header.size.rows,
            "timestamp": header.timestamp,
            "title": header.title,
            "command": header.command,
            "env": {"TERM": "xterm-256color"},
        }));
        Ok(recorder)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Adds output; a character that is cut in two waits for its rest.
    pub(super) fn output(&mut self, at: Duration, bytes: &[u8]) {
        if self.file.is_none() {
            return;
        }
        let mut whole = std::mem::take(&mut self.partial);
        whole.extend_from_slice(bytes);
        let keep = unfinished(&whole);
        self.partial = whole.split_off(whole.len() - keep);
        if !whole.is_empty() {
            let text = String::from_utf8_lossy(&whole);
            self.event(at, "o", &text);
        }
    }

    pub(super) fn resized(&mut self, at: Duration, size: TerminalSize) {
        let TerminalSize { rows, columns } = size;
        self.event(at, "r", &format!("{columns}x{rows}"));
    }

    /// Adds a marker: a name for this moment.
    pub(super) fn marker(&mut self, at: Duration, label: &str) {
        self.event(at, "m", label);
    }

    fn event(&mut self, at: Duration, kind: &str, text: &str) {
        let seconds = (at.as_micros() as f64) / 1_000_000.0;
        self.line(&json!([seconds, kind, text]));
        if self.written > TERMINAL_RECORDING_BYTES && self.file.is_some() {
            self.line(&json!([
                seconds,
                "m",
                "the recording is full: what follows is left out"
            ]));
            self.flush();
            self.file = None;
        }
    }

    fn line(&mut self, value: &serde_json::Value) {
        let Some(file) = &mut self.file else { return };
        let mut text = value.to_string();
        text.push('\n');
        self.written += text.len() as u64;
        if file.write_all(text.as_bytes()).is_err() {
            self.file = None;
        }
    }

    pub(super) fn flush(&mut self) {
        if self.file.as_mut().is_some_and(|file| file.flush().is_err()) {
            self.file = None;
        }
    }
}

/// Counts the bytes at the end that may be the beginning of a character.
pub(super) fn unfinished(bytes: &[u8]) -> usize {
    let Err(error) = std::str::from_utf8(&bytes[bytes.len().saturating_sub(3)..]) else {
        return 0;
    };
    let _ = error;
    for back in 1..=bytes.len().min(3) {
        let byte = bytes[bytes.len() - back];
        let needs = match byte {
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            0x80..=0xbf => continue,
            _ => return 0,
        };
        return if needs > back { back } else { 0 };
    }
    0
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_recording_is_lines_of_json_and_never_splits_a_character() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("one.cast");
        let size = TerminalSize {
            rows: 24,
            columns: 80,
        };
        let header = Header {
            size,
            timestamp: 7,
            title: "one",
            command: "sh".to_owned(),
        };
        let mut recorder = Recorder::create(&path, &header).expect("made");
        let text = "a€😀";
        for (index, byte) in text.bytes().enumerate() {
            recorder.output(Duration::from_millis(index as u64), &[byte]);
        }
        recorder.output(Duration::from_secs(1), b"\xff\n");
        recorder.marker(Duration::from_secs(2), "here");
        recorder.flush();
        let kept = std::fs::read_to_string(&path).expect("text");
        let lines: Vec<serde_json::Value> = kept
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect();
        assert_eq!(lines[0]["version"], 2);
        let output: String = lines[1..]
            .iter()
            .filter(|line| line[1] == "o")
            .filter_map(|line| line[2].as_str())
            .collect();
        assert_eq!(output, "a€😀\u{fffd}\n");
        assert_eq!(lines.last().map(|line| line[1].clone()), Some(json!("m")));
        let mode = std::fs::metadata(&path)
            .expect("there")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
