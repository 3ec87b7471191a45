//! The real binary, driven from outside as a person or a program would.

#[path = "main/agents.rs"]
mod agents;
#[path = "main/another.rs"]
mod another;
#[path = "main/ask.rs"]
mod ask;
#[path = "main/cases.rs"]
mod cases;
#[path = "main/codes.rs"]
mod codes;
#[path = "main/doctor.rs"]
mod doctor;
#[path = "main/fullscreen.rs"]
mod fullscreen;
#[path = "main/input.rs"]
mod input;
#[path = "main/journal.rs"]
mod journal;
#[path = "main/lasting.rs"]
mod lasting;
#[path = "main/model.rs"]
mod model;
#[path = "main/operations.rs"]
mod operations;
#[path = "main/outbox.rs"]
mod outbox;
#[path = "main/policy.rs"]
mod policy;
#[path = "main/ports.rs"]
mod ports;
#[path = "main/registries.rs"]
mod registries;
#[path = "main/review.rs"]
mod review;
#[path = "main/scene.rs"]
mod scene;
#[path = "main/serve.rs"]
mod serve;
#[path = "main/server_walls.rs"]
mod server_walls;
#[path = "main/setup.rs"]
mod setup;
#[path = "main/setup_modes.rs"]
mod setup_modes;
#[path = "main/signals.rs"]
mod signals;
#[path = "main/streams.rs"]
mod streams;
#[path = "main/task.rs"]
mod task;
#[path = "main/terminal.rs"]
mod terminal;
#[path = "main/tools.rs"]
mod tools;

#[path = "main/background.rs"]
mod background;

#[path = "main/sockets.rs"]
mod sockets;

#[path = "main/denials.rs"]
mod denials;
