# SPDX-License-Identifier: BSD-3-Clause
"""Provisioning, compose and scrape configuration agree with each other and with the exporter."""

import re
import unittest

from sources import DASHBOARDS, ROOT

COMPOSE = (DASHBOARDS / "compose.yaml").read_text()
SOURCE = (DASHBOARDS / "grafana/provisioning/datasources/prometheus.yml").read_text()
PROVIDER = (DASHBOARDS / "grafana/provisioning/dashboards/pmdscope.yml").read_text()
SCRAPES = [(DASHBOARDS / "prometheus" / name).read_text()
           for name in ("prometheus.yml", "prometheus-http-sd.yml")]


def value(text, key):
    """The value of a key that occurs once."""
    found, = re.findall(rf"^\s*(?:- )?{key}: (\S+)$", text, re.MULTILINE)
    return found.strip('"')


class Deployment(unittest.TestCase):
    """What compose starts."""

    def test_mounted_paths_exist(self):
        mounts = re.findall(r"- (\./\S+?):(/\S+?):ro$", COMPOSE, re.MULTILINE)
        self.assertEqual(len(mounts), 4)
        for source, _ in mounts:
            self.assertTrue((DASHBOARDS / source).exists(), source)
        self.assertIn(value(PROVIDER, "path"), [target for _, target in mounts])
        home = re.search(r"HOME_DASHBOARD_PATH: (\S+)", COMPOSE).group(1)
        path, _, name = home.rpartition("/")
        self.assertEqual(path, value(PROVIDER, "path"))
        self.assertTrue((DASHBOARDS / "grafana/json" / name).exists())

    def test_grafana_finds_all_folders_that_it_reads(self):
        # Grafana reports an error at its start for each missing one.
        for name in ("alerting", "dashboards", "datasources", "plugins"):
            self.assertTrue((DASHBOARDS / "grafana" / "provisioning" / name).is_dir(), name)

    def test_images_are_pinned_and_name_no_registry(self):
        images = re.findall(r"image: (\S+)", COMPOSE)
        self.assertEqual(len(images), 2)
        for image in images:
            self.assertRegex(image, r"^[a-z]+/[a-z]+:v?\d+\.\d+\.\d+$")

    def test_everything_listens_on_loopback_only(self):
        self.assertEqual(COMPOSE.count("network_mode: host"), 2)
        self.assertIn("--web.listen-address=127.0.0.1:9090", COMPOSE)
        self.assertEqual(value(COMPOSE, "GF_SERVER_HTTP_ADDR"), "127.0.0.1")
        self.assertEqual(value(COMPOSE, "GF_AUTH_ANONYMOUS_ORG_ROLE"), "Viewer")
        self.assertEqual(value(SOURCE, "url"), "http://127.0.0.1:9090")

    def test_grafana_knows_the_scrape_interval(self):
        for scrape in SCRAPES:
            self.assertEqual(value(SOURCE, "timeInterval"), value(scrape, "scrape_interval"))

    def test_datasource_has_a_fixed_uid(self):
        self.assertEqual(value(SOURCE, "uid"), "pmdscope-prometheus")
        self.assertEqual(value(SOURCE, "isDefault"), "true")

    def test_scrapes_are_bounded_and_ask_the_exporters_default_address(self):
        source = (ROOT / "export/src/address.rs").read_text()
        address = re.search(r'DEFAULT_LISTEN: &str = "([^"]+)"', source).group(1)
        for scrape in SCRAPES:
            self.assertIn(address, scrape)
            self.assertGreater(int(value(scrape, "sample_limit")), 1000)
            self.assertRegex(value(scrape, "body_size_limit"), r"^\d+MB$")
            self.assertTrue(value(scrape, "job_name").startswith("pmdscope"))

    def test_an_agent_scrapes_as_prometheus_does(self):
        agent = (DASHBOARDS / "prometheus/agent.yml").read_text()
        for key in ("job_name", "sample_limit", "body_size_limit"):
            self.assertEqual(value(agent, key), value(SCRAPES[0], key))
        # rate1m of the rules needs three samples in a minute.
        self.assertLessEqual(int(value(agent, "scrape_interval").removesuffix("s")), 20)

    def test_apps_share_the_instance_of_their_exporter(self):
        regex = value(SCRAPES[1], "regex")
        self.assertEqual(value(SCRAPES[1], "target_label"), "instance")
        self.assertEqual(re.fullmatch(regex, "host:9177/fwd").group(1), "host:9177")
        self.assertEqual(re.fullmatch(regex, "[::1]:9177/a/b").group(1), "[::1]:9177")
        self.assertIsNone(re.fullmatch(regex, "host:9177"))
        documented = (ROOT / "docs/export.md").read_text()
        relabelling = SCRAPES[1].partition("    metric_relabel_configs:")[2].strip()
        self.assertIn(relabelling, documented)

    def test_documented_jobs_are_those_that_alerts_look_for(self):
        documented = (ROOT / "docs/export.md").read_text()
        names = re.findall(r"job_name: (\S+)", documented)
        self.assertEqual(names, [value(scrape, "job_name") for scrape in SCRAPES])


if __name__ == "__main__":
    unittest.main()
