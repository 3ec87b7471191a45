//! Reading a profile from text, with errors that name the key.

use globset::GlobBuilder;
use schemars::generate::SchemaSettings;
use serde_json::Value;

use super::{Answer, NO_PROFILE, PROFILE_SCHEMA, Profile, ProfileHome};
use crate::error::{ErrorCode, Problem};
use crate::hosts::HostRule;
use crate::policy::unknown_key;

/// Gives the JSON Schema of a profile.
pub fn profile_schema() -> Value {
    let generator = SchemaSettings::draft2020_12().into_generator();
    generator.into_root_schema_for::<Profile>().to_value()
}

/// Reads and checks a profile; `origin` names it in errors.
///
/// # Errors
///
/// `policy_unreadable` for what is not TOML, `policy_unknown_key` with the nearest known key, and
/// `policy_invalid_value`.
pub fn read_profile(text: &str, origin: &str) -> Result<Profile, Problem> {
    let in_file = |problem: Problem| Problem {
        message: format!("{origin}: {}", problem.message),
        ..problem
    };
    let table = toml::from_str::<toml::Table>(text).map_err(|error| {
        let text = format!(
            "{origin} is not valid TOML: {}",
            error.to_string().trim_end()
        );
        Problem::new(ErrorCode::PolicyUnreadable, text)
    })?;
    let value = serde_json::to_value(table).map_err(|error| {
        Problem::new(
            ErrorCode::PolicyUnreadable,
            format!("{origin} is not valid TOML: {error}"),
        )
    })?;
    let schema = profile_schema();
    unknown_key(&value, &schema, &schema, "").map_err(in_file)?;
    let mut profile: Profile = serde_json::from_value(value).map_err(|error| {
        in_file(Problem::new(
            ErrorCode::PolicyInvalidValue,
            error.to_string(),
        ))
    })?;
    check(&profile).map_err(in_file)?;
    if profile.title.is_empty() {
        profile.title.clone_from(&profile.name);
    }
    Ok(profile)
}

fn invalid(field: &str, text: String) -> Problem {
    Problem::new(ErrorCode::PolicyInvalidValue, format!("{field}: {text}")).with_field(field)
}

fn check(profile: &Profile) -> Result<(), Problem> {
    if profile.schema != PROFILE_SCHEMA {
        return Err(invalid(
            "schema",
            format!("is {}, this version reads {PROFILE_SCHEMA}", profile.schema),
        )
        .with_hint("begin the profile with schema = 1"));
    }
    let plain = |name: &str| {
        !name.is_empty()
            && name
                .bytes()
                .all(|one| one.is_ascii_alphanumeric() || one == b'-' || one == b'_')
    };
    if !plain(&profile.name) || profile.name == NO_PROFILE {
        return Err(invalid(
            "name",
            format!("{:?} is no name of a profile", profile.name),
        ));
    }
    if profile.programs.is_empty() {
        return Err(invalid("programs", "names no program".to_owned()));
    }
    for program in &profile.programs {
        if program.is_empty() || program.contains('/') {
            return Err(invalid(
                "programs",
                format!("{program:?} is no name without a directory"),
            ));
        }
    }
    for (field, hosts) in [
        ("network.model", &profile.network.model),
        ("network.login", &profile.network.login),
    ] {
        for host in hosts {
            host.parse::<HostRule>()
                .map_err(|error| invalid(field, error.to_string()))?;
        }
    }
    for name in &profile.environment.pass {
        if !plain(name) {
            return Err(invalid(
                "environment.pass",
                format!("{name:?} is no whole name of a variable"),
            ));
        }
    }
    check_home(profile)
}

fn check_home(profile: &Profile) -> Result<(), Problem> {
    let home = &profile.home;
    let lists = [
        ("home.state", &home.state),
        ("home.never", &home.never),
        ("home.read", &home.read),
        ("home.transcripts", &home.transcripts),
        ("home.rewritten", &home.rewritten),
        ("home.databases", &home.databases),
        ("home.ignore", &home.ignore),
        ("home.secret", &home.secret),
    ];
    for (field, list) in lists {
        for path in list {
            relative(field, path)?;
            pattern(field, path)?;
        }
    }
    for moved in &home.moved {
        relative("home.moved", &moved.path)?;
        if !moved.below.is_empty() {
            relative("home.moved", &moved.below)?;
        }
    }
    for rule in &home.keys {
        relative("home.keys", &rule.file)?;
        let all = rule.keys.iter().chain(&rule.ignore).chain(&rule.newer_by);
        for key in all {
            if key.split('.').any(str::is_empty) {
                return Err(invalid("home.keys", format!("{key:?} is no key")));
            }
        }
    }
    for answer in &home.answers {
        check_answer(home, answer)?;
    }
    Ok(())
}

