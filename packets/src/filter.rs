//! Compiles tcpdump's filter expressions with libpcap, prints the programs, and runs them.
#![allow(unsafe_code)] // Calls the C library libpcap.

mod protocol;

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::fmt::Write;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

use crate::byte_order::ByteOrder;
use crate::packet::{ETHERNET, MAX_SNAPLEN};

/// Most BPF instructions of a filter that an app accepts.
pub const MAX_INSNS: usize = 512;

/// `PCAP_NETMASK_UNKNOWN`.
const NETMASK_UNKNOWN: c_uint = 0xffff_ffff;
/// Class and mode bits of an instruction, and the loads from a fixed packet offset.
const CLASS_AND_MODE: u16 = 0xe7;
const LD_ABS: u16 = 0x20;
const LDX_MSH: u16 = 0xa1;

/// `PCAP_ERRBUF_SIZE`.
const ERROR_SIZE: usize = 256;
/// Start of a pcap file: magic number, version, time zone, accuracy. Snap length and link type follow.
const FILE_HEADER: [u32; 4] = [0xa1b2_c3d4, 0, 0, 0];
/// Offset of the version in the file header, and its two 16-bit numbers.
const FILE_VERSION: (usize, [u16; 2]) = (4, [2, 4]);

/// Prefix of libpcap's error messages.
const LIBPCAP_PREFIX: &str = "can't parse filter expression: ";

/// One classic BPF instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct BpfInsn {
    /// Operation.
    pub code: u16,
    /// Jump if true.
    pub jt: u8,
    /// Jump if false.
    pub jf: u8,
    /// Operand.
    pub k: u32,
}

/// Why an expression cannot be used as a filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PacketFilterError {
    /// libpcap cannot parse the expression.
    #[error("filter expression '{expression}': {reason}{hint}")]
    Syntax {
        /// The expression.
        expression: String,
        /// Error message of libpcap.
        reason: String,
        /// What to do instead, or an empty text.
        hint: &'static str,
    },
    /// The expression tests metadata that only the Linux kernel has.
    #[error(
        "filter expression '{0}' asks for what the kernel knows of a packet, and the kernel does not \
         see these packets; for a direction use -Q in or -Q out, for a port -i"
    )]
    Ancillary(String),
    /// The expression names a protocol, and its number is unknown.
    #[error(
        "filter expression '{expression}': no number of protocol '{name}': this machine has no \
         /etc/protocols; write the number, or install Debian's package netbase"
    )]
    Protocol {
        /// The expression.
        expression: String,
        /// Name of the protocol.
        name: String,
    },
    /// The program is too long for an app to run on every packet.
    #[error(
        "filter expression '{expression}' needs {found} instructions, at most {MAX_INSNS} are allowed"
    )]
    TooLong {
        /// The expression.
        expression: String,
        /// Number of instructions.
        found: usize,
    },
    /// libpcap could not allocate memory.
    #[error("out of memory for the filter")]
    Memory,
}

/// `struct pcap`.
#[repr(C)]
struct Pcap {
    _opaque: [u8; 0],
}

/// `FILE` of the C library.
#[repr(C)]
struct CFile {
    _opaque: [u8; 0],
}

/// `struct bpf_program`.
#[repr(C)]
struct BpfProgram {
    len: c_uint,
    insns: *mut BpfInsn,
}

#[link(name = "pcap")]
unsafe extern "C" {
    fn pcap_open_dead(linktype: c_int, snaplen: c_int) -> *mut Pcap;
    fn pcap_fopen_offline(file: *mut CFile, error: *mut c_char) -> *mut Pcap;
    fn pcap_close(pcap: *mut Pcap);
    fn pcap_compile(
        pcap: *mut Pcap,
        program: *mut BpfProgram,
        expression: *const c_char,
        optimize: c_int,
        netmask: c_uint,
    ) -> c_int;
    fn pcap_freecode(program: *mut BpfProgram);
    fn pcap_geterr(pcap: *mut Pcap) -> *const c_char;
    fn bpf_image(insn: *const BpfInsn, number: c_int) -> *const c_char;
    fn bpf_validate(insns: *const BpfInsn, length: c_int) -> c_int;
    fn bpf_filter(insns: *const BpfInsn, packet: *const u8, len: c_uint, caplen: c_uint) -> c_uint;
}

