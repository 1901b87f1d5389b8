//! Names and owners of functions.

use std::fmt;
use std::path::PathBuf;

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{Input, Sym, Symbolizer};

use crate::function::{Owner, owner_of_function, owner_of_module};
use crate::module::Module;
use crate::ports::{PortDirection, PortFunction};

/// A function on a stack.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Frame {
    /// Its name; without a symbol, file and offset.
    pub(crate) name: String,
    /// File that contains it.
    pub(crate) module: String,
    pub(crate) owner: Owner,
    /// Whether it receives (true) or sends, and for which ports.
    pub(crate) ports: Option<(bool, Vec<u16>)>,
}

/// Looks up functions of one process by address.
pub(crate) struct FunctionResolver<'a> {
    symbolizer: Symbolizer,
    modules: &'a [Module],
    ports: &'a [PortFunction],
}

impl<'a> FunctionResolver<'a> {
    pub(crate) fn new(modules: &'a [Module], ports: &'a [PortFunction]) -> Self {
        let symbolizer = Symbolizer::builder()
            .enable_auto_reload(false)
            .enable_code_info(false)
            .enable_inlined_fns(true)
            // Files that the file of an app names are opened by `SeparateFiles` only.
            .set_debug_dirs(Some([] as [&str; 0]))
            .build();
        Self { symbolizer, modules, ports }
    }

    /// Returns the functions at an address, innermost first: several if the compiler has inlined
    /// some.
    pub(crate) fn frames(&self, address: u64) -> Vec<Frame> {
        let Some(module) = self.modules.iter().find(|module| module.mapped.contains(&address))
        else {
            let frame = Frame {
                name: "[unknown]".to_owned(),
                module: "-".to_owned(),
                owner: Owner::Activity(crate::Activity::Unknown),
                ports: None,
            };
            return vec![frame];
        };
        let owner = owner_of_module(&module.name);
        let port = self.ports.iter().find(|function| function.range.contains(&address));
        let ports = port.map(|port| (port.direction == PortDirection::Rx, port.ports.clone()));
        let frame = |name: String, inlined, ports| {
            let owner = owner_of_function(owner, &name, inlined);
            Frame { name, module: module.name.clone(), owner, ports }
        };
        let Some(names) = self.names(module, address) else {
            let name = port.map_or_else(|| offset(module, address), port_name);
            return vec![frame(name, false, ports)];
        };
        // The outermost one is the function itself, and the only one that can be a driver's.
        let last = names.len().saturating_sub(1);
        let frames = names.into_iter().enumerate();
        frames
            .map(|(at, name)| frame(name, at < last, ports.clone().filter(|_| at == last)))
            .collect()
    }

    /// Returns the names of the functions at an address, innermost first; `None` without a symbol
    /// of the function there.
    fn names(&self, module: &Module, address: u64) -> Option<Vec<String>> {
        module.paths().find_map(|path| self.names_in(path, module, address))
    }

    fn names_in(&self, path: PathBuf, module: &Module, address: u64) -> Option<Vec<String>> {
        let mut elf = Elf::new(path);
        elf.debug_syms = true;
        let source = Source::Elf(elf);
        let input = Input::VirtOffset(address.wrapping_sub(module.bias));
        let found = self.symbolizer.symbolize_single(&source, input).ok()?;
        let symbol = found.as_sym().filter(|symbol| is_of(symbol, module, address))?;
        let inlined = symbol.inlined.iter().rev().map(|function| function.name.to_string());
        Some(inlined.chain([whole_name(&symbol.name).to_owned()]).collect())
    }
}

/// Returns the name of a function of which a part is elsewhere: compilers move code that rarely runs
/// into `name.cold`.
fn whole_name(name: &str) -> &str {
    match name.split_once(".cold") {
        Some((whole, rest)) if rest.chars().all(|c| c == '.' || c.is_ascii_digit()) => whole,
        _ => name,
    }
}

/// Returns whether a symbol belongs to the function at an address. A stripped library has few
/// symbols: the nearest one is often that of another function. Debug information has no address of a
/// function with several ranges, only its name.
fn is_of(symbol: &Sym<'_>, module: &Module, address: u64) -> bool {
    if symbol.addr == 0 && symbol.size.is_none() {
        return !symbol.name.is_empty();
    }
    let inside = symbol.size.is_none_or(|size| size == 0 || symbol.offset < size);
    let function = module.function(address);
    let start = symbol.addr.wrapping_add(module.bias);
    inside && function.is_none_or(|range| start >= range.start || symbol.size > Some(0))
}

fn port_name(port: &PortFunction) -> String {
    let burst = match port.direction {
        PortDirection::Rx => "rx_pkt_burst",
        PortDirection::Tx => "tx_pkt_burst",
    };
    format!("{burst} of {}", PortList(&port.ports))
}

/// Returns file and offset of a function without a symbol.
fn offset(module: &Module, address: u64) -> String {
    let start = module.function(address).map_or(address, |range| range.start);
    format!("{}+{:#x}", module.name, start.wrapping_sub(module.bias))
}

/// A list of ports, displayed as `port 0` or `ports 0, 1`.
pub(crate) struct PortList<'a>(pub(crate) &'a [u16]);

impl fmt::Display for PortList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ports: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        let noun = if ports.len() == 1 { "port" } else { "ports" };
        write!(f, "{noun} {}", ports.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::module::tests::own;

    #[inline(never)]
    fn slow_function() -> u64 {
        std::hint::black_box(7)
    }

    #[test]
    fn functions_of_this_process_have_names() {
        let modules = [own()];
        assert_eq!(slow_function(), 7);
        let address = slow_function as fn() -> u64 as usize as u64;
        let frames = FunctionResolver::new(&modules, &[]).frames(address);
        let outermost = frames.last().unwrap();
        assert!(outermost.name.contains("slow_function"), "{frames:?}");
        assert_eq!(outermost.ports, None);
    }

    #[test]
    fn the_function_of_a_port_is_known_whatever_its_name() {
        let modules = [own()];
        let address = slow_function as fn() -> u64 as usize as u64;
        let range = modules[0].function(address).unwrap();
        let ports = [PortFunction { direction: PortDirection::Rx, ports: vec![0, 2], range }];
        let frames = FunctionResolver::new(&modules, &ports).frames(address);
        assert_eq!(frames.last().unwrap().ports, Some((true, vec![0, 2])));
        assert_eq!(port_name(&ports[0]), "rx_pkt_burst of ports 0, 2");
    }

    #[test]
    fn a_part_of_a_function_has_the_name_of_the_whole() {
        assert_eq!(whole_name("main_loop.cold"), "main_loop");
        assert_eq!(whole_name("main_loop.cold.12"), "main_loop");
        for other in ["main_loop", "a.part.0", "keep.colder", "x::cold"] {
            assert_eq!(whole_name(other), other);
        }
    }

    #[test]
    fn code_of_no_file_is_unknown() {
        let frames = FunctionResolver::new(&[], &[]).frames(1);
        assert_eq!(frames[0].name, "[unknown]");
    }
}
