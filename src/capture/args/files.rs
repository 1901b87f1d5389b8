//! Options of output files.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use pmdscope_packets::file::{FileCompression, FileFormat, FileMode, FileRotation, FileSettings};

use super::value::parse_file_size;
use crate::capture::COMMON;
use crate::duration;
use crate::exit::Usage;
use crate::number::whole;
use crate::output::StandardOutput;
use crate::size::parse_bytes;

/// Most threads that read rings: as many as lcores of an app with EAL's defaults.
const MAX_THREADS: u64 = 128;

/// How to compress files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Compress {
    None,
    Gzip,
    Zstd,
}

/// Where packets are written.
#[derive(Debug, clap::Args)]
#[allow(clippy::struct_excessive_bools)] // Switches of a command line.
#[command(next_help_heading = "Output files")]
pub(crate) struct FileArgs {
    /// Write to FILE as pcapng or .pcap; -: stdout
    ///
    /// A name ending in .pcap selects pcap, any other pcapng; a further .gz or .zst selects compression.
    /// The file is named FILE.part until it is complete.
    #[arg(short, long, value_name = "FILE", help_heading = COMMON)]
    pub(in super::super) write: Option<PathBuf>,

    /// With N threads, write one file per lcore to a new directory
    ///
    /// -w names the directory. N threads read the capture rings; each file has a thread of its own that
    /// writes. -r DIRECTORY merges the files by time.
    #[arg(long, value_name = "N", hide_short_help = true, value_parser = whole::<usize>(1..=MAX_THREADS))]
    pub(in super::super) parallel: Option<usize>,

    /// With -w: also print packets
    #[arg(long, hide_short_help = true)]
    pub(in super::super) print: bool,

    /// Write each packet immediately
    #[arg(short = 'U', long, hide_short_help = true)]
    packet_buffered: bool,

    /// Write pcap regardless of the file name
    ///
    /// Timestamps are in nanoseconds, with --micro in microseconds. pcap has no interface names,
    /// queues, directions, drop counts and comments.
    #[arg(long, hide_short_help = true)]
    pcap: bool,

    /// Write pcapng regardless of the file name
    #[arg(long, conflicts_with = "pcap", hide_short_help = true)]
    pcapng: bool,

    /// Compress files regardless of the file name
    #[arg(hide_short_help = true, long, value_name = "HOW", value_enum)]
    compress: Option<Compress>,

    /// Compress .zst with N threads
    ///
    /// In addition to the thread that writes. A thread compresses some hundred MB per second. A crash
    /// loses up to 4 MiB of packets per thread, or those of the last second.
    #[arg(hide_short_help = true, long, value_name = "N", requires = "write", value_parser = whole::<u32>(1..=MAX_THREADS))]
    compress_threads: Option<u32>,

    /// Write to FILE directly, not to FILE.part
    #[arg(hide_short_help = true, long)]
    in_place: bool,

    /// Access mode of files [default: 600]
    ///
    /// 640 lets the group of the file read it, and 644 everybody.
    #[arg(
        hide_short_help = true,
        long,
        value_name = "MODE",
        default_value = "600",
        hide_default_value = true
    )]
    file_mode: FileMode,

    /// Rotate after SIZE (x 10^6 bytes, or K, M, G)
    ///
    /// Without a unit, SIZE is in millions of bytes; K, M and G are powers of 1024. Files are FILE,
    /// FILE1, FILE2, ...
    #[arg(short = 'C', long, hide_short_help = true, value_name = "SIZE", value_parser = parse_file_size)]
    rotate_size: Option<u64>,

    /// Rotate after TIME
    ///
    /// FILE may have strftime(3) conversions, such as %H%M%S.
    #[arg(short = 'G', long, hide_short_help = true, value_name = "TIME", value_parser = |text: &str| duration::whole_seconds(text, 1..=u64::MAX))]
    rotate_seconds: Option<u64>,

    /// With -C: keep N files; -G: exit after N files
    ///
    /// With -C, file names are reused after N files.
    #[arg(short = 'W', long, hide_short_help = true, value_name = "N", value_parser = whole::<u32>(1..=u32::MAX.into()))]
    rotate_files: Option<u32>,

    /// Rotate before a file exceeds the size of -C
    #[arg(hide_short_help = true, long, requires = "rotate_size")]
    exact: bool,

    /// Align files of -G to multiples of TIME of the time of day, with or without packets
    #[arg(hide_short_help = true, long, requires = "rotate_seconds")]
    aligned: bool,

    /// Delete the oldest files beyond -W, and never reuse a name
    #[arg(hide_short_help = true, long, requires = "rotate_files")]
    delete_oldest: bool,

    /// Number files before the extension: `x_00001.pcapng`
    #[arg(hide_short_help = true, long)]
    count_before_extension: bool,

    /// Delete the oldest files beyond BYTES in total
    #[arg(long, value_name = "BYTES", hide_short_help = true, value_parser = parse_bytes)]
    quota: Option<u64>,

    /// Run CMD FILE after each rotation
    ///
    /// Runs for every complete file, also the last, at the lowest priority.
    #[arg(short = 'z', long, value_name = "CMD", hide_short_help = true, requires = "write")]
    postrotate_command: Option<OsString>,

    /// Print the name of each complete file
    #[arg(hide_short_help = true, long, requires = "write", conflicts_with = "print")]
    pub(in super::super) print_files: bool,
}

