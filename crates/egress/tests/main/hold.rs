//! Misses that somebody is asked about, and rules that change meanwhile.

use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use cofferdam_egress::{AskAnswer, AskRequest, EgressPolicy, Ended, ProxyOptions, Reason, Verdict};

use crate::fixture::{PATIENCE, PUBLIC, Stage, echo, locked, rest, rules, stage, stage_with};

fn asking(change: impl FnOnce(&mut ProxyOptions)) -> (Stage, Receiver<AskRequest>) {
    let (sender, questions) = channel();
    let sender = Mutex::new(sender);
    let stage = stage_with(rules(&[], &["denied.test"]), |options| {
        options.ask = Some(Arc::new(move |question| {
            let _ = locked(&sender).send(question);
        }));
        options.limits.hold_time = PATIENCE;
        change(options);
    });
    stage.world.name("new.test", &[PUBLIC]);
    stage.world.name("inner.test", &["10.0.0.1"]);
    stage.world.host(PUBLIC, 443, echo());
    (stage, questions)
}

fn connect_all(stage: &Stage, count: usize, target: &str) -> Vec<String> {
    thread::scope(|scope| {
        let clients: Vec<_> = (0..count)
            .map(|_| scope.spawn(|| stage.connect(target).1))
            .collect();
        clients
            .into_iter()
            .map(|client| client.join().expect("an answer"))
            .collect()
    })
}

#[test]
fn a_held_miss_is_asked_once_and_goes_on_when_allowed() {
    let (stage, questions) = asking(|_| {});
    let heads = thread::scope(|scope| {
        let clients = scope.spawn(|| connect_all(&stage, 5, "new.test:443"));
        let question = questions.recv_timeout(PATIENCE).expect("a question");
        assert_eq!(question.target.to_string(), "new.test:443");
        assert_eq!(question.method.as_deref(), Some("CONNECT"));
        assert!(question.client.is_some() && question.is_open());
        assert_eq!(stage.world.lookups(), Vec::<String>::new());
        while stage.proxy.connections() < 5 {
            thread::yield_now();
        }
        question.answer(AskAnswer::Allow);
        // Whoever came after the answer asks again.
        loop {
            if clients.is_finished() {
                break clients.join().expect("answers");
            }
            if let Ok(question) = questions.recv_timeout(Duration::from_millis(5)) {
                question.answer(AskAnswer::Allow);
            }
        }
    });
    assert!(
        heads.iter().all(|head| head.starts_with("HTTP/1.1 200 ")),
        "{heads:?}"
    );
    let decision = stage.decision();
    assert_eq!(
        (decision.verdict, decision.reason),
        (Verdict::Allowed, Reason::Answered)
    );
}

#[test]
fn a_refusal_holds_for_a_while_without_another_question() {
    let (stage, questions) = asking(|_| {});
    thread::scope(|scope| {
        let client = scope.spawn(|| stage.connect("new.test:443").1);
        questions
            .recv_timeout(PATIENCE)
            .expect("a question")
            .answer(AskAnswer::Deny);
        assert!(client.join().expect("an answer").contains("answered_no"));
    });
    assert!(stage.connect("new.test:443").1.contains("answered_no"));
    assert!(questions.try_recv().is_err());
    assert_eq!(stage.world.lookups(), Vec::<String>::new());
}

#[test]
fn nobody_answers_in_time_or_nobody_can() {
    let (stage, questions) = asking(|options| options.limits.hold_time = Duration::from_millis(50));
    assert!(stage.connect("new.test:443").1.contains("unanswered"));
    let late = questions.recv_timeout(PATIENCE).expect("a question");
    assert!(!late.is_open());
    late.answer(AskAnswer::Allow);
    assert_eq!(stage.world.lookups(), Vec::<String>::new());
    let stage = stage_with(EgressPolicy::default(), |options| {
        options.limits.hold_time = PATIENCE * 10;
        options.ask = Some(Arc::new(drop));
    });
    assert!(stage.connect("new.test:443").1.contains("unanswered"));
}

