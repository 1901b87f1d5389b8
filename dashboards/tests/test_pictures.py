# SPDX-License-Identifier: BSD-3-Clause
"""devtools/dashboard-pictures.sh with a stub for Grafana and for each program that it runs: what it
says that it needs, which pictures it writes, and that it ends what it started."""

import http.server
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import unittest
from pathlib import Path

from sources import ROOT, dashboards

SCRIPT = ROOT / "devtools" / "dashboard-pictures.sh"
# All other programs that the script runs are stubs.
OF_SYSTEM = ("basename", "cat", "curl", "dirname", "grep", "mkdir", "mktemp", "mv", "python3", "rm",
             "sh", "tail")
# Waiting for something that never comes would take minutes.
SLEEP = "exec /bin/sleep 0.01"
RUNS = 'echo $$ >>"$PIDS"; exec /bin/sleep 600'
DEMO = f'echo "leak ${{DEMO_LEAK:-none}}" >>"$LOG"; {RUNS}'
CHROMIUM = """
printf '%s\\n' "$*" >>"$LOG"
for argument in "$@"; do
	case $argument in
	--screenshot=*) echo picture >"${argument#*=}" ;;
	--user-data-dir=*) [ ! -e "${argument#*=}" ] || exit 1; mkdir "${argument#*=}" ;;
	esac
done"""
FLAGS = ("--disable-background-networking", "--disable-component-update", "--disable-sync",
         "--window-size=1600,")


class Grafana(http.server.BaseHTTPRequestHandler):
    """Answers by the beginning of a path, with what the server has for it."""

    def do_GET(self):  # noqa: N802, the name is given
        found = [text for path, text in self.server.answers.items() if self.path.startswith(path)]
        self.send_response(200 if found else 404)
        self.end_headers()
        self.wfile.write("".join(found).encode())

    def log_message(self, *_):
        """Quiet."""


HEALTH, BOARD = "/api/health", "/api/dashboards/uid/pmdscope-fleet"
DATA = "/api/datasources/proxy/uid/pmdscope-prometheus/api/v1/query"
ANSWERS = {HEALTH: "{}", BOARD: '{"uid": "pmdscope-fleet"}',
           DATA: '{"data": {"result": [{"metric": {"instance": "127.0.0.1:9177"}}]}}'}


