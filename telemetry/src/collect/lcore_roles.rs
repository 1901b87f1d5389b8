//! Roles of lcores, which DPDK 23.03 and later report.

use std::marker::PhantomData;
use std::time::Instant;

use crate::client::TelemetryClient;
use crate::commands::{LcoreId, TelemetryCommand};
use crate::reply::LcoreInfo;
use crate::sample::LcoreRoleSample;

use super::SLOW;
use super::cached::Cached;
use super::round::RequestRound;

/// The roles of the lcores of one app.
#[derive(Debug, Default)]
pub(super) struct LcoreRoleReader(Cached<Vec<LcoreRoleSample>>);

impl LcoreRoleReader {
    /// Returns the roles, at most 10 s old: each takes a request. An lcore that disappeared after the
    /// list was read is answered by null, and is left out.
    pub(super) fn read(&mut self, round: &mut RequestRound<'_>) -> Vec<LcoreRoleSample> {
        let now = Instant::now();
        if self.0.is_older(now, SLOW) {
            let Some(ids) = round.list(&TelemetryCommand::LcoreList, TelemetryClient::lcores)
            else {
                return Vec::new();
            };
            let roles: Vec<_> = roles(round, &ids).into_iter().flatten().collect();
            let complete = roles.len() == ids.len();
            self.0.set(now, roles);
            if !complete {
                self.0.forget();
            }
        }
        self.0.value().clone()
    }
}

fn roles(round: &mut RequestRound<'_>, ids: &[LcoreId]) -> Vec<Option<LcoreRoleSample>> {
    let request = |id: &LcoreId| (TelemetryCommand::LcoreInfo(*id), PhantomData);
    let requests: Vec<(TelemetryCommand, PhantomData<LcoreInfo>)> =
        ids.iter().map(request).collect();
    let replies = round.request_each(&requests);
    ids.iter()
        .zip(replies)
        .map(|(id, reply)| match reply {
            Ok(info) if info.lcore_id == id.0 => Some(sample(info)),
            // Later requests fail only because the connection is lost; this error has the reason.
            Err(error) if round.is_over() => {
                round.keep(TelemetryCommand::LcoreInfo(*id), Err(error))
            }
            _ => {
                let about = |info: &LcoreInfo| info.lcore_id == id.0;
                round.ask_about(&TelemetryCommand::LcoreInfo(*id), about).map(sample)
            }
        })
        .collect()
}

fn sample(info: LcoreInfo) -> LcoreRoleSample {
    LcoreRoleSample { lcore: info.lcore_id, role: info.role, cpus: info.cpuset }
}
