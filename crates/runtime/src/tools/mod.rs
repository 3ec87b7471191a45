//! Looking at command lines before they run.

mod check;
