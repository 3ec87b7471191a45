//! Bytes that are mostly text: paths, names and variables as the kernel knows them.
//!
//! A path is bytes. In JSON it is a string: valid UTF-8 as it is, every other byte as `\xNN`, a
//! backslash as `\\`. The form is lossless, so that a spec can be stored, hashed and read back.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Owns bytes that are usually a path, an argument or a variable.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BytePath(Vec<u8>);

impl BytePath {
    /// Takes the bytes as they are.
    pub fn from_bytes(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into())
    }

    /// Lends the bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Gives the bytes away.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// Tells whether there are no bytes at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Tells whether the bytes begin with `/`.
    pub fn is_absolute(&self) -> bool {
        self.0.first() == Some(&b'/')
    }

    /// Joins one relative piece; an absolute piece replaces the whole, as in [`Path::join`].
    #[must_use]
    pub fn join(&self, piece: impl AsRef<[u8]>) -> Self {
        let piece = piece.as_ref();
        if piece.first() == Some(&b'/') {
            return Self(piece.to_vec());
        }
        let mut joined = self.0.clone();
        if !joined.is_empty() && joined.last() != Some(&b'/') {
            joined.push(b'/');
        }
        joined.extend_from_slice(piece);
        Self(joined)
    }

    /// Tells whether `self` is `top` or lies below it, by whole components.
    pub fn is_within(&self, top: &Self) -> bool {
        self.below(top).is_some()
    }

    /// Gives what follows `top`, without a leading `/`; `None` when `self` is not within `top`.
    pub fn below(&self, top: &Self) -> Option<&[u8]> {
        let top = top.trimmed();
        let own = self.trimmed();
        if top.is_empty() {
            // The root itself: everything absolute lies below it.
            return self
                .is_absolute()
                .then(|| own.strip_prefix(b"/").unwrap_or(own));
        }
        let rest = own.strip_prefix(top)?;
        match rest.first() {
            None => Some(rest),
            Some(b'/') => Some(&rest[1..]),
            Some(_) => None,
        }
    }

    /// Gives the directory above, or `None` for `/` and for a bare name.
    pub fn parent(&self) -> Option<Self> {
        let own = self.trimmed();
        let cut = own.iter().rposition(|byte| *byte == b'/')?;
        if own.is_empty() {
            return None;
        }
        Some(Self(if cut == 0 {
            b"/".to_vec()
        } else {
            own[..cut].to_vec()
        }))
    }

    /// Gives the last component.
    pub fn file_name(&self) -> &[u8] {
        let own = self.trimmed();
        own.iter()
            .rposition(|byte| *byte == b'/')
            .map_or(own, |cut| &own[cut + 1..])
    }

    /// Counts the components, the root being 0: the depth by which nested rules are ordered.
    pub fn depth(&self) -> usize {
        self.0
            .split(|byte| *byte == b'/')
            .filter(|piece| !piece.is_empty())
            .count()
    }

    fn trimmed(&self) -> &[u8] {
        let mut own = self.0.as_slice();
        while let [rest @ .., b'/'] = own {
            own = rest;
        }
        own
    }

    /// Gives readable text in which bytes that are not UTF-8 are replaced; for people, not for use.
    pub fn to_text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.0)
    }

    /// Reads the escaped form that [`fmt::Display`] writes.
    pub fn parse(text: &str) -> Result<Self, EscapeError> {
        let mut bytes = Vec::with_capacity(text.len());
        let mut rest = text.as_bytes();
        while let Some((&first, after)) = rest.split_first() {
            if first != b'\\' {
                bytes.push(first);
                rest = after;
                continue;
            }
            match after {
                [b'\\', after @ ..] => {
                    bytes.push(b'\\');
                    rest = after;
                }
                [b'x', high, low, after @ ..] => {
                    let digit = |byte: u8| (byte as char).to_digit(16);
                    let (Some(high), Some(low)) = (digit(*high), digit(*low)) else {
                        return Err(EscapeError {
                            text: text.to_owned(),
                        });
                    };
                    bytes.push((high * 16 + low) as u8);
                    rest = after;
                }
                _ => {
                    return Err(EscapeError {
                        text: text.to_owned(),
                    });
                }
            }
        }
        Ok(Self(bytes))
    }
}

/// Says that a backslash in an escaped path is followed by neither `\` nor `xNN`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("bad escape in {text:?}: a backslash is written \\\\, another byte \\xNN")]
pub struct EscapeError {
    /// The text that was read.
    pub text: String,
}

impl fmt::Display for BytePath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for character in chunk.valid().chars() {
                if character == '\\' {
                    formatter.write_str("\\\\")?;
                } else {
                    write!(formatter, "{character}")?;
                }
            }
            for byte in chunk.invalid() {
                write!(formatter, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for BytePath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?}", self.to_string())
    }
}

impl From<&str> for BytePath {
    fn from(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

impl From<String> for BytePath {
    fn from(text: String) -> Self {
        Self(text.into_bytes())
    }
}

impl From<&OsStr> for BytePath {
    fn from(text: &OsStr) -> Self {
        Self(text.as_encoded_bytes().to_vec())
    }
}

impl From<OsString> for BytePath {
    fn from(text: OsString) -> Self {
        Self(text.into_encoded_bytes())
    }
}

impl From<&Path> for BytePath {
    fn from(path: &Path) -> Self {
        Self::from(path.as_os_str())
    }
}

impl From<PathBuf> for BytePath {
    fn from(path: PathBuf) -> Self {
        Self::from(path.into_os_string())
    }
}

#[cfg(unix)]
impl BytePath {
    /// Lends the bytes as a path of this system.
    pub fn as_path(&self) -> &Path {
        use std::os::unix::ffi::OsStrExt;
        Path::new(OsStr::from_bytes(&self.0))
    }

    /// Lends the bytes as text of this system.
    pub fn as_os_str(&self) -> &OsStr {
        use std::os::unix::ffi::OsStrExt;
        OsStr::from_bytes(&self.0)
    }
}

impl Serialize for BytePath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for BytePath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}

impl JsonSchema for BytePath {
    fn schema_name() -> Cow<'static, str> {
        "BytePath".into()
    }

    fn json_schema(_generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "bytes as text; a byte that is not UTF-8 is written \\xNN, a backslash \\\\"
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_escaped_form_is_lossless(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let path = BytePath::from_bytes(bytes);
            prop_assert_eq!(BytePath::parse(&path.to_string()), Ok(path));
        }
    }

    #[test]
    fn fc_29_a_sibling_with_the_same_prefix_is_not_within() {
        let top = BytePath::from("/w");
        assert!(BytePath::from("/w/a").is_within(&top));
        assert!(BytePath::from("/w/").is_within(&top));
        assert!(!BytePath::from("/w-evil/f").is_within(&top));
        assert!(BytePath::from("/w").is_within(&BytePath::from("/")));
    }

    #[test]
    fn parents_and_names_follow_components() {
        assert_eq!(BytePath::from("/a/b/").parent(), Some(BytePath::from("/a")));
        assert_eq!(BytePath::from("/a").parent(), Some(BytePath::from("/")));
        assert_eq!(BytePath::from("/").parent(), None);
        assert_eq!(BytePath::from("/a/b").file_name(), b"b");
        assert_eq!(BytePath::from("/a").join("b/c"), BytePath::from("/a/b/c"));
    }

    #[test]
    fn a_lone_backslash_is_refused() {
        assert!(BytePath::parse(r"a\b").is_err());
    }
}
