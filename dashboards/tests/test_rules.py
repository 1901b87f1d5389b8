# SPDX-License-Identifier: BSD-3-Clause
"""Alerts say what they mean, of metrics that exist, and each has a test and a runbook."""

import json
import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

from lint import RUNBOOKS, anchors
from promql import labels, parse, selectors
from sources import (DASHBOARDS, ROOT, RULES, catalogue, dashboards, known_labels, panels,
                     rules)

TESTS = DASHBOARDS / "prometheus" / "tests"
ALERTMANAGER = DASHBOARDS / "prometheus" / "alertmanager.yml"
AGENT = DASHBOARDS / "prometheus" / "agent.yml"
# Over several alerts.
SCENARIOS = {TESTS / "recording.yml", TESTS / "incidents.yml"}
# The alerts that fire at the end of one leak.
OF_A_LEAK = {
    "DpdkAppUnhealthy", "DpdkMbufAllocationFailures", "DpdkMbufLeak", "DpdkPoolAlmostEmpty",
    "DpdkPoolDraining", "DpdkPoolExhausted", "DpdkPoolNearlyFull", "DpdkReceiveFlat",
    "DpdkReceiveMissed", "DpdkReceiveMissedMuch", "DpdkTransmitStuck"}
PROMTOOL = os.environ.get("PROMTOOL", "promtool")


def alerts():
    """Alerting rules by name."""
    return {rule["alert"]: rule for rule in rules() if "alert" in rule}


def lints():
    """Names of findings, which are the values of the label reason."""
    text = (ROOT / "telemetry" / "src" / "finding" / "lint.rs").read_text()
    return set(re.findall(r'^    \w+ = "(\w+)",$', text.partition("\nlints! {")[2], re.MULTILINE))


def tests():
    """File, name and text of every promtool test."""
    for path in sorted(TESTS.glob("*.yml")):
        for text in re.split(r"^  - name: ", path.read_text(), flags=re.MULTILINE)[1:]:
            yield path, text.split("\n", 1)[0], text


def inhibitions():
    """Source and target matchers of each inhibition rule, and its equal labels."""
    for rule in ALERTMANAGER.read_text().partition("inhibit_rules:")[2].split("  - source")[1:]:
        yield tuple(json.loads(found) for found in re.findall(r": (\[.*\])$", rule, re.MULTILINE))


def drop_rules():
    """Expressions of the names that the agent of a fleet drops."""
    text = AGENT.read_text().partition("metric_relabel_configs:")[2]
    return re.findall(r"^ +regex: (\S+)\n +action: drop$", text, re.MULTILINE)


def dropped(name):
    """Whether a series of this name, or one that it is recorded from, is dropped by the agent."""
    recorded = [rule for rule in rules() if rule.get("record") == name]
    if recorded:
        names = {found.name for found, _ in selectors(parse(recorded[0]["expr"]))}
        return any(map(dropped, names))
    return any(re.fullmatch(regex, name) for regex in drop_rules())


def matches(alert, matchers):
    """Whether all matchers hold for the labels of an alert, as in Alertmanager."""
    def holds(matcher):
        label, operator, value = matcher.split(" ", 2)
        equal = re.fullmatch(value if "~" in operator else re.escape(value), alert[label])
        return bool(equal) != operator.startswith("!")
    return all(map(holds, matchers))


def notified(firing):
    """Names of those alerts of one app and pool that no other inhibits."""
    labelled = [{"alertname": name, "severity": alerts()[name]["severity"]} for name in firing]

    def inhibited(target):
        return any(matches(target, targets) and not matches(target, sources)
                   and any(matches(source, sources) for source in labelled)
                   for sources, targets, _ in inhibitions())
    return {alert["alertname"] for alert in labelled if not inhibited(alert)}


