//! The BPF program: its embedded object, loading it, and finding our loaded programs.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use libbpf_rs::query::{ProgInfoIter, ProgInfoQueryOptions, ProgramInfo};
use libbpf_rs::{Object, ObjectBuilder, PrintLevel, ProgramHandle, set_print};

use crate::error::XdpError;

/// Name of the program, by which filters are recognized; as in `filter.bpf.c`.
pub(crate) const NAME: &str = "pmdscope_xdp";

/// Aligned like ELF headers, because libelf reads the object in place.
#[repr(align(8))]
struct Aligned<T: ?Sized>(T);

static OBJECT: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/filter.bpf.o")));

/// Collects messages of libbpf, which it would otherwise print.
static SAID: Mutex<String> = Mutex::new(String::new());

static LISTEN: LazyLock<()> = LazyLock::new(|| {
    set_print(Some((PrintLevel::Warn, |_, message| {
        SAID.lock().unwrap_or_else(PoisonError::into_inner).push_str(&message);
    })));
});

/// Runs `run`; returns its result and the messages of libbpf.
pub(crate) fn with_reasons<T>(run: impl FnOnce() -> T) -> (T, String) {
    LazyLock::force(&LISTEN);
    let forget = || std::mem::take(&mut *SAID.lock().unwrap_or_else(PoisonError::into_inner));
    forget();
    let result = run();
    (result, forget())
}

/// Loads the program and creates its maps. The kernel removes both with the object, unless the program
/// is attached to an interface.
pub(crate) fn load() -> Result<Object, XdpError> {
    let load = || {
        let mut builder = ObjectBuilder::default();
        builder.name("pmdscope_xdp")?;
        builder.open_memory(&OBJECT.0)?.load()
    };
    let (object, said) = with_reasons(load);
    object.map_err(|error| match XdpError::bpf("load the BPF program", error) {
        XdpError::Bpf { reason, .. } => XdpError::Load(reason + &last_line(&said)),
        error => error,
    })
}

/// Returns the last line of libbpf's messages; the lines before it are less specific.
pub(crate) fn last_line(said: &str) -> String {
    let mut lines = said.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.next_back().map_or_else(String::new, |line| format!(" ({line})"))
}

/// Returns the name of a loaded program; `None` if it was unloaded.
pub(crate) fn name_of(id: u32) -> Result<Option<String>, XdpError> {
    match with_reasons(|| ProgramHandle::from_prog_id(id)).0 {
        Ok(program) => Ok(Some(program.name().to_string_lossy().into_owned())),
        Err(error) if error.kind() == libbpf_rs::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(XdpError::bpf("read the XDP program of an interface", error)),
    }
}

/// Returns the loaded programs of filters, by id.
pub(crate) fn ours() -> HashMap<u32, ProgramInfo> {
    let options = ProgInfoQueryOptions::default().include_map_ids(true);
    let programs = ProgInfoIter::with_query_opts(options).filter(|program| program.name == NAME);
    programs.map(|program| (program.id, program)).collect()
}

#[cfg(test)]
mod test_frames;
#[cfg(test)]
mod tests;
