//! Destinations of packets: files, the terminal, both, the flight recorder, or none.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};

use pmdscope_packets::file::{CaptureFiles, FileEvent, FileSettings};
use pmdscope_packets::recorder::RecorderStatus;
use pmdscope_packets::{NullSink, PacketSink};

use super::args::Args;
use super::{recorder, trigger, view};
use crate::attach::target::CaptureTarget;

/// A target, and what can be heard of it.
pub(super) struct Destination {
    pub(super) target: Box<dyn PacketSink>,
    /// What happens to files.
    pub(super) events: Receiver<FileEvent>,
    /// What the flight recorder holds.
    pub(super) recorder: Option<Arc<RecorderStatus>>,
    /// Fires the recorder as long as this lives.
    _triggers: Option<trigger::Watch>,
}

impl Destination {
    /// Opens what the command line asks for, for packets of apps.
    pub(super) fn of_apps(args: &Args, wanted: &[CaptureTarget]) -> anyhow::Result<Self> {
        let mut selected =
            wanted.iter().flat_map(CaptureTarget::ports).filter(|port| port.selected);
        let one = selected.next().is_some() && selected.next().is_none();
        Self::open(args, wanted, None, !one)
    }

    /// As [`Destination::of_apps`], for packets of files, the first of which is at `begin_ns`.
    /// `named` shows the names of their interfaces.
    pub(super) fn of_files(
        args: &Args,
        begin_ns: Option<u64>,
        named: bool,
    ) -> anyhow::Result<Self> {
        Self::open(args, &[], begin_ns, named)
    }

    fn open(
        args: &Args,
        wanted: &[CaptureTarget],
        begin_ns: Option<u64>,
        named: bool,
    ) -> anyhow::Result<Self> {
        let (sender, events) = mpsc::channel();
        let mut settings = args.files.settings(args.view().micro);
        if let Some(settings) = &mut settings {
            (settings.events, settings.begin_ns) = (Some(sender), begin_ns);
        }
        if args.recorder.wanted() {
            return Self::record(args, wanted, settings.unwrap_or_default(), events, named);
        }
        let target: Box<dyn PacketSink> = match settings {
            _ if args.count_only => Box::new(NullSink::default()),
            Some(settings) => Box::new(CaptureFiles::create(&settings)?),
            None => return Self::view(args, events, named),
        };
        Ok(Self { target: shown(args, named, target)?, events, recorder: None, _triggers: None })
    }

    fn view(args: &Args, events: Receiver<FileEvent>, named: bool) -> anyhow::Result<Self> {
        let target = view::open(&args.view(), named)?;
        Ok(Self { target, events, recorder: None, _triggers: None })
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
        let recorder::Flight { target, status, triggers } =
            args.recorder.start(write, wanted, Box::new(open))?;
        Ok(Self {
            target: shown(args, named, Box::new(target))?,
            events,
            recorder: Some(status),
            _triggers: Some(triggers),
        })
    }
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

/// The input that would be overwritten, if one would.
pub(super) fn overwritten<'a>(inputs: &'a [PathBuf], output: Option<&Path>) -> Option<&'a PathBuf> {
    let identity = |path: &Path| std::fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
    let output = output.filter(|path| path.is_file()).and_then(identity)?;
    inputs.iter().find(|input| identity(input) == Some(output))
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
    }
}
