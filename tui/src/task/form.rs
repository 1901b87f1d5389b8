//! The command line of a capture, while it is edited.

use pmdscope_render::number::{percent, si};
use pmdscope_telemetry::FleetState;
use pmdscope_telemetry::model::{Model, PortRates};
use tui_input::{Input, InputRequest};

use super::command::{CAPTURE_EXTENSION, CommandLine, file_name, joined};
use super::context::TaskContext;
use super::request::{OutputFile, TaskPlan};

/// A capture ends by itself after so many packets, or so many seconds.
const PACKETS: &str = "10000";
const SECONDS: &str = "10";
/// The same where packets are shown: more would not be read.
const SHOWN_PACKETS: &str = "500";

/// Longest command line.
const LONGEST: usize = 2000;

/// Cycles that the app takes to copy a packet, and for each byte of it: those of docs/benchmarks.md.
const CYCLES_PER_PACKET: f64 = 20.0;
const CYCLES_PER_BYTE: f64 = 0.15;

/// Packets of an app, of one of its ports or queues, or of a conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SelectedTraffic {
    pub(crate) app: String,
    /// Behind the name of the app: `any`, a port, or a port and a queue.
    pub(crate) port: String,
    /// `in` or `out`; both if it is not set.
    pub(crate) direction: Option<&'static str>,
    pub(crate) filter: Option<String>,
    /// What the filter cannot tell apart.
    pub(crate) remark: Option<&'static str>,
}

impl SelectedTraffic {
    /// All packets of an app.
    pub(crate) fn all_of(app: String) -> Self {
        Self { app, port: "any".to_owned(), ..Self::default() }
    }

    /// As `-i` takes it.
    fn interface(&self) -> String {
        format!("{}:{}", self.app, self.port)
    }
}

/// A capture that is prepared.
#[derive(Clone, Debug, Default)]
pub(crate) struct CaptureForm {
    /// What follows `pmdscope`.
    input: Input,
    /// The file that was proposed.
    file: String,
    /// What the filter cannot tell apart.
    pub(crate) remark: Option<&'static str>,
    /// What it costs the app.
    pub(crate) cost: String,
    /// Waits for an answer: it may attach to an app.
    pub(crate) asks: bool,
}

impl CaptureForm {
    /// A capture to a file, which ends by itself.
    pub(crate) fn new(
        target: &SelectedTraffic,
        moment: &str,
        context: &TaskContext,
        fleet: &FleetState,
    ) -> Self {
        let interface = target.interface();
        let file = format!("{}-{moment}{CAPTURE_EXTENSION}", file_name(&interface));
        let mut command = CommandLine::new(["capture", "-i", &interface]);
        if let Some(direction) = target.direction {
            command = command.with(["-Q", direction]);
        }
        let command = command.with(["-c", PACKETS, "--duration", SECONDS]).with_config(context);
        let command = command.with(["-w", &file]).with(target.filter.as_deref());
        Self {
            input: Input::new(joined(&command.args)),
            file,
            remark: target.remark,
            cost: cost(target, fleet),
            asks: false,
        }
    }

    /// What follows `pmdscope`, and the place of the cursor in it, in characters.
    pub(crate) fn text(&self) -> (&str, usize) {
        (self.input.value(), self.input.cursor())
    }

    pub(crate) fn edit(&mut self, request: InputRequest) {
        let is_full = self.input.value().len() >= LONGEST;
        let is_too_long = is_full && matches!(request, InputRequest::InsertChar(_));
        if !self.asks && !is_too_long {
            self.input.handle(request);
        }
    }

    /// Writes a file, or shows packets on the screen.
    pub(crate) fn toggle(&mut self) {
        let Ok(mut words) = self.words() else { return };
        if self.asks {
            return;
        }
        let (from, to) = if let Some(place) = words.iter().position(|word| word == "-w") {
            let end = (place + 2).min(words.len());
            words.splice(place..end, ["-nn".to_owned()]);
            (PACKETS, SHOWN_PACKETS)
        } else {
            let shown = words.iter().position(|word| word == "-nn");
            let (begin, end) =
                shown.map_or((words.len().min(1), words.len().min(1)), |at| (at, at + 1));
            words.splice(begin..end, ["-w".to_owned(), self.file.clone()]);
            (SHOWN_PACKETS, PACKETS)
        };
        let count = words.iter().position(|word| word == "-c").map(|place| place + 1);
        if let Some(count) = count.and_then(|place| words.get_mut(place)).filter(|n| *n == from) {
            to.clone_into(count);
        }
        self.input = Input::new(joined(&words));
    }

