//! What a command cannot do behind walls, by the default policy.

use super::{Check, Need, Scene, check, hold};

pub(super) const CHECKS: &[Check] = &[
    check("the workspace can be written", Need::Processes, workspace),
    check("nothing outside can be written", Need::Walls, outside_write),
    check("nothing outside can be read", Need::Walls, outside_read),
    check(
        "no new privileges, a filter, no capabilities",
        Need::Walls,
        privileges,
    ),
    check("the host's processes get no signal", Need::Walls, signals),
    check("new namespaces are refused", Need::Walls, namespaces),
    check("the host's loopback is not reached", Need::Walls, loopback),
    check(
        "temporary files go to a private place",
        Need::Walls,
        temporary,
    ),
];

fn workspace(scene: &Scene<'_>) -> Result<(), String> {
    let outcome = scene.sh("echo x >made && mkdir d && mv made d/ && cat d/made && rm -r d");
    hold(outcome.stdout == "x\n", &outcome)
}

fn outside_write(scene: &Scene<'_>) -> Result<(), String> {
    let place = scene.outside();
    let outcome = scene.sh(&format!("echo x >{place}/planted"));
    let planted = scene.candidate.outside.join("planted").exists();
    hold(!outcome.success && !planted, &outcome)
}

fn outside_read(scene: &Scene<'_>) -> Result<(), String> {
    let outcome = scene.sh(&format!("cat {}/secret", scene.outside()));
    hold(!outcome.success && outcome.stdout.is_empty(), &outcome)
}

fn privileges(scene: &Scene<'_>) -> Result<(), String> {
    let outcome = scene.sh("grep -E '^(NoNewPrivs|Seccomp|CapEff|CapPrm):' /proc/self/status");
    let lines: Vec<Vec<&str>> = outcome
        .stdout
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let wanted: &[&[&str]] = &[
        &["CapPrm:", "0000000000000000"],
        &["CapEff:", "0000000000000000"],
        &["NoNewPrivs:", "1"],
        &["Seccomp:", "2"],
    ];
    hold(lines == wanted, &outcome.stdout)
}

fn signals(scene: &Scene<'_>) -> Result<(), String> {
    let own = std::process::id();
    let outcome = scene.sh(&format!("kill -0 {own} && echo reached"));
    hold(!outcome.stdout.contains("reached"), &outcome)
}

fn namespaces(scene: &Scene<'_>) -> Result<(), String> {
    let outcome = scene.sh("unshare -Ur true && echo made");
    hold(!outcome.stdout.contains("made"), &outcome)
}

fn loopback(scene: &Scene<'_>) -> Result<(), String> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    listener
        .set_nonblocking(true)
        .map_err(|error| error.to_string())?;
    let port = listener
        .local_addr()
        .map_err(|error| error.to_string())?
        .port();
    let outcome = scene.run(&["bash", "-c", &format!("echo x >/dev/tcp/127.0.0.1/{port}")]);
    hold(!outcome.success && listener.accept().is_err(), &outcome)
}

fn temporary(scene: &Scene<'_>) -> Result<(), String> {
    let outcome =
        scene.sh("f=$(mktemp) && echo x >\"$f\" && echo \"$f\" && stat -c %a \"$TMPDIR\"");
    let mut lines = outcome.stdout.lines();
    let path = lines.next().unwrap_or_default();
    let mode = lines.next().unwrap_or_default();
    // Private to the enclosure: either not there on the host, or in a directory of nobody else.
    let hidden = !std::path::Path::new(path).exists() || mode == "700";
    hold(outcome.success && hidden && mode == "700", &outcome)
}
