//! What each fuzz target holds. The targets call these, and so does a test of the ordinary suite
//! (`crates/exec/tests/main/fuzzed.rs`), with the seeds and changes of them: they cannot rot unseen.

use cofferdam_core::bytes::BytePath;
use cofferdam_core::commands::see_shell;
use cofferdam_core::hosts::{
    AddressClass, Host, HostPort, HostRule, HostRules, HostVerdict, PathPattern, RequestPath,
};
use cofferdam_core::mask::Masker;
use cofferdam_core::policy::{Layer, PolicyFormat, read_policy};
use cofferdam_egress::{
    InspectedHead, RequestHead, RequestTarget, SocksGreeting, SocksRequest, TargetForm,
};
use cofferdam_exec::TerminalSize;
use cofferdam_exec::terminal::Screen;

/// The written form of bytes reads back as the same bytes.
pub fn bytes(bytes: &[u8]) {
    let path = BytePath::from_bytes(bytes);
    assert_eq!(BytePath::parse(&path.to_string()).as_ref(), Ok(&path));
    if let Some(parent) = path.parent() {
        assert!(path.is_within(&parent) || !path.is_absolute());
    }
    let _ = (path.file_name(), path.depth());
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(parsed) = BytePath::parse(text)
    {
        assert_eq!(BytePath::parse(&parsed.to_string()), Ok(parsed));
    }
}

/// The reading of command lines: whatever text an agent makes of them.
pub fn commands(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let seen = see_shell(&text);
    assert!(
        seen.steps <= 20 * (text.len() + 1024),
        "the work is not linear"
    );
}

/// A head names one host, and the host that is judged is the one that the server is told.
pub fn egress_head(bytes: &[u8]) {
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
}

/// SOCKS5 messages never panic and never name a host with a control byte in it.
pub fn egress_socks(bytes: &[u8]) {
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
}

/// Rules and hosts have one spelling, and a denial wins.
///
/// Input: lines; the first is a host with a port, the second a denial, the rest is allowed.
pub fn host_rules(bytes: &[u8]) {
    let mut lines = bytes.split(|byte| *byte == b'\n');
    let target = HostPort::parse(lines.next().unwrap_or_default(), Some(443));
    let mut rules = lines
        .map(|line| String::from_utf8_lossy(line).parse::<HostRule>().ok())
        .collect::<Vec<_>>()
        .into_iter();
    let deny: Vec<_> = rules.next().into_iter().flatten().collect();
    let allow: Vec<_> = rules.flatten().collect();
    for rule in deny.iter().chain(&allow) {
        assert_eq!(rule.to_string().parse().as_ref(), Ok(rule));
    }
    let Ok(target) = target else { return };
    assert_eq!(
        HostPort::parse(target.to_string().as_bytes(), None).as_ref(),
        Ok(&target)
    );
    if let Some(address) = target.host.address() {
        let _ = AddressClass::of(address);
    }
    let is_denied = deny
        .iter()
        .any(|rule| rule.holds_for(&target.host, target.port));
    let is_allowed = allow
        .iter()
        .any(|rule| rule.holds_for(&target.host, target.port));
    let rules = HostRules { allow, deny };
    match rules.decide(&target.host, target.port) {
        HostVerdict::Denied { .. } => assert!(is_denied),
        HostVerdict::Allowed { .. } => assert!(is_allowed && !is_denied),
        HostVerdict::NotListed => assert!(!is_allowed && !is_denied),
    }
}

/// Masking keeps the length, however the bytes are cut, and says the same in pieces as at once.
///
/// Input: secrets up to a 0xff byte, separated by 0xfe; then one byte for the cut; then the text.
pub fn mask(bytes: &[u8]) {
    let end = bytes.iter().position(|byte| *byte == 0xff);
    let (secrets, rest) = bytes.split_at(end.unwrap_or(0));
    let [_, cut, text @ ..] = rest else { return };
    let masker = Masker::new(secrets.split(|byte| *byte == 0xfe));
    let (whole, _) = masker.mask_bytes(text);
    assert_eq!(whole.len(), text.len());
    let mut pieces = Vec::new();
    let mut stream = masker.stream();
    for piece in text.chunks(usize::from(*cut).max(1)) {
        stream.feed(piece, &mut pieces);
        assert!(pieces.len() + stream.held() <= text.len());
    }
    stream.finish(&mut pieces);
    assert_eq!(pieces, whole.as_ref());
}