unsafe extern "C" {
    fn fmemopen(buffer: *mut c_void, size: usize, mode: *const c_char) -> *mut CFile;
    fn fclose(file: *mut CFile) -> c_int;
}

struct PcapHandle {
    pcap: NonNull<Pcap>,
    /// The pcap file that libpcap reads, if any.
    _file: Vec<u8>,
}

impl PcapHandle {
    fn open(compiler: &FilterCompiler) -> Option<Self> {
        let FilterCompiler { linktype, snaplen, file_order, .. } = *compiler;
        if let Some(order) = file_order {
            return Self::open_file(file_header(linktype, snaplen, order));
        }
        let snaplen = c_int::try_from(snaplen).unwrap_or(c_int::MAX);
        // SAFETY: takes plain integers; returns a handle of our own or NULL.
        let pcap = NonNull::new(unsafe { pcap_open_dead(dlt(linktype), snaplen) })?;
        Some(Self { pcap, _file: Vec::new() })
    }

    fn open_file(mut header: Vec<u8>) -> Option<Self> {
        let mut error = [0; ERROR_SIZE];
        // SAFETY: the buffer has that size; the stream is closed by pcap_close before the buffer, which
        // is on the heap and stays there, is freed by the drop of the handle.
        let file = unsafe { fmemopen(header.as_mut_ptr().cast(), header.len(), c"r".as_ptr()) };
        let file = NonNull::new(file)?.as_ptr();
        // SAFETY: the stream is open; error has the size that libpcap asks for.
        let pcap = NonNull::new(unsafe { pcap_fopen_offline(file, error.as_mut_ptr()) });
        if pcap.is_none() {
            // SAFETY: libpcap leaves the stream open when it fails, and nothing else has it.
            unsafe { fclose(file) };
        }
        Some(Self { pcap: pcap?, _file: header })
    }

    fn compile(&self, expression: &CStr, optimize: bool) -> Result<Vec<BpfInsn>, String> {
        let (pcap, text) = (self.pcap.as_ptr(), expression.as_ptr());
        let mut program = BpfProgram { len: 0, insns: std::ptr::null_mut() };
        // SAFETY: the handle is open, program outlives the call, the expression ends with NUL.
        let status =
            unsafe { pcap_compile(pcap, &raw mut program, text, optimize.into(), NETMASK_UNKNOWN) };
        if status != 0 {
            // SAFETY: the text belongs to the open handle and ends with NUL; it is copied at once.
            let text = unsafe { CStr::from_ptr(pcap_geterr(pcap)) };
            return Err(text.to_string_lossy().into_owned());
        }
        let insns = if program.insns.is_null() {
            Vec::new()
        } else {
            // SAFETY: after success libpcap has filled in len instructions at insns, which have
            // the layout of BpfInsn (struct bpf_insn).
            unsafe { std::slice::from_raw_parts(program.insns, program.len as usize) }.to_vec()
        };
        // SAFETY: program was filled by pcap_compile and is freed once; insns is a copy.
        unsafe { pcap_freecode(&raw mut program) };
        Ok(insns)
    }
}

impl Drop for PcapHandle {
    fn drop(&mut self) {
        // SAFETY: the handle is open and nothing uses it any more.
        unsafe { pcap_close(self.pcap.as_ptr()) }
    }
}

/// Returns libpcap's internal number of a link type, which may differ from the one in files.
pub(crate) fn dlt(linktype: u16) -> c_int {
    match linktype {
        100 => 11, // RFC 1483 ATM
        101 => 12, // IP without a link layer
        same => same.into(),
    }
}

