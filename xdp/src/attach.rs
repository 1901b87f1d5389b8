//! Attaches a filter to an interface.

use std::os::fd::AsFd;

use libbpf_rs::{MapHandle, Object, Program, Xdp, XdpFlags};
use pmdscope_links::Link;
use pmdscope_telemetry::interface::FilterMode;

use crate::error::XdpError;
use crate::filter::{Attached, Filter, attached, link, mode_name};
use crate::prefix::{Prefix, PrefixAction};
use crate::program::{self, last_line, with_reasons};
use crate::settings::Settings;
use crate::tables::Tables;

/// The mode in which a filter is attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AttachMode {
    /// In the driver, or in the network stack if the driver does not support it.
    #[default]
    Auto,
    /// In the driver only.
    Native,
    /// In the network stack.
    Generic,
}

/// The result of [`attach`].
#[derive(Debug)]
pub struct Attachment {
    /// The attached filter.
    pub filter: Filter,
    /// Why the driver refused it, if [`AttachMode::Auto`] became generic.
    pub native_refused: Option<String>,
}

/// Attaches a filter, which stays attached when this process ends. Its settings and prefixes apply from
/// the first packet on. With `replace`, an attached filter is replaced atomically: each packet is
/// processed by one of the two. Counters and prefixes of the old one are not kept.
///
/// # Errors
/// If there is no such interface, it already has a program, the kernel refuses the filter, or the
/// process lacks privileges.
pub fn attach(
    interface: &str,
    mode: AttachMode,
    settings: &Settings,
    prefixes: &[(Prefix, PrefixAction)],
    replace: bool,
) -> Result<Attachment, XdpError> {
    let link = link(interface)?;
    if link.is_loopback {
        return Err(XdpError::Loopback(link.name));
    }
    let old = match attached(&link)? {
        Attached::Foreign(error) => return Err(error),
        Attached::Ours(mode, id) if !replace => {
            let mode = mode_name(mode);
            return Err(XdpError::AlreadyAttached { interface: link.name, id, mode });
        }
        Attached::Ours(mode, id) => Some((mode, id)),
        Attached::Nothing => None,
    };
    let object = program::load()?;
    fill(&object, settings, prefixes)?;
    let no_program = || XdpError::Load("it has no program".to_owned());
    let program = object.progs().next().ok_or_else(no_program)?;
    let native_refused = match old {
        Some((old_mode, id)) => {
            replace_program(&link, mode, old_mode, id, &program)?;
            None
        }
        None => attach_program(&link, mode, &program)?,
    };
    Ok(Attachment { filter: Filter::find(interface)?, native_refused })
}

/// Fills the tables before the program is attached.
fn fill(
    object: &Object,
    settings: &Settings,
    prefixes: &[(Prefix, PrefixAction)],
) -> Result<(), XdpError> {
    let handles = object.maps().map(|map| MapHandle::try_from(&map)).collect::<Result<Vec<_>, _>>();
    let handles = handles.map_err(|error| XdpError::bpf("open the maps of a filter", error))?;
    let wrong = || XdpError::Load("its maps are not as they should be".to_owned());
    let tables = Tables::new(handles.into_iter()).ok_or_else(wrong)?;
    tables.change(settings)?;
    prefixes.iter().try_for_each(|(prefix, action)| tables.list(*prefix, *action))
}

/// Attaches the program; returns the reason if the driver refused it and generic mode was allowed.
fn attach_program(
    link: &Link,
    mode: AttachMode,
    program: &Program<'_>,
) -> Result<Option<String>, XdpError> {
    let attach = |mode| attach_in(link, mode, program);
    let refused = match mode {
        AttachMode::Native => return attach(FilterMode::Native).map(|()| None),
        AttachMode::Generic => return attach(FilterMode::Generic).map(|()| None),
        AttachMode::Auto => match attach(FilterMode::Native) {
            Ok(()) => return Ok(None),
            Err(XdpError::Attach { reason, .. }) => reason,
            Err(error) => return Err(error),
        },
    };
    attach(FilterMode::Generic).map(|()| Some(refused))
}

fn attach_in(link: &Link, mode: FilterMode, program: &Program<'_>) -> Result<(), XdpError> {
    let place = match mode {
        FilterMode::Native => XdpFlags::DRV_MODE,
        FilterMode::Generic => XdpFlags::SKB_MODE,
    };
    let index = index_of(link)?;
    // The flag fails if another process has attached a program since the check.
    let attach = || Xdp::new(program.as_fd()).attach(index, place | XdpFlags::UPDATE_IF_NOEXIST);
    let (result, said) = with_reasons(attach);
    result.map_err(|error| failed(link, mode, error, &said))
}

fn replace_program(
    link: &Link,
    mode: AttachMode,
    old_mode: FilterMode,
    old: u32,
    program: &Program<'_>,
) -> Result<(), XdpError> {
    let fits = match mode {
        AttachMode::Auto => true,
        AttachMode::Native => old_mode == FilterMode::Native,
        AttachMode::Generic => old_mode == FilterMode::Generic,
    };
    if !fits {
        let mode = mode_name(old_mode);
        return Err(XdpError::OtherMode { interface: link.name.clone(), mode });
    }
    let index = index_of(link)?;
    let replace = || {
        let old = Program::fd_from_id(old)?;
        Xdp::new(program.as_fd()).replace(index, old.as_fd())
    };
    let (result, said) = with_reasons(replace);
    result.map_err(|error| failed(link, old_mode, error, &said))
}

fn failed(link: &Link, mode: FilterMode, error: libbpf_rs::Error, said: &str) -> XdpError {
    match XdpError::bpf("attach an XDP program", error) {
        XdpError::Bpf { reason, .. } => XdpError::Attach {
            interface: link.name.clone(),
            mode: mode_name(mode),
            reason: reason + &last_line(said),
        },
        error => error,
    }
}

fn index_of(link: &Link) -> Result<i32, XdpError> {
    i32::try_from(link.index).map_err(|_| XdpError::NoInterface(link.name.clone()))
}
