//! One story, every view of it, and that a view is nothing but a fold.

#[path = "main/folding.rs"]
mod folding;
#[path = "main/golden.rs"]
mod golden;
#[path = "main/story.rs"]
mod story;