class Rules(unittest.TestCase):
    """Over all rule files."""

    def test_all_rules_are_read(self):
        text = "".join(path.read_text() for path in RULES.glob("*.yml"))
        written = len(re.findall(r"^      - (?:alert|record): ", text, re.MULTILINE))
        self.assertEqual(len(rules()), written)
        self.assertGreater(len(alerts()), 30)

    def test_metrics_and_labels_exist(self):
        known = known_labels()
        for rule in rules():
            name = rule.get("alert") or rule["record"]
            for selector, _ in selectors(parse(rule["expr"])):
                self.assertIn(selector.name, known, name)
                for label, _, value in selector.matchers:
                    self.assertIn(label, known[selector.name], name)
                    if selector.name == "dpdk_app_unhealthy_reason" and label == "reason":
                        self.assertIn(value, lints(), name)

    def test_recorded_series_keep_job_and_instance(self):
        for rule in rules():
            if "record" in rule:
                level = rule["record"].split(":")[0]
                has = labels(parse(rule["expr"]), lambda name: known_labels()[name])
                self.assertLessEqual({"job", "instance", "app", level}, has, rule["record"])

    def test_alerts_are_complete(self):
        known = known_labels()
        uids = {board["uid"] for board in dashboards().values()}
        for name, rule in alerts().items():
            with self.subTest(name):
                self.assertIn(rule["severity"], ("critical", "warning", "info"))
                self.assertEqual(rule["runbook_url"], f"{RUNBOOKS}#{name.lower()}")
                self.assertIn(name.lower(), anchors())
                self.assertIn(rule["dashboard_url"].removeprefix("/d/").split("?")[0], uids)
                there = labels(parse(rule["expr"]), known.__getitem__)
                said = " ".join(rule[key] for key in ("summary", "description", "dashboard_url"))
                self.assertLessEqual(set(re.findall(r"\$labels\.(\w+)", said)), there)
                for metric in re.findall(r"dpdk_[a-z_]+", said):
                    self.assertIn(metric, known)
                self.assertTrue(rule["summary"])
                self.assertTrue(rule["description"].endswith((".", "?")))

    def test_every_runbook_is_of_an_alert(self):
        text = (ROOT / "docs" / "runbooks.md").read_text()
        self.assertEqual(set(re.findall(r"^## (\w+)$", text, re.MULTILINE)), set(alerts()))
        for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
            for part in ("Means", "Impact", "Look", "Fix", "Silence"):
                self.assertIn(f"**{part}**", section)
        titles = {panel["title"] for board in dashboards().values() for panel in panels(board)}
        for title in re.findall(r"(?<!\*)\*([A-Z0-9][^*]+)\*(?!\*)", " ".join(text.split())):
            self.assertIn(title, titles)
        for anchor in re.findall(r"\]\(#([\w-]+)\)", text):
            self.assertIn(anchor, anchors())

    def test_the_runbook_of_stolen_time_has_every_cause(self):
        source = (ROOT / "telemetry/src/sample/stolen.rs").read_text()
        source = source.split("impl StolenCause", 1)[1].split("\n}", 1)[0]
        causes = set(re.findall(r'Self::\w+ => "(\w+)"', source)) - {"sleep"}
        text = (ROOT / "docs" / "runbooks.md").read_text()
        section = text.split("## DpdkLcoreStolen", 1)[1].split("\n## ", 1)[0]
        self.assertIn("irq", causes)
        self.assertEqual(set(re.findall(r"^- `(\w+)`:", section, re.MULTILINE)), causes)

    def test_every_alert_is_tested_before_during_and_after(self):
        found = {name: text for _, name, text in tests()}
        for name in alerts():
            self.assertIn(name, found)
            samples = re.findall(r"exp_samples:( \[\])?", found[name])
            self.assertEqual(samples, [" []", "", " []"], name)
            self.assertIn(f'alertname="{name}"', found[name])

    def test_a_fleet_lacks_only_documented_alerts(self):
        self.assertEqual(len(drop_rules()), 4)
        for regex in drop_rules():
            self.assertTrue([name for name in catalogue() if re.fullmatch(regex, name)], regex)
        lost = {name for name, rule in alerts().items()
                if any(dropped(found.name) for found, _ in selectors(parse(rule["expr"])))}
        text = " ".join((ROOT / "docs" / "fleet.md").read_text().split())
        documented = re.search(r"Alerts without data: ([^.]*)\.", text).group(1)
        self.assertEqual(set(re.findall(r"`(\w+)`", documented)), lost)

    def test_one_leak_is_two_notifications(self):
        self.assertEqual(notified(OF_A_LEAK), {"DpdkMbufLeak", "DpdkPoolExhausted"})

    def test_an_app_that_is_down_is_one_notification(self):
        self.assertEqual(notified({"DpdkAppDown", "DpdkCollectErrors", "DpdkAppUnhealthy"}),
                         {"DpdkAppDown"})

    def test_a_silent_host_is_one_notification(self):
        self.assertEqual(notified({"DpdkHostSilent", "DpdkAppDown", "DpdkAppsMissing"}),
                         {"DpdkHostSilent"})

    def test_nothing_else_is_inhibited_by_a_leak(self):
        for name in ("DpdkDoubleFree", "DpdkLinkDown", "DpdkNoPolling"):
            self.assertIn(name, notified(OF_A_LEAK | {name}))

    def test_inhibitions_name_alerts_and_labels_that_exist(self):
        self.assertGreater(len(list(inhibitions())), 3)
        for sources, targets, equal in inhibitions():
            self.assertLessEqual(set(equal), {"instance", "app", "pool"})
            for matcher in sources + targets:
                label, operator, value = matcher.split(" ", 2)
                self.assertIn(label, ("alertname", "severity"))
                self.assertIn(operator, ("=", "!=", "=~", "!~"))
                if label == "alertname" and value != "Dpdk.+":
                    self.assertLessEqual(set(value.split("|")), set(alerts()))

    def test_every_record_is_tested(self):
        text = (TESTS / "recording.yml").read_text()
        for rule in rules():
            if "record" in rule:
                self.assertIn(f"expr: {rule['record']}", text)

    def test_annotations_are_rendered(self):
        for path in sorted({path for path, _, _ in tests()} - SCENARIOS):
            shown = self.rendered(path)
            for _, name, _ in filter(lambda test: test[0] == path, tests()):
                self.assertIn(f'alertname="{name}"', shown)
            for sign in ("<error", "no value", "%!", "<nil>", "NaN"):
                self.assertNotIn(sign, shown)
            self.assertNotRegex(shown, r"(of|on|Port|port|Pool|lcore) {2}")

    def test_alerts_of_pools_tell_who_counted(self):
        shown = self.rendered(TESTS / "memory.yml")
        self.assertEqual(shown.count("(counted via xray)"), len(
            [name for name, rule in alerts().items() if "dpdk_mempool_info" in rule["description"]]))

    def rendered(self, path):
        """What promtool shows of all alerts of a file at the time of their fault."""
        def only_alerts(found):
            name, at = found.group(1), re.findall(r"eval_time: (\w+)", found.group(0))[1]
            head = found.group(0).partition("    promql_expr_test:")[0]
            return (f"{head}    alert_rule_test:\n      - eval_time: {at}\n"
                    f"        alertname: {name}\n        exp_alerts: []\n")
        test = r"  - name: (\w+)\n(?:(?!  - name: |\n\n)[\s\S])*"
        text = re.sub(test, only_alerts, path.read_text()).replace("../rules/", f"{RULES}/")
        with tempfile.TemporaryDirectory() as scratch:
            file = Path(scratch) / "test.yml"
            file.write_text(text)
            done = subprocess.run([PROMTOOL, "test", "rules", file], capture_output=True, text=True,
                                  check=False)
        # Nothing was expected, so that everything is reported.
        self.assertEqual(done.returncode, 1, done.stderr)
        return done.stdout + done.stderr


if __name__ == "__main__":
    unittest.main()
