//! Rules about commands: row 13 of the capability table, FC-81, F6.

use cofferdam_core::bytes::BytePath;
use cofferdam_core::commands::{
    CommandJudgement, CompiledRules, Harness, Judged, Seen, judge, see_argv, see_shell,
};
use cofferdam_core::decide::Verdict;
use cofferdam_core::policy::{EffectivePolicy, Layer};

use crate::fixture::{lay, read};

const CORPUS: &str = include_str!("corpus/agents.txt");

/// Gives each command line of the corpus with the agent that issued it.
fn corpus() -> Vec<(&'static str, &'static str)> {
    CORPUS
        .split("%% ")
        .skip(1)
        .map(|entry| {
            let (agent, text) = entry.split_once('\n').expect("an agent and a command");
            (agent, text.trim_end_matches('\n'))
        })
        .collect()
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r#"'"'"'"#))
}

/// Puts around a command what the agent's harness puts there, as it was seen.
fn as_issued(agent: &str, command: &str) -> Vec<BytePath> {
    let words: Vec<String> = match agent {
        "claude" => {
            let eval = quoted(command);
            vec![
                "/bin/bash".into(),
                "-c".into(),
                format!(
                    "source $HOME/.claude/shell-snapshots/snapshot-bash-1764-ab.sh 2>/dev/null || true && shopt -u extglob 2>/dev/null || true && eval {eval} && pwd -P >| /tmp/claude-3f9a-cwd"
                ),
            ]
        }
        "codex" => {
            let inner = quoted(command);
            vec![
                "/bin/bash".into(),
                "-c".into(),
                format!(
                    "if . '/home/dev/.codex/shell_snapshots/0199.sh' >/dev/null 2>&1; then :; fi\n\nexec '/bin/bash' -c {inner}"
                ),
            ]
        }
        "gemini" => vec![
            "/usr/bin/bash".into(),
            "-c".into(),
            format!(
                "shopt -u promptvars nullglob extglob nocaseglob dotglob; _bgpids_file=/tmp/gemini-shell-Xy1/bgpids.tmp\n(\n  trap 'jobs -p > \"$_bgpids_file\"' EXIT\n{command}\n)\n__code=$?\nexit $__code"
            ),
        ],
        "opencode" => vec!["/bin/bash".into(), "-c".into(), command.into()],
        other => panic!("{other} is no agent of the corpus"),
    };
    words.into_iter().map(BytePath::from).collect()
}

/// Writes down what was seen, without what only runs the rest.
fn shown(seen: &Seen) -> String {
    let lines = seen
        .commands
        .iter()
        .filter(|one| one.harness.is_none() && !one.runs_others)
        .map(|one| one.line().replace('\n', "⏎"));
    let unclear = seen.unclear.iter().map(|one| format!("? {}", one.why));
    lines.chain(unclear).collect::<Vec<_>>().join("\n  ")
}

#[test]
fn every_command_line_of_the_corpus_is_read() {
    let corpus = corpus();
    assert!(corpus.len() >= 120, "{}", corpus.len());
    let mut told = String::new();
    for (agent, command) in corpus {
        let argv = as_issued(agent, command);
        let seen = see_argv(&argv);
        let unread: Vec<_> = seen
            .unclear
            .iter()
            .filter(|one| one.why.contains("cannot be read"))
            .collect();
        assert!(unread.is_empty(), "{command}: {unread:?}");
        let size: usize = argv.iter().map(|word| word.as_bytes().len()).sum();
        // A text within a text is read again, and no deeper than the corpus nests.
        assert!(
            seen.steps <= 6 * size,
            "{command}: {} of {size}",
            seen.steps
        );
        told.push_str(agent);
        told.push_str(":\n  ");
        told.push_str(&shown(&seen));
        told.push('\n');
    }
    insta::assert_snapshot!("corpus", told);
}

