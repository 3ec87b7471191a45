//! SOCKS5 messages never panic and never name a host with a control byte in it.

#![no_main]

use cofferdam_core::hosts::Host;
use cofferdam_egress::{SocksGreeting, SocksRequest};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(Some(greeting)) = SocksGreeting::parse(bytes) {
        assert!(greeting.length <= bytes.len());
    }
    if let Ok(Some(request)) = SocksRequest::parse(bytes) {
        assert!(request.length <= bytes.len());
        assert_ne!(request.target.port, 0);
        let written = request.target.host.to_string();
        assert!(!written.bytes().any(|byte| byte.is_ascii_control()));
        assert_eq!(Host::parse(written.as_bytes()), Ok(request.target.host));
    }
});
