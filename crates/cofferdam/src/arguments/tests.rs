//! Help texts as people see them; whoever changes one sees it here.

use clap::CommandFactory as _;

use super::CommandLine;

fn help(path: &[&str]) -> String {
    let mut command = CommandLine::command();
    command.build();
    let mut found = &mut command;
    for name in path {
        found = found
            .find_subcommand_mut(name)
            .expect("a command of this name");
    }
    found.render_help().to_string()
}

#[test]
fn the_definition_is_sound() {
    CommandLine::command().debug_assert();
}

#[test]
fn the_first_help_shows_where_to_start() {
    insta::assert_snapshot!(help(&[]), @r"
    Let AI agents work behind walls, in full view

    Usage: cofferdam [OPTIONS] <COMMAND>

    Commands:
      run        Run one command behind walls
      task       Run, inspect and merge tasks
      review     Look at what tasks did, before you merge or drop it
      merge      Merge tasks, each into the branch from which it began
      drop       Drop tasks, each kept recoverable
      undo       Take back the last merge or drop of tasks, or go back to a snapshot of your files
      terminal   Open and use terminals of a running server, play recordings
      attach     Put a terminal or a session of a running server on this one
      session    Run commands in a place that stays up, of a running server
      approvals  List what waits for your answer, and answer it
      push       Hold a push of a task's own branch, or push it
      outbox     List what would leave this machine and is held, and release or refuse it
      mode       Tell or set what may be changed in a workspace from now on
      paths      Authorise paths outside of the workspace, list and revoke them
      protected  List names that your own tools obey, release one, put back what was taken away there
      ps         List tasks, commands, sessions and terminals that run now
      stop       Stop tasks that run in another terminal
      logs       Show what a command, a task, a session or a terminal wrote
      kill       End commands, tasks, sessions and terminals that run elsewhere
      setup      Have an agent that you use work behind walls: all of it, its commands, or by our tools
      claude     Run Claude Code as a task, behind walls
      codex      Run Codex as a task, behind walls
      gemini     Run Gemini CLI as a task, behind walls
      opencode   Run opencode as a task, behind walls
      profile    List, show and check profiles of agents
      tool       List, show and check tools of your own
      policy     Explain and check policies
      journal    Verify the journal
      events     Show what happened, event by event
      topology   Show who works on what: conversations, agents and tasks as a tree
      evidence   Show what supports a task's result
      threads    List threads, or show the messages of one
      verifier   Show what the verifiers said
      summary    Show the state of the whole in a few lines
      serve      Serve operations on a workspace, and what happened, over HTTP
      mcp        Offer operations on a workspace as tools over MCP
      call       Call an operation: of a server, or here
      doctor     Tell what this machine can enforce, and help to enforce more
      demo       Watch three tasks work in a throwaway repository

    Options:
          --json            Print one JSON object on standard output instead of text
          --data-dir <DIR>  Directory of the journal and of the tasks' trees [default:
                            $COFFERDAM_DATA_DIR, $XDG_DATA_HOME/cofferdam or ~/.local/share/cofferdam]
      -h, --help            Print help (see more with '--help')
      -V, --version         Print version

    Start here:
      cofferdam doctor                        what this machine can enforce
      cofferdam demo                          three tasks at work in a throwaway repository
      cofferdam run -- npm test               one command behind walls
      cofferdam task run --goal 'fix the parser' --verify 'make check' -- CMD
                                              one task on a branch of its own
      cofferdam claude                        the agent you use, on a branch of its own
      cofferdam review                        what it did; then `cofferdam merge 1` or `drop 1`

    Exit codes: 0 good, 1 only the verifier failed, 2 wrong usage, 124 time limit, 125 Cofferdam itself
    failed or refused, 126 denied or not executable, 127 not found, 128+N ended by signal N; every other
    code is the command's own.
    ");
}