#[test]
fn what_a_harness_puts_around_a_command_is_not_judged() {
    for (agent, harness, count) in [
        ("claude", Harness::Claude, 5),
        ("codex", Harness::Codex, 2),
        ("gemini", Harness::Gemini, 6),
    ] {
        let seen = see_argv(&as_issued(agent, "touch a"));
        let own: Vec<_> = seen
            .commands
            .iter()
            .filter(|one| one.harness == Some(harness))
            .map(cofferdam_core::commands::SeenCommand::line)
            .collect();
        assert_eq!(own.len(), count, "{agent}: {own:?}");
        assert_eq!(shown(&seen), "touch a");
    }
}

#[test]
fn only_the_very_shape_of_a_harness_is_left_alone() {
    for text in [
        // Not the harness's file, more than the file, another one before.
        "eval 'touch a' && pwd -P >| /etc/claude-1/../x-cwd",
        "eval 'touch a' && pwd -P >| /tmp/claude-1-cwd >| /etc/passwd",
        "eval 'touch a' && pwd -P >| \"$HOME/claude-1-cwd\"",
        "rm -rf / && eval 'touch a' && pwd -P >| /tmp/claude-1-cwd",
        "source /tmp/evil.sh && eval 'touch a' && pwd -P >| /tmp/claude-1-cwd",
    ] {
        let seen = see_shell(text);
        assert!(
            seen.commands.iter().all(|one| one.harness.is_none()),
            "{text}"
        );
    }
}

fn rules(text: &str) -> CompiledRules {
    CompiledRules::new(&policy(text).commands)
}

fn policy(text: &str) -> EffectivePolicy {
    lay(&[(Layer::User, text)]).expect("a good policy")
}

const RULES: &str = r#"
[[commands]]
command = ["rm"]
has = ["-r|-R|--recursive", "-f|--force"]
decision = "deny"
justification = "remove files by name"
match = ["rm -rf build", "sudo rm -fr /", "find . -exec rm -r -f {} +", "bash -c 'cd x; rm --recursive --force y'"]
not_match = ["rm -r build", "echo rm -rf /", "grep 'rm -rf' a"]

[[commands]]
command = ["git", "push"]
has = ["-f|--force"]
decision = "ask"
match = ["git -C dir push --force", "git push -fu origin x"]
not_match = ["git push --force-with-lease", "git push"]

[[commands]]
command = ["ls|cat|git"]
decision = "allow"

[[commands]]
command = ["curl"]
decision = "deny"
"#;

fn judged(text: &str, walls: bool) -> CommandJudgement {
    let root = BytePath::from("/w");
    judge(&rules(RULES), &see_shell(text), walls, Some(&root))
}

