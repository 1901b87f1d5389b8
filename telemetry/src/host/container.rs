//! The container that a process runs in, by the names of its control groups.

use std::sync::LazyLock;

use regex::Regex;
use serde::{Deserialize, Serialize};

use super::process::PROC;

/// Length to which container engines shorten ids for people.
const SHORT_ID: usize = 12;

/// A control group of a container: its id, perhaps after the name of the engine. Control groups of
/// `conmon` belong to the engine itself.
static ID: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^(?:.*[:-])?([0-9a-f]{64})(?:\.scope)?$").ok());

/// The UID of a pod, in which systemd has `_` instead of `-`. Static pods have a hash, those of podman an id.
static POD: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let uuid = "[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}";
    Regex::new(&format!(r"(?:^|-|_)pod_?({uuid}|[0-9a-f]{{64}}|[0-9a-f]{{32}})(?:\.slice|:|$)"))
        .ok()
});

/// Container of a process, as named by its engine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Container {
    /// Id of the container, 64 hexadecimal digits.
    pub id: String,
    /// UID of the Kubernetes pod of the container, or id of its podman pod; `None` if it is in no pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
}

impl Container {
    /// Returns the container of a process; `None` for a process of the host, and if `/proc` does not
    /// report it.
    pub fn of(pid: u32) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(format!("{PROC}/{pid}/cgroup")).ok()?)
    }

    /// Returns the shortened id.
    pub fn short_id(&self) -> &str {
        self.id.get(..SHORT_ID).unwrap_or(&self.id)
    }

    /// Parses `/proc/PID/cgroup`, one line per hierarchy. The innermost container counts.
    fn parse(text: &str) -> Option<Self> {
        text.lines().find_map(|line| Self::of_path(line.splitn(3, ':').nth(2)?))
    }

    fn of_path(path: &str) -> Option<Self> {
        let groups = || path.rsplit('/').filter(|group| !group.contains("conmon"));
        let found = |regex: &LazyLock<Option<Regex>>, group: &str| {
            let captures = regex.as_ref()?.captures(group)?;
            Some(captures.get(1)?.as_str().to_owned())
        };
        let id = groups().find_map(|group| found(&ID, group))?;
        let pod = groups().find_map(|group| found(&POD, group));
        Some(Self { id, pod: pod.map(|pod| pod.replace('_', "-")) })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ID: &str = "4f1c9a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f708192a3b4c5d6e7";
    const UID: &str = "0f1b6c52-2f4e-4a1b-9d0c-6a7b8c9d0e1f";

    /// Parses text with `ID` and `UID` filled in; with `_` instead of `-` for the UID of a slice.
    fn parse(text: &str) -> Option<Container> {
        let text = text.replace("SLICE_UID", &UID.replace('-', "_"));
        Container::parse(&text.replace("UID", UID).replace("ID", ID))
    }

    #[test]
    fn containers_are_known_by_the_control_groups_of_their_engines() {
        let in_pod = [
            // containerd and CRI-O with the systemd driver, cgroup v2.
            "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podSLICE_UID.slice/cri-containerd-ID.scope\n",
            "0::/kubepods.slice/kubepods-podSLICE_UID.slice/crio-ID.scope/container\n",
            // A process in another control group, as one with a separate cgroup namespace sees it.
            "0::/../../kubepods-besteffort-podSLICE_UID.slice/cri-containerd-ID.scope\n",
            // The same with cgroup v1, with the drivers cgroupfs and systemd.
            "11:memory:/kubepods/burstable/podUID/ID\n10:cpu:/kubepods/burstable/podUID/ID\n",
            "3:cpuset:/kubepods.slice/kubepods-podSLICE_UID.slice/docker-ID.scope\n",
            "9:pids:/system.slice/containerd.service/kubepods-burstable-podSLICE_UID.slice:cri-containerd:ID\n",
            // Kubernetes in Docker: the inner container counts.
            "0::/docker/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa/kubelet/kubepods/podUID/ID\n",
        ];
        for text in in_pod {
            let expected = Container { id: ID.into(), pod: Some(UID.into()) };
            assert_eq!(parse(text), Some(expected), "{text}");
        }
        let alone = [
            "0::/system.slice/docker-ID.scope\n",
            "0::/docker/ID\n",
            "12:devices:/user.slice\n11:pids:/docker/ID\n1:name=systemd:/docker/ID\n0::/\n",
            "0::/machine.slice/libpod-ID.scope/container\n",
            "0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-ID.scope\n",
            "0::/libpod_parent/libpod-ID\n",
            "0::/system.slice/nerdctl-ID.scope\n",
        ];
        for text in alone {
            let expected = Container { id: ID.into(), pod: None };
            assert_eq!(parse(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn pods_have_hashes_and_ids_too() {
        let hash = "kubepods-burstable-pod0123456789abcdef0123456789abcdef.slice";
        let pod = |group: &str| parse(&format!("0::/kubepods.slice/{group}/crio-ID.scope"))?.pod;
        assert_eq!(pod(hash).as_deref(), Some("0123456789abcdef0123456789abcdef"));
        let podman = format!("machine-libpod_pod_{ID}.slice");
        assert_eq!(pod(&podman).as_deref(), Some(ID));
        assert_eq!(pod("kubepods-besteffort.slice"), None);
    }

    #[test]
    fn processes_of_the_host_are_in_no_container() {
        for text in [
            "",
            "0::/\n",
            "0::/init.scope\n",
            "0::/user.slice/user-0.slice/session-3.scope\n",
            "0::/system.slice/docker.service\n",
            "0::/machine.slice/libpod-conmon-ID.scope\n",
            "0::/system.slice/IDa.scope\n",
            "4:memory:/process_api/9520e2a7ad7d7de222693789cb0e9baf\n",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn ids_are_cut_where_people_read_them() {
        let container = |id: &str| Container { id: id.into(), pod: None };
        assert_eq!(container(ID).short_id(), "4f1c9a2b3c4d");
        assert_eq!(container("4f1c").short_id(), "4f1c");
    }

    proptest! {
        #[test]
        fn any_text_is_parsed(text in "([0-9]{1,2}:[a-z]{0,5}:(/[a-f0-9_.:-]{0,70}){0,4}\n?){0,4}", junk: String) {
            let _ = Container::parse(&text);
            let _ = Container::parse(&junk);
        }
    }
}