/// The policy reader takes or refuses every text.
///
/// Input: one byte for the format, then the text.
pub fn policy(bytes: &[u8]) {
    let Some((format, text)) = bytes.split_first() else {
        return;
    };
    let format = match format % 2 {
        0 => PolicyFormat::Toml,
        _ => PolicyFormat::Json,
    };
    if let Ok(text) = std::str::from_utf8(text) {
        let _ = read_policy(text, format, Layer::User, "fuzz");
    }
}

/// Whatever a program writes, a screen shows something of its own size and keeps no more than it
/// may; cut in pieces it shows the same as at once, and what redraws it shows the same again.
///
/// Input: one byte for the height, one for the width, one for the cut; then what is written.
pub fn screen(bytes: &[u8]) {
    let [rows, columns, cut, text @ ..] = bytes else {
        return;
    };
    let size = TerminalSize {
        rows: u16::from(*rows) % 60 + 1,
        columns: u16::from(*columns) % 200 + 1,
    };
    let mut whole = Screen::new(size);
    whole.feed(text);
    let mut pieces = Screen::new(size);
    for piece in text.chunks(usize::from(*cut).max(1)) {
        pieces.feed(piece);
    }
    assert_eq!(whole.lines(None, false), pieces.lines(None, false));
    assert_eq!(whole.cursor(), pieces.cursor());
    let (row, column) = whole.cursor();
    assert!(row < size.rows && column <= size.columns);
    for line in whole.lines(None, false).lines {
        assert!(!line.contains('\x1b'), "{line:?}");
    }
    whole.lines(Some(7), true);
    let mut again = Screen::new(size);
    again.feed(&whole.redraw());
    // Another size may come at any moment.
    whole.resize(TerminalSize {
        rows: size.columns % 60 + 1,
        columns: size.rows % 200 + 1,
    });
    whole.feed(text);
}

/// A head that is written anew is read as the same request, for the same host, with the same body.
pub fn egress_inspect(bytes: &[u8]) {
    let host = HostPort::parse(b"a.test:443", None).expect("a host");
    for form in [TargetForm::Origin, TargetForm::Absolute] {
        let Ok(Some(head)) = InspectedHead::parse(bytes, &host, 443, form) else {
            continue;
        };
        assert!(head.length <= bytes.len());
        let written = head.write();
        let again = InspectedHead::parse(&written, &host, 443, TargetForm::Origin);
        let again = again.expect("what was written can be read").expect("whole");
        assert_eq!(again.length, written.len());
        assert_eq!(
            (&again.method, &again.target, &again.body, again.websocket),
            (&head.method, &head.target, &head.body, head.websocket)
        );
    }
}

/// What a plain reader makes of a path: decoded once, dots followed, slashes run together.
fn followed(path: &str) -> Vec<Vec<u8>> {
    let mut decoded = Vec::new();
    let mut bytes = path.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let mut digit = || bytes.next().and_then(|byte| (byte as char).to_digit(16));
        if let (Some(high), Some(low)) = (digit(), digit()) {
            decoded.push((high * 16 + low) as u8);
        }
    }
    let mut segments: Vec<Vec<u8>> = Vec::new();
    for segment in decoded.split(|byte| matches!(byte, b'/' | b'\\')) {
        match segment
            .split(|byte| *byte == b';')
            .next()
            .unwrap_or_default()
        {
            b"" | b"." => {}
            b".." => {
                segments.pop();
            }
            other => segments.push(other.to_vec()),
        }
    }
    segments
}

/// A path that passes leads nowhere else for a reader who follows dots, and a pattern has one meaning.
///
/// Input: a pattern, a line's end, a path.
pub fn request_rules(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (pattern, path) = text.split_once('\n').unwrap_or(("/a/**", &text));
    if let Ok(pattern) = pattern.parse::<PathPattern>() {
        assert_eq!(pattern.to_string().parse().as_ref(), Ok(&pattern));
        if let Ok(path) = RequestPath::parse(path) {
            let _ = pattern.matches(&path);
        }
    }
    let below: PathPattern = "/a/**".parse().expect("a pattern");
    if RequestPath::parse(path).is_ok_and(|path| below.matches(&path)) {
        assert_eq!(
            followed(path).first().map(Vec::as_slice),
            Some(b"a".as_slice())
        );
    }
}
