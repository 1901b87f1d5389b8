//! Parses the EAL arguments of an app (`/eal/params`): its devices, lcores and main lcore.

use std::collections::BTreeSet;

use crate::host::{cpu_list, cpu_mask, device};

/// Short options with a value; `h` and `v` have none.
const WITH_VALUE: &str = "abcdlmnrswSR";

/// The arguments that matter here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EalArguments {
    /// PCI addresses of `-a`/`--allow`, with their domain, without the options of the driver.
    pub(crate) allowed: Vec<String>,
    /// `--vdev`, with the options of the driver.
    pub(crate) vdevs: Vec<String>,
    /// The main lcore, if the arguments determine it.
    pub(crate) main_lcore: Option<u32>,
    /// Whether the arguments choose lcores: without them, lcore ids are CPU numbers.
    pub(crate) chooses_lcores: bool,
    /// The lcores that the arguments choose, if their ids are known.
    pub(crate) lcores: BTreeSet<u32>,
    /// Lcores with CPUs of other numbers, and these CPUs.
    placed: Vec<(BTreeSet<u32>, BTreeSet<u32>)>,
}

impl EalArguments {
    /// Parses the arguments; the first is the program. Unknown arguments are ignored.
    pub(crate) fn parse(argv: &[String]) -> Self {
        let mut read = Reading::default();
        let mut words = argv.iter().skip(1).map(String::as_str).peekable();
        while let Some(word) = words.next() {
            if word == "--" {
                break;
            }
            let Some((option, value)) = option_of(word) else { continue };
            let following = || words.next_if(|next| !next.starts_with('-'));
            if let Some(value) = value.or_else(following) {
                read.take(option, value);
            }
        }
        read.finish()
    }

    /// Returns the lcore that the arguments place on these CPUs.
    pub(crate) fn lcore_on(&self, cpus: &BTreeSet<u32>) -> Option<u32> {
        let (lcores, _) = self.placed.iter().find(|(_, placed)| placed == cpus)?;
        lcores.first().copied()
    }
}

/// Returns an option and its value, if both are in one word; `None` for a word that is not an option.
fn option_of(word: &str) -> Option<(&str, Option<&str>)> {
    if let Some(long) = word.strip_prefix("--") {
        return Some(match long.split_once('=') {
            Some((option, value)) => (option, Some(value)),
            None => (long, None),
        });
    }
    let letters = word.strip_prefix('-')?;
    let (at, letter) = letters.char_indices().find(|(_, letter)| WITH_VALUE.contains(*letter))?;
    let (option, value) = letters.get(at..)?.split_at_checked(letter.len_utf8())?;
    Some((option, Some(value.trim_start_matches('=')).filter(|value| !value.is_empty())))
}

#[derive(Default)]
struct Reading {
    arguments: EalArguments,
    lcores: BTreeSet<u32>,
    services: BTreeSet<u32>,
    main: Option<u32>,
    remapped: bool,
}

impl Reading {
    fn take(&mut self, option: &str, value: &str) {
        match option {
            "a" | "allow" => self.arguments.allowed.extend(device::address(head(value))),
            "vdev" => self.arguments.vdevs.push(value.to_owned()),
            "l" | "lcores" => {
                self.lcores = lcores(value);
                self.arguments.placed = placed(value);
            }
            "c" | "coremask" => self.lcores = cpu_mask(value),
            "S" | "service-corelist" => self.services = lcores(value),
            "s" | "service-coremask" => self.services = cpu_mask(value),
            "main-lcore" => self.main = value.parse().ok(),
            "R" | "remap-lcore-ids" => self.remapped = true,
            _ => {}
        }
    }

    /// The EAL uses the lowest lcore as its main lcore unless an argument names another.
    fn finish(self) -> EalArguments {
        let lowest = self.lcores.difference(&self.services).next().copied();
        EalArguments {
            chooses_lcores: self.main.is_some() || self.remapped || !self.lcores.is_empty(),
            main_lcore: self.main.or(lowest.filter(|_| !self.remapped)),
            lcores: if self.remapped { BTreeSet::new() } else { self.lcores },
            ..self.arguments
        }
    }
}

