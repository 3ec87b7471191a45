//! The proxy with real sockets, as clients and its owner meet it.

#[path = "main/exchange.rs"]
mod exchange;
#[path = "main/fixture.rs"]
mod fixture;
#[path = "main/hold.rs"]
mod hold;
#[path = "main/load.rs"]
mod load;
#[path = "main/tunnel.rs"]
mod tunnel;
#[path = "main/verdict.rs"]
mod verdict;
