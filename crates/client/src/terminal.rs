//! A terminal of a server, followed as it goes on.

use std::io::{BufRead as _, BufReader, Read};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::operation::{TerminalEnd, TerminalName, TerminalWrite, TerminalWritten};
use serde::Deserialize;

use crate::client::Client;

/// What happens in a terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TerminalEvent {
    /// What to send to a screen so that it shows the same; comes first.
    Screen(Vec<u8>),
    /// Bytes that it wrote, as they came.
    Output(Vec<u8>),
    /// Bytes that came too fast to be told.
    Gap(u64),
    /// It has another size.
    Resized {
        /// Height in characters.
        rows: u16,
        /// Width in characters.
        columns: u16,
    },
    /// Its program has ended; nothing comes after this.
    Closed(TerminalEnd),
}

/// Follows one terminal: an iterator over what happens in it, which waits for the next.
pub struct TerminalStream {
    lines: std::io::Lines<BufReader<Box<dyn Read + Send>>>,
    kind: String,
}

impl std::fmt::Debug for TerminalStream {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("TerminalStream")
            .finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct Bytes {
    bytes: String,
}

#[derive(Deserialize)]
struct Gap {
    from: u64,
    to: u64,
}

#[derive(Deserialize)]
struct Size {
    rows: u16,
    columns: u16,
}

impl Client {
    /// Follows a terminal, from what it shows now on.
    ///
    /// # Errors
    ///
    /// `terminal_unknown`, and as [`Client::call`].
    pub fn watch_terminal(&self, name: &TerminalName) -> Result<TerminalStream, Problem> {
        let body = self.stream(&format!("terminals/{name}/stream"))?;
        Ok(TerminalStream {
            lines: BufReader::new(body).lines(),
            kind: String::new(),
        })
    }

    /// Types bytes into a terminal, and waits only until the terminal has taken them.
    ///
    /// # Errors
    ///
    /// `terminal_unknown`, `terminal_ended`, and as [`Client::call`].
    pub fn type_into_terminal(&self, name: &TerminalName, bytes: &[u8]) -> Result<usize, Problem> {
        let request = TerminalWrite {
            name: Some(name.clone()),
            bytes: STANDARD.encode(bytes),
        };
        let written: TerminalWritten = self.call("terminal_write", &request)?;
        Ok(written.typed)
    }
}

impl Iterator for TerminalStream {
    type Item = Result<TerminalEvent, Problem>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let line = match self.lines.next()? {
                Ok(line) => line,
                Err(error) => {
                    return Some(Err(Problem::new(
                        ErrorCode::ServerUnreachable,
                        format!("the server is gone: {error}"),
                    )));
                }
            };
            if let Some(word) = line.strip_prefix("event: ") {
                word.clone_into(&mut self.kind);
            } else if let Some(data) = line.strip_prefix("data: ") {
                match event(&self.kind, data) {
                    Ok(Some(event)) => return Some(Ok(event)),
                    // Newer servers may tell more.
                    Ok(None) => {}
                    Err(why) => {
                        return Some(Err(Problem::new(
                            ErrorCode::ServerUnreachable,
                            format!("the server tells of a terminal what is not understood: {why}"),
                        )));
                    }
                }
            }
        }
    }
}

fn event(kind: &str, data: &str) -> Result<Option<TerminalEvent>, Box<dyn std::error::Error>> {
    let bytes = || -> Result<Vec<u8>, Box<dyn std::error::Error>> {
        let data: Bytes = serde_json::from_str(data)?;
        Ok(STANDARD.decode(data.bytes)?)
    };
    Ok(Some(match kind {
        "screen" => TerminalEvent::Screen(bytes()?),
        "output" => TerminalEvent::Output(bytes()?),
        "gap" => {
            let Gap { from, to } = serde_json::from_str(data)?;
            TerminalEvent::Gap(to.saturating_sub(from))
        }
        "resized" => {
            let Size { rows, columns } = serde_json::from_str(data)?;
            TerminalEvent::Resized { rows, columns }
        }
        "closed" => TerminalEvent::Closed(serde_json::from_str(data)?),
        _ => return Ok(None),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_tells_of_a_terminal_is_read() {
        let text = "id: 3\nevent: screen\ndata: {\"offset\":3,\"rows\":24,\"columns\":80,\"bytes\":\"aGk=\"}\n\n\
                    : heartbeat\n\n\
                    event: news\ndata: {}\n\n\
                    event: gap\ndata: {\"from\":3,\"to\":10}\n\n\
                    event: resized\ndata: {\"rows\":5,\"columns\":6}\n\n\
                    event: output\ndata: {\"offset\":10,\"bytes\":\"eW8=\"}\n\n\
                    event: closed\ndata: {\"return_code\":3}\n\n";
        let body: Box<dyn Read + Send> = Box::new(text.as_bytes());
        let stream = TerminalStream {
            lines: BufReader::new(body).lines(),
            kind: String::new(),
        };
        let told: Vec<TerminalEvent> = stream.map(|event| event.expect("understood")).collect();
        assert_eq!(
            told,
            [
                TerminalEvent::Screen(b"hi".to_vec()),
                TerminalEvent::Gap(7),
                TerminalEvent::Resized {
                    rows: 5,
                    columns: 6
                },
                TerminalEvent::Output(b"yo".to_vec()),
                TerminalEvent::Closed(TerminalEnd {
                    return_code: Some(3),
                    signal: None,
                    problem: None,
                }),
            ]
        );
        assert!(event("output", "{}").is_err());
    }
}