    fn words(&self) -> Result<Vec<String>, String> {
        let words = shlex::split(self.input.value());
        words.ok_or_else(|| "a quotation mark is missing in the command line".to_owned())
    }

    /// What to run.
    ///
    /// # Errors
    /// When it is no capture.
    pub(crate) fn plan(&self) -> Result<TaskPlan, String> {
        let args = self.words()?;
        if args.first().is_none_or(|word| word != "capture") {
            return Err("the command line must begin with: capture".to_owned());
        }
        let file = args.iter().position(|word| word == "-w");
        let file = file.and_then(|place| args.get(place + 1)).cloned();
        let file = file.map(|name| OutputFile { is_proposed: name == self.file, name });
        let command = CommandLine { args, output: None };
        Ok(TaskPlan { command, file, ..TaskPlan::default() })
    }

    /// Whether a helper process may be attached to an app. It is not where all packets come from apps with
    /// libpmdscope, or `--no-pdump` is given.
    ///
    /// # Errors
    /// When it is no capture.
    pub(crate) fn may_attach(&self, fleet: &FleetState) -> Result<bool, String> {
        let words = self.plan()?.command.args;
        if words.iter().any(|word| word == "--no-pdump") {
            return Ok(false);
        }
        let is_linked = |interface: &String| {
            fleet.live_models().any(|(app, model)| {
                let rest = interface.strip_prefix(app.name.as_str());
                model.sample.level() > 0 && rest.is_some_and(|rest| rest.starts_with(':'))
            })
        };
        let mut interfaces = words.windows(2).filter(|pair| pair[0] == "-i").map(|pair| &pair[1]);
        let named = interfaces.clone().count();
        // However else an interface may be named: what is not understood is asked about.
        let other = words.iter().filter(|word| may_name_interface(word)).count();
        Ok(named == 0 || other > named || !interfaces.all(is_linked))
    }
}

/// An option that names an app or an interface, maybe together with others.
fn may_name_interface(word: &str) -> bool {
    if let Some(long) = word.strip_prefix("--") {
        return ["i", "a", "force"].iter().any(|begin| long.starts_with(begin));
    }
    word.strip_prefix('-').is_some_and(|letters| letters.contains(['i', 'a']))
}

/// What copying packets costs the app, by its present rates.
fn cost(target: &SelectedTraffic, fleet: &FleetState) -> String {
    let found = fleet.live_models().find(|(app, _)| app.name == target.app);
    let Some((_, model)) = found else { return String::new() };
    let Some(library) = &model.sample.library else {
        return format!("{} is not linked with libpmdscope.", target.app);
    };
    let Some((pps, cycles)) = copied(target, model) else {
        return "Its packet rate is not known yet, and so the cost is not.".to_owned();
    };
    let rate = format!("The app copies those packets that the filter accepts, of {}/s", si(pps));
    match library.tsc_hz {
        0 => rate,
        hz => format!("{rate}: {} of an lcore", at_most(pps * cycles / hz as f64)),
    }
}

/// `at most about 5%`; of a share that is too small for a number, `less than 0.1%`.
fn at_most(share: f64) -> String {
    let share = percent(share);
    match share.strip_prefix('<') {
        Some(number) => format!("less than {number}"),
        None => format!("at most about {share}"),
    }
}

/// Packets per second of the ports that are meant, and cycles for each.
fn copied(target: &SelectedTraffic, model: &Model) -> Option<(f64, f64)> {
    let port = target.port.split(':').next().and_then(|port| port.parse::<u16>().ok());
    let samples = model.sample.ports.iter().zip(&model.ports);
    let meant = samples.filter(|(sample, _)| port.is_none_or(|port| port == sample.id));
    let meant = meant.map(|(_, rates)| rates).collect::<Vec<_>>();
    let sum = |of: fn(&PortRates) -> Option<f64>| {
        meant.iter().map(|rates| of(rates)).sum::<Option<f64>>()
    };
    let (pps, bps) = match target.direction {
        Some("in") => (sum(|port| port.rx_pps)?, sum(|port| port.rx_bps)?),
        Some(_) => (sum(|port| port.tx_pps)?, sum(|port| port.tx_bps)?),
        None => (
            sum(|port| Some(port.rx_pps? + port.tx_pps?))?,
            sum(|port| Some(port.rx_bps? + port.tx_bps?))?,
        ),
    };
    let bytes = if pps > 0.0 { bps / 8.0 / pps } else { 0.0 };
    Some((pps, CYCLES_PER_PACKET + CYCLES_PER_BYTE * bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_has_one_limit() {
        assert_eq!(at_most(0.000_01), "less than 0.1%");
        assert_eq!(at_most(0.5), "at most about 50%");
    }
}