#[test]
fn what_no_answer_may_open_is_never_asked() {
    let (stage, questions) = asking(|_| {});
    for (target, reason) in [
        ("denied.test:443", "denied_rule"),
        ("127.0.0.1:80", "address_refused"),
        ("[::1]:80", "address_refused"),
        ("10.0.0.1:80", "address_refused"),
        ("169.254.169.254:80", "address_refused"),
        ("[fd00:ec2::254]:80", "address_refused"),
        ("localhost:80", "address_refused"),
        ("a.localhost:80", "address_refused"),
        ("metadata.google.internal:80", "address_refused"),
    ] {
        let head = stage.connect(target).1;
        assert!(head.contains(reason), "{target}: {head}");
        assert!(questions.try_recv().is_err(), "{target}");
    }
    // Where only the lookup shows it, the answer does not help.
    thread::scope(|scope| {
        let client = scope.spawn(|| stage.connect("inner.test:443").1);
        questions
            .recv_timeout(PATIENCE)
            .expect("a question")
            .answer(AskAnswer::Allow);
        assert!(
            client
                .join()
                .expect("an answer")
                .contains("address_refused")
        );
    });
    assert_eq!(stage.world.dialled(), Vec::new());
}

#[test]
fn new_rules_answer_what_is_held() {
    let (stage, questions) = asking(|_| {});
    thread::scope(|scope| {
        let allowed = scope.spawn(|| stage.connect("new.test:443").1);
        let question = questions.recv_timeout(PATIENCE).expect("a question");
        stage.proxy.replace(rules(&["new.test"], &[]));
        assert!(
            allowed
                .join()
                .expect("an answer")
                .starts_with("HTTP/1.1 200 ")
        );
        assert!(!question.is_open());
        stage.proxy.replace(EgressPolicy::default());
        let denied = scope.spawn(|| stage.connect("new.test:443").1);
        let question = questions.recv_timeout(PATIENCE).expect("a question");
        stage.proxy.replace(rules(&[], &["new.test"]));
        question.answer(AskAnswer::Allow);
        assert!(denied.join().expect("an answer").contains("denied_rule"));
    });
}

#[test]
fn a_reload_is_whole_and_cuts_what_it_does_not_allow() {
    let stage = stage(rules(&["a.test", "b.test"], &[]));
    let address = echo();
    stage.world.name("a.test", &[PUBLIC]);
    stage.world.name("b.test", &["93.184.215.15"]);
    stage.world.host(PUBLIC, 443, address);
    stage.world.host("93.184.215.15", 443, address);
    let (mut kept, _) = stage.connect("a.test:443");
    let (mut cut, _) = stage.connect("b.test:443");
    while stage.proxy.connections() < 2 {
        thread::yield_now();
    }
    stage.proxy.replace(rules(&["a.test"], &[]));
    assert_eq!(rest(&mut cut), "");
    assert_eq!(stage.closed().ended, Ended::Revoked);
    std::io::Write::write_all(&mut kept, b"x").expect("sent");
    let mut back = [0];
    std::io::Read::read_exact(&mut kept, &mut back).expect("an echo");
    assert!(stage.connect("b.test:443").1.contains("not_listed"));

    // Each of the two versions allows exactly one host: no moment may allow both or none of it.
    let stop = Instant::now() + Duration::from_millis(300);
    thread::scope(|scope| {
        let swap = scope.spawn(|| {
            let mut which = false;
            while Instant::now() < stop {
                let (allow, deny) = if which {
                    ("a.test", "b.test")
                } else {
                    ("b.test", "a.test")
                };
                stage.proxy.replace(rules(&[allow], &[deny]));
                which = !which;
            }
        });
        while !swap.is_finished() {
            let head = stage.connect("a.test:443").1;
            assert!(
                head.is_empty()
                    || head.starts_with("HTTP/1.1 200 ")
                    || head.contains("denied_rule"),
                "{head}"
            );
        }
    });
}
