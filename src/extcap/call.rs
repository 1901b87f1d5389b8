//! The options of a call by Wireshark.

use std::collections::BTreeMap;
use std::ffi::OsString;

/// Options without a value.
const SWITCHES: [&str; 4] = ["capture", "extcap-interfaces", "extcap-config", "extcap-dlts"];

/// A call, including unknown options.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Call {
    options: BTreeMap<String, String>,
}

impl Call {
    /// `None` if the caller is not Wireshark. Values may follow `=` or be arguments of their own.
    pub(super) fn parse(arguments: &[OsString]) -> Option<Self> {
        let words = arguments.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>();
        let is_option = |word: &str| word.starts_with("--");
        // Users begin with a command.
        if !words.first().is_some_and(|word| is_option(word))
            || !words.iter().any(|word| word.starts_with("--extcap-"))
        {
            return None;
        }
        let mut options = BTreeMap::new();
        let mut words = words.iter().peekable();
        while let Some(word) = words.next() {
            let Some(option) = word.strip_prefix("--") else { continue };
            let (name, value) = match option.split_once('=') {
                Some((name, value)) => (name, value.to_owned()),
                None if SWITCHES.contains(&option) => (option, String::new()),
                None => {
                    let value = words.next_if(|next| !is_option(next));
                    (option, value.map(ToString::to_string).unwrap_or_default())
                }
            };
            options.insert(name.to_owned(), value);
        }
        Some(Self { options })
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.options.contains_key(name)
    }

    /// The value of an option; `None` if it is empty.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        self.options.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }
}
