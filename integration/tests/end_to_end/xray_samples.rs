//! X-ray reports no mbuf as lost in DPDK's own sample applications, each of which keeps packets in its own
//! way.

use anyhow::{Result, bail};
use libtest_mimic::Trial;
use pmdscope_integration::process::{Process, wait_until};
use pmdscope_integration::scratch::Scratch;
use pmdscope_integration::telemetry;

use crate::samples::{
    DISTRIBUTOR, L2FWD, LOADED, RXTX_CALLBACKS, SampleApp, symmetric_mp, symmetric_mp_missing,
};
use crate::support::{LIMIT, trial_of, trial_unless};
use crate::xray_clean::{FLOWS, judged_clean};

pub(crate) fn trials() -> Vec<Trial> {
    let alone = [L2FWD, RXTX_CALLBACKS, DISTRIBUTOR].map(|sample| {
        let name = format!("xray_finds_no_loss_in_{}", sample.name);
        trial_of(&name, sample.missing(), move |scratch| clean(scratch, &sample))
    });
    let mut trials = Vec::from(alone);
    let name = "xray_finds_no_loss_in_symmetric_mp";
    trials.push(trial_unless(name, symmetric_mp_missing(), several));
    trials
}

fn clean(scratch: &Scratch, sample: &SampleApp) -> Result<()> {
    let (app, mut process) = sample.start(scratch, LOADED)?;
    await_packets(&mut process, &app)?;
    judged_clean(scratch, &app)?;
    Ok(())
}

/// Packets have gone all the way.
fn await_packets(process: &mut Process, app: &str) -> Result<()> {
    wait_until("the sample to send", LIMIT, || {
        if let Some(status) = process.exited()? {
            bail!("it ended ({status}): {}", process.output());
        }
        Ok(telemetry::number(app, "/ethdev/stats,1", "opackets").is_ok_and(|sent| sent > FLOWS))
    })
    .map(drop)
}

/// Each process polls its own queue and has packets of the same pool in its own memory.
fn several(scratch: &Scratch) -> Result<()> {
    let (app, _processes) = symmetric_mp(scratch, LOADED)?;
    judged_clean(scratch, &app)?;
    Ok(())
}
