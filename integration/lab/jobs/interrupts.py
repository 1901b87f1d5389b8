#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""interrupts.py: compares what `pmdscope interrupts` reports with what the kernel counted meanwhile.

interrupts.py sample CPU TID       prints counters of CPU and thread, a line of JSON four times a second
interrupts.py documents REPORT     prints how many documents of REPORT begin after the probes were attached
interrupts.py irqs DEVICE...       prints IRQ, device and action of PCI devices, a line each
interrupts.py compare METHOD REPORT SAMPLES PHASES IRQS
                                   prints a check per line; PHASES has the start of each phase

REPORT is the output of `pmdscope interrupts --json`, SAMPLES that of `sample`, IRQS that of `irqs`.
"""
import json
import pathlib
import re
import sys
import time

# How late a count may be in a report: bpftrace prints four times a second, and a busy host delays that.
LATE_S = 1.5
# The counters of the events of each cause in SAMPLES. Not all counted events are traced.
COUNTERS = {
    "timer": ["LOC"],
    "ipi": ["RES", "CAL", "TLB", "IWI"],
    "softirq": ["softirqs"],
    "sleep": ["voluntary_ctxt_switches"],
    "page_fault": ["faults"],
    "signal": [],
}
# Interrupts without a number and without a separate cause; only counters of /proc report them.
OTHER_INTERRUPTS = ["NMI", "SPU", "PMI", "IWI", "RTR", "TRM", "THR", "DFR", "MCE", "MCP", "PIN", "NPI", "PIW"]


def interrupts():
    """Lines of /proc/interrupts: name, counts by CPU, and the words behind them."""
    header, *lines = pathlib.Path("/proc/interrupts").read_text().splitlines()
    cpus = len(header.split())
    for line in lines:
        name, *fields = line.split()
        if len(fields) >= cpus:
            yield name.rstrip(":"), [int(count) for count in fields[:cpus]], fields[cpus:]


def sample(cpu, tid):
    """Of a thread that polls on a CPU; the CPU runs nothing for it."""
    counters = {name: counts[cpu] for name, counts, _ in interrupts()}
    softirqs = [line.split() for line in pathlib.Path("/proc/softirqs").read_text().splitlines()[1:]]
    counters["softirqs"] = sum(int(fields[1 + cpu]) for fields in softirqs)
    status = pathlib.Path(f"/proc/{tid}/status").read_text()
    for name, count in re.findall(r"^(\w*voluntary_ctxt_switches):\s*(\d+)", status, re.MULTILINE):
        counters[name] = int(count)
    fields = pathlib.Path(f"/proc/{tid}/stat").read_text().rsplit(")", 1)[1].split()
    counters["faults"] = int(fields[7]) + int(fields[9])
    return {"ns": time.time_ns(), "counters": counters}


def documents(path):
    """Those of a file that may still be written which begin after the probes were attached."""
    lines = pathlib.Path(path).read_text().splitlines(keepends=True)
    read = [json.loads(line) for line in lines if line.endswith("\n")]
    return [document for document in read if is_traced(document)]


def is_traced(document):
    begin = document["realtime_ns"] - int(document["interval_s"] * 1e9)
    apps = document["apps"]
    return apps and all(app["lcores"] and app["since_realtime_ns"] <= begin for app in apps)


def irqs_of(device):
    directory = pathlib.Path("/sys/bus/pci/devices", device)
    msi = [irq.name for irq in directory.glob("msi_irqs/*")]
    return msi or [(directory / "irq").read_text().strip()]


def actions():
    """By IRQ: what stands behind the chip, and the number and kind of its line."""
    for name, _, words in interrupts():
        kind = [at for at, word in enumerate(words) if re.fullmatch(r"\d+-\w+", word)]
        if kind:
            yield name, "".join(words[kind[0] + 1 :])


class Counted:
    """What the kernel counted."""

    def __init__(self, path):
        self.samples = [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]

    def at(self, ns, after):
        """The last sample before a time, or the first one after it."""
        if after:
            later = [sample for sample in self.samples if sample["ns"] >= ns]
            return (later or self.samples[-1:])[0]["counters"]
        return ([sample for sample in self.samples if sample["ns"] <= ns] or self.samples[:1])[-1]["counters"]

    def between(self, begin, end, counter, at_most):
        """How often in a time: at most, by the samples around it, or at least, by those inside."""
        first, last = self.at(begin, not at_most), self.at(end, at_most)
        return max(0, last.get(counter, 0) - first.get(counter, 0))


class Round:
    """One document, and what the kernel counted in its time."""

    def __init__(self, document, counted):
        self.end = document["realtime_ns"]
        self.begin = self.end - int(document["interval_s"] * 1e9)
        self.counted = counted
        self.apps = document["apps"]
        self.rows = [row for app in self.apps for row in app["stolen"] if row["count"]]

    def reported(self, cause):
        return sum(row["count"] for row in self.rows if row["cause"] == cause)

    def at_most(self, counters):
        late = int(LATE_S * 1e9)
        return sum(self.counted.between(self.begin - late, self.end, name, True) for name in counters)

    def at_least(self, counters):
        late = int(LATE_S * 1e9)
        return sum(self.counted.between(self.begin, self.end - late, name, False) for name in counters)

    def false_thefts(self):
        """Causes of which more is reported than the kernel counted, or that cannot have happened."""
        for cause, counters in COUNTERS.items():
            if self.reported(cause) > self.at_most(counters):
                yield f"{cause}: {self.reported(cause)} reported, {self.at_most(counters)} counted"
        if self.reported("scheduler") and not self.at_most(["nonvoluntary_ctxt_switches"]):
            yield f"scheduler: {self.reported('scheduler')} reported, the thread was never preempted"
        for row in self.rows:
            if row["cause"] == "irq":
                irq = re.search(r"IRQ (\d+)", row["thief"])
                most = self.at_most([irq[1]] if irq else OTHER_INTERRUPTS)
                if row["count"] > most:
                    yield f"{row['thief']}: {row['count']} reported, {most} counted"

    def missing(self, cause, counters):
        """Says so if less is reported than the kernel counted."""
        if self.reported(cause) < self.at_least(counters):
            return [f"{cause}: {self.reported(cause)} reported, {self.at_least(counters)} counted"]
        return []


def check(what, problems):
    print(f"FAIL {what}: {'; '.join(problems)}" if problems else f"ok   {what}")


def compare(method, report, samples, phases, irqs):
    counted = Counted(samples)
    rounds = [Round(document, counted) for document in documents(report)]
    begins = dict(line.split() for line in pathlib.Path(phases).read_text().splitlines())
    ticks, nics = int(begins["ticks"]), int(begins["nics"])
    late = int(LATE_S * 1e9)
    quiet = [one for one in rounds if one.end <= ticks]
    with_ticks = [one for one in rounds if one.begin >= ticks - late and one.end <= nics]
    with_nics = [one for one in rounds if one.begin >= nics - late]
    if not (quiet and with_ticks and with_nics):
        check("reports of each phase", [f"{len(quiet)} quiet, {len(with_ticks)} with ticks, {len(with_nics)} with NICs"])
        return
    methods = {app["method"] for one in rounds for app in one.apps}
    check(f"interrupts counts by {method}", [] if methods == {method} else [str(methods)])

    traced = [row for one in quiet for row in one.rows if row["cause"] != "unexplained"]
    kernel = sum(one.at_most(["LOC", "RES", "CAL", "TLB", "softirqs"]) for one in quiet)
    seconds = sum(one.end - one.begin for one in quiet) / 1e9
    print(f"     quiet for {seconds:.1f} s: the kernel counted {kernel} interrupts and softirqs, "
          f"{sum(row['count'] for row in traced)} events are reported")
    check("an isolated core is left alone: nothing is reported that the kernel did not count",
          [problem for one in quiet for problem in one.false_thefts()])
    stalls = sum(one.reported("unexplained") for one in rounds)
    print(f"     {stalls} times the host took the CPU, by the app's own measure")

    for name, some in ("ticks", with_ticks), ("interrupts of NICs", with_nics):
        check(f"with {name}, nothing else is reported than what the kernel counted",
              [problem for one in some for problem in one.false_thefts()])
    for one in with_ticks[:1]:
        print(f"     ticks: {one.reported('timer')} reported; the kernel counted {one.at_least(['LOC'])} to "
              f"{one.at_most(['LOC'])}")
    check("the ticks that the kernel counted are reported",
          [problem for one in with_ticks for problem in one.missing("timer", ["LOC"])]
          + ([] if all(one.reported("timer") for one in with_ticks) else ["none"]))
    lines = [line.split() for line in pathlib.Path(irqs).read_text().splitlines()]
    for device in dict.fromkeys(device for _, device, _ in lines):
        check_nic(with_nics, [(irq, action) for irq, of, action in lines if of == device], device)


def check_nic(rounds, irqs, device):
    """At least one IRQ of the device has stolen, and all that have are named."""
    problems, stolen = [], []
    for irq, action in irqs:
        thief = f"{action} (IRQ {irq}, {device})"
        for one in rounds:
            count = sum(row["count"] for row in one.rows if (row["cause"], row["thief"]) == ("irq", thief))
            least, most = one.at_least([irq]), one.at_most([irq])
            if count:
                stolen.append((count, f"{thief}, {count} reported, {least} to {most} counted"))
            if count < least:
                seen = ", ".join(row["thief"] for row in one.rows if row["cause"] == "irq")
                problems.append(f"{thief}: {count} reported, {least} to {most} counted; reported are: {seen}")
    if not stolen:
        problems.append("none of its interrupts is reported")
    check(f"cause irq names {device}: {max(stolen)[1] if stolen else 'no'}", problems)


def main():
    command, *arguments = sys.argv[1:]
    if command == "sample":
        while True:
            print(json.dumps(sample(int(arguments[0]), arguments[1])), flush=True)
            time.sleep(0.25)
    elif command == "documents":
        print(len(documents(arguments[0])))
    elif command == "irqs":
        named = dict(actions())
        for device in arguments:
            for irq in irqs_of(device):
                if irq in named:
                    print(irq, device, named[irq])
    else:
        compare(*arguments)


main()