#[test]
fn the_strictest_rule_about_any_simple_command_wins() {
    let told: Vec<String> = [
        "ls",
        "ls && cat a | git log",
        "cd /w/src && ls",
        "ls; rm -rf x",
        "git push --force",
        "git push -f && rm -fr x",
        "make",
        "FOO=1 ls",
        "ls > a",
        "./ls",
        "rm $FLAGS x",
        "$(echo rm) -rf /",
        "if true",
    ]
    .iter()
    .map(|text| {
        let open = judged(text, false);
        let walled = judged(text, true);
        let rule = open.rule.map(|rule| rule.name()).unwrap_or_default();
        format!(
            "{text}: {}, behind walls {} [{rule}]",
            open.verdict.as_str(),
            walled.verdict.as_str()
        )
    })
    .collect();
    insta::assert_snapshot!(told.join("\n"), @r#"
    ls: allow, behind walls allow [commands (user): ls|cat|git]
    ls && cat a | git log: allow, behind walls allow [commands (user): ls|cat|git]
    cd /w/src && ls: allow, behind walls allow [commands (user): ls|cat|git]
    ls; rm -rf x: deny, behind walls deny [commands (user): rm … -r|-R|--recursive … -f|--force]
    git push --force: ask, behind walls ask [commands (user): git push … -f|--force]
    git push -f && rm -fr x: deny, behind walls deny [commands (user): rm … -r|-R|--recursive … -f|--force]
    make: ask, behind walls allow []
    FOO=1 ls: ask, behind walls allow []
    ls > a: ask, behind walls allow []
    ./ls: ask, behind walls allow []
    rm $FLAGS x: ask, behind walls allow [commands (user): rm … -r|-R|--recursive … -f|--force]
    $(echo rm) -rf /: ask, behind walls allow []
    if true: ask, behind walls allow []
    "#);
}

/// FC-81: what a list of prefixes lets pass. Each holds something that is not `ls`, `cat` or `git`,
/// or does more than was allowed; none may be allowed where no walls stand.
const BYPASSES: &[&str] = &[
    "ls; touch x",
    "ls && touch x",
    "ls || touch x",
    "ls | sh",
    "ls & touch x",
    "ls\ntouch x",
    "ls $(touch x)",
    "ls `touch x`",
    "ls \"$(touch x)\"",
    "ls <(touch x)",
    "ls >(touch x)",
    "ls > ~/.bashrc",
    "ls >> ~/.bashrc",
    "ls >| ~/.bashrc",
    "ls &> ~/.bashrc",
    "cat <> ~/.bashrc",
    "env X= touch x",
    "PAGER='touch x' git log",
    "GIT_SSH_COMMAND=touch git fetch",
    "LD_PRELOAD=./x.so ls",
    "PATH=.:$PATH; ls",
    "export PAGER=touch; git log",
    "typeset -x PAGER=touch; git log",
    "command touch x",
    "builtin eval touch x",
    "exec touch x",
    "eval 'touch x'",
    "eval \"$X\"",
    "bash -c 'touch x'",
    "bash -c \"$X\"",
    "sh <<< 'touch x'",
    "bash <<'E'\ntouch x\nE",
    "cat <<E\n$(touch x)\nE",
    "t\\ouch x",
    "'touch' x",
    "$'\\x74ouch' x",
    "{touch,x}",
    "$CMD x",
    "/bin/t?uch x",
    "find . -exec touch {} \\;",
    "find . -delete",
    "xargs touch < a",
    "ls() { touch x; }; ls",
    "trap 'touch x' EXIT; ls",
    "./ls",
    "/tmp/git status",
    "if ls; then touch x; fi",
    "while ls; do touch x; done",
    "(ls; touch x)",
    "ls $((a[$(touch x)]))",
    "ls ${x:-$(touch x)}",
    "for i in $(touch x); do ls; done",
    "case $(touch x) in *) ls;; esac",
    "[[ -n $(touch x) ]] && ls",
    "source ./x; ls",
    "time touch x",
    "! touch x",
    "coproc touch x",
    "cd ../evil && git status",
    "printf -v PATH %s . ; ls",
    "ls \"`touch x`\"",
    "ls a#b; touch x",
    "ls \\\n; touch x",
    "ls ${ touch x; }",
];

#[test]
fn fc_81_no_bypass_of_a_prefix_is_allowed_without_walls() {
    for text in BYPASSES {
        let judgement = judged(text, false);
        assert_ne!(judgement.verdict, Verdict::Allow, "{text}: {judgement:?}");
        // Behind walls nothing of it is refused, and all of it is told.
        let walled = judged(text, true);
        assert_eq!(walled.verdict, Verdict::Allow, "{text}");
        assert!(walled.unsettled().next().is_some(), "{text}: {walled:?}");
    }
}

#[test]
fn what_only_looks_like_a_command_is_none() {
    for text in [
        "echo 'rm -rf /'",
        "echo \"rm -rf /\"",
        "# rm -rf /",
        "echo a # rm -rf /",
        "cat <<'E'\nrm -rf /\n$(rm -rf /)\nE",
        "echo $'rm -rf /'",
        "ls --format rm",
        "cat 2>/dev/null",
        "cat a 2>&1 >/dev/null",
    ] {
        assert_eq!(judged(text, false).verdict, Verdict::Allow, "{text}");
    }
}

#[test]
fn a_rule_is_refused_when_its_examples_do_not_hold() {
    let refused = |text: &str| {
        let problem = read(Layer::User, text).expect_err("refused");
        format!(
            "{} [{}] {}",
            problem.code,
            problem.field.unwrap_or_default(),
            problem.message
        )
    };
    let many = "[[commands]]\ncommand = [\"a\"]\ndecision = \"deny\"\n".repeat(501);
    let long = format!(
        "[[commands]]\ncommand = [\"{}\"]\ndecision = \"deny\"\n",
        "a".repeat(1001)
    );
    let told = [
        "[[commands]]\ncommand = [\"rm\"]\ndecision = \"deny\"\nmatch = [\"ls\"]",
        "[[commands]]\ncommand = [\"rm\"]\ndecision = \"deny\"\nnot_match = [\"a; rm b\"]",
        "[[commands]]\ncommand = []\ndecision = \"deny\"",
        "[[commands]]\ncommand = [\"git push\"]\ndecision = \"deny\"",
        "[[commands]]\ncommand = [\"a|\"]\ndecision = \"deny\"",
        many.as_str(),
        long.as_str(),
    ]
    .map(refused);
    insta::assert_snapshot!(told.join("\n"), @r#"
    policy_invalid_value [commands] the policy: rule 1 about commands: it does not fire for its example "ls"
    policy_invalid_value [commands] the policy: rule 1 about commands: it fires for "a; rm b", and says it does not
    policy_invalid_value [commands] the policy: rule 1 about commands: command names no word
    policy_invalid_value [commands] the policy: rule 1 about commands: "git push" is one word with a blank in it
    policy_invalid_value [commands] the policy: rule 1 about commands: a word, or an alternative of one, is empty
    policy_invalid_value [commands] the policy: there are 501 rules about commands
    policy_invalid_value [commands] the policy: rule 1 about commands: it is too long
    "#);
}

#[test]
fn a_project_only_adds_what_is_stricter() {
    let rule =
        |decision: &str| format!("[[commands]]\ncommand = [\"make\"]\ndecision = \"{decision}\"");
    let allow = lay(&[(Layer::Project, &rule("allow"))]).expect("a good policy");
    assert!(allow.commands.is_empty());
    assert_eq!(allow.proposals.len(), 1);
    let both = lay(&[
        (Layer::User, &rule("allow")),
        (Layer::Project, &rule("deny")),
    ]);
    let both = both.expect("a good policy");
    let compiled = CompiledRules::new(&both.commands);
    let judgement = judge(&compiled, &see_shell("make"), true, None);
    assert_eq!(judgement.verdict, Verdict::Deny);
    assert_eq!(judgement.rule.map(|rule| rule.layer), Some(Layer::Project));
    assert!(lay(&[(Layer::Request, &rule("allow"))]).is_err());
    assert!(lay(&[(Layer::Managed, &rule("allow"))]).is_err());
}

/// F6: no text takes longer than its length allows. Counted in steps, so that a busy machine does
/// not decide.
#[test]
fn f6_hostile_texts_take_linear_work() {
    let here = "cat <<X\n".repeat(200);
    let texts: Vec<String> = [
        "(",
        "((",
        "$(",
        "$((",
        "`",
        "\"$(",
        "${x:-",
        "{ ",
        "if ",
        "while ",
        "case a in ",
        "f() ",
        "! ",
        "time ",
        "a && ",
        "a | ",
        "<(",
        "[[ ",
        "'",
        "\"",
        "\\",
        "<<X ",
        "<<X\n",
        "a=(",
        "@(",
        "env ",
        "sudo ",
        "eval ",
        "bash -c ",
        "xargs ",
        "#",
        "{a,",
        "$'\\",
        "coproc ",
        "function ",
        "for a in ",
        "1>",
        "\t\n",
        "&",
        "\"`",
        "`\\",
        "\\\n",
        "[[ (",
        "${ ",
        ";;",
        "esac ",
        "$",
    ]
    .iter()
    .flat_map(|piece| [piece.repeat(200), piece.repeat(20_000)])
    .chain([here])
    .collect();
    for text in texts {
        let seen = see_shell(&text);
        let most = 20 * (text.len() + 1024);
        assert!(
            seen.steps <= most,
            "{:?}…: {}",
            &text[..8.min(text.len())],
            seen.steps
        );
    }
    let open = see_shell(&"cat <<X\n".repeat(200));
    assert!(open.steps < 10_000, "{}", open.steps);
}

#[test]
fn what_is_too_deep_or_too_large_cannot_be_told() {
    for text in [
        "$(".repeat(100) + &")".repeat(100),
        "a ".repeat(70_000),
        "a;".repeat(5_000),
    ] {
        let seen = see_shell(&text);
        assert!(!seen.unclear.is_empty(), "{}", &text[..10]);
        assert_eq!(judged(&text, false).verdict, Verdict::Ask);
        assert_eq!(judged(&text, true).verdict, Verdict::Allow);
    }
    let layers = "eval ".repeat(20) + "touch x";
    assert!(!see_shell(&layers).unclear.is_empty());
}

#[test]
fn a_deny_rule_fires_through_everything_that_runs_another_command() {
    for text in [
        "curl x",
        "/usr/bin/curl x",
        "\\curl x",
        "c''url x",
        "sudo -u root -E curl x",
        "timeout -s KILL 5 curl x",
        "nice -n 5 nohup env A=b curl x",
        "xargs -0 -n 1 curl",
        "find . -name a -exec sh -c 'curl $1' _ {} ;",
        "bash -euo pipefail -c 'curl x'",
        "sh -c \"bash -c 'curl x'\"",
        "echo $(echo `curl x`)",
        "eval curl x",
        "watch -n 1 curl x",
        "flock /tmp/l curl x",
        "flock /tmp/l -c 'curl x'",
        "su dev -c 'curl x'",
        "time -p curl x",
        "if ! curl x; then :; fi",
        "f() { curl x; }",
        "a=$(curl x)",
        "a=(1 $(curl x))",
        "cat <<E\n`curl x`\nE",
        "bash <<'E'\ncurl x\nE",
        "{ curl x; } > a",
        "for ((i=0;i<$(curl x);i++)); do :; done",
        "trap 'curl x' EXIT",
        "busybox sh -c 'curl x'",
        "env -i -- curl x",
        "command -p curl x",
        "exec -a name curl x",
        "until curl x; do sleep 1; done",
        "select x in a; do curl x; done",
        "case a in a) curl x;& b) ;; esac",
        "case a in (a|b) curl x; esac",
        "! { curl x; }",
        "a && b || c | curl x",
        "curl x &",
        "coproc curl x",
        "declare -a a=($(curl x))",
        "echo ${a:-`curl x`}",
        "echo \"${a:=$(curl x)}\"",
        "<(curl x)",
        "function f { curl x; }",
        "[[ a =~ (b|c) ]] && curl x",
        "((a++)); curl x",
        ">/dev/null curl x",
    ] {
        let judgement = judged(text, true);
        assert_eq!(judgement.verdict, Verdict::Deny, "{text}: {judgement:?}");
        let fired = judgement
            .commands
            .iter()
            .any(|one| one.judged == Judged::Deny);
        assert!(fired);
    }
}

mod any_text {
    use cofferdam_core::commands::see_shell;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn is_read_without_a_panic_in_linear_work(
            pieces in prop::collection::vec(prop_oneof![
                Just("(".to_owned()), Just(")".into()), Just("$(".into()), Just("`".into()),
                Just("\"".into()), Just("'".into()), Just("\\".into()), Just("\n".into()),
                Just("<<E\n".into()), Just("E\n".into()), Just("{ ".into()), Just("}".into()),
                Just("if ".into()), Just("then ".into()), Just("fi".into()), Just(";".into()),
                Just("case a in ".into()), Just("esac".into()), Just("[[ ".into()), Just("]]".into()),
                Just("bash -c ".into()), Just("${".into()), Just("$((".into()), Just("))".into()),
                "\\PC{0,6}".prop_map(String::from),
            ], 0..60)
        ) {
            let text = pieces.concat();
            let seen = see_shell(&text);
            prop_assert!(seen.steps <= 20 * (text.len() + 1024));
        }
    }
}
