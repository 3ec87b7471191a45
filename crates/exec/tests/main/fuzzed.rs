//! What the fuzz targets hold, of their seeds and of changes of them: without a nightly compiler, and
//! with each change of what they read.

use std::fs;
use std::path::{Path, PathBuf};

#[expect(unreachable_pub, reason = "it is the library of the fuzz targets")]
#[path = "../../../../fuzz/src/lib.rs"]
mod targets;

/// A target, and how many changed inputs it is given.
type Target = (&'static str, fn(&[u8]), usize);

const TARGETS: [Target; 10] = [
    ("bytes", targets::bytes, 9000),
    ("commands", targets::commands, 1000),
    ("egress_head", targets::egress_head, 9000),
    ("egress_inspect", targets::egress_inspect, 9000),
    ("egress_socks", targets::egress_socks, 9000),
    ("host_rules", targets::host_rules, 3000),
    ("mask", targets::mask, 2000),
    ("policy", targets::policy, 500),
    ("request_rules", targets::request_rules, 9000),
    ("screen", targets::screen, 100),
];

fn place() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

/// Numbers that are the same in each run (xorshift).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound.max(1) as u64).unwrap_or(0)
    }

    fn byte(&mut self) -> u8 {
        // What parsers look at comes more often than the rest.
        let told = b"\0\r\n:/.,%@[]*\"'$(){}\\\x1b\x05\x01\x03\xfe\xff 0a";
        match self.below(3) {
            0 => u8::try_from(self.below(256)).unwrap_or(0),
            _ => told[self.below(told.len())],
        }
    }

    fn changed(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = match seeds.len() {
            0 => Vec::new(),
            count => seeds[self.below(count)].clone(),
        };
        for _ in 0..=self.below(8) {
            let at = self.below(bytes.len() + 1);
            match self.below(5) {
                0 if at < bytes.len() => bytes[at] = self.byte(),
                1 if at < bytes.len() => {
                    bytes.remove(at);
                }
                2 => bytes.truncate(at),
                3 => {
                    let piece = bytes[at..].iter().take(16).copied().collect::<Vec<u8>>();
                    bytes.extend(piece);
                }
                _ => {
                    let many = self.below(6) + 1;
                    let piece: Vec<u8> = (0..many).map(|_| self.byte()).collect();
                    bytes.splice(at..at, piece);
                }
            }
        }
        bytes
    }
}

#[test]
fn what_reads_bytes_of_strangers_holds_whatever_they_are() {
    for (name, holds, times) in TARGETS {
        let seeds: Vec<Vec<u8>> = fs::read_dir(place().join("seeds").join(name))
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| fs::read(entry.path()).expect("a seed"))
            .collect();
        for seed in &seeds {
            holds(seed);
        }
        let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
        for _ in 0..times {
            let bytes = numbers.changed(&seeds);
            let outcome = std::panic::catch_unwind(|| holds(&bytes));
            assert!(
                outcome.is_ok(),
                "{name}: {:?}",
                bytes.escape_ascii().to_string()
            );
        }
    }
}

#[test]
fn each_fuzz_target_is_one_of_these() {
    let mut there: Vec<String> = fs::read_dir(place().join("fuzz_targets"))
        .expect("targets")
        .flatten()
        .map(|entry| {
            let text = fs::read_to_string(entry.path()).expect("text");
            let name = entry
                .path()
                .file_stem()
                .expect("a name")
                .display()
                .to_string();
            assert!(
                text.contains(&format!("cofferdam_fuzz::{name}(bytes)")),
                "{name}"
            );
            name
        })
        .collect();
    there.sort();
    assert_eq!(there, TARGETS.map(|(name, ..)| name));
    let manifest = fs::read_to_string(place().join("Cargo.toml")).expect("a manifest");
    for name in there {
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}");
    }
}
