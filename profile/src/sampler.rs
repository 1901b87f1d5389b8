//! Samples of one thread, taken by the kernel: `perf_event_open(2)` with its CPU clock, which needs
//! no hardware counter and does not stop the thread.

use std::io;
use std::time::Duration;

use perf_event::data::Record;
use perf_event::events::Software;
use perf_event::{Builder, Clock, SampleFlag, Sampler};

use crate::error::ProfileError;

/// Bytes of the stack that are copied with each sample: poll loops have short stacks, but often
/// with an array of 512 pointers to mbufs.
const STACK_BYTES: u32 = 8192;

/// Time after which the ring of samples is full if it is not read.
const RING_LASTS: Duration = Duration::from_millis(120);

/// Smallest size of the ring, bytes.
const LEAST_RING_BYTES: usize = 32 * 1024;

/// The bits `PERF_RECORD_MISC_CPUMODE_MASK`, and their value for a sample in the kernel.
const CPU_MODE: u16 = 0b111;
const CPU_MODE_KERNEL: u16 = 1;

/// Registers that are needed to unwind, by their bit numbers in the kernel's `perf_regs.h`.
#[cfg(target_arch = "x86_64")]
const REGISTERS: [u32; 3] = [6, 7, 8]; // bp, sp, ip
#[cfg(target_arch = "aarch64")]
const REGISTERS: [u32; 4] = [29, 30, 31, 32]; // fp, lr, sp, pc

/// One sample.
#[derive(Clone, Debug, Default)]
pub(crate) struct RawSample {
    /// Monotonic clock, nanoseconds.
    pub(crate) time_ns: u64,
    /// Whether the thread was in the kernel.
    pub(crate) in_kernel: bool,
    /// Its registers in user space.
    pub(crate) registers: Option<UserRegisters>,
    /// Bytes of its stack from the stack pointer on.
    pub(crate) stack: Vec<u8>,
}

/// Registers of a thread in user space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UserRegisters {
    /// Instruction pointer.
    pub(crate) ip: u64,
    /// Stack pointer.
    pub(crate) sp: u64,
    /// Frame pointer, or another value if the register has another use.
    pub(crate) fp: u64,
    /// Return address; 0 on machines without a register for it.
    pub(crate) lr: u64,
}

/// Samples one thread until it is dropped.
pub(crate) struct ThreadSampler {
    sampler: Sampler,
    /// Whether time in the kernel is sampled.
    pub(crate) sees_kernel: bool,
    /// Samples that were lost, because they were not read in time or the kernel throttled sampling.
    pub(crate) lost: u64,
}

impl ThreadSampler {
    /// Starts sampling, `hz` times per second of CPU time.
    ///
    /// # Errors
    ///
    /// When that is not permitted, the kernel does not support it, or the thread has ended.
    pub(crate) fn start(tid: u32, hz: u32) -> Result<Self, ProfileError> {
        let refused = |error| ProfileError::refused(tid, hz, error);
        let (mut sampler, sees_kernel) = match open(tid, hz, true) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                (open(tid, hz, false).map_err(refused)?, false)
            }
            other => (other.map_err(refused)?, true),
        };
        sampler.enable().map_err(refused)?;
        Ok(Self { sampler, sees_kernel, lost: 0 })
    }

    /// Returns the next pending sample.
    pub(crate) fn next(&mut self) -> Option<RawSample> {
        loop {
            let record = self.sampler.next_record()?;
            let in_kernel = record.misc() & CPU_MODE == CPU_MODE_KERNEL;
            match record.parse_record() {
                Ok(Record::Sample(sample)) => {
                    let registers = sample.regs_user();
                    return Some(RawSample {
                        time_ns: sample.time().unwrap_or_default(),
                        in_kernel,
                        registers: registers.and_then(|r| UserRegisters::of(r.mask, &r.regs)),
                        stack: sample.stack_user().unwrap_or_default().to_vec(),
                    });
                }
                Ok(Record::Lost(lost)) => self.lost += lost.lost,
                Ok(Record::LostSamples(lost)) => self.lost += lost.lost,
                _ => {}
            }
        }
    }
}

impl UserRegisters {
    /// Returns registers from the values of the bits in `mask`, in ascending order.
    fn of(mask: u64, values: &[u64]) -> Option<Self> {
        let value = |bit: u32| {
            let before = (mask & ((1 << bit) - 1)).count_ones();
            (mask & (1 << bit) != 0).then(|| values.get(before as usize).copied())?
        };
        #[cfg(target_arch = "x86_64")]
        let [fp, sp, ip] = REGISTERS.map(value);
        #[cfg(target_arch = "x86_64")]
        let lr = Some(0);
        #[cfg(target_arch = "aarch64")]
        let [fp, lr, sp, ip] = REGISTERS.map(value);
        Some(Self { ip: ip?, sp: sp?, fp: fp?, lr: lr? })
    }
}

/// Opens a sampler. If a ring may not be locked in memory, a smaller one is tried.
fn open(tid: u32, hz: u32, kernel: bool) -> io::Result<Sampler> {
    let wanted = f64::from(hz) * RING_LASTS.as_secs_f64() * f64::from(STACK_BYTES + 256);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // some megabytes
    let mut bytes = (wanted as usize).next_power_of_two().max(LEAST_RING_BYTES);
    loop {
        match builder(tid, hz, kernel)?.build()?.sampled(bytes) {
            Err(error)
                if error.kind() == io::ErrorKind::PermissionDenied && bytes > LEAST_RING_BYTES =>
            {
                bytes /= 2;
            }
            other => return other,
        }
    }
}

fn builder(tid: u32, hz: u32, kernel: bool) -> io::Result<Builder<'static>> {
    let tid = i32::try_from(tid).map_err(io::Error::other)?;
    let sampled =
        SampleFlag::TID | SampleFlag::TIME | SampleFlag::REGS_USER | SampleFlag::STACK_USER;
    let mut builder = Builder::new(Software::CPU_CLOCK);
    builder
        .observe_pid(tid)
        .any_cpu()
        .exclude_kernel(!kernel)
        .sample_frequency(u64::from(hz))
        .sample(sampled)
        .sample_regs_user(REGISTERS.iter().map(|bit| 1_u64 << bit).sum())
        .sample_stack_user(STACK_BYTES)
        .clockid(Clock::MONOTONIC)
        .wakeup_watermark(usize::MAX >> 33);
    Ok(builder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_are_found_by_their_bits() {
        let mask: u64 = REGISTERS.iter().map(|bit| 1_u64 << bit).sum();
        let values: Vec<u64> = (1..=REGISTERS.len() as u64).collect();
        let registers = UserRegisters::of(mask, &values).unwrap();
        assert_eq!(registers.fp, 1);
        assert_eq!(registers.ip, REGISTERS.len() as u64);
        assert_eq!(UserRegisters::of(mask & !(1 << REGISTERS[1]), &values), None);
        assert_eq!(UserRegisters::of(mask, &values[..1]), None);
    }
}
