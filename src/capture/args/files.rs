//! Options of files to write.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use pmdscope_capture::file::{Compression, FileSettings, Format, Rotation};

use super::value::{parse_bytes, parse_file_size};
use crate::Usage;
use crate::output::StandardOutput;

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
#[command(next_help_heading = "Packets into files")]
pub(crate) struct FileArgs {
    /// File to write, or - for standard output. Files are pcapng, compressed if they end with .gz or
    /// .zst, and called FILE.part until they are complete
    #[arg(short, long, value_name = "FILE")]
    pub(in super::super) write: Option<PathBuf>,

    /// Show packets although they are written
    #[arg(long)]
    pub(in super::super) print: bool,

    /// Write every packet at once, for a reader that waits for it
    #[arg(short = 'U', long)]
    packet_buffered: bool,

    /// Write classic pcap: times in nanoseconds, or in microseconds with --micro; no names, queues,
    /// directions, drops or comments
    #[arg(long)]
    pcap: bool,

    /// Compress files, whatever their names end with
    #[arg(long, value_name = "HOW", value_enum)]
    compress: Option<Compress>,

    /// Write under the final name from the start
    #[arg(long)]
    in_place: bool,

    /// Begin the next file with the first packet after so many millions of bytes, or with K, M or G
    /// so many binary ones. Files are FILE, FILE1, FILE2, ...
    #[arg(short = 'C', long, value_name = "SIZE", value_parser = parse_file_size)]
    rotate_size: Option<u64>,

    /// Begin the next file with the first packet after so many seconds. FILE may have conversions of
    /// strftime(3), such as %H%M%S
    #[arg(short = 'G', long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    rotate_seconds: Option<u64>,

    /// With -C, use names again after so many files; with -G, end after so many
    #[arg(short = 'W', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rotate_files: Option<u32>,

    /// Keep every file within the size of -C
    #[arg(long, requires = "rotate_size")]
    exact: bool,

    /// Begin files of -G at whole multiples of the time of day, with or without packets
    #[arg(long, requires = "rotate_seconds")]
    aligned: bool,

    /// Never use names again; of more than -W files, delete the oldest
    #[arg(long, requires = "rotate_files")]
    delete_oldest: bool,

    /// Count files before the extension: `x_00001.pcapng`
    #[arg(long)]
    count_before_extension: bool,

    /// Delete the oldest files of this capture so that all together stay within so many bytes
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    quota: Option<u64>,

    /// Run COMMAND FILE for every complete file, at the lowest priority
    #[arg(short = 'z', long, value_name = "COMMAND", requires = "write")]
    postrotate_command: Option<OsString>,

    /// Print the name of every complete file on standard output
    #[arg(long, requires = "write", conflicts_with = "print")]
    pub(in super::super) print_files: bool,
}

impl FileArgs {
    pub(super) fn check(&self) -> Result<(), Usage> {
        if self.write.as_deref() != Some(Path::new("-")) {
            return Ok(());
        }
        if self.print || self.print_files {
            return Err(Usage("standard output is taken by -w -: give -w FILE"));
        }
        if StandardOutput::is_terminal() {
            return Err(Usage(
                "packets in binary are not for a terminal: give -w FILE, or leave -w out to see \
                 packets",
            ));
        }
        Ok(())
    }

    /// What `-w` and its companions say, with `micro` for pcap.
    pub(in super::super) fn settings(&self, micro: bool) -> Option<FileSettings> {
        let path = self.write.clone()?;
        let compression = self.compress.map(|how| match how {
            Compress::None => Compression::None,
            Compress::Gzip => Compression::Gzip,
            Compress::Zstd => Compression::Zstd,
        });
        Some(FileSettings {
            path,
            format: if self.pcap { Format::Pcap { nanos: !micro } } else { Format::Pcapng },
            compression,
            rotation: Rotation {
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
            quota: self.quota,
            command: self.postrotate_command.clone(),
            ..FileSettings::default()
        })
    }

    /// Files take ever more of the disk.
    pub(in super::super) fn grow(&self) -> bool {
        self.quota.is_none() && (self.rotate_size.is_none() || self.rotate_files.is_none())
    }
}
