//! Destinations of packets: files, the terminal, both, the flight recorder, or none.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};

use anyhow::{Context, bail};
use pmdscope_capture::{CaptureRingName, RingSinkOpener};
use pmdscope_files::{Directory, Place};
use pmdscope_packets::file::{CaptureFiles, FileCompression, FileEvent, FileSettings};
use pmdscope_packets::recorder::RecorderStatus;
use pmdscope_packets::{NullSink, PacketSink, RunControl};

use super::args::Args;
use super::{privileges, recorder, trigger, view};
use crate::attach::target::CaptureTarget;

/// A target, its events and its status.
pub(super) struct Destination {
    pub(super) target: Box<dyn PacketSink>,
    /// With `--parallel`, what opens the file of each ring instead, and the number of threads.
    pub(super) rings: Option<(usize, RingSinkOpener)>,
    /// Events of files.
    pub(super) events: Receiver<FileEvent>,
    /// Status of the flight recorder.
    pub(super) recorder: Option<Arc<RecorderStatus>>,
    /// Fires the recorder as long as this lives.
    _triggers: Option<trigger::TriggerWatcher>,
}

impl Destination {
    /// Opens what the command line asks for, for packets of apps.
    /// `stream` is what [`await_reader`] has opened.
    pub(super) fn of_apps(
        args: &Args,
        wanted: &[CaptureTarget],
        stream: Option<File>,
        control: &RunControl,
    ) -> anyhow::Result<Self> {
        let mut selected =
            wanted.iter().flat_map(CaptureTarget::ports).filter(|port| port.selected);
        let one = selected.next().is_some() && selected.next().is_none();
        let settings = settings(args, None, control);
        if let Some((file, settings)) = stream.zip(settings.as_ref()) {
            let (sender, events) = mpsc::channel();
            let compression = settings.compression.unwrap_or(FileCompression::of(&settings.path));
            let (compression, events_to) = (Some(compression), Some(sender));
            let settings = FileSettings { compression, events: events_to, ..settings.clone() };
            let name = settings.path.display().to_string();
            let target = Box::new(CaptureFiles::onto(file, &name, &settings)?);
            let target = shown(args, !one, target)?;
            return Ok(Self { target, rings: None, events, recorder: None, _triggers: None });
        }
        Self::open(args, wanted, settings, !one)
    }

    /// As [`Destination::of_apps`], for packets of files, the first of which is at `begin_ns`.
    /// `named` shows the names of their interfaces.
    pub(super) fn of_files(
        args: &Args,
        begin_ns: Option<u64>,
        named: bool,
        control: &RunControl,
    ) -> anyhow::Result<Self> {
        Self::open(args, &[], settings(args, begin_ns, control), named)
    }

    fn open(
        args: &Args,
        wanted: &[CaptureTarget],
        mut settings: Option<FileSettings>,
        named: bool,
    ) -> anyhow::Result<Self> {
        let (sender, events) = mpsc::channel();
        if let Some(settings) = &mut settings {
            settings.events = Some(sender);
        }
        if let (Some(threads), Some(settings)) = (args.files.parallel, &settings) {
            let rings = Some((threads, file_per_ring(settings)?));
            let target = Box::new(NullSink::default());
            return Ok(Self { target, rings, events, recorder: None, _triggers: None });
        }
        if args.recorder.wanted() {
            return Self::record(args, wanted, settings.unwrap_or_default(), events, named);
        }
        let target: Box<dyn PacketSink> = match settings {
            _ if args.count_only => Box::new(NullSink::default()),
            Some(settings) => Box::new(CaptureFiles::create(&settings)?),
            None => return Self::view(args, events, named),
        };
        let target = shown(args, named, target)?;
        Ok(Self { target, rings: None, events, recorder: None, _triggers: None })
    }

    fn view(args: &Args, events: Receiver<FileEvent>, named: bool) -> anyhow::Result<Self> {
        let target = view::open(&args.view(), named)?;
        Ok(Self { target, rings: None, events, recorder: None, _triggers: None })
    }

    fn record(
        args: &Args,
        wanted: &[CaptureTarget],
        settings: FileSettings,
        events: Receiver<FileEvent>,
        named: bool,
    ) -> anyhow::Result<Self> {
        let open = move |path: &Path| {
            let settings = FileSettings { path: path.to_owned(), ..settings.clone() };
            CaptureFiles::create(&settings).map(|files| Box::new(files) as Box<dyn PacketSink>)
        };
        let write = args.files.write.as_deref();
        let recorder::ArmedRecorder { target, status, triggers } =
            args.recorder.start(write, wanted, Box::new(open))?;
        Ok(Self {
            target: shown(args, named, Box::new(target))?,
            rings: None,
            events,
            recorder: Some(status),
            _triggers: Some(triggers),
        })
    }
}