fn check_answer(home: &ProfileHome, answer: &Answer) -> Result<(), Problem> {
    let Answer { file, key, value } = answer;
    let field = "home.answers";
    let Some(rule) = home.keys.iter().find(|rule| rule.file == *file) else {
        // Otherwise the whole of the file would be a change of the agent's.
        return Err(invalid(field, format!("{file} is not among home.keys")));
    };
    let group = key
        .rsplit_once('.')
        .map_or("*".to_owned(), |(group, _)| format!("{group}.*"));
    let comes_back = rule.keys.iter().any(|one| one == key || *one == group);
    if key.split('.').any(str::is_empty) || comes_back {
        return Err(invalid(
            field,
            format!("{key:?} is no key, or one that comes back"),
        ));
    }
    if !(value.is_boolean() || value.is_string() || value.is_number()) {
        return Err(invalid(field, format!("{key} has no plain value")));
    }
    Ok(())
}

fn relative(field: &str, path: &str) -> Result<(), Problem> {
    let bad = path.is_empty()
        || path.starts_with(['/', '~'])
        || path.split('/').any(|part| matches!(part, "" | "." | ".."));
    if bad {
        return Err(invalid(
            field,
            format!("{path:?} is no path relative to the home directory"),
        ));
    }
    if matches!(path, "*" | "**") || path.starts_with("**/") || path.starts_with("*/") {
        return Err(invalid(
            field,
            format!("{path:?} is the whole home directory"),
        ));
    }
    Ok(())
}

fn pattern(field: &str, text: &str) -> Result<(), Problem> {
    // The places of the workspace are no alternatives of a pattern.
    let text = text.replace("{workspace}", "x");
    GlobBuilder::new(&text)
        .literal_separator(true)
        .build()
        .map(drop)
        .map_err(|error| invalid(field, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "schema = 1\nname = \"mine\"\nprograms = [\"mine\"]\n";

    #[test]
    fn a_small_profile_is_enough() {
        let profile = read_profile(GOOD, "x").expect("good");
        assert_eq!(profile.name, "mine");
    }

    #[test]
    fn an_unknown_key_names_the_nearest() {
        let text = format!("{GOOD}[home]\ntranscript = []\n");
        let problem = read_profile(&text, "x").expect_err("unknown");
        assert_eq!(problem.code, ErrorCode::PolicyUnknownKey);
        assert_eq!(
            problem.hint.as_deref(),
            Some("did you mean \"transcripts\"?")
        );
        let text = format!("{GOOD}[[home.moved]]\nvariabel = \"X\"\npath = \".x\"\n");
        let problem = read_profile(&text, "x").expect_err("unknown");
        assert_eq!(problem.code, ErrorCode::PolicyUnknownKey);
    }

    #[test]
    fn values_that_cannot_be_meant_are_refused() {
        for more in [
            "[home]\nstate = [\"../x\"]",
            "[home]\nstate = [\"/etc\"]",
            "[home]\nstate = [\"~/x\"]",
            "[home]\ntranscripts = [\"**/*\"]",
            "[home]\nignore = [\"a[\"]",
            "[network]\nmodel = [\"*\"]",
            "[environment]\npass = [\"AWS_*\"]",
            "[[home.answers]]\nfile = \"a.json\"\nkey = \"a\"\nvalue = true",
            "[[home.keys]]\nfile = \"a.json\"\nkeys = [\"a\"]\n[[home.answers]]\nfile = \"a.json\"\nkey = \"a\"\nvalue = true",
            "[[home.keys]]\nfile = \"a.json\"\nkeys = [\"a\"]\n[[home.answers]]\nfile = \"a.json\"\nkey = \"b\"\nvalue = []",
            "[[home.keys]]\nfile = \"a.json\"\nkeys = [\"a..b\"]",
        ] {
            let problem = read_profile(&format!("{GOOD}{more}\n"), "x").expect_err(more);
            assert_eq!(problem.code, ErrorCode::PolicyInvalidValue, "{more}");
        }
        let problem = read_profile("schema = 2\nname = \"a\"\n", "x").expect_err("schema");
        assert_eq!(problem.field.as_deref(), Some("schema"));
        for text in ["name = \"none\"", "name = \"a/b\""] {
            let text = format!("schema = 1\n{text}\nprograms = [\"a\"]\n");
            assert!(read_profile(&text, "x").is_err(), "{text}");
        }
    }
}
