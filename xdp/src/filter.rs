//! Attached filters: finds them by interface, reads, changes and detaches them.

use std::collections::HashMap;
use std::os::fd::AsFd;

use libbpf_rs::query::ProgramInfo;
use libbpf_rs::{MapHandle, Program};
use pmdscope_links::{AttachedProgram, Link};
use pmdscope_telemetry::interface::{FilterMode, FilterSample};

use crate::error::XdpError;
use crate::prefix::{Prefix, PrefixAction};
use crate::program;
use crate::settings::Settings;
use crate::tables::Tables;
use crate::verdict::verdicts;

/// A filter on an interface of this network namespace.
///
/// It stays attached when this is dropped. Methods may be called from several threads; the kernel
/// changes each entry atomically.
#[derive(Debug)]
pub struct Filter {
    interface: String,
    index: u32,
    mode: FilterMode,
    program: u32,
    tables: Tables,
}

impl Filter {
    /// Finds the filter on an interface.
    ///
    /// # Errors
    /// If there is no such interface, it has no filter or another program, or the process lacks
    /// privileges.
    pub fn find(interface: &str) -> Result<Self, XdpError> {
        let link = link(interface)?;
        match attached(&link)? {
            Attached::Ours(mode, id) => Self::open(&link, mode, program::ours().get(&id)),
            Attached::Foreign(error) => Err(error),
            Attached::Nothing => Err(XdpError::NotAttached(link.name)),
        }
    }

    /// Finds all filters of this network namespace, by interface index.
    ///
    /// # Errors
    /// If the process lacks the privileges to read the program of an interface. Interfaces without a
    /// program need none.
    pub fn all() -> Result<Vec<Self>, XdpError> {
        let links = pmdscope_links::all().map_err(XdpError::Netlink)?;
        let mut found = Vec::new();
        for link in &links {
            if let Attached::Ours(mode, id) = attached(link)? {
                found.push((link, mode, id));
            }
        }
        if found.is_empty() {
            return Ok(Vec::new());
        }
        let programs = program::ours();
        let open = |(link, mode, id)| Self::open(link, mode, programs.get(&id));
        let filters = found.into_iter().map(open);
        // A filter that was detached in between is not an error.
        filters.filter(|filter| !matches!(filter, Err(XdpError::NotAttached(_)))).collect()
    }

    fn open(
        link: &Link,
        mode: FilterMode,
        program: Option<&ProgramInfo>,
    ) -> Result<Self, XdpError> {
        let program = program.ok_or_else(|| XdpError::NotAttached(link.name.clone()))?;
        let maps = program.map_ids.iter().map(|id| MapHandle::from_map_id(*id));
        let maps = program::with_reasons(|| maps.collect::<Result<Vec<_>, _>>()).0;
        let maps = maps.map_err(|error| XdpError::bpf("open the maps of a filter", error))?;
        let tables = Tables::new(maps.into_iter());
        let tables = tables.ok_or_else(|| XdpError::OtherVersion(link.name.clone()))?;
        let interface = link.name.clone();
        Ok(Self { interface, index: link.index, mode, program: program.id, tables })
    }

    /// Returns the name of the interface.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// Returns the interface index.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Returns the mode of the program.
    pub fn mode(&self) -> FilterMode {
        self.mode
    }

    /// Returns the id of the program.
    pub fn program(&self) -> u32 {
        self.program
    }

    /// Reads the current counters. Takes some system calls and less than a millisecond.
    ///
    /// # Errors
    /// If the kernel does not permit it.
    pub fn sample(&self) -> Result<FilterSample, XdpError> {
        let (top_sources, uncounted_sources) = self.tables.top_sources()?;
        Ok(FilterSample {
            program: self.program,
            mode: self.mode,
            verdicts: verdicts(&self.tables.counters()?),
            top_sources,
            uncounted_sources,
        })
    }

    /// Reads limits and switches.
    ///
    /// # Errors
    /// If the kernel does not permit it.
    pub fn settings(&self) -> Result<Settings, XdpError> {
        self.tables.settings()
    }

    /// Changes limits and switches, from the next packet on.
    ///
    /// # Errors
    /// If the kernel does not permit it.
    pub fn change(&self, settings: &Settings) -> Result<(), XdpError> {
        self.tables.change(settings)
    }

    /// Reads the listed prefixes, in ascending order.
    ///
    /// # Errors
    /// If the kernel does not permit it.
    pub fn prefixes(&self) -> Result<Vec<(Prefix, PrefixAction)>, XdpError> {
        self.tables.prefixes()
    }

    /// Lists a prefix, or changes its action; applies from the next packet on.
    ///
    /// # Errors
    /// If the list is full, or the kernel does not permit it.
    pub fn list(&self, prefix: Prefix, action: PrefixAction) -> Result<(), XdpError> {
        self.tables.list(prefix, action)
    }

