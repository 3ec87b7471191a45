//! Rules over single requests of HTTP: which methods and paths of a host are let through.

use std::fmt;

use super::name::Host;
use super::path::{PathPattern, PatternError, RequestPath};
use super::rule::HostRule;

/// The longest method there is, in bytes.
const MAX_METHOD: usize = 32;

/// Methods by which nothing is changed.
const READING: [&str; 2] = ["GET", "HEAD"];

/// What a fetch of git posts to, below the path of the repository.
const GIT_FETCH: &str = "/git-upload-pack";

/// Methods that no rule lets through: one sends back what it was sent, the other opens a tunnel.
const NEVER: [&str; 3] = ["TRACE", "TRACK", "CONNECT"];

/// Says why a method is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MethodError {
    /// It is empty, too long, or has other characters than a method.
    #[error("{text:?} is no method of HTTP")]
    Invalid {
        /// What stands there.
        text: String,
    },
    /// It is never let through.
    #[error("{text} is let through by no rule")]
    Never {
        /// The method.
        text: String,
    },
}

/// A method of HTTP as a rule writes it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Method(String);

impl Method {
    /// Reads a method; methods are compared letter by letter, and those of the standard are in
    /// capitals.
    ///
    /// # Errors
    ///
    /// [`MethodError`].
    pub fn parse(text: &str) -> Result<Self, MethodError> {
        let letters = text
            .bytes()
            .all(|byte| byte.is_ascii_uppercase() || byte == b'-');
        if text.is_empty() || text.len() > MAX_METHOD || !letters {
            return Err(MethodError::Invalid {
                text: text.to_owned(),
            });
        }
        if NEVER.contains(&text) {
            return Err(MethodError::Never {
                text: text.to_owned(),
            });
        }
        Ok(Self(text.to_owned()))
    }

    /// Lends the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Says why a rule over requests is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestRuleError {
    /// A method is none.
    #[error(transparent)]
    Method(#[from] MethodError),
    /// A path is none.
    #[error(transparent)]
    Path(#[from] PatternError),
}

/// Which methods a rule lets through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Methods {
    /// Every one.
    Any,
    /// GET and HEAD, and what a fetch of git posts.
    Reading,
    /// These.
    Of(Vec<Method>),
}

/// One rule over the requests to some hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestRule {
    /// The hosts.
    pub hosts: Vec<HostRule>,
    /// The methods.
    pub methods: Methods,
    /// The paths; `None` is every one.
    pub paths: Option<Vec<PathPattern>>,
    /// Whether a connection may become one of WebSocket.
    pub websocket: bool,
    /// Who says so; rules of one speaker add up, of several each must let a request through.
    pub speaker: String,
}

impl RequestRule {
    fn is_for(&self, host: &Host, port: u16) -> bool {
        self.hosts.iter().any(|rule| rule.holds_for(host, port))
    }

    /// Tells whether the rule lets a request through; a path that could be read in two ways is let
    /// through by no rule that looks at paths.
    fn passes(&self, request: &Asked<'_>) -> bool {
        let (path, _) = split_query(request.target);
        let method = match &self.methods {
            Methods::Any => true,
            Methods::Reading => {
                READING.contains(&request.method)
                    || (request.method == "POST" && path.ends_with(GIT_FETCH))
            }
            Methods::Of(methods) => methods.iter().any(|one| one.0 == request.method),
        };
        let path = || match &self.paths {
            None => true,
            Some(patterns) => RequestPath::parse(path)
                .is_ok_and(|path| patterns.iter().any(|pattern| pattern.matches(&path))),
        };
        method && (!request.websocket || self.websocket) && path()
    }
}

impl fmt::Display for RequestRule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts: Vec<String> = self.hosts.iter().map(ToString::to_string).collect();
        let methods = match &self.methods {
            Methods::Any => "any method".to_owned(),
            Methods::Reading => "reading".to_owned(),
            Methods::Of(methods) => {
                let words: Vec<&str> = methods.iter().map(Method::as_str).collect();
                words.join(",")
            }
        };
        write!(formatter, "{}: {methods}", hosts.join(","))?;
        for path in self.paths.iter().flatten() {
            write!(formatter, " {path}")?;
        }
        if self.websocket {
            formatter.write_str(" websocket")?;
        }
        Ok(())
    }
}

/// What a client asks of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked<'a> {
    /// The method as it was written.
    pub method: &'a str,
    /// The path with its query, as it was written.
    pub target: &'a str,
    /// Whether it wants the connection to become one of WebSocket.
    pub websocket: bool,
}

/// What rules say about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestVerdict<'a> {
    /// No rule is about the host.
    Free,
    /// Every speaker has a rule that lets it through; this is the first.
    Passed {
        /// The rule.
        rule: &'a RequestRule,
    },
    /// A speaker has rules about the host, and none lets it through.
    Refused {
        /// The first of that speaker's rules about the host.
        rule: &'a RequestRule,
        /// Why the path was not even compared, where a rule looks at paths and it could be read in
        /// two ways.
        ambiguous: Option<super::path::PathError>,
    },
}

/// The rules over requests of one policy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestRules(pub Vec<RequestRule>);

impl RequestRules {
    /// Tells whether a rule is about a host: then each request to it has to be seen.
    pub fn are_about(&self, host: &Host, port: u16) -> bool {
        self.0.iter().any(|rule| rule.is_for(host, port))
    }

