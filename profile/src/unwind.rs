//! Unwinds stacks from registers and the bytes of the stack, by `.eh_frame`, which is also there in
//! programs that are built without frame pointers, as DPDK apps are.

use framehop::{
    CacheNative, ExplicitModuleSectionInfo, FrameAddress, MayAllocateDuringUnwind,
    UnwindRegsNative, Unwinder, UnwinderNative,
};

use crate::module::Module;
use crate::sampler::{RawSample, UserRegisters};

/// Most frames of a stack that are kept, innermost first.
const MOST_FRAMES: usize = 64;

/// Unwinds the stacks of one process.
pub(crate) struct StackUnwinder {
    unwinder: UnwinderNative<Vec<u8>, MayAllocateDuringUnwind>,
    cache: CacheNative<MayAllocateDuringUnwind>,
}

impl StackUnwinder {
    /// Returns an unwinder for a process that has these modules mapped.
    pub(crate) fn new(modules: &[Module]) -> Self {
        let mut unwinder = UnwinderNative::new();
        for module in modules {
            unwinder.add_module(unwinding(module));
        }
        Self { unwinder, cache: CacheNative::new() }
    }

    /// Returns addresses within the functions of a stack, innermost first, up to the first one for
    /// which `is_code` is false; empty when the sample has no registers.
    pub(crate) fn frames(&mut self, sample: &RawSample, is_code: impl Fn(u64) -> bool) -> Vec<u64> {
        let Some(registers) = sample.registers else { return Vec::new() };
        let mut read = |address: u64| word(&sample.stack, registers.sp, address).ok_or(());
        let own = native(registers);
        let mut iterator = self.unwinder.iter_frames(registers.ip, own, &mut self.cache, &mut read);
        let mut frames = Vec::new();
        while frames.len() < MOST_FRAMES
            && let Ok(Some(frame)) = iterator.next()
        {
            let address = match frame {
                FrameAddress::InstructionPointer(address) => address,
                // The address of the call, not of the next instruction, which may belong to another
                // function.
                FrameAddress::ReturnAddress(address) => address.get() - 1,
            };
            if !is_code(address) {
                break;
            }
            frames.push(address);
        }
        frames
    }
}

#[cfg(target_arch = "x86_64")]
fn native(registers: UserRegisters) -> UnwindRegsNative {
    UnwindRegsNative::new(registers.ip, registers.sp, registers.fp)
}

#[cfg(target_arch = "aarch64")]
fn native(registers: UserRegisters) -> UnwindRegsNative {
    UnwindRegsNative::new(registers.lr, registers.sp, registers.fp)
}

/// Returns the word at `address` of a stack with bytes that begin at `sp`.
fn word(stack: &[u8], sp: u64, address: u64) -> Option<u64> {
    let begin = usize::try_from(address.checked_sub(sp)?).ok()?;
    let bytes = stack.get(begin..begin.checked_add(8)?)?;
    Some(u64::from_ne_bytes(bytes.try_into().ok()?))
}

fn unwinding(module: &Module) -> framehop::Module<Vec<u8>> {
    let sections = module.unwind.clone();
    let mut info = ExplicitModuleSectionInfo { text_svma: sections.text, ..Default::default() };
    if let Some((range, data)) = sections.eh_frame {
        (info.eh_frame_svma, info.eh_frame) = (Some(range), Some(data));
    }
    if let Some((range, data)) = sections.eh_frame_hdr {
        (info.eh_frame_hdr_svma, info.eh_frame_hdr) = (Some(range), Some(data));
    }
    framehop::Module::new(module.name.clone(), module.mapped.clone(), module.bias, info)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_words_of_the_stack_are_read() {
        let stack = [1_u64, 2].map(u64::to_ne_bytes).concat();
        assert_eq!(word(&stack, 0x1000, 0x1008), Some(2));
        for outside in [0xff8, 0x1009, 0x1010, u64::MAX] {
            assert_eq!(word(&stack, 0x1000, outside), None, "{outside:#x}");
        }
    }

    #[test]
    fn a_sample_without_registers_has_no_stack() {
        let mut unwinder = StackUnwinder::new(&[]);
        assert!(unwinder.frames(&RawSample::default(), |_| true).is_empty());
    }
}
