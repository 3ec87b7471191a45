//! Commands that run another command, and where in their words that one stands.

use super::shell::{Assignment, Redirection};
use super::word::{Word, is_name};

/// What a command runs besides itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Inner {
    /// A command made of these words.
    Words {
        assignments: Vec<Assignment>,
        words: Vec<Word>,
    },
    /// A text for the shell.
    Script(String),
    /// Something that is only known when it runs.
    Unknown(&'static str),
}

/// What a command runs, and whether it does nothing else itself.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Wrapped {
    pub(super) inner: Vec<Inner>,
    /// Whether judging what is inside is judging the whole.
    pub(super) transparent: bool,
}

/// How the options of a command that runs another one are read.
struct Prefix {
    name: &'static str,
    /// Options that take the next word.
    valued: &'static [&'static str],
    /// Words after the options before the command begins.
    operands: usize,
    /// Whether assignments may stand before the command.
    assigns: bool,
    transparent: bool,
}

const fn prefix(name: &'static str, valued: &'static [&'static str], operands: usize) -> Prefix {
    Prefix {
        name,
        valued,
        operands,
        assigns: false,
        transparent: true,
    }
}

const fn gaining(name: &'static str, valued: &'static [&'static str]) -> Prefix {
    Prefix {
        name,
        valued,
        operands: 0,
        assigns: true,
        transparent: false,
    }
}

const PREFIXES: &[Prefix] = &[
    prefix("nohup", &[], 0),
    prefix("setsid", &[], 0),
    prefix("builtin", &[], 0),
    prefix("exec", &["-a"], 0),
    prefix("command", &[], 0),
    prefix("nice", &["-n", "--adjustment"], 0),
    prefix("ionice", &["-c", "-n", "--class", "--classdata"], 0),
    prefix("time", &["-f", "-o", "--format", "--output"], 0),
    prefix("timeout", &["-k", "-s", "--kill-after", "--signal"], 1),
    prefix(
        "stdbuf",
        &["-i", "-o", "-e", "--input", "--output", "--error"],
        0,
    ),
    prefix("chrt", &["-T", "-P", "-D"], 1),
    prefix("taskset", &[], 1),
    prefix("unbuffer", &[], 0),
    prefix("busybox", &[], 0),
    Prefix {
        assigns: true,
        ..prefix("env", &["-u", "-C", "--unset", "--chdir"], 0)
    },
    prefix(
        "xargs",
        &[
            "-I",
            "-i",
            "-n",
            "-P",
            "-L",
            "-l",
            "-d",
            "-E",
            "-s",
            "-a",
            "--replace",
            "--max-args",
            "--max-procs",
            "--max-lines",
            "--delimiter",
            "--max-chars",
            "--arg-file",
        ],
        0,
    ),
    Prefix {
        transparent: false,
        ..prefix(
            "strace",
            &["-o", "-e", "-p", "-s", "-P", "-u", "-E", "-a"],
            0,
        )
    },
    Prefix {
        transparent: false,
        ..prefix("chroot", &[], 1)
    },
    Prefix {
        transparent: false,
        ..prefix(
            "flock",
            &["-w", "-E", "--timeout", "--conflict-exit-code"],
            1,
        )
    },
    gaining(
        "sudo",
        &[
            "-u", "-g", "-h", "-p", "-C", "-T", "-R", "-D", "-r", "-t", "--user", "--group",
            "--host", "--prompt", "--chdir", "--chroot", "--role", "--type",
        ],
    ),
    gaining("doas", &["-u", "-C"]),
    gaining("pkexec", &["--user"]),
    gaining("runuser", &["-u", "-g", "-G"]),
    gaining("unshare", &["-w", "-R", "--wd", "--root"]),
    gaining("nsenter", &["-t", "-r", "-w", "--target"]),
];

const SHELLS: &[&str] = &["sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "rbash"];

/// Gives the name of a program without its directory.
pub(super) fn program_name(text: &str) -> &str {
    text.rsplit('/').next().unwrap_or(text)
}

/// Finds what a command runs besides itself.
pub(super) fn unwrap(words: &[Word], redirections: &[Redirection]) -> Wrapped {
    let Some(program) = words.first() else {
        return Wrapped::default();
    };
    if !program.exact {
        return Wrapped {
            inner: vec![Inner::Unknown(
                "the program's name is only known when it runs",
            )],
            transparent: false,
        };
    }
    let name = program_name(&program.text);
    let rest = &words[1..];
    if SHELLS.contains(&name) {
        return shell(rest, redirections);
    }
    match name {
        "eval" => of_script(joined(rest), true),
        "trap" => trap(rest),
        "find" => find(rest),
        "fd" | "fdfind" => after_option(rest, &["-x", "-X", "--exec", "--exec-batch"]),
        "watch" => watch(rest),
        "su" | "script" => option_script(rest),
        "parallel" => unknown("parallel makes its commands when it runs", false),
        _ => match PREFIXES.iter().find(|one| one.name == name) {
            Some(prefix) => through(prefix, rest),
            None => Wrapped::default(),
        },
    }
}

fn unknown(why: &'static str, transparent: bool) -> Wrapped {
    Wrapped {
        inner: vec![Inner::Unknown(why)],
        transparent,
    }
}

fn of_script(text: Option<String>, transparent: bool) -> Wrapped {
    match text {
        Some(text) => Wrapped {
            inner: vec![Inner::Script(text)],
            transparent,
        },
        None => unknown(
            "the text for a shell is only known when it runs",
            transparent,
        ),
    }
}

fn joined(words: &[Word]) -> Option<String> {
    let known: Option<Vec<&str>> = words.iter().map(Word::known).collect();
    known.map(|words| words.join(" "))
}

fn through(prefix: &Prefix, rest: &[Word]) -> Wrapped {
    let mut at = 0;
    let mut assignments = Vec::new();
    let mut operands = prefix.operands;
    let none = Wrapped::default();
    while let Some(word) = rest.get(at) {
        if !word.exact && operands == 0 {
            // An option, an assignment or the program: nobody can tell.
            break;
        }
        let text = word.text.as_str();
        if text == "--" {
            at += 1;
            if operands == 0 {
                break;
            }
        } else if text.starts_with('-') && text.len() > 1 {
            match (prefix.name, text) {
                // Only looks for the program.
                ("command", "-v" | "-V") => return none,
                ("flock", "-c" | "--command") => return of_script(joined(&rest[at + 1..]), false),
                ("env", "-S" | "--split-string") => {
                    return of_script(joined(&rest[at + 1..]), false);
                }
                ("env", long) if long.starts_with("-S") || long.starts_with("--split-string=") => {
                    return unknown("env splits a text of its own", false);
                }
                ("sudo" | "runuser" | "unshare" | "nsenter", "-l" | "-v" | "-k" | "-K") => {
                    return none;
                }
                _ => {}
            }
            at += if prefix.valued.contains(&text) { 2 } else { 1 };
        } else if prefix.assigns && is_assignment(text) {
            let (name, value) = text.split_once('=').unwrap_or((text, ""));
            assignments.push(Assignment {
                name: name.to_owned(),
                value: Word::exact(value),
            });
            at += 1;
        } else if operands > 0 {
            operands -= 1;
            at += 1;
            // `flock FILE -c TEXT`.
            if prefix.name == "flock" && rest.get(at).is_some_and(|next| next.is("-c")) {
                return of_script(joined(&rest[at + 1..]), false);
            }
        } else {
            break;
        }
    }
    let mut words = rest.get(at..).unwrap_or_default().to_vec();
    if prefix.name == "xargs" {
        if words.is_empty() {
            words.push(Word::exact("echo"));
        }
        words.push(Word::unknown("…"));
    }
    if words.is_empty() {
        return none;
    }
    Wrapped {
        inner: vec![Inner::Words { assignments, words }],
        transparent: prefix.transparent,
    }
}

fn is_assignment(text: &str) -> bool {
    text.split_once('=')
        .is_some_and(|(name, _)| is_name(name.as_bytes()))
}

fn shell(rest: &[Word], redirections: &[Redirection]) -> Wrapped {
    let mut text_follows = false;
    let mut at = 0;
    while let Some(word) = rest.get(at) {
        let text = word.text.as_str();
        if !word.exact && !text_follows {
            return unknown("an argument of the shell is only known when it runs", false);
        }
        match text {
            "--" | "-" => {
                at += 1;
                break;
            }
            "--rcfile" | "--init-file" | "-o" | "+o" | "-O" | "+O" => at += 2,
            long if long.starts_with("--") => at += 1,
            cluster if word.exact && cluster.len() > 1 && cluster.starts_with(['-', '+']) => {
                text_follows |= cluster.starts_with('-') && cluster.contains('c');
                // `-eo pipefail` takes a word as well.
                at += if cluster.ends_with('o') { 2 } else { 1 };
            }
            _ => break,
        }
    }
    match (text_follows, rest.get(at)) {
        (true, Some(text)) => of_script(text.known().map(str::to_owned), true),
        (true, None) => Wrapped::default(),
        // A script file: judged by its name.
        (false, Some(_)) if !is_from_input(&rest[..at]) => Wrapped::default(),
        (false, _) => {
            if let [only] = rest
                && matches!(only.text.as_str(), "--version" | "--help")
            {
                return Wrapped::default();
            }
            let given = redirections
                .iter()
                .rfind(|one| matches!(one.operator.as_str(), "<<" | "<<<"));
            match given {
                Some(given) => of_script(given.target.known().map(str::to_owned), true),
                None => unknown("a shell takes its commands from its input", true),
            }
        }
    }
}

fn is_from_input(options: &[Word]) -> bool {
    options.iter().any(|word| {
        word.text.starts_with('-') && !word.text.starts_with("--") && word.text.contains('s')
    })
}

fn trap(rest: &[Word]) -> Wrapped {
    match rest {
        [text, _, ..] if !text.text.starts_with('-') && !text.text.is_empty() => {
            of_script(text.known().map(str::to_owned), true)
        }
        _ => Wrapped {
            inner: Vec::new(),
            transparent: true,
        },
    }
}

fn find(rest: &[Word]) -> Wrapped {
    let mut inner = Vec::new();
    let mut at = 0;
    while let Some(word) = rest.get(at) {
        at += 1;
        if !matches!(word.text.as_str(), "-exec" | "-execdir" | "-ok" | "-okdir") {
            continue;
        }
        let from = at;
        while rest
            .get(at)
            .is_some_and(|word| !(word.is(";") || word.is("+")))
        {
            at += 1;
        }
        let words = rest[from..at]
            .iter()
            .map(|word| {
                if word.text.contains("{}") {
                    Word::unknown(word.text.clone())
                } else {
                    word.clone()
                }
            })
            .collect::<Vec<_>>();
        if !words.is_empty() {
            inner.push(Inner::Words {
                assignments: Vec::new(),
                words,
            });
        }
    }
    Wrapped {
        inner,
        transparent: false,
    }
}

fn after_option(rest: &[Word], options: &[&str]) -> Wrapped {
    let at = rest
        .iter()
        .position(|word| options.contains(&word.text.as_str()));
    let mut words = at.map(|at| rest[at + 1..].to_vec()).unwrap_or_default();
    let mut inner = Vec::new();
    if !words.is_empty() {
        words.push(Word::unknown("…"));
        inner.push(Inner::Words {
            assignments: Vec::new(),
            words,
        });
    }
    Wrapped {
        inner,
        transparent: false,
    }
}

fn watch(rest: &[Word]) -> Wrapped {
    let mut at = 0;
    while let Some(word) = rest.get(at) {
        match word.text.as_str() {
            "-n" | "--interval" => at += 2,
            option if option.starts_with('-') => at += 1,
            _ => break,
        }
    }
    match rest.get(at..) {
        Some(words) if !words.is_empty() => of_script(joined(words), true),
        _ => Wrapped::default(),
    }
}

fn option_script(rest: &[Word]) -> Wrapped {
    let at = rest
        .iter()
        .position(|word| matches!(word.text.as_str(), "-c" | "--command" | "-qc" | "-qec"));
    match at.and_then(|at| rest.get(at + 1)) {
        Some(text) => of_script(text.known().map(str::to_owned), false),
        None => Wrapped::default(),
    }
}