#[test]
fn run_tells_what_it_allows() {
    insta::assert_snapshot!(help(&["run"]), @r"
    Run one command behind walls

    Usage: cofferdam run [OPTIONS] -- <CMD>...

    Options:
          --json            Print one JSON object on standard output instead of text
          --data-dir <DIR>  Directory of the journal and of the tasks' trees [default:
                            $COFFERDAM_DATA_DIR, $XDG_DATA_HOME/cofferdam or ~/.local/share/cofferdam]
      -h, --help            Print help (see more with '--help')

    Walls:
          --workspace <DIR>                Directory that may be written [default: the git top level of
                                           the current directory, or the current directory]
          --cwd <DIR>                      Directory within the workspace in which the command starts
                                           [default: the current directory where it lies within, else
                                           the workspace]
          --provider <PROVIDER>            What puts the walls up [default: as the policy says, auto]
                                           [possible values: auto, bwrap, landlock, direct, memory,
                                           container, microvm]
          --net <LEVEL>                    How much of the network is seen [possible values: none,
                                           restricted, full]
          --allow <HOST>                   Host that may be reached: HOST, HOST:PORT, *.HOST, or @dev
                                           for what package clients and git remotes use here; means
                                           --net restricted; may be given several times
          --allow-read <HOST>              The same, for reading only: GET, HEAD and what a fetch of git
                                           posts; TLS of these hosts ends in the proxy; may be given
                                           several times
          --deny <HOST>                    Host that is refused whatever allows it; may be given several
                                           times
          --broker <NAME=HOST>             Variable of here that holds a secret for one host: inside it
                                           holds a placeholder, and only the host is told the value, as
                                           `Authorization: Bearer`; may be given several times
          --ask                            Ask about a host that nothing allows, instead of refusing it
          --permission <MODE>              What may be changed before you are asked [default:
                                           unrestricted] [possible values: readonly, approval,
                                           auto_approval, unrestricted]
          --profile <NAME>                 Profile of the agent that is run, or none [default: found by
                                           the program's name in tasks]
          --rw <PATH>                      Path that may be read and written; may be given several times
          --ro <PATH>                      Path that may be read; may be given several times
          --env <NAME[=VALUE]>             Variable for the command, with a value or taken from here;
                                           may be given several times
          --reach <HOST:PORT>              Service on loopback here that stands at the same address
                                           inside; may be given several times
          --publish <auto|[OUTSIDE:]PORT>  Port of the inside that is opened on 127.0.0.1 here, or every
                                           one; may be given several times
          --policy <FILE>                  Policy file in place of the user's own

    Time:
          --timeout <SECONDS>       Seconds after which the command and all that it started are ended
          --idle-timeout <SECONDS>  Seconds without output after which they are ended

    Terminal:
          --tty       Give the command a terminal of its own [default: when standard input and output
                      are one]
          --no-tty    Give it pipes, also on a terminal
          --snapshot  Keep the files of the checkout as they are before and after the command, untracked
                      ones included; an agent under a profile has this always. `cofferdam undo --list`
                      shows them

    Command:
      <CMD>...  The command and its arguments, as they are

    Examples:
      cofferdam run -- cargo test
      cofferdam run --net full -- npm install
      cofferdam run --ro ~/datasets --timeout 600 -- python3 train.py
      generate | cofferdam run --json -- ./convert > outcome.json

    The command may write the workspace and private temporary places, reads system directories and
    toolchains, and has no network but its own loopback. `cofferdam policy explain -- CMD` shows the
    whole plan and which layer asks for each part of it.

    Its streams are yours: bytes come out as they are written, and standard input is passed on where it
    is a pipe or a file. On a terminal it gets a terminal of its own; Ctrl-C, Ctrl-Z and `fg` work as
    usual; a second SIGINT, SIGTERM or SIGHUP to cofferdam ends it. (Only a SIGKILL of cofferdam itself
    leaves the terminal raw: type `reset`.)
    ");
}

#[test]
fn task_lists_its_verbs() {
    insta::assert_snapshot!(help(&["task"]), @r"
    Run, inspect and merge tasks

    Usage: cofferdam task [OPTIONS] <COMMAND>

    Commands:
      run    Run a command as a task, on a branch of its own
      list   List tasks
      show   Show the result of a task
      diff   Show what a task changed
      merge  Merge a task's branch into the branch from which it began
      drop   Drop a task: its tree and its branch, kept recoverable
      undo   Take back the last merge or drop of a task

    Options:
          --json            Print one JSON object on standard output instead of text
          --data-dir <DIR>  Directory of the journal and of the tasks' trees [default:
                            $COFFERDAM_DATA_DIR, $XDG_DATA_HOME/cofferdam or ~/.local/share/cofferdam]
      -h, --help            Print help
    ");
}

#[test]
fn task_run_tells_where_the_work_goes() {
    insta::assert_snapshot!(help(&["task", "run"]), @r"
    Run a command as a task, on a branch of its own

    Usage: cofferdam task run [OPTIONS] -- <CMD>...

    Options:
          --goal <TEXT>               The goal, in words
          --verify <CHECK>            Shell command that decides pass or fail; may be given several
                                      times
          --setup <STEP>              Shell command that prepares the tree before the command starts;
                                      may be given several times
          --isolation <MODE>          How far the task stands apart [default: worktree] [possible
                                      values: none, session, worktree, sandbox]
          --strategy <STRATEGY>       Whether its tree lasts beyond it [default: ephemeral] [possible
                                      values: ephemeral, persistent]
          --cleanup <WHEN>            When its tree is removed [default: on_success] [possible values:
                                      always, on_success, never]
          --carry <WHAT>              What of your uncommitted work goes in [default: none] [possible
                                      values: none, tracked, all]
          --verify-from <FROM>        Where the checks take files from that they read and the task
                                      changed [default: task] [possible values: task, base]
          --verify-timeout <SECONDS>  Seconds that each check may take
          --worker <NAME>             Name of the worker, the last part of the branch [default: made up]
          --fork <N>                  Run the same task N times side by side, each in a tree of its own;
                                      workers are NAME-1 to NAME-N, and nothing is read from standard
                                      input
          --json                      Print one JSON object on standard output instead of text
          --data-dir <DIR>            Directory of the journal and of the tasks' trees [default:
                                      $COFFERDAM_DATA_DIR, $XDG_DATA_HOME/cofferdam or
                                      ~/.local/share/cofferdam]
      -h, --help                      Print help (see more with '--help')

    Walls:
          --workspace <DIR>                Directory that may be written [default: the git top level of
                                           the current directory, or the current directory]
          --cwd <DIR>                      Directory within the workspace in which the command starts
                                           [default: the current directory where it lies within, else
                                           the workspace]
          --provider <PROVIDER>            What puts the walls up [default: as the policy says, auto]
                                           [possible values: auto, bwrap, landlock, direct, memory,
                                           container, microvm]
          --net <LEVEL>                    How much of the network is seen [possible values: none,
                                           restricted, full]
          --allow <HOST>                   Host that may be reached: HOST, HOST:PORT, *.HOST, or @dev
                                           for what package clients and git remotes use here; means
                                           --net restricted; may be given several times
          --allow-read <HOST>              The same, for reading only: GET, HEAD and what a fetch of git
                                           posts; TLS of these hosts ends in the proxy; may be given
                                           several times
          --deny <HOST>                    Host that is refused whatever allows it; may be given several
                                           times
          --broker <NAME=HOST>             Variable of here that holds a secret for one host: inside it
                                           holds a placeholder, and only the host is told the value, as
                                           `Authorization: Bearer`; may be given several times
          --ask                            Ask about a host that nothing allows, instead of refusing it
          --permission <MODE>              What may be changed before you are asked [default:
                                           unrestricted] [possible values: readonly, approval,
                                           auto_approval, unrestricted]
          --profile <NAME>                 Profile of the agent that is run, or none [default: found by
                                           the program's name in tasks]
          --rw <PATH>                      Path that may be read and written; may be given several times
          --ro <PATH>                      Path that may be read; may be given several times
          --env <NAME[=VALUE]>             Variable for the command, with a value or taken from here;
                                           may be given several times
          --reach <HOST:PORT>              Service on loopback here that stands at the same address
                                           inside; may be given several times
          --publish <auto|[OUTSIDE:]PORT>  Port of the inside that is opened on 127.0.0.1 here, or every
                                           one; may be given several times
          --policy <FILE>                  Policy file in place of the user's own

    Time:
          --timeout <SECONDS>       Seconds after which the command and all that it started are ended
          --idle-timeout <SECONDS>  Seconds without output after which they are ended

    Terminal:
          --tty     Give the command a terminal of its own [default: when standard input and output are
                    one]
          --no-tty  Give it pipes, also on a terminal

    Command:
      <CMD>...  The command and its arguments, as they are

    Examples:
      cofferdam task run --goal 'fix the parser' --verify 'make check' -- ./agent fix parser
      cofferdam task run --goal 'bump deps' --setup 'npm ci' --net full -- npm update
      cofferdam task run --isolation sandbox --goal 'lint here' -- npm run lint

    By default the task works in a working tree of its own on branch cofferdam/RUN/WORKER, from the
    commit that is checked out now; your checkout and your git directory are read-only to it. When it
    ends, the checks decide, its branch is brought into the repository, and nothing is merged until you
    say so: `cofferdam task diff N`, then `cofferdam task merge N` or `cofferdam task drop N`.

    What git ignores does not stand in a fresh tree: list what is needed in `.worktreeinclude`, or make
    it with --setup.
    ");
}

#[test]
fn merge_tells_what_it_refuses() {
    insta::assert_snapshot!(help(&["task", "merge"]), @r"
    Merge a task's branch into the branch from which it began

    Usage: cofferdam task merge [OPTIONS] <TASK>

    Arguments:
      <TASK>  Number of the task, its id, or the beginning of it

    Options:
          --into <BRANCH>     Branch that takes them, in place of the one from which each task began
          --allow-protected   Let them change names that the host's tools execute or obey
          --push              Push the branch that took them, with your own credentials and hooks, and
                              never with force
          --remote <NAME>     The remote to which it is pushed, by its name [default: where git pushes
                              that branch]
          --repository <DIR>  The repository of the tasks, where the current directory is not in it
          --json              Print one JSON object on standard output instead of text
          --data-dir <DIR>    Directory of the journal and of the tasks' trees [default:
                              $COFFERDAM_DATA_DIR, $XDG_DATA_HOME/cofferdam or ~/.local/share/cofferdam]
      -h, --help              Print help

    The merge is computed without touching your tree, and applied only when it is clean, the branch has
    not moved meanwhile and the checkout has no changes of its own. Files that the host's tools execute
    or obey (hooks, start-up files of agents and editors) are refused unless you allow them.
    `cofferdam task undo N` takes it back.

    Examples:
      cofferdam task merge 1
      cofferdam task merge 1 --into release
    ");
}

#[test]
fn policy_explain_shows_examples() {
    insta::assert_snapshot!(help(&["policy", "explain"]), @r"
    Show each value with the layer that gave it, the plan, and what enforces it

    Usage: cofferdam policy explain [OPTIONS] [CMD]...

    Options:
          --json            Print one JSON object on standard output instead of text
          --data-dir <DIR>  Directory of the journal and of the tasks' trees [default:
                            $COFFERDAM_DATA_DIR, $XDG_DATA_HOME/cofferdam or ~/.local/share/cofferdam]
      -h, --help            Print help (see more with '--help')

    Walls:
          --workspace <DIR>                Directory that may be written [default: the git top level of
                                           the current directory, or the current directory]
          --cwd <DIR>                      Directory within the workspace in which the command starts
                                           [default: the current directory where it lies within, else
                                           the workspace]
          --provider <PROVIDER>            What puts the walls up [default: as the policy says, auto]
                                           [possible values: auto, bwrap, landlock, direct, memory,
                                           container, microvm]
          --net <LEVEL>                    How much of the network is seen [possible values: none,
                                           restricted, full]
          --allow <HOST>                   Host that may be reached: HOST, HOST:PORT, *.HOST, or @dev
                                           for what package clients and git remotes use here; means
                                           --net restricted; may be given several times
          --allow-read <HOST>              The same, for reading only: GET, HEAD and what a fetch of git
                                           posts; TLS of these hosts ends in the proxy; may be given
                                           several times
          --deny <HOST>                    Host that is refused whatever allows it; may be given several
                                           times
          --broker <NAME=HOST>             Variable of here that holds a secret for one host: inside it
                                           holds a placeholder, and only the host is told the value, as
                                           `Authorization: Bearer`; may be given several times
          --ask                            Ask about a host that nothing allows, instead of refusing it
          --permission <MODE>              What may be changed before you are asked [default:
                                           unrestricted] [possible values: readonly, approval,
                                           auto_approval, unrestricted]
          --profile <NAME>                 Profile of the agent that is run, or none [default: found by
                                           the program's name in tasks]
          --rw <PATH>                      Path that may be read and written; may be given several times
          --ro <PATH>                      Path that may be read; may be given several times
          --env <NAME[=VALUE]>             Variable for the command, with a value or taken from here;
                                           may be given several times
          --reach <HOST:PORT>              Service on loopback here that stands at the same address
                                           inside; may be given several times
          --publish <auto|[OUTSIDE:]PORT>  Port of the inside that is opened on 127.0.0.1 here, or every
                                           one; may be given several times
          --policy <FILE>                  Policy file in place of the user's own
          --task                           Show what holds in a task, where @dev is allowed by default

    Command:
      [CMD]...  The command whose plan is shown

    Examples:
      cofferdam policy explain
      cofferdam policy explain --net full --ro ~/datasets -- python3 train.py
      cofferdam policy explain --json | jq .enclosure.mounts
    ");
}

#[test]
fn doctor_says_what_it_changes() {
    insta::assert_snapshot!(help(&["doctor"]), @r"
    Tell what this machine can enforce, and help to enforce more

    Usage: cofferdam doctor [OPTIONS]

    Options:
          --fix                Make the changes that the remedies name; each is printed before it is
                               made
          --yes                Do not ask before making the changes
          --accept <PROVIDER>  Accept that `auto` falls back to this provider where bwrap does not work
                               [possible values: landlock]
          --json               Print one JSON object on standard output instead of text
          --data-dir <DIR>     Directory of the journal and of the tasks' trees [default:
                               $COFFERDAM_DATA_DIR, $XDG_DATA_HOME/cofferdam or
                               ~/.local/share/cofferdam]
      -h, --help               Print help (see more with '--help')

    Examples:
      cofferdam doctor                      the table, with reasons and remedies
      sudo cofferdam doctor --fix           print each change, then make it after a yes
      cofferdam doctor --accept landlock    let `auto` fall back to landlock on this machine

    Exit code 0 when the default provider works, 125 when it does not.
    ");
}

#[test]
fn events_name_their_types() {
    insta::assert_snapshot!(help(&["events"]), @r"
    Show what happened, event by event

    Usage: cofferdam events [OPTIONS]

    Options:
      -f, --follow             Go on with what comes, until interrupted
      -n, --limit <N>          Show this many of the newest; with --after, of the oldest [default: 50]
          --after <POS>        Begin after this position of the log
          --type <TYPE>        Of this type or area
          --task <TASK>        Of this task: number, id or beginning of it
          --conversation <ID>  Of this conversation
          --agent <ID>         Of this agent
          --thread <ID>        Of this thread
          --from <TIME>        Not before this time (RFC 3339)
          --to <TIME>          Before this time (RFC 3339)
          --json               Print one JSON object on standard output instead of text
          --data-dir <DIR>     Directory of the journal and of the tasks' trees [default:
                               $COFFERDAM_DATA_DIR, $XDG_DATA_HOME/cofferdam or
                               ~/.local/share/cofferdam]
      -h, --help               Print help

    Examples:
      cofferdam events                               the newest 50
      cofferdam events --follow                      and what comes, until Ctrl-C
      cofferdam events --task 1 --type exec          one area of one task
      cofferdam events --type policy.denied --from 2026-01-01T00:00:00Z
      cofferdam events --follow --json | jq -c .     one object a line

    A type is `area.verb`; the area alone means all of it. Areas: conversation, agent, task, message,
    exec, file, terminal, isolation, policy, approval, net, mcp, verifier, evidence, usage, log.
    ");
}

#[test]
fn serve_tells_how_to_ask() {
    insta::assert_snapshot!(help(&["serve"]), @r#"
    Serve operations on a workspace, and what happened, over HTTP

    Usage: cofferdam serve [OPTIONS]

    Options:
          --listen <ADDR>           Address and port; port 0 takes a free one [default: 127.0.0.1:7411]
          --token-file <FILE>       File whose first line is the token that every request must bring
          --read-token-file <FILE>  File with a second token, for whoever may look and change nothing
          --work-token-file <FILE>  File with a token for an agent: it may do everything but answer
                                    questions in your name
          --allow-origin <ORIGIN>   Web page that may ask from a browser, by its origin such as
                                    https://example.org; it needs a token as everybody; may be given
                                    several times
          --snapshots               Refuse to begin where the files of the checkout cannot be kept after
                                    each command that changed something; without it they are kept where
                                    the checkout can be watched
          --no-snapshots            Do not keep the files of the checkout after commands
          --json                    Print one JSON object on standard output instead of text
          --data-dir <DIR>          Directory of the journal and of the tasks' trees [default:
                                    $COFFERDAM_DATA_DIR, $XDG_DATA_HOME/cofferdam or
                                    ~/.local/share/cofferdam]
      -h, --help                    Print help (see more with '--help')

    Walls:
          --workspace <DIR>                Directory that may be written [default: the git top level of
                                           the current directory, or the current directory]
          --cwd <DIR>                      Directory within the workspace in which the command starts
                                           [default: the current directory where it lies within, else
                                           the workspace]
          --provider <PROVIDER>            What puts the walls up [default: as the policy says, auto]
                                           [possible values: auto, bwrap, landlock, direct, memory,
                                           container, microvm]
          --net <LEVEL>                    How much of the network is seen [possible values: none,
                                           restricted, full]
          --allow <HOST>                   Host that may be reached: HOST, HOST:PORT, *.HOST, or @dev
                                           for what package clients and git remotes use here; means
                                           --net restricted; may be given several times
          --allow-read <HOST>              The same, for reading only: GET, HEAD and what a fetch of git
                                           posts; TLS of these hosts ends in the proxy; may be given
                                           several times
          --deny <HOST>                    Host that is refused whatever allows it; may be given several
                                           times
          --broker <NAME=HOST>             Variable of here that holds a secret for one host: inside it
                                           holds a placeholder, and only the host is told the value, as
                                           `Authorization: Bearer`; may be given several times
          --ask                            Ask about a host that nothing allows, instead of refusing it
          --permission <MODE>              What may be changed before you are asked [default:
                                           unrestricted] [possible values: readonly, approval,
                                           auto_approval, unrestricted]
          --profile <NAME>                 Profile of the agent that is run, or none [default: found by
                                           the program's name in tasks]
          --rw <PATH>                      Path that may be read and written; may be given several times
          --ro <PATH>                      Path that may be read; may be given several times
          --env <NAME[=VALUE]>             Variable for the command, with a value or taken from here;
                                           may be given several times
          --reach <HOST:PORT>              Service on loopback here that stands at the same address
                                           inside; may be given several times
          --publish <auto|[OUTSIDE:]PORT>  Port of the inside that is opened on 127.0.0.1 here, or every
                                           one; may be given several times
          --policy <FILE>                  Policy file in place of the user's own

    Examples:
      cofferdam serve                                operations on this workspace, and all that happened
      cofferdam serve --workspace ~/src/app --net restricted --allow @dev
      cofferdam call run_command --command 'make test'
      curl -H "Authorization: Bearer $(cat ~/.local/share/cofferdam/server.token)" \
          -H 'Content-Type: application/json' -d '{"command": "make test"}' \
          http://127.0.0.1:7411/api/v1/run_command

    Workspace and walls are fixed here, for as long as it serves: a request may only narrow them.

    Without --token-file the token of the data directory is taken, and made where there is none. Other
    addresses than loopback are only listened on with a token file of your own.
    "#);
}