impl FileArgs {
    pub(super) fn check(&self) -> Result<(), Usage> {
        if self.parallel.is_some() {
            self.check_parallel()?;
        }
        if self.compress_threads.is_some() && !self.is_zstd() {
            return Err(Usage(
                "--compress-threads is for Zstandard: give -w a name ending in .zst, or --compress zstd",
            ));
        }
        if self.write.as_deref() != Some(Path::new("-")) {
            return Ok(());
        }
        if self.print || self.print_files {
            return Err(Usage("-w - uses standard output: give -w FILE"));
        }
        if StandardOutput::is_terminal() {
            return Err(Usage(
                "-w - writes binary data, and standard output is a terminal: give -w FILE, or leave \
                 out -w to print packets",
            ));
        }
        Ok(())
    }

    fn is_zstd(&self) -> bool {
        let by_name = || self.write.as_deref().map_or(FileCompression::None, FileCompression::of);
        match self.compress {
            Some(how) => how == Compress::Zstd,
            None => by_name() == FileCompression::Zstd,
        }
    }

    /// Refuses what a file per lcore cannot have.
    fn check_parallel(&self) -> Result<(), Usage> {
        let is_directory = self.write.as_deref().is_some_and(|path| path != Path::new("-"));
        let rotates =
            [self.rotate_size, self.rotate_seconds, self.quota].iter().any(Option::is_some)
                || self.rotate_files.is_some()
                || self.count_before_extension;
        if !is_directory {
            Err(Usage("--parallel writes one file per lcore: give -w DIRECTORY, a new one"))
        } else if self.pcap {
            Err(Usage(
                "--parallel writes pcapng, which keeps drop counts: leave out --pcap, then merge with \
                 -r DIRECTORY --pcap -w FILE",
            ))
        } else if rotates {
            Err(Usage(
                "--parallel writes one file per lcore: leave out -C, -G, -W, --quota and \
                 --count-before-extension; -r DIRECTORY -C SIZE -w FILE rotates while it merges",
            ))
        } else if self.print {
            Err(Usage(
                "--parallel merges no packets while it captures: leave out --print, then print them \
                 with -r DIRECTORY",
            ))
        } else {
            Ok(())
        }
    }

    /// The settings by `-w` and related options, with `micro` for pcap.
    pub(in super::super) fn settings(&self, micro: bool) -> Option<FileSettings> {
        let path = self.write.clone()?;
        let by_name = self.parallel.is_none() && has_pcap_name(&path);
        let pcap = self.pcap || !self.pcapng && by_name;
        let compression = self.compress.map(|how| match how {
            Compress::None => FileCompression::None,
            Compress::Gzip => FileCompression::Gzip,
            Compress::Zstd => FileCompression::Zstd,
        });
        Some(FileSettings {
            path,
            format: if pcap { FileFormat::Pcap { nanos: !micro } } else { FileFormat::Pcapng },
            compression,
            compression_threads: self.compress_threads.unwrap_or(0),
            rotation: FileRotation {
                bytes: self.rotate_size,
                seconds: self.rotate_seconds,
                files: self.rotate_files,
                exact: self.exact,
                aligned: self.aligned,
                bounded: self.delete_oldest,
                count_before_extension: self.count_before_extension,
            },
            packet_buffered: self.packet_buffered,
            in_place: self.in_place,
            mode: self.file_mode,
            quota: self.quota,
            command: self.postrotate_command.clone(),
            ..FileSettings::default()
        })
    }

    /// What is written where, for people; nothing without `-w`.
    pub(in super::super) fn announcement(&self) -> Option<String> {
        let settings = self.settings(false)?;
        let name = if settings.is_stdout() {
            "standard output".to_owned()
        } else {
            settings.path.display().to_string()
        };
        if self.parallel.is_some() {
            return Some(format!("pmdscope: writing pcapng to {name}, one file per lcore"));
        }
        Some(match settings.format {
            FileFormat::Pcapng => format!("pmdscope: writing pcapng to {name}"),
            FileFormat::Pcap { .. } if self.pcap => format!("pmdscope: writing pcap to {name}"),
            FileFormat::Pcap { .. } => format!(
                "pmdscope: writing pcap to {name}, by its name; --pcapng keeps interfaces, queues, \
                 directions and drops"
            ),
        })
    }

    /// Files take ever more of the disk.
    pub(in super::super) fn grow(&self) -> bool {
        self.quota.is_none() && (self.rotate_size.is_none() || self.rotate_files.is_none())
    }
}

/// The name of a pcap file, compressed or not.
fn has_pcap_name(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    let inner = name.strip_suffix(".gz").or_else(|| name.strip_suffix(".zst")).unwrap_or(&name);
    Path::new(inner).extension().is_some_and(|extension| extension == "pcap")
}
