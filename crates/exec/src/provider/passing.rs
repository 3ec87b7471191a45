//! What was to be hidden and is gone by now: to hide it, a mount point would have to be made on the
//! host, in the way of whoever makes it again.

use std::borrow::Cow;
use std::os::unix::fs::FileTypeExt as _;

use cofferdam_core::spec::{EnclosureSpec, Mount};

/// Gives the plan without what is not there any more.
pub(super) fn without_what_is_gone(spec: &EnclosureSpec) -> Cow<'_, EnclosureSpec> {
    if !spec.mounts.iter().any(is_gone) {
        return Cow::Borrowed(spec);
    }
    let mut left = spec.clone();
    left.mounts.retain(|mount| !is_gone(mount));
    Cow::Owned(left)
}

fn is_gone(mount: &Mount) -> bool {
    let Mount::Mask {
        passing: Some(path),
        ..
    } = mount
    else {
        return false;
    };
    !std::fs::symlink_metadata(path.as_path()).is_ok_and(|found| found.file_type().is_socket())
}

#[cfg(test)]
mod tests {
    use cofferdam_core::bytes::BytePath;

    use super::*;

    #[test]
    fn a_socket_is_hidden_as_long_as_it_stands_and_anything_else_always() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("a.sock");
        let mask = |passing| Mount::Mask {
            target: BytePath::from(path.as_path()),
            directory: false,
            passing,
        };
        let socket = mask(Some(BytePath::from(path.as_path())));
        assert!(is_gone(&socket));
        let listener = std::os::unix::net::UnixListener::bind(&path).expect("bound");
        assert!(!is_gone(&socket));
        drop(listener);
        std::fs::remove_file(&path).expect("removed");
        assert!(is_gone(&socket));
        assert!(
            !is_gone(&mask(None)),
            "what is no socket is hidden whatever stands there"
        );
    }
}
