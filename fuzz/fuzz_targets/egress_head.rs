//! A head names one host, and the host that is judged is the one that the server is told.

#![no_main]

use cofferdam_core::hosts::HostPort;
use cofferdam_egress::{RequestHead, RequestTarget};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(Some(parsed)) = RequestHead::parse(bytes) else {
        return;
    };
    assert!(parsed.length <= bytes.len());
    let again = RequestHead::parse(&bytes[..parsed.length]);
    assert_eq!(again, Ok(Some(parsed.clone())));
    let RequestTarget::Forward { head, mut body } = parsed.request else {
        return;
    };
    let text = String::from_utf8_lossy(&head);
    let hosts: Vec<_> = text
        .split("\r\n")
        .filter_map(|line| line.split_once(':'))
        .filter(|(name, _)| name.eq_ignore_ascii_case("host"))
        .map(|(_, value)| HostPort::parse(value.trim().as_bytes(), Some(80)))
        .collect();
    assert_eq!(hosts, [Ok(parsed.target)]);
    let rest = &bytes[parsed.length..];
    if let Ok(taken) = body.feed(rest) {
        assert!(taken <= rest.len());
        assert!(taken == rest.len() || body.is_over());
    }
});
