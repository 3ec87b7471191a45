//! Hosts: names and addresses as a client writes them, the rules that allow or deny them, and what
//! kind of address a name may lead to.
//!
//! Everything is compared as parsed labels and parsed addresses, never as text, so that no spelling
//! of a host (case, a trailing dot, a control byte, an IPv4 address in IPv6 clothes) gets past a
//! rule. The forms of a rule are told at [`HostRule`].

mod address;
mod name;
mod path;
mod request;
mod rule;

pub use address::AddressClass;
pub use name::{Host, HostError, HostName, HostPort};
pub use path::{PathError, PathPattern, PatternError, RequestPath};
pub use request::{
    Asked, Method, MethodError, Methods, RequestRule, RequestRuleError, RequestRules,
    RequestVerdict, split_query,
};
pub use rule::{HostPattern, HostRule, HostRules, HostVerdict, PortRange, RuleError};
