//! The pipeline built without libpmdscope: an app that knows what it lost, and what it holds where.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::Signal;

use crate::process::{LIMIT, Process, wait_until};
use crate::programs;
use crate::scratch::{Memory, Scratch};
use crate::telemetry;

const START: Duration = Duration::from_secs(30);
const FIRST_WORDS: &str = "at rest: ";
const LAST_LINE: &str = "at rest: until SIGUSR2";

/// How it is started.
#[derive(Clone, Copy, Debug)]
pub struct StockSetup<'a> {
    /// Without symbols and debug information.
    pub stripped: bool,
    /// Its lcores, for instance `0@0,1@1`; the worker has the last one.
    pub lcores: &'a str,
    /// MiB of its memory, in hugepages where there are enough.
    pub memory_mb: u32,
    /// Hugepages where there are enough, else as `--no-huge`.
    pub memory: Memory,
    /// Further EAL arguments.
    pub eal: &'a [&'a str],
    /// Further arguments of its own.
    pub args: &'a [&'a str],
}

impl StockSetup<'_> {
    /// Two lcores, packets with numbers, faults from the start.
    pub const PLAIN: Self = Self {
        stripped: false,
        lcores: "0@0,1@1",
        memory_mb: 128,
        memory: Memory::Ordinary,
        eal: &[],
        args: &[],
    };
}

/// Mbufs that one place keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldMbufs {
    /// Kind of the place, as in reports of scans: `global`, `ring`, `stack` and so on.
    pub kind: String,
    /// Name of the variable or ring.
    pub name: String,
    /// Their pool.
    pub pool: String,
    /// Number of mbufs.
    pub mbufs: u64,
}

/// The counts of the app for one of its pools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolTruth {
    /// Mbufs that are not free.
    pub in_use: u64,
    /// Those of them that nothing refers to.
    pub lost: u64,
}

/// Counts that the app reported while no packet moved.
#[derive(Clone, Debug, Default)]
pub struct Truth {
    /// Its pools, by name.
    pub pools: BTreeMap<String, PoolTruth>,
    /// Where it keeps mbufs.
    pub held: Vec<HeldMbufs>,
}

impl Truth {
    fn parse(text: &str) -> Result<Self> {
        let mut truth = Self::default();
        for line in text.lines().filter_map(|line| line.strip_prefix(FIRST_WORDS)) {
            match line.split_whitespace().collect::<Vec<_>>()[..] {
                ["held", kind, name, pool, mbufs] => truth.held.push(HeldMbufs {
                    kind: kind.to_owned(),
                    name: name.to_owned(),
                    pool: pool.to_owned(),
                    mbufs: mbufs.parse()?,
                }),
                ["pool", name, "in", "use", in_use, "lost", lost] => {
                    let pool = PoolTruth { in_use: in_use.parse()?, lost: lost.parse()? };
                    truth.pools.insert(name.to_owned(), pool);
                }
                ["until", "SIGUSR2"] => {}
                _ => bail!("the pipeline says {line:?}"),
            }
        }
        Ok(truth)
    }

    /// Lost mbufs of all pools.
    pub fn lost(&self) -> u64 {
        self.pools.values().map(|pool| pool.lost).sum()
    }
}

/// A running one. Dropping it ends it.
pub struct StockPipeline {
    /// The process.
    pub process: Process,
    app: String,
    said: usize,
}

impl StockPipeline {
    /// Starts it on a port that feeds itself, and waits until it polls.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start(scratch: &Scratch, setup: StockSetup<'_>) -> Result<Self> {
        let command = Command::new(programs::stock_pipeline(setup.stripped)?);
        Self::start_command(scratch, command, setup)
    }

    /// The same of another build: `command` starts it, without arguments of its own.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start_command(
        scratch: &Scratch,
        mut command: Command,
        setup: StockSetup<'_>,
    ) -> Result<Self> {
        let app = scratch.prefix("stock");
        // Core files are written there.
        command.current_dir(scratch.dir());
        command.args(["--lcores", setup.lcores, "--no-pci", "--file-prefix", &app]);
        command.args(["-m", &setup.memory_mb.to_string(), "--vdev", "net_null0"]);
        if setup.memory == Memory::Ordinary {
            command.arg("--no-huge");
        }
        command.args(setup.eal).args(["--", "--stamp-packets", "--fault-after", "0.01"]);
        command.args(["--interval", "0.1"]).args(setup.args);
        let mut process = Process::spawn(&app, &mut command, scratch.dir())?;
        wait_until("the stock pipeline", START, || {
            if let Some(status) = process.exited()? {
                bail!("the stock pipeline ended at once ({status}): {}", process.output());
            }
            // The first of its lines of statistics: it polls.
            Ok(process.output().contains(" pps ") && telemetry::socket(&app).exists())
        })?;
        Ok(Self { process, app, said: 0 })
    }

    /// Its file-prefix: its name for `pmdscope`.
    pub fn app(&self) -> &str {
        &self.app
    }

    /// Stops its traffic until [`Self::go_on`]; returns its counts at that time.
    ///
    /// # Errors
    /// When it does not come to rest.
    pub fn rest(&mut self) -> Result<Truth> {
        self.process.signal(Signal::USR1)?;
        let mut said = String::new();
        let rested = wait_until("the stock pipeline to come to rest", LIMIT, || {
            if let Some(status) = self.process.exited()? {
                bail!("the stock pipeline ended ({status}): {}", self.process.output());
            }
            self.process.output().get(self.said..).unwrap_or_default().clone_into(&mut said);
            Ok(said.contains(LAST_LINE))
        });
        rested.with_context(|| format!("it has printed:\n{said}"))?;
        self.said += said.rfind(LAST_LINE).context("last line")? + LAST_LINE.len();
        Truth::parse(&said)
    }

    /// Lets its traffic continue.
    ///
    /// # Errors
    /// When it has ended.
    pub fn go_on(&self) -> Result<()> {
        self.process.signal(Signal::USR2)
    }

    /// Stops its traffic once it has lost this many mbufs.
    ///
    /// # Errors
    /// When it does not lose them in time.
    pub fn rest_with_lost(&mut self, mbufs: u64) -> Result<Truth> {
        let mut truth = Truth::default();
        wait_until("the stock pipeline to lose mbufs", LIMIT, || {
            truth = self.rest()?;
            let enough = truth.lost() >= mbufs;
            if !enough {
                self.go_on()?;
                std::thread::sleep(Duration::from_millis(100));
            }
            Ok(enough)
        })?;
        Ok(truth)
    }
}