/// Returns the device of a device argument, without the options of its driver.
pub(crate) fn head(value: &str) -> &str {
    value.split(',').next().unwrap_or_default()
}

/// Returns the ids of `0-3,5` and of `(0-1)@(2,3),4@5`: CPUs follow the `@`.
fn lcores(list: &str) -> BTreeSet<u32> {
    groups(list).into_iter().flat_map(|(lcores, _)| lcores).collect()
}

/// Returns the lcores of such a list that have CPUs after an `@`, and these CPUs.
fn placed(list: &str) -> Vec<(BTreeSet<u32>, BTreeSet<u32>)> {
    groups(list).into_iter().filter_map(|(lcores, cpus)| Some((lcores, cpus?))).collect()
}

/// Splits such a list at the commas outside of parentheses.
fn groups(list: &str) -> Vec<(BTreeSet<u32>, Option<BTreeSet<u32>>)> {
    let mut depth = 0_u32;
    let between = |letter: char| {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        letter == ',' && depth == 0
    };
    let set = |text: &str| cpu_list(&text.replace(['(', ')'], ""));
    let group = |part: &str| match part.split_once('@') {
        Some((lcores, cpus)) => (set(lcores), Some(set(cpus))),
        None => (set(part), None),
    };
    list.split(between).map(group).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(line: &str) -> EalArguments {
        let argv: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
        EalArguments::parse(&argv)
    }

    #[test]
    fn devices_are_read_in_every_spelling() {
        let arguments = parse(
            "app -a03:00.0 -a 0000:03:00.1,mprq_en=1 --allow=4:0.0 --allow 0001:05:00.0 -va 6:0.0 \
             --vdev net_null0 --vdev=net_tap1,iface=x -- -a 09:00.0",
        );
        assert_eq!(
            arguments.allowed,
            ["0000:03:00.0", "0000:03:00.1", "0000:04:00.0", "0001:05:00.0", "0000:06:00.0"]
        );
        assert_eq!(arguments.vdevs, ["net_null0", "net_tap1,iface=x"]);
    }

    #[test]
    fn what_is_no_pci_address_is_left_out() {
        let arguments = parse("app -a auxiliary:mlx5_core.sf.4 -a none -b 03:00.0 --vdev");
        assert_eq!(arguments, EalArguments::default());
    }

    #[test]
    fn the_main_lcore_is_the_one_named_or_the_lowest() {
        let main = |line| parse(line).main_lcore;
        assert_eq!(main("app -l 5,2-3"), Some(2));
        assert_eq!(main("app -l 5,2-3 --main-lcore 3"), Some(3));
        assert_eq!(main("app -c 0xc"), Some(2));
        assert_eq!(main("app --lcores=(4-5)@(0,1),7@2"), Some(4));
        assert_eq!(main("app --lcores 8@(0-3)"), Some(8));
        assert_eq!(main("app -l 0-3 -S 0"), Some(1));
        assert_eq!(main("app -l 4-7 -R 0"), None);
        assert_eq!(main("app -n 4"), None);
        assert!(parse("app -l 4-7 -R").chooses_lcores && !parse("app -n 4").chooses_lcores);
    }

    #[test]
    fn lcores_on_cpus_of_other_numbers_are_known() {
        let arguments = parse("app --lcores=(4-5)@(0,1),7@2,3,(8,9)@6-7");
        let on = |cpus: &[u32]| arguments.lcore_on(&cpus.iter().copied().collect());
        assert_eq!([on(&[0, 1]), on(&[2]), on(&[6, 7])], [Some(4), Some(7), Some(8)]);
        assert_eq!([on(&[3]), on(&[0]), on(&[])], [None; 3]);
        assert_eq!(arguments.main_lcore, Some(3));
    }

    proptest! {
        #[test]
        fn any_arguments_are_read(argv in prop::collection::vec("(--?)?[a-zA-Z=:.,@()0-9x-]{0,20}|.*", 0..12)) {
            let arguments = EalArguments::parse(&argv);
            prop_assert!(arguments.allowed.iter().all(|a| device::address(a).as_ref() == Some(a)));
        }
    }
}
