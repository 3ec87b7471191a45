//! Serves on a port of loopback until standard input ends, to try clients by hand; prints every
//! event as a line of JSON.
//!
//! `cargo run -p cofferdam-egress --example serve -- example.com '**.example.org:443'`; a rule after
//! `-` is denied, `reach=HOST:PORT` grants a service, `site=RULE` may lead into the site's network.

#![expect(clippy::print_stdout, reason = "printing is what the program is for")]

use std::error::Error;
use std::io::Read;
use std::net::TcpListener;
use std::sync::Arc;

use cofferdam_core::hosts::{HostPort, HostRules};
use cofferdam_egress::{EgressPolicy, Proxy, ProxyOptions};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (mut allow, mut deny) = (Vec::new(), Vec::new());
    let (mut reach, mut site) = (Vec::new(), Vec::new());
    for argument in &arguments {
        if let Some(target) = argument.strip_prefix("reach=") {
            reach.push(HostPort::parse(target.as_bytes(), None)?);
        } else if let Some(rule) = argument.strip_prefix("site=") {
            site.push(rule.parse()?);
            allow.push(rule);
        } else if let Some(rule) = argument.strip_prefix('-') {
            deny.push(rule);
        } else {
            allow.push(argument.as_str());
        }
    }
    let policy = EgressPolicy {
        reach,
        site,
        ..EgressPolicy::of_rules(HostRules::parse(allow, deny)?)
    };
    let mut options = ProxyOptions::new(TcpListener::bind("127.0.0.1:0")?, policy);
    options.observer = Arc::new(|event| {
        if let Ok(line) = serde_json::to_string(&event) {
            println!("{line}");
        }
    });
    let proxy = Proxy::start(options)?;
    println!(
        "http_proxy=http://{0} all_proxy=socks5h://{0}",
        proxy.address()
    );
    std::io::stdin().read_to_end(&mut Vec::new())?;
    proxy.stop();
    Ok(())
}