    /// Removes a prefix from the list; returns false if it was not listed.
    ///
    /// # Errors
    /// If the kernel does not permit it.
    pub fn unlist(&self, prefix: Prefix) -> Result<bool, XdpError> {
        self.tables.unlist(prefix)
    }

    /// Detaches the filter, with its counters and lists.
    ///
    /// # Errors
    /// If another program has replaced it, which is kept, or the process lacks privileges.
    pub fn detach(self) -> Result<(), XdpError> {
        remove(&self.interface, self.index, self.mode, self.program)
    }
}

/// Detaches a filter, also of another version of pmdscope.
///
/// # Errors
/// As [`Filter::find`] and [`Filter::detach`].
pub fn detach(interface: &str) -> Result<(), XdpError> {
    let link = link(interface)?;
    match attached(&link)? {
        Attached::Ours(mode, id) => remove(&link.name, link.index, mode, id),
        Attached::Foreign(error) => Err(error),
        Attached::Nothing => Err(XdpError::NotAttached(link.name)),
    }
}

fn remove(interface: &str, index: u32, mode: FilterMode, program: u32) -> Result<(), XdpError> {
    let opened = program::with_reasons(|| Program::fd_from_id(program)).0;
    let opened = opened.map_err(|error| XdpError::bpf("open the program of a filter", error))?;
    let removed = pmdscope_links::detach_program(index, mode, Some(opened.as_fd()));
    removed.map_err(|error| XdpError::Detach { interface: interface.to_owned(), error })
}

/// Returns the names of the interfaces with a filter, also of another version.
///
/// # Errors
/// As [`Filter::all`].
pub fn interfaces() -> Result<Vec<String>, XdpError> {
    let mut names = Vec::new();
    for link in pmdscope_links::all().map_err(XdpError::Netlink)? {
        if matches!(attached(&link)?, Attached::Ours(..)) {
            names.push(link.name);
        }
    }
    Ok(names)
}

/// Reads all filters of this network namespace, with their interface indexes.
///
/// # Errors
/// As [`Filter::all`].
pub fn filters() -> Result<Vec<(u32, FilterSample)>, XdpError> {
    Filter::all()?.iter().map(|filter| Ok((filter.index, filter.sample()?))).collect()
}

/// Reads the filter on the interface with this index; `None` if it has no filter.
///
/// # Errors
/// As [`Filter::all`].
pub fn filter_of(index: u32) -> Result<Option<FilterSample>, XdpError> {
    let links = pmdscope_links::all().map_err(XdpError::Netlink)?;
    let Some(link) = links.iter().find(|link| link.index == index) else { return Ok(None) };
    let Attached::Ours(mode, id) = attached(link)? else { return Ok(None) };
    Filter::open(link, mode, program::ours().get(&id))?.sample().map(Some)
}

/// The program attached to an interface.
pub(crate) enum Attached {
    Nothing,
    /// A filter: its mode and its program id.
    Ours(FilterMode, u32),
    /// Another program, as an error.
    Foreign(XdpError),
}

/// Returns the program attached to an interface. Filters are recognized by the name of the program.
pub(crate) fn attached(link: &Link) -> Result<Attached, XdpError> {
    let foreign =
        |id, name, mode| XdpError::Foreign { interface: link.name.clone(), id, name, mode };
    if link.is_offloaded {
        return Ok(Attached::Foreign(foreign(0, String::new(), "in the NIC")));
    }
    let mut names = HashMap::new();
    for AttachedProgram { id, .. } in &link.programs {
        names.extend(program::name_of(*id)?.map(|name| (*id, name)));
    }
    let mut programs = link
        .programs
        .iter()
        .filter_map(|program| Some((program.mode, program.id, names.get(&program.id)?)));
    if let Some((mode, id, name)) = programs.clone().find(|(.., name)| *name != program::NAME) {
        return Ok(Attached::Foreign(foreign(id, name.clone(), mode_name(mode))));
    }
    Ok(programs.next().map_or(Attached::Nothing, |(mode, id, _)| Attached::Ours(mode, id)))
}

/// Finds an interface by its name.
pub(crate) fn link(interface: &str) -> Result<Link, XdpError> {
    let links = pmdscope_links::all().map_err(XdpError::Netlink)?;
    let found = links.into_iter().find(|link| link.name == interface);
    found.ok_or_else(|| XdpError::NoInterface(interface.to_owned()))
}

/// Returns the name of a mode in messages.
pub(crate) fn mode_name(mode: FilterMode) -> &'static str {
    match mode {
        FilterMode::Native => "native",
        FilterMode::Generic => "generic",
    }
}