/// Returns a pcap file without packets.
fn file_header(linktype: u16, snaplen: u32, order: ByteOrder) -> Vec<u8> {
    let words = FILE_HEADER.into_iter().chain([snaplen, linktype.into()]);
    let mut header = words.flat_map(|word| order.bytes_of_u32(word)).collect::<Vec<_>>();
    let (at, version) = FILE_VERSION;
    let version = version.into_iter().flat_map(|number| order.bytes_of_u16(number));
    header.iter_mut().skip(at).zip(version).for_each(|(to, byte)| *to = byte);
    header
}

/// Settings of a filter program, besides the expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterCompiler {
    /// Link type of the packets, as in pcap files.
    pub linktype: u16,
    /// Length to which packets that pass are truncated, 1 to [`MAX_SNAPLEN`].
    pub snaplen: u32,
    /// Optimise the program with libpcap.
    pub optimize: bool,
    /// The packets come from a capture file of this byte order; otherwise from a port. A file may be
    /// from another operating system: its numbers of address families are accepted, and metadata of the
    /// kernel cannot be tested.
    pub file_order: Option<ByteOrder>,
}

impl Default for FilterCompiler {
    fn default() -> Self {
        Self { linktype: ETHERNET, snaplen: MAX_SNAPLEN, optimize: true, file_order: None }
    }
}

impl FilterCompiler {
    /// Compiles an expression as tcpdump does. An empty one accepts all packets.
    ///
    /// # Errors
    /// Fails if libpcap refuses the expression, or if it tests metadata that only a kernel has.
    pub fn compile(&self, expression: &str) -> Result<Vec<BpfInsn>, PacketFilterError> {
        let syntax = |reason: String| PacketFilterError::Syntax {
            expression: expression.to_owned(),
            hint: hint(&reason),
            // The message already contains the expression.
            reason: reason.trim_start_matches(LIBPCAP_PREFIX).to_owned(),
        };
        let handle = PcapHandle::open(self).ok_or(PacketFilterError::Memory)?;
        let compile = |expression: &str, optimize| {
            let text = CString::new(expression).map_err(|_| "has a NUL character".to_owned())?;
            handle.compile(&text, optimize)
        };
        let resolved =
            protocol::resolve(expression, |text| compile(text, false).is_ok()).map_err(|name| {
                PacketFilterError::Protocol { expression: expression.to_owned(), name }
            })?;
        let program = compile(&resolved, self.optimize).map_err(syntax)?;
        // On a file, such a load finds nothing, as in tcpdump.
        if self.file_order.is_none() && program.iter().copied().any(is_ancillary) {
            return Err(PacketFilterError::Ancillary(expression.to_owned()));
        }
        Ok(program)
    }

    /// Compiles as [`FilterCompiler::compile`], for a program that an app runs. An empty expression
    /// gives an empty program.
    ///
    /// # Errors
    /// Also fails if the program is too long for an app.
    pub fn compile_for_app(&self, expression: &str) -> Result<Vec<BpfInsn>, PacketFilterError> {
        if expression.trim().is_empty() {
            return Ok(Vec::new());
        }
        let program = self.compile(expression)?;
        let (expression, found) = (expression.to_owned(), program.len());
        if found > MAX_INSNS {
            return Err(PacketFilterError::TooLong { expression, found });
        }
        Ok(program)
    }
}

/// How to print a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramListing {
    /// Readable text: `tcpdump -d`.
    Readable,
    /// C initialisers: `tcpdump -dd`.
    C,
    /// Decimal numbers, after their count: `tcpdump -ddd`.
    Decimal,
}