    /// Decides a request to a host.
    pub fn decide(&self, host: &Host, port: u16, request: &Asked<'_>) -> RequestVerdict<'_> {
        let about: Vec<&RequestRule> = self.0.iter().filter(|one| one.is_for(host, port)).collect();
        let mut first = None;
        for (at, rule) in about.iter().enumerate() {
            let is_new = !about[..at].iter().any(|one| one.speaker == rule.speaker);
            if !is_new {
                continue;
            }
            let mut own = about.iter().filter(|one| one.speaker == rule.speaker);
            if let Some(passes) = own.clone().find(|one| one.passes(request)) {
                first.get_or_insert(*passes);
            } else {
                let (path, _) = split_query(request.target);
                let looks = own.any(|one| one.paths.is_some());
                return RequestVerdict::Refused {
                    rule,
                    ambiguous: RequestPath::parse(path).err().filter(|_| looks),
                };
            }
        }
        first.map_or(RequestVerdict::Free, |rule| RequestVerdict::Passed { rule })
    }

    /// Tells whether a method is one that nothing lets through where requests are seen.
    pub fn is_never(method: &str) -> bool {
        NEVER.contains(&method)
    }
}

/// Splits the path from its query.
pub fn split_query(target: &str) -> (&str, Option<&str>) {
    match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(host: &str, methods: Methods, paths: &[&str], speaker: &str) -> RequestRule {
        let paths = paths.iter().map(|text| text.parse().expect("a pattern"));
        RequestRule {
            hosts: vec![host.parse().expect("a host")],
            methods,
            paths: Some(paths.collect()).filter(|paths: &Vec<_>| !paths.is_empty()),
            websocket: false,
            speaker: speaker.to_owned(),
        }
    }

    fn asked<'a>(method: &'a str, target: &'a str) -> Asked<'a> {
        Asked {
            method,
            target,
            websocket: false,
        }
    }

    fn passes(rules: &RequestRules, method: &str, target: &str) -> bool {
        let host = Host::parse(b"a.test").expect("a host");
        matches!(
            rules.decide(&host, 443, &asked(method, target)),
            RequestVerdict::Passed { .. }
        )
    }

    #[test]
    fn reading_is_get_and_head_and_a_fetch_of_git() {
        let rules = RequestRules(vec![rule("a.test", Methods::Reading, &[], "owner")]);
        assert!(passes(&rules, "GET", "/x?y=//"));
        assert!(passes(&rules, "HEAD", "/"));
        assert!(passes(&rules, "POST", "/me/app.git/git-upload-pack"));
        for (method, target) in [
            ("PUT", "/left-pad"),
            ("POST", "/me/app.git/git-receive-pack"),
            ("POST", "/x?/git-upload-pack"),
            ("get", "/"),
            ("DELETE", "/git-upload-pack"),
        ] {
            assert!(!passes(&rules, method, target), "{method} {target}");
        }
    }

    #[test]
    fn rules_of_one_speaker_add_up_and_of_several_each_must_pass() {
        let of = |text: &str| Methods::Of(vec![Method::parse(text).expect("a method")]);
        let mut rules = RequestRules(vec![
            rule("a.test", of("GET"), &["/a/**"], "owner"),
            rule("**.test", of("PUT"), &["/b/*"], "owner"),
            rule("b.test", of("GET"), &[], "owner"),
        ]);
        assert!(passes(&rules, "GET", "/a/x/y"));
        assert!(passes(&rules, "PUT", "/b/x"));
        assert!(!passes(&rules, "GET", "/b/x"));
        rules.0.push(rule("a.test", of("GET"), &[], "project"));
        assert!(passes(&rules, "GET", "/a/x/y"));
        assert!(!passes(&rules, "PUT", "/b/x"));
        let other = Host::parse(b"c.example").expect("a host");
        assert_eq!(
            rules.decide(&other, 443, &asked("PUT", "/")),
            RequestVerdict::Free
        );
    }

    #[test]
    fn a_path_that_can_be_read_in_two_ways_says_so() {
        let host = Host::parse(b"a.test").expect("a host");
        let rules = RequestRules(vec![rule("a.test", Methods::Any, &["/a/**"], "owner")]);
        for path in ["/a/../b", "/a/%2e%2e/b", "/a//b", "/a/..%2fb", "/a\\b"] {
            let RequestVerdict::Refused { ambiguous, .. } =
                rules.decide(&host, 443, &asked("GET", path))
            else {
                panic!("{path} passed");
            };
            assert!(ambiguous.is_some(), "{path}");
        }
        // Who looks at methods alone does not mind.
        let rules = RequestRules(vec![rule("a.test", Methods::Reading, &[], "owner")]);
        assert!(passes(&rules, "GET", "/@scope%2fname//x"));
    }

    #[test]
    fn websockets_pass_only_where_a_rule_says_so() {
        let host = Host::parse(b"a.test").expect("a host");
        let mut one = rule("a.test", Methods::Any, &[], "owner");
        let request = Asked {
            websocket: true,
            ..asked("GET", "/live")
        };
        let rules = RequestRules(vec![one.clone()]);
        assert!(matches!(
            rules.decide(&host, 443, &request),
            RequestVerdict::Refused { .. }
        ));
        one.websocket = true;
        assert!(matches!(
            RequestRules(vec![one]).decide(&host, 443, &request),
            RequestVerdict::Passed { .. }
        ));
    }

    #[test]
    fn methods_are_words_in_capitals() {
        for text in ["", "get", "GET ", "G\u{c9}T", "*", "TRACE", "CONNECT"] {
            assert!(Method::parse(text).is_err(), "{text:?}");
        }
        assert!(Method::parse("M-SEARCH").is_ok());
    }
}
