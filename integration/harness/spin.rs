//! BPF programs that take the CPU from a thread, and measure for how long.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder, ProgramInput, Xdp, XdpFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with};
use rustix::thread::{sched_getaffinity, sched_setaffinity};
use std::os::fd::AsFd;

use crate::bpf;

const SOURCE: &str = "integration/interrupts/spin.bpf.c";

/// `BPF_F_TEST_RUN_ON_CPU`.
const ON_CPU: u32 = 1;

/// How a thread loses its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spin {
    /// To the function of an IPI.
    Ipi,
    /// To the softirq that receives packets.
    NetRx,
}

impl Spin {
    fn program(self) -> &'static str {
        match self {
            Self::Ipi => "spin_in_ipi",
            Self::NetRx => "spin_in_softirq",
        }
    }
}

/// A loaded program.
pub struct Spinner {
    object: Object,
}

impl Spinner {
    /// Loads the program that takes the CPU from this thread, for so long each time.
    ///
    /// # Errors
    /// Where clang fails, or [`libbpf_rs::Error`] where the kernel does not take it.
    pub fn load(spin: Spin, tid: u32, length: Duration, dir: &Path) -> Result<Self> {
        let mut object = ObjectBuilder::default().open_file(bpf::compile(SOURCE, dir)?)?;
        for mut program in object.progs_mut() {
            let is_wanted = program.name() == spin.program();
            program.set_autoload(is_wanted);
        }
        let object = object.load()?;
        let spinner = Self { object };
        let length = u64::try_from(length.as_nanos())?;
        let values = [u64::from(tid), length, 0, 0].map(u64::to_ne_bytes).concat();
        spinner.map()?.update(&0_u32.to_ne_bytes(), &values, MapFlags::ANY)?;
        Ok(spinner)
    }

    fn map(&self) -> Result<impl MapCore> {
        self.object.maps().find(|map| map.name() == "spins").context("no map of spins")
    }

    fn program(&self, spin: Spin) -> Result<libbpf_rs::ProgramMut<'_>> {
        let mut programs = self.object.progs_mut();
        programs.find(|program| program.name() == spin.program()).context("no such program")
    }

    /// Runs it on a CPU, by an IPI from another one.
    pub fn interrupt(&self, cpu: u32) -> Result<()> {
        let ours = sched_getaffinity(None)?;
        let mut others = ours;
        others.unset(usize::try_from(cpu)?);
        sched_setaffinity(None, &others)?;
        let input = ProgramInput { cpu, flags: ON_CPU, ..ProgramInput::default() };
        let ran = self.program(Spin::Ipi)?.test_run(input).map(|_| ());
        sched_setaffinity(None, &ours)?;
        Ok(ran?)
    }

    /// Has it run for each packet that an interface receives, in the softirq of the CPU that handles the
    /// packet, until the interface is removed.
    pub fn attach(&self, interface: &str) -> Result<()> {
        let socket =
            socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        let index = netdevice::name_to_index(&socket, interface)?;
        let program = self.program(Spin::NetRx)?;
        // The programs of drivers run before the packet goes to another CPU.
        Xdp::new(program.as_fd()).attach(i32::try_from(index)?, XdpFlags::SKB_MODE)?;
        Ok(())
    }

    /// The number of times that it has taken the CPU, and the total nanoseconds.
    pub fn took(&self) -> Result<(u64, u64)> {
        let value = self.map()?.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY)?;
        let value = value.context("no spins")?;
        ensure!(value.len() == 32, "{} bytes", value.len());
        let number =
            |at: usize| -> Result<u64> { Ok(u64::from_ne_bytes(value[at..at + 8].try_into()?)) };
        Ok((number(16)?, number(24)?))
    }
}
