//! Tests of the discovery without any app; see tests/ for those with one.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use proptest::prelude::*;

use super::*;

fn options(root: &Path) -> DiscoverOptions {
    DiscoverOptions {
        roots: vec![root.into()],
        proc: None,
        timeout: Duration::from_millis(50),
        ..DiscoverOptions::default()
    }
}

fn runtime_dir(root: &Path, prefix: &str) -> PathBuf {
    let dir = root.join("dpdk").join(prefix);
    fs::create_dir_all(&dir).unwrap();
    dir
}

#[test]
fn stale_directories_are_listed_only_on_request() {
    let root = tempfile::tempdir().unwrap();
    let dir = runtime_dir(root.path(), "ended");
    File::create(dir.join("config")).unwrap();
    File::create(dir.join(SOCKET)).unwrap();
    runtime_dir(root.path(), "empty");
    File::create(root.path().join("dpdk/file")).unwrap();
    symlink(&dir, root.path().join("dpdk/link")).unwrap();
    let mut options = options(root.path());
    assert_eq!(discover(&options), []);
    options.stale = true;
    let stale: Vec<_> = discover(&options).into_iter().map(|app| (app.name, app.state)).collect();
    assert_eq!(
        stale,
        [("empty".into(), Reachability::Stale), ("ended".into(), Reachability::Stale)]
    );
}

#[test]
fn a_process_without_a_socket_starts_or_has_no_telemetry() {
    let starting = Reachability::Unreachable(UnreachableReason::Starting);
    let (young, old) = (Some(Duration::from_secs(60)), Some(Duration::from_secs(600)));
    for (arguments, age, expected) in [
        ("app -l 0-1", young, starting),
        ("app -l 0-1", old, Reachability::NoTelemetry),
        ("app --no-telemetry", young, Reachability::NoTelemetry),
        ("app --no-tele -l 0", young, Reachability::NoTelemetry),
        ("app --no-huge", young, starting),
        ("app -- --no-telemetry", young, starting),
        ("app", None, Reachability::NoTelemetry),
    ] {
        let words: Vec<_> = arguments.split(' ').map(str::to_owned).collect();
        assert_eq!(without_socket(Some(&words), age), expected, "{arguments} {age:?}");
    }
    assert_eq!(without_socket(None, young), starting);
}

#[test]
fn nothing_to_find_is_an_error_that_says_where() {
    let root = tempfile::tempdir().unwrap();
    let error = find(None, &options(root.path())).unwrap_err();
    assert!(error.to_string().contains(&root.path().join("dpdk").display().to_string()), "{error}");
    let error = find(Some("x"), &options(root.path())).unwrap_err();
    assert!(error.to_string().contains("\"x\""), "{error}");
}

#[test]
fn processes_that_may_not_be_looked_at_are_told_of() {
    let error = |hidden| {
        let (roots, unreadable) = (vec!["/run".into()], Vec::new());
        FindError::NoApp { roots, unreadable, hidden }.to_string()
    };
    assert!(error(true).contains("CAP_SYS_PTRACE") && !error(false).contains("CAP_SYS_PTRACE"));
}

#[test]
fn in_memory_instances_are_told_from_other_files() {
    assert_eq!(instance_suffix("dpdk_telemetry.v2"), Some(""));
    assert_eq!(instance_suffix("dpdk_telemetry.v2:12"), Some(":12"));
    for other in ["dpdk_telemetry.v2:", "dpdk_telemetry.v2:x", "dpdk_telemetry.v1", "config"] {
        assert_eq!(instance_suffix(other), None, "{other}");
    }
}

proptest! {
    #[test]
    fn any_file_name_is_told(name: String) {
        let _ = instance_suffix(&name);
    }
}

