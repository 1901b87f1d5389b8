//! The CPU of an app, from the header of its executable.

use std::env::consts;

use super::table::Machine;
use crate::error::XrayError;
use crate::memory::{Memory, read_array};

/// `e_machine` of x86-64 and arm64.
const X86_64: u16 = 62;
const AARCH64: u16 = 183;

/// `EI_CLASS` of 64-bit programs.
const CLASS_64: u8 = 2;

/// The machines that the app may have been built for, the usual one first, or why none is known. If
/// its memory shows no executable, as in some core files, the CPU of pmdscope is assumed.
pub(super) fn of(memory: &dyn Memory) -> Result<Result<&'static [Machine], String>, XrayError> {
    for mapping in memory.maps()?.iter().filter(|mapping| mapping.offset == 0 && mapping.readable) {
        match read_array::<20>(memory, mapping.start) {
            Ok([0x7f, b'E', b'L', b'F', class, .., low, high]) => {
                return Ok(of_elf(class, u16::from_le_bytes([low, high])));
            }
            Ok(_) | Err(XrayError::NotMapped { .. }) => {}
            Err(why) => return Err(why),
        }
    }
    Ok(of_elf(CLASS_64, if consts::ARCH == "aarch64" { AARCH64 } else { X86_64 }))
}

fn of_elf(class: u8, machine: u16) -> Result<&'static [Machine], String> {
    match machine {
        _ if class != CLASS_64 => Err("the app is not a 64-bit program".to_owned()),
        X86_64 => Ok(&[Machine::X86]),
        AARCH64 => Ok(&[Machine::Arm64Line128, Machine::Arm64Line64]),
        other => {
            Err(format!("only those of x86-64 and arm64 are, and this is ELF machine {other}"))
        }
    }
}
