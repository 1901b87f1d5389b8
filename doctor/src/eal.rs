//! The memory options among the EAL arguments of an app.

/// The memory that the EAL arguments ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EalMemory {
    /// `--no-huge`: normal pages.
    pub(crate) no_huge: bool,
    /// `--in-memory`: no files in hugetlbfs.
    pub(crate) in_memory: bool,
    /// `-m`, MiB.
    pub(crate) total_mib: Option<u64>,
    /// `--socket-mem`, `--numa-mem`: MiB by NUMA node.
    pub(crate) node_mib: Vec<u64>,
}

impl EalMemory {
    /// Parses the arguments; the first is the program. Unknown arguments are ignored.
    pub(crate) fn parse(argv: &[String]) -> Self {
        let mut memory = Self::default();
        let mut words = argv.iter().skip(1).take_while(|word| *word != "--").peekable();
        while let Some(word) = words.next() {
            let (option, value) = match word.split_once('=') {
                Some((option, value)) => (option, Some(value)),
                None => (word.as_str(), None),
            };
            let following = || words.peek().map(|next| next.as_str());
            match option {
                _ if is(option, "--no-hu", "--no-huge") => memory.no_huge = true,
                _ if is(option, "--in", "--in-memory") => memory.in_memory = true,
                "--socket-mem" | "--numa-mem" => {
                    let list = value.or_else(following).unwrap_or_default();
                    memory.node_mib = list.split(',').map(|mib| mib.parse().unwrap_or(0)).collect();
                }
                "-m" => {
                    memory.total_mib = value.or_else(following).and_then(|mib| mib.parse().ok());
                }
                _ => {
                    let attached = option.strip_prefix("-m").and_then(|mib| mib.parse().ok());
                    memory.total_mib = attached.or(memory.total_mib);
                }
            }
        }
        memory
    }

    /// Returns the MiB that it allocates at startup; `None` if it allocates none in advance.
    pub(crate) fn wanted_mib(&self) -> Option<u64> {
        let nodes = self.node_mib.iter().fold(0_u64, |sum, mib| sum.saturating_add(*mib));
        self.total_mib.or(Some(nodes).filter(|mib| *mib > 0))
    }
}

/// The EAL accepts any unambiguous prefix of an option.
fn is(option: &str, shortest: &str, whole: &str) -> bool {
    option.starts_with(shortest) && whole.starts_with(option)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(line: &str) -> EalMemory {
        let argv: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
        EalMemory::parse(&argv)
    }

    #[test]
    fn memory_is_read_in_every_spelling() {
        assert_eq!(parse("app -l 0 -m 512").wanted_mib(), Some(512));
        assert_eq!(parse("app -m512 -- -m 9").wanted_mib(), Some(512));
        assert_eq!(parse("app --socket-mem=1024,0").node_mib, [1024, 0]);
        assert_eq!(parse("app --numa-mem 1024,64").wanted_mib(), Some(1088));
        assert!(parse("app --no-huge").no_huge && parse("app --in-mem").in_memory);
        assert_eq!(parse("app --main-lcore 2"), EalMemory::default());
    }

    proptest! {
        #[test]
        fn any_arguments_are_read(argv: Vec<String>) {
            let _ = EalMemory::parse(&argv).wanted_mib();
        }
    }
}
