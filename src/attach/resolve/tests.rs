use std::cell::RefCell;

use pmdscope_telemetry::discover::{Reachability, UnreachableReason};
use pmdscope_telemetry::sample::{PortSample, Sample};

use super::*;

/// Apps with libpmdscope with a device of the same name and one of their own each, and how often they were asked what.
struct FakeApps {
    apps: Vec<DiscoveredApp>,
    /// Names that were searched for.
    searched: RefCell<Vec<Option<String>>>,
    asked: RefCell<Vec<String>>,
    checked: RefCell<Vec<String>>,
}

impl FakeApps {
    fn of(names: &[&str]) -> Self {
        let apps = names.iter().map(|name| app(name)).collect();
        let (asked, checked) = (RefCell::default(), RefCell::default());
        Self { apps, searched: RefCell::default(), asked, checked }
    }

    fn resolve(&self, interfaces: &[&str], app: Option<&str>) -> Vec<CaptureTarget> {
        let interfaces = interfaces.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        Resolver::new(self, &interfaces, app).unwrap().resolve(&interfaces, app).unwrap()
    }

    /// Number of searches, and apps in the order in which they were asked and checked.
    fn questions(&self) -> (usize, Vec<String>, Vec<String>) {
        (self.searched.borrow().len(), self.asked.borrow().clone(), self.checked.borrow().clone())
    }
}

impl AppSource for FakeApps {
    fn known(&self) -> Vec<DiscoveredApp> {
        self.apps.clone()
    }

    fn apps(&self, name: Option<&str>) -> Result<Vec<DiscoveredApp>, FindError> {
        self.searched.borrow_mut().push(name.map(str::to_owned));
        match name {
            None => Ok(self.apps.clone()),
            Some(_) => self.choose(name, &self.apps).map(|app| vec![app]),
        }
    }

    fn choose(
        &self,
        name: Option<&str>,
        running: &[DiscoveredApp],
    ) -> Result<DiscoveredApp, FindError> {
        let is_meant = |app: &&DiscoveredApp| {
            name.is_none_or(|name| app.name == name || app.socket.display().to_string() == name)
        };
        let found = running.iter().find(is_meant).cloned();
        let unknown = || FindError::Unknown {
            name: name.unwrap_or_default().to_owned(),
            running: running.to_vec(),
            unreadable: Vec::new(),
        };
        found.ok_or_else(unknown)
    }

    fn ask(&self, apps: Vec<DiscoveredApp>) -> Vec<RunningApp> {
        self.asked.borrow_mut().extend(apps.iter().map(|app| app.name.clone()));
        let port = |id, device: String| PortSample { id, device, ..PortSample::default() };
        let answer = |app: DiscoveredApp| {
            if app.state != Reachability::Live {
                return RunningApp { app, sample: None };
            }
            let own = format!("net_{}", app.name);
            let ports = vec![port(0, "net_null0".to_owned()), port(1, own)];
            RunningApp { app, sample: Some(Sample { ports, ..Sample::default() }) }
        };
        apps.into_iter().map(answer).collect()
    }

    fn preflight(&self, running: &RunningApp) -> anyhow::Result<Preflight> {
        self.checked.borrow_mut().push(running.app.name.clone());
        Ok(Preflight::Library(running.app.dir.join("pmdscope.sock")))
    }

    fn preflight_named(&self, running: &RunningApp) -> anyhow::Result<Preflight> {
        self.preflight(running)
    }

    fn target(&self, running: RunningApp, found: Preflight) -> anyhow::Result<CaptureTarget> {
        CaptureTarget::new(running, found, &Arc::default(), AttachPolicy::Safe)
    }
}

fn app(name: &str) -> DiscoveredApp {
    let dir = PathBuf::from("/run/dpdk").join(name);
    DiscoveredApp::in_dir(dir, name, "dpdk_telemetry.v2", Reachability::Live)
}

fn names(targets: &[CaptureTarget]) -> Vec<String> {
    targets.iter().flat_map(CaptureTarget::names).collect()
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn any_finds_asks_and_checks_each_app_once() {
    let all = ["one", "three", "two"];
    let source = FakeApps::of(&all);
    let targets = source.resolve(&["any"], None);
    assert_eq!(names(&targets), ["one:any", "three:any", "two:any"]);
    assert!(targets.iter().all(|target| !target.is_named()));
    assert_eq!(source.questions(), (1, owned(&all), owned(&all)));
}

#[test]
fn an_app_that_is_named_in_many_ways_is_asked_and_checked_once() {
    let source = FakeApps::of(&["one", "two"]);
    let targets = source.resolve(&["any", "two:0", "1", "two:net_null0:3"], None);
    assert_eq!(targets.len(), 2);
    assert!(targets.iter().any(CaptureTarget::is_named));
    assert_eq!(source.questions(), (1, owned(&["one", "two"]), owned(&["one", "two"])));
}

#[test]
fn only_the_app_that_is_named_is_asked_and_checked() {
    let source = FakeApps::of(&["one", "two"]);
    let targets = source.resolve(&["0", "two:0"], Some("two"));
    assert_eq!(names(&targets), ["two:0"]);
    assert_eq!(source.questions(), (1, owned(&["two"]), owned(&["two"])));
    let source = FakeApps::of(&["one"]);
    assert_eq!(names(&source.resolve(&[], None)), ["one:any"]);
    assert_eq!(source.questions(), (1, owned(&["one"]), owned(&["one"])));
}

#[test]
fn a_unique_device_or_the_name_of_an_app_is_enough() {
    let source = FakeApps::of(&["one", "two"]);
    assert_eq!(names(&source.resolve(&["net_two"], None)), ["two:1"]);
    assert_eq!(names(&source.resolve(&["net_one:3"], None)), ["one:1:3"]);
    assert_eq!(names(&source.resolve(&["two"], None)), ["two:any"]);
    assert_eq!(names(&FakeApps::of(&["one"]).resolve(&["one"], None)), ["one:any"]);
    let error = |interface: &str| {
        let interfaces = owned(&[interface]);
        let resolver = Resolver::new(&source, &interfaces, None).unwrap();
        format!("{:#}", resolver.resolve(&interfaces, None).unwrap_err())
    };
    let says = "several apps have a device net_null0; name one of one:net_null0, two:net_null0";
    assert_eq!(error("net_null0"), says);
    assert_eq!(
        error("six"),
        "no DPDK app is named \"six\"; running: one, two; nor has an app such a device: pmdscope \
         capture -D lists all"
    );
}

#[test]
fn where_apps_are_named_the_others_are_left_alone() {
    let source = FakeApps::of(&["one", "three", "two"]);
    let targets = source.resolve(&["two:0", "one:net_null0:3"], None);
    assert_eq!(names(&targets), ["one:0:3", "two:0"]);
    let searched = ["one", "two"].map(|name| Some(name.to_owned()));
    assert_eq!(*source.searched.borrow(), searched);
    assert_eq!(source.questions().1, owned(&["two", "one"]));
}

#[test]
fn an_app_that_does_not_answer_fails_no_other() {
    let mut source = FakeApps::of(&["one", "two"]);
    let timeout = UnreachableReason::Timeout;
    source.apps[0].state = Reachability::Unreachable(timeout);
    assert_eq!(names(&source.resolve(&["any"], None)), ["two:any"]);
    assert_eq!(source.questions().2, owned(&["two"]));
}

#[test]
fn interfaces_of_the_kernel_are_told() {
    assert!(is_of_kernel("lo"));
    assert!(!is_of_kernel("any") && !is_of_kernel("") && !is_of_kernel("../net"));
}