/// Opens the named pipe or device that packets are written to, and waits for the reader of a pipe. `None` for
/// files, which are opened when the packets come.
///
/// # Errors
///
/// When it cannot be opened.
pub(super) fn await_reader(args: &Args, control: &RunControl) -> anyhow::Result<Option<File>> {
    let Some(settings) = settings(args, None, control) else { return Ok(None) };
    if settings.is_stdout() || args.files.parallel.is_some() || args.recorder.wanted() {
        return Ok(None);
    }
    if args.count_only || settings.command.is_some() || settings.rotates() {
        return Ok(None);
    }
    let path = &settings.path;
    privileges::as_user(args.relinquish_privileges.as_deref(), || {
        let stream = Place::of(path).and_then(|place| {
            let is_stream = place.is_stream()?;
            is_stream.then(|| place.open_stream(&settings.stop)).transpose()
        });
        stream.with_context(|| format!("cannot open {}", path.display()))
    })
}

/// How files are written; nothing without `-w`.
fn settings(args: &Args, begin_ns: Option<u64>, control: &RunControl) -> Option<FileSettings> {
    let settings = args.files.settings(args.view().micro)?;
    Some(FileSettings {
        begin_ns,
        stop: Arc::clone(&control.stop),
        abandon: control.abandon.clone().unwrap_or_default(),
        ..settings
    })
}

/// Makes the directory for a file of each ring.
fn file_per_ring(settings: &FileSettings) -> anyhow::Result<RingSinkOpener> {
    let directory = settings.path.clone();
    let made = Directory::create(&directory).and_then(|made| made.names());
    let names =
        made.with_context(|| format!("cannot create the directory {}", directory.display()))?;
    if !names.is_empty() {
        let directory = directory.display();
        bail!("{directory} already exists: --parallel needs a new or an empty directory");
    }
    let ending = match settings.compression {
        Some(FileCompression::Zstd) => ".zst",
        Some(FileCompression::Gzip) => ".gz",
        Some(FileCompression::None) | None => "",
    };
    let settings = settings.clone();
    Ok(Box::new(move |name: &CaptureRingName| {
        let path = directory.join(format!("{name}.pcapng{ending}"));
        let settings = FileSettings { path, ..settings.clone() };
        CaptureFiles::create(&settings).map(|files| Box::new(files) as Box<dyn PacketSink>)
    }))
}

/// With `--print`, packets are shown as well.
fn shown(
    args: &Args,
    named: bool,
    target: Box<dyn PacketSink>,
) -> anyhow::Result<Box<dyn PacketSink>> {
    if !args.files.print {
        return Ok(target);
    }
    Ok(view::file_and_view(target, view::open(&args.view(), named)?))
}

/// The input that would be overwritten, if one would, or the directory whose files are read and where another
/// would be added.
pub(super) fn overwritten<'a>(inputs: &'a [PathBuf], output: Option<&Path>) -> Option<&'a PathBuf> {
    let identity = |path: &Path| std::fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
    let output = output?;
    let beside = match output.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => output,
    };
    let (file, beside) = (output.is_file().then(|| identity(output)).flatten(), identity(beside));
    inputs.iter().find(|input| {
        let output = if input.is_dir() { beside } else { file };
        output.is_some() && identity(input) == output
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_is_recognised_under_any_name() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link, other) =
            (dir.path().join("a"), dir.path().join("b"), dir.path().join("c"));
        std::fs::write(&file, "").unwrap();
        std::fs::write(&other, "").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let inputs = [other, file.clone()];
        assert_eq!(overwritten(&inputs, Some(&link)), Some(&file));
        assert_eq!(overwritten(&inputs[..1], Some(&link)), None);
        assert_eq!(overwritten(&["-".into()], Some(Path::new("-"))), None);
        assert_eq!(overwritten(&["/dev/null".into()], Some(Path::new("/dev/null"))), None);
        assert_eq!(overwritten(&inputs, None), None);
        let directory = [dir.path().to_owned()];
        assert_eq!(overwritten(&directory, Some(&dir.path().join("new"))), Some(&directory[0]));
        assert_eq!(overwritten(&directory, Some(Path::new("/nowhere/new"))), None);
        assert_eq!(overwritten(&directory, Some(Path::new("-"))), None);
    }
}