/// Prints a program exactly as tcpdump does.
pub fn list(program: &[BpfInsn], listing: ProgramListing) -> String {
    let mut text = String::new();
    if listing == ProgramListing::Decimal {
        let _ = writeln!(text, "{}", program.len());
    }
    for (number, insn) in program.iter().enumerate() {
        let BpfInsn { code, jt, jf, k } = insn;
        let _ = match listing {
            ProgramListing::Readable => writeln!(text, "{}", image(insn, number)),
            ProgramListing::C => writeln!(text, "{{ {code:#x}, {jt}, {jf}, 0x{k:08x} }},"),
            ProgramListing::Decimal => writeln!(text, "{code} {jt} {jf} {k}"),
        };
    }
    text
}

/// Returns libpcap's text for an instruction.
fn image(insn: &BpfInsn, number: usize) -> String {
    static BUFFER_OF_LIBPCAP: Mutex<()> = Mutex::new(());
    let number = c_int::try_from(number).unwrap_or(c_int::MAX);
    let _alone = BUFFER_OF_LIBPCAP.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: insn is a whole instruction; the text, which ends with NUL, lies in a buffer that the
    // next call overwrites, and is copied before the lock allows one.
    let text = unsafe { CStr::from_ptr(bpf_image(insn, number)) };
    text.to_string_lossy().into_owned()
}

/// A filter that libpcap runs in this process, on captured packets.
#[derive(Clone, Debug)]
pub struct OfflineFilter {
    program: Vec<BpfInsn>,
}

impl OfflineFilter {
    /// Compiles a filter for Ethernet packets; an empty expression matches all packets.
    ///
    /// # Errors
    /// As [`FilterCompiler::compile`].
    pub fn new(expression: &str) -> Result<Self, PacketFilterError> {
        Self::compiled(expression, &FilterCompiler::default())
    }

    /// Compiles a filter as [`OfflineFilter::new`], with the given settings.
    ///
    /// # Errors
    /// As [`FilterCompiler::compile`].
    pub fn compiled(
        expression: &str,
        compiler: &FilterCompiler,
    ) -> Result<Self, PacketFilterError> {
        let all = expression.trim().is_empty();
        Ok(Self { program: if all { Vec::new() } else { compiler.compile(expression)? } })
    }

    /// Uses a compiled program; an empty one matches all packets. `None` for a program that does not
    /// end, or has a jump beyond its end.
    pub fn of_program(program: &[BpfInsn]) -> Option<Self> {
        let length = c_int::try_from(program.len()).ok()?;
        // SAFETY: the program has so many instructions, and is only looked at.
        let valid = program.is_empty() || unsafe { bpf_validate(program.as_ptr(), length) != 0 };
        valid.then(|| Self { program: program.to_vec() })
    }

    /// Returns whether a packet matches that had `len` bytes on the wire, and was truncated to `data`.
    /// A test of bytes that were cut off fails, as in tcpdump.
    pub fn matches(&self, data: &[u8], len: u32) -> bool {
        if self.program.is_empty() {
            return true;
        }
        let caplen = c_uint::try_from(data.len()).unwrap_or(c_uint::MAX);
        // SAFETY: the program came from pcap_compile, or is valid to bpf_validate; data has caplen bytes, and
        // libpcap reads no others.
        unsafe { bpf_filter(self.program.as_ptr(), data.as_ptr(), len, caplen) != 0 }
    }
}

fn hint(reason: &str) -> &'static str {
    if reason.contains("inbound") {
        " (for a direction use -Q in or -Q out)"
    } else if reason.contains("unknown port") && !Path::new("/etc/services").exists() {
        " (this machine has no /etc/services: write the number, or install Debian's package netbase)"
    } else {
        ""
    }
}

/// Returns whether an instruction loads from a negative offset: Linux uses these for metadata
/// (`SKF_AD_OFF` and others).
fn is_ancillary(insn: BpfInsn) -> bool {
    let load = insn.code & CLASS_AND_MODE;
    (load == LD_ABS || load == LDX_MSH) && insn.k.cast_signed() < 0
}

#[cfg(test)]
#[path = "filter_tests.rs"]
mod tests;
