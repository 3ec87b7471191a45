//! The profiles that come with the program.

/// Name and text of each.
pub(super) const SHIPPED: &[(&str, &str)] = &[
    ("claude", include_str!("../../profiles/claude.toml")),
    ("codex", include_str!("../../profiles/codex.toml")),
    ("cursor", include_str!("../../profiles/cursor.toml")),
    ("gemini", include_str!("../../profiles/gemini.toml")),
    ("opencode", include_str!("../../profiles/opencode.toml")),
];

#[cfg(test)]
mod tests {
    use cofferdam_core::profile::read_profile;

    use super::*;

    #[test]
    fn what_comes_with_the_program_is_good() {
        for (name, text) in SHIPPED {
            let profile = read_profile(text, name).unwrap_or_else(|problem| panic!("{problem:?}"));
            assert_eq!(profile.name, *name);
            assert!(!profile.network.model.is_empty(), "{name}");
            assert!(!profile.home.state.is_empty(), "{name}");
        }
    }
}
