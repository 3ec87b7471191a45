//! The kernel's small machine: rules turned into its instructions.

use std::collections::BTreeMap;

use crate::error::{SandboxError, Step};
use crate::seccomp::{Action, Condition, Rule, Test};
use crate::syscalls::number;

/// Compiles rules for this architecture; see [`crate::Filter::compile`].
pub(crate) fn compile(rules: &[Rule]) -> Result<Vec<libc::sock_filter>, SandboxError> {
    let refuse = || SandboxError::new(Step::Seccomp, libc::EINVAL);
    let mut code = vec![
        load(OFFSET_ARCH),
        jump(libc::BPF_JEQ, AUDIT_ARCH, 1, 0),
        give(libc::SECCOMP_RET_KILL_PROCESS),
        load(OFFSET_NUMBER),
    ];
    if cfg!(target_arch = "x86_64") {
        code.push(jump(libc::BPF_JSET, X32_BIT, 0, 1));
        code.push(give(Action::NotPermitted.value()));
    }
    // Rules of one call stay in their order; the calls are sorted for the search.
    let mut calls: BTreeMap<u32, Vec<libc::sock_filter>> = BTreeMap::new();
    for rule in rules {
        let number = number(&rule.syscall).ok_or_else(refuse)?;
        if rule.when.iter().any(|condition| condition.argument > 5) {
            return Err(refuse());
        }
        calls
            .entry(number)
            .or_default()
            .extend(block(rule).ok_or_else(refuse)?);
    }
    let calls: Vec<(u32, Vec<libc::sock_filter>)> = calls.into_iter().collect();
    code.extend(search(&calls).ok_or_else(refuse)?);
    if code.len() > 4096 {
        return Err(refuse());
    }
    Ok(code)
}

#[cfg(target_arch = "x86_64")]
const AUDIT_ARCH: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const AUDIT_ARCH: u32 = 0xc000_00b7;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("the seccomp filter knows x86_64 and aarch64");

const X32_BIT: u32 = 0x4000_0000;
const OFFSET_NUMBER: u32 = 0;
const OFFSET_ARCH: u32 = 4;
const OFFSET_ARGUMENTS: u32 = 16;

/// The low or high word of an argument, both architectures being little-endian.
fn argument(number: u8, high: bool) -> u32 {
    OFFSET_ARGUMENTS + u32::from(number) * 8 + if high { 4 } else { 0 }
}

fn statement(code: u32, value: u32) -> libc::sock_filter {
    libc::sock_filter {
        code: u16::try_from(code).unwrap_or(0),
        jt: 0,
        jf: 0,
        k: value,
    }
}

fn load(offset: u32) -> libc::sock_filter {
    statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset)
}

fn give(action: u32) -> libc::sock_filter {
    statement(libc::BPF_RET | libc::BPF_K, action)
}

fn jump(kind: u32, value: u32, when_true: u8, when_false: u8) -> libc::sock_filter {
    let mut jump = statement(libc::BPF_JMP | kind | libc::BPF_K, value);
    jump.jt = when_true;
    jump.jf = when_false;
    jump
}

/// What a jump out of a block's conditions is marked with until its length is known.
const OUT: u8 = u8::MAX;

/// Finds the call by halves. The kernel runs the filter once for each of its calls when it is
/// loaded, to learn which always pass, so the length of a path counts more than that of the code.
fn search(calls: &[(u32, Vec<libc::sock_filter>)]) -> Option<Vec<libc::sock_filter>> {
    let mut code = Vec::new();
    if calls.len() > 2 {
        let (low, high) = calls.split_at(calls.len() / 2);
        let below = search(low)?;
        code.push(jump(libc::BPF_JGE, high[0].0, 0, 1));
        code.push(statement(
            libc::BPF_JMP | libc::BPF_JA,
            u32::try_from(below.len()).ok()?,
        ));
        code.extend(below);
        code.extend(search(high)?);
        return Some(code);
    }
    for (number, body) in calls {
        let skip = u8::try_from(body.len() + 1).ok()?;
        code.push(jump(libc::BPF_JEQ, *number, 0, skip));
        code.extend(body);
        code.push(give(libc::SECCOMP_RET_ALLOW));
    }
    code.push(give(libc::SECCOMP_RET_ALLOW));
    Some(code)
}

/// One rule of a call: its conditions and the action. What does not match goes on behind it.
/// `None` when it is too long for a jump.
fn block(rule: &Rule) -> Option<Vec<libc::sock_filter>> {
    let mut code = Vec::new();
    for Condition { argument: at, test } in &rule.when {
        code.push(load(argument(*at, false)));
        match test {
            Test::Equals(value) => code.push(jump(libc::BPF_JEQ, *value, 0, OUT)),
            Test::MaskedEquals { mask, value } => {
                code.push(statement(
                    libc::BPF_ALU | libc::BPF_AND | libc::BPF_K,
                    *mask,
                ));
                code.push(jump(libc::BPF_JEQ, *value, 0, OUT));
            }
            Test::AnyOf(bits) => code.push(jump(libc::BPF_JSET, *bits, 0, OUT)),
            Test::NotOneOf(values) => {
                code.extend(
                    values
                        .iter()
                        .map(|value| jump(libc::BPF_JEQ, *value, OUT, 0)),
                );
            }
            Test::NotZero => code.push(jump(libc::BPF_JEQ, 0, OUT, 0)),
            Test::PointerNotNull => {
                code.push(jump(libc::BPF_JEQ, 0, 0, 2));
                code.push(load(argument(*at, true)));
                code.push(jump(libc::BPF_JEQ, 0, OUT, 0));
            }
        }
    }
    code.push(give(rule.action.value()));
    let out = code.len();
    for (place, one) in code.iter_mut().enumerate() {
        let distance = u8::try_from(out.saturating_sub(place + 1)).ok()?;
        if distance == OUT {
            return None;
        }
        if one.jt == OUT {
            one.jt = distance;
        }
        if one.jf == OUT {
            one.jf = distance;
        }
    }
    Some(code)
}
