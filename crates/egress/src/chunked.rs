//! Where a chunked body ends.

/// Says why bytes are no chunked body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the chunked body cannot be read")]
pub struct ChunkedError;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Digits of a size; how many there were.
    Size(u8),
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    /// A line after the last chunk; how many bytes it has.
    Trailer(u32),
    TrailerLf(u32),
    End,
}

/// The most bytes of extensions and trailers, in all.
const MOST_ASIDE: u32 = 16 * 1024;

/// Follows a chunked body to its end and changes nothing in it.
///
/// Strict where leniency lets two readers see two bodies: sizes are plain hexadecimal, line ends are
/// CR LF.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkedEnd {
    state: State,
    left: u64,
    aside: u32,
}

impl Default for ChunkedEnd {
    fn default() -> Self {
        Self {
            state: State::Size(0),
            left: 0,
            aside: 0,
        }
    }
}

impl ChunkedEnd {
    /// Tells whether the end was seen.
    pub fn is_over(&self) -> bool {
        self.state == State::End
    }

    /// Takes the next bytes and gives how many of them belong to the body.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<usize, ChunkedError> {
        self.feed_data(bytes, |_| {})
    }

    /// Does the same, and hands over what the chunks hold.
    pub(crate) fn feed_data(
        &mut self,
        bytes: &[u8],
        mut data: impl FnMut(&[u8]),
    ) -> Result<usize, ChunkedError> {
        let mut at = 0;
        while at < bytes.len() && self.state != State::End {
            if self.state == State::Data {
                let there = (bytes.len() - at) as u64;
                let taken = there.min(self.left);
                self.left -= taken;
                data(&bytes[at..at + taken as usize]);
                at += taken as usize;
                if self.left == 0 {
                    self.state = State::DataCr;
                }
                continue;
            }
            self.state = self.step(bytes[at])?;
            at += 1;
        }
        Ok(at)
    }

    fn step(&mut self, byte: u8) -> Result<State, ChunkedError> {
        Ok(match (self.state, byte) {
            (State::Size(digits @ 0..=14), digit) if digit.is_ascii_hexdigit() => {
                let value = (digit as char).to_digit(16).ok_or(ChunkedError)?;
                self.left = self.left * 16 + u64::from(value);
                State::Size(digits + 1)
            }
            (State::Size(1..) | State::Extension, b'\r') => State::SizeLf,
            (State::Size(1..), b';') => State::Extension,
            (State::Extension, byte) if !byte.is_ascii_control() || byte == b'\t' => {
                self.put_aside()?;
                State::Extension
            }
            (State::SizeLf, b'\n') if self.left == 0 => State::Trailer(0),
            (State::SizeLf, b'\n') => State::Data,
            (State::DataCr, b'\r') => State::DataLf,
            (State::DataLf, b'\n') => State::Size(0),
            (State::Trailer(length), b'\r') => State::TrailerLf(length),
            (State::Trailer(length), byte) if !byte.is_ascii_control() || byte == b'\t' => {
                self.put_aside()?;
                State::Trailer(length + 1)
            }
            (State::TrailerLf(0), b'\n') => State::End,
            (State::TrailerLf(_), b'\n') => State::Trailer(0),
            _ => return Err(ChunkedError),
        })
    }

    fn put_aside(&mut self) -> Result<(), ChunkedError> {
        self.aside += 1;
        (self.aside <= MOST_ASIDE).then_some(()).ok_or(ChunkedError)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_end_is_found_and_what_follows_is_not_taken() {
        let body = b"5;a=b\r\nhello\r\nA\r\n0123456789\r\n0\r\nx-sum: 1\r\n\r\n";
        let with_more = [body.as_slice(), b"GET http://other.test/"].concat();
        let mut whole = ChunkedEnd::default();
        assert_eq!(whole.feed(&with_more), Ok(body.len()));
        assert!(whole.is_over());
        let mut by_byte = ChunkedEnd::default();
        let taken: usize = with_more
            .iter()
            .map(|byte| by_byte.feed(&[*byte]).expect("a body"))
            .sum();
        assert_eq!(taken, body.len());
    }

    #[test]
    fn two_readings_are_refused() {
        for body in [
            "5\nhello\r\n0\r\n\r\n",
            "0x5\r\nhello\r\n0\r\n\r\n",
            "+5\r\nhello\r\n0\r\n\r\n",
            " 5\r\nhello\r\n0\r\n\r\n",
            "5 \r\nhello\r\n0\r\n\r\n",
            "5\r\nhelloX\r\n0\r\n\r\n",
            "\r\n",
            "5;a\nb\r\nhello",
            "11111111111111111\r\n",
            "0\r\nx: y\nz\r\n\r\n",
        ] {
            assert_eq!(
                ChunkedEnd::default().feed(body.as_bytes()),
                Err(ChunkedError),
                "{body:?}"
            );
        }
        let endless = format!("0\r\n{}", "x".repeat(20_000));
        assert!(ChunkedEnd::default().feed(endless.as_bytes()).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_body_or_none(
            bytes in proptest::collection::vec(
                prop_oneof![any::<u8>(), Just(b'\r'), Just(b'\n'), Just(b'0'), Just(b'5')],
                0..200,
            ),
            cut in 0..200_usize,
        ) {
            let cut = cut.min(bytes.len());
            let mut whole = ChunkedEnd::default();
            let at_once = whole.feed(&bytes);
            let mut parts = ChunkedEnd::default();
            let in_two = parts.feed(&bytes[..cut]).and_then(|first| {
                let second = if first == cut { parts.feed(&bytes[cut..])? } else { 0 };
                Ok(first + second)
            });
            prop_assert_eq!(at_once, in_two);
        }
    }
}
