//! Names of network interfaces.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::BypassError;

/// Size of a name in the kernel, including the NUL byte.
pub(crate) const NAME_SIZE: usize = 16;

/// A name that the kernel accepts for a network interface; it can be part of a file name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct InterfaceName(String);

impl InterfaceName {
    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for InterfaceName {
    type Err = BypassError;

    fn from_str(text: &str) -> Result<Self, BypassError> {
        let forbidden =
            |c: char| c == '/' || c == ':' || c == ',' || c.is_whitespace() || c.is_control();
        let fits = (1..NAME_SIZE).contains(&text.len());
        if fits && text != "." && text != ".." && !text.contains(forbidden) {
            Ok(Self(text.to_owned()))
        } else {
            Err(BypassError::BadInterfaceName(text.to_owned()))
        }
    }
}

impl TryFrom<String> for InterfaceName {
    type Error = BypassError;

    fn try_from(text: String) -> Result<Self, BypassError> {
        text.parse()
    }
}

impl fmt::Display for InterfaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_kernel() {
        assert_eq!("eth0.5".parse::<InterfaceName>().unwrap().as_str(), "eth0.5");
        for wrong in ["", ".", "..", "a/b", "a b", "a,b", "abcdefghijklmnop", "a\n"] {
            assert!(wrong.parse::<InterfaceName>().is_err(), "{wrong}");
        }
    }
}