#[test]
fn an_unknown_name_says_what_runs_instead() {
    let unknown = |running: &[&str], unreadable: &[&str]| {
        let app = |name: &&str| {
            DiscoveredApp::in_dir(format!("/run/dpdk/{name}"), *name, SOCKET, Reachability::Live)
        };
        let running = running.iter().map(app).collect();
        let unreadable = unreadable.iter().map(PathBuf::from).collect();
        FindError::Unknown { name: "gone".to_owned(), running, unreadable }.to_string()
    };
    assert_eq!(unknown(&[], &[]), "no DPDK app is named \"gone\"; running: none");
    // If no directory can be read, it is unknown which apps run.
    let cause = "cannot read /nowhere/dpdk: run as root";
    assert_eq!(unknown(&[], &["/nowhere/dpdk"]), cause);
    assert_eq!(
        unknown(&["fwd"], &["/nowhere/dpdk"]),
        format!("{cause}; of those that can be seen, no DPDK app is named \"gone\"; running: fwd")
    );
    let (roots, unreadable) = (vec!["/nowhere".into()], vec!["/nowhere/dpdk".into()]);
    assert_eq!(FindError::NoApp { roots, unreadable, hidden: true }.to_string(), cause);
}

#[test]
fn an_app_is_found_by_its_name_and_by_its_file_prefix() {
    let instance = |name: &str, socket: &str| {
        DiscoveredApp::in_dir("/run/dpdk/fwd-7", name, socket, Reachability::Live)
    };
    let first = instance("fwd", "dpdk_telemetry.v2");
    let second = instance("fwd:1", "dpdk_telemetry.v2:1");
    assert!(["fwd", "fwd-7", "/run/dpdk/fwd-7"].iter().all(|name| first.is_called(name)));
    assert!(second.is_called("fwd:1") && second.is_called("fwd-7:1"));
    assert!(!second.is_called("fwd-7") && !first.is_called("fwd-7:1"));
}

#[test]
fn names_are_exact() {
    let app = |name: &str| {
        DiscoveredApp::in_dir(Path::new("/run/dpdk").join(name), name, SOCKET, Reachability::Live)
    };
    let second = "dpdk_telemetry.v2:1";
    let second = DiscoveredApp::in_dir("/run/dpdk/gen", "gen:1", second, Reachability::Live);
    let running = [app("edge-canary"), app("fwd"), second];
    let options = DiscoverOptions::default();
    let find = |name| choose(Some(name), running.to_vec(), &options).map(|app| app.name);
    assert_eq!(find("fwd").unwrap(), "fwd");
    assert_eq!(find("gen:1").unwrap(), "gen:1");
    // The first instance has ended.
    for other in ["edge", "gen", "/run/dpdk/gen", "edge-canary2", "dge-canary", ""] {
        let error = find(other).unwrap_err();
        assert!(matches!(error, FindError::Unknown { .. }), "{other}: {error}");
        assert!(error.to_string().ends_with("running: edge-canary, fwd, gen:1"), "{error}");
    }
}

#[test]
fn an_app_of_another_user_is_not_meant_by_its_file_prefix() {
    let theirs = DiscoveredApp {
        user: Some("eve".into()),
        ..DiscoveredApp::in_dir("/tmp/dpdk/fwd", "eve/fwd", SOCKET, Reachability::Live)
    };
    let options = DiscoverOptions::default();
    let find = |name| choose(Some(name), vec![theirs.clone()], &options);
    assert_eq!(find("eve/fwd").unwrap(), theirs);
    let error = find("fwd").unwrap_err().to_string();
    let says = "running: eve/fwd; eve/fwd belongs to another user: give its whole name";
    assert!(error.ends_with(says), "{error}");
}

#[test]
fn many_apps_of_another_user_hide_no_other_one_in_an_error() {
    let app = |user: Option<&str>, name: String| DiscoveredApp {
        user: user.map(str::to_owned),
        ..DiscoveredApp::in_dir(
            Path::new("/run/dpdk").join(&name),
            name,
            SOCKET,
            Reachability::Live,
        )
    };
    let theirs = (0..100).map(|number| app(Some("eve"), format!("eve/{number:02}")));
    let running = theirs.chain([app(None, "fwd".to_owned())]).collect();
    let unknown = FindError::Unknown { name: "x".to_owned(), running, unreadable: Vec::new() };
    let text = unknown.to_string();
    assert!(text.contains("running: fwd, eve/00, ") && text.ends_with(" and 81 more"), "{text}");
}

#[test]
fn a_search_that_is_interrupted_says_so() {
    let root = tempfile::tempdir().unwrap();
    let stop = Arc::new(AtomicBool::new(true));
    let options = DiscoverOptions { stop: stop.into(), ..options(root.path()) };
    assert!(matches!(find(None, &options), Err(FindError::Interrupted)));
}