class Pictures(unittest.TestCase):
    """Each test has its own folder: programs, pictures, and what the stubs note."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.dir = Path(scratch.name)
        for name in ("bin", "programs", "tmp"):
            (self.dir / name).mkdir()
        for name in OF_SYSTEM:
            (self.dir / "bin" / name).symlink_to(shutil.which(name))
        self.stub("bin/sleep", SLEEP)
        self.stub("bin/chromium", CHROMIUM)
        self.stub("programs/pmdscope", RUNS)
        self.stub("programs/pmdscope-demo", DEMO)
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Grafana)
        self.server.answers = dict(ANSWERS)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def stub(self, name, text):
        """Makes a program of the text of a shell script."""
        path = self.dir / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def start(self, **more):
        """Starts the script."""
        names = {"PATH": self.dir / "bin", "TMPDIR": self.dir / "tmp", "PICTURE_AFTER": 0,
                 "PICTURES": self.dir / "pictures", "PROGRAMS": self.dir / "programs",
                 "GRAFANA_URL": self.url, "PIDS": self.dir / "pids", "LOG": self.dir / "log"} | more
        return subprocess.Popen([SCRIPT], env={name: str(value) for name, value in names.items()},
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run_script(self, **more):
        """Runs the script; returns exit status, standard output and errors."""
        with self.start(**more) as running:
            out, err = running.communicate(timeout=120)
        self.nothing_stays()
        return running.returncode, out, err

    def pids(self):
        """Processes that exporter and demo were."""
        noted = self.dir / "pids"
        return [int(line) for line in noted.read_text().split()] if noted.exists() else []

    def nothing_stays(self):
        """No process and no temporary file."""
        for pid in self.pids():
            with self.assertRaises(ProcessLookupError, msg=f"process {pid}"):
                os.kill(pid, 0)
        self.assertEqual(list((self.dir / "tmp").iterdir()), [])

    def fails(self, *wanted, **more):
        """The script fails, and says why in these words; no picture is written."""
        code, _, err = self.run_script(**more)
        self.assertEqual(code, 1, err)
        for words in wanted:
            self.assertIn(words, err)
        self.assertEqual(list(self.dir.glob("pictures/*")), [])

    def test_each_dashboard_in_peace_and_with_a_leak(self):
        code, out, err = self.run_script(GRAFANA_URL=f"{self.url}/")
        self.assertEqual((code, err), (0, ""))
        wanted = [f"{name}-{state}.png" for state in ("peace", "leak") for name in dashboards()]
        self.assertEqual(sorted(path.name for path in (self.dir / "pictures").iterdir()),
                         sorted(wanted))
        for name in wanted:
            self.assertIn(f"wrote {self.dir}/pictures/{name}", out)
        self.assertEqual(len(self.pids()), 3)

        noted = (self.dir / "log").read_text().splitlines()
        self.assertEqual([line for line in noted if line.startswith("leak")],
                         ["leak none", "leak 1/1024"])
        taken = [line for line in noted if line.startswith("--")]
        self.assertEqual(len(taken), len(wanted))
        for line, name in zip(taken, list(dashboards()) * 2):
            self.assertIn(f"{self.url}/d/pmdscope-{name}?kiosk&from=now-0s&to=now", line)
            for flag in FLAGS:
                self.assertIn(flag, line)

    def test_what_must_be_installed(self):
        for program, words in (("bin/chromium", "no browser: run devtools/setup.sh pictures"),
                               ("bin/curl", "no curl: run devtools/setup.sh pictures"),
                               ("programs/pmdscope", "/pmdscope: run make build"),
                               ("programs/pmdscope-demo", "/pmdscope-demo: run make build")):
            with self.subTest(program):
                path = self.dir / program
                path.rename(self.dir / "away")
                self.fails(words)
                (self.dir / "away").rename(path)

    def test_without_a_grafana_it_needs_docker_or_podman(self):
        self.fails("no Grafana: set GRAFANA_URL", "install docker or podman", GRAFANA_URL="")

    def test_grafana_that_cannot_be_started_is_removed(self):
        self.stub("bin/docker", 'echo "$*" >>"$LOG"; [ "$4" != up ]')
        self.fails("'docker compose up' failed", "or set GRAFANA_URL", GRAFANA_URL="")
        self.assertEqual((self.dir / "log").read_text().splitlines(), [
            "compose version", "compose -f dashboards/compose.yaml up -d",
            "compose -f dashboards/compose.yaml down -v"])

    def test_what_grafana_must_have(self):
        for path, words in ((HEALTH, f"no Grafana answers at {self.url}: not within the time"),
                            (BOARD, "has no dashboard pmdscope-fleet: import or provision"),
                            (DATA, "has no app of the exporter on this machine: let it scrape")):
            with self.subTest(path):
                answer = self.server.answers.pop(path)
                self.fails(words)
                self.server.answers[path] = answer

    def test_programs_that_end(self):
        for program, words in (("pmdscope", "the exporter ended: no address"),
                               ("pmdscope-demo", "the demo ended: no address")):
            with self.subTest(program):
                path = self.dir / "programs" / program
                before = path.read_text()
                self.stub(f"programs/{program}", "echo no address; exit 1")
                # Not before they have ended.
                self.stub("bin/sleep", "exec /bin/sleep 0.5")
                self.fails(words)
                path.write_text(before)

    def test_browsers_that_take_no_picture(self):
        for text, words in (("echo no display; exit 1", "chromium: no display"),
                            ("echo no page", "chromium wrote no picture: no page")):
            with self.subTest(text):
                self.stub("bin/chromium", text)
                self.fails(words)

    def test_an_interrupt_just_when_a_program_starts(self):
        for _ in range(10):
            self.stub("programs/pmdscope-demo", f"kill -TERM $PPID; {RUNS}")
            self.assertEqual(self.run_script()[0], 130)

    def test_an_interrupted_run_ends_what_it_started(self):
        del self.server.answers[DATA]
        self.stub("bin/sleep", "exec /bin/sleep 0.1")
        with self.start() as running:
            until = time.monotonic() + 60
            while len(self.pids()) < 2 and time.monotonic() < until:
                time.sleep(0.02)
            running.send_signal(signal.SIGTERM)
            running.communicate(timeout=60)
        self.assertEqual((running.returncode, len(self.pids())), (130, 2))
        self.nothing_stays()


if __name__ == "__main__":
    unittest.main()
