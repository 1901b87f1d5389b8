#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Checks the tables of drivers in telemetry/drivers against the sources of DPDK, and writes names.txt beside them.

    devtools/driver-names.py 21.11=/src/dpdk-21.11 22.11=/src/dpdk-22.11 ...

Each argument is a release and the tree of its sources; give them all, as names.txt says what these have. Reads the
names of extended statistics (xstats) out of the C sources of each driver: string literals in tables of statistics,
also those that macros make, and the formats that add a queue or priority. Fails if a table has a name that a release
does not have although it claims so, claims too few releases, or leaves out a name that looks like a loss.

    --list DRIVER   prints all names that were found in a driver instead, for whoever writes a table
"""

import argparse
import pathlib
import re
import sys
import tomllib

TABLES = pathlib.Path(__file__).resolve().parent.parent / "telemetry" / "drivers"
LIST = TABLES / "names.txt"

# Names that must be in a table: what may be lost, and what may look like it.
SUSPICIOUS = re.compile(
    "discard|drop|err|miss|overrun|overflow|exceed|no_?(?:m?buf|desc)|fail|lost|bad|crc|fcs|oob|out_of"
    "|pause|xon|xoff|pfc|oversize|undersize|jabber|fragment|runt|collision|timeout|illegal|invalid|unsupp|filter"
    "|reject|abort|trunc|expired|stall|starv|blocked|busy|[_ ]full",
    re.IGNORECASE,
)

# Where drivers are that have no directory of their own name, or more than that.
DIRECTORIES = {
    "mlx5": ["drivers/net/mlx5", "drivers/common/mlx5"],
    "e1000_em": ["drivers/net/e1000", "drivers/net/intel/e1000"],
    "e1000_igb": ["drivers/net/e1000", "drivers/net/intel/e1000"],
    "igc": ["drivers/net/igc", "drivers/net/intel/e1000"],
    "sfc": ["drivers/net/sfc", "drivers/common/sfc_efx"],
    "iavf": ["drivers/net/iavf", "drivers/net/intel/iavf", "drivers/common/iavf", "drivers/net/intel/common"],
    "virtio_user": ["drivers/net/virtio"],
    "vhost": ["drivers/net/vhost", "lib/vhost"],
}
# Drivers of which some files are not theirs, or have other names than those of xstats.
FILES = {
    "e1000_em": r"/(em|e1000)_[^/]*$",
    "e1000_igb": r"/(igb|e1000)_[^/]*$",
    "igc": r"/(igc|e1000)_[^/]*$",
    "sfc": r"/(efx_mac|sfc_)[^/]*$",
}
# The names that ethdev itself gives to every port.
ETHDEV = "ethdev"

# Files that name statistics.
RELEVANT = re.compile("xstat|stats?_(?:str|name)|name_off")

# Basic counters; ethdev takes rx_nombuf from the second name of it.
BASIC = re.compile(r"\b(?:imissed|ierrors|oerrors|rx_nombuf|rx_mbuf_alloc_failed)\b")

STRING = r'"(?:[^"\\\n]|\\.)*"'
COPIES = {"snprintf": 2, "sprintf": 1, "strlcpy": 1, "strncpy": 1, "strcpy": 1, "rte_strlcpy": 1, "memcpy": 1}


class Problem(Exception):
    """A table or an argument that is wrong."""


def without_comments(text):
    return re.sub(rf"({STRING})|/\*.*?\*/|//[^\n]*", lambda found: found[1] or " ", text, flags=re.S)


def balanced(text, start):
    """The text between the bracket at `start` and the one that closes it, and where it ends."""
    close = {"(": ")", "{": "}"}[text[start]]
    depth, place = 0, start
    token = re.compile(rf"{STRING}|[{{}}()]")
    while found := token.search(text, place):
        place = found.end()
        if found[0] == text[start]:
            depth += 1
        elif found[0] == close:
            depth -= 1
            if depth == 0:
                return text[start + 1:found.start()], place
    return text[start + 1:], len(text)


def arguments(text):
    """Splits at the commas that are in no brackets and no strings."""
    parts, depth, start = [], 0, 0
    for found in re.finditer(rf"{STRING}|[({{\[\])}},]", text):
        token = found[0]
        if token in "({[":
            depth += 1
        elif token in ")}]":
            depth -= 1
        elif token == "," and depth == 0:
            parts.append(text[start:found.start()].strip())
            start = found.end()
    return [*parts, text[start:].strip()]


class Macros:
    """The macros of a driver that make strings."""

    def __init__(self, texts):
        self.strings, self.functions = {}, {}
        for text in texts:
            joined = re.sub(r"\\\s*\n", " ", text)
            for name, parameters, body in re.findall(
                    r"^[ \t]*#[ \t]*define[ \t]+(\w+)(?:\(([\w\s,.]*)\))?[ \t]+(.*)$", joined, flags=re.M):
                if parameters:
                    self.functions[name] = ([one.strip() for one in parameters.split(",")], body)
                elif re.fullmatch(rf"\s*(?:{STRING}\s*)+", body):
                    self.strings[name] = body.strip()
        making = {name for name, (_, body) in self.functions.items() if re.search(r'(?<!#)#(?!#)|"', body)}
        for _ in range(3):
            making |= {name for name, (_, body) in self.functions.items() if making & set(re.findall(r"\w+", body))}
        self.functions = {name: self.functions[name] for name in making if len(self.functions[name][1]) < 4000}

    def expand(self, text, depth=4):
        """Replaces calls of the macros, and names of strings."""
        if depth and self.functions:
            call = re.compile(r"\b(" + "|".join(map(re.escape, self.functions)) + r")\s*\(")
            out, place = [], 0
            while found := call.search(text, place):
                out.append(text[place:found.start()])
                inside, place = balanced(text, found.end() - 1)
                out.append(self.expand(self.call(found[1], arguments(inside)), depth - 1))
            text = "".join([*out, text[place:]])
        text = re.sub(r"\bPRI[ux]\w+", '"u"', text)
        if self.strings:
            named = re.compile(r"\b(" + "|".join(map(re.escape, self.strings)) + r")\b")
            text = named.sub(lambda one: self.strings[one[1]], text)
        return text

    def call(self, name, values):
        parameters, body = self.functions[name]
        given = dict(zip(parameters, values))
        body = re.sub(r"(?<!#)#\s*(\w+)",
                      lambda one: f'"{given[one[1]]}"' if one[1] in given else one[0], body)
        body = re.sub(r"\s*##\s*", "\0", body)
        body = re.sub(rf"({STRING})|(\w+)", lambda one: one[1] or given.get(one[2], one[2]), body)
        return body.replace("\0", "")


def literals(text):
    """String literals, adjacent ones joined."""
    return ["".join(one[1:-1] for one in re.findall(STRING, run))
            for run in re.findall(rf"{STRING}(?:\s*{STRING})*", text)]


class Source:
    """Tables and formats of one C file."""

    def __init__(self, path, text):
        self.path, self.tables, self.copies, self.assigned = path, {}, [], {}
        self.pointers = [(one.start(), one[1], one[2]) for one in re.finditer(r"\b(\w+)\s*=\s*&?(\w+)\s*[;\[]", text)]
        for found in re.finditer(r"\b(\w+)\s*(?:\[[^\]]*\]\s*)+(?:__\w+\s*)?=\s*\{", text):
            body, _ = balanced(text, found.end() - 1)
            if names := [one for one in literals(body) if is_name(one)]:
                head = re.split("[;{}#]", text[max(0, found.start() - 200):found.start()])[-1]
                self.tables[found[1]] = (head + found[1], names)
        for found in re.finditer(r"\b(" + "|".join(COPIES) + r")\s*\(", text):
            inside, _ = balanced(text, found.end() - 1)
            values = arguments(inside)
            at, formatted = COPIES[found[1]], found[1].endswith("printf")
            if len(values) > at:
                self.copies.append((values[0], values[at], values[at + 1:], formatted, found.start()))
        for name, value in re.findall(rf"\b(\w+)\s*=\s*({STRING})\s*;", text):
            self.assigned.setdefault(name, set()).add(value[1:-1])

    def aliases(self, name, place):
        """The tables that a pointer may name at a place: those of the last assignment, and of the other branch."""
        before = [one for one in self.pointers if one[1] == name and one[0] < place]
        return {table for at, _, table in before if before[-1][0] - at < 300}


def is_name(text):
    return bool(re.fullmatch(r"[A-Za-z][\w%.-]{1,62}(?: [a-z]+)?", text))


def numbered(text):
    """Conversions of numbers become {n}."""
    return re.sub(r"%[-0-9.]*(?:hh?|ll?|z)?[udix]", "{n}", text)


class Driver:
    """The names of the xstats of a driver in one release, each with the file that has it."""

    def __init__(self, tree, driver):
        self.names = {}
        places = DIRECTORIES.get(driver, [f"drivers/net/{driver}", f"drivers/net/intel/{driver}"])
        paths = sorted(path for where in places for end in ("c", "h")
                       for path in (tree / where).rglob(f"*.{end}"))
        if driver == ETHDEV:
            paths = [tree / "lib/ethdev/rte_ethdev.c"]
        wanted = re.compile(FILES.get(driver, ""))
        texts = {path: path.read_text(errors="replace") for path in paths
                 if wanted.search(str(path.relative_to(tree)))}
        self.basic = {word for text in texts.values() for word in re.findall(BASIC, text)}
        texts = {path: without_comments(text) for path, text in texts.items() if RELEVANT.search(text)}
        macros = Macros(texts.values())
        self.sources = [Source(path.relative_to(tree), macros.expand(text)) for path, text in texts.items()]
        self.tables = {name: table for source in self.sources for name, table in source.tables.items()}
        parts = self.formats()
        for source in self.sources:
            for table, (head, names) in source.tables.items():
                if table not in parts and re.search("stat(?!ic|e|us)|counter|cnt|mib", head, re.I):
                    for name in names:
                        self.names.setdefault(numbered(name), source.path)

    def formats(self):
        """Adds the names that formats make; returns the tables whose texts are only parts of names."""
        parts = set()
        for source in self.sources:
            for target, form, values, formatted, place in source.copies:
                if not re.search(r"stats?_names?\b|^names?\b|^tmp$", target, re.I):
                    continue
                for text in literals(form):
                    names, used = self.filled(source, numbered(text), values, place) if formatted else ({text}, set())
                    if text not in ("%s", "%s\\n"):
                        parts |= used
                        for name in filter(is_full_name, names):
                            self.names.setdefault(name, source.path)
        return parts

    def filled(self, source, form, values, place):
        """A format with what each %s may stand for, and the tables that these texts are from."""
        # Numbers in the middle of a text: its beginning, the numbers, and the rest of the same text.
        if cut := re.fullmatch(r"%\.(\d+)s([{n}.]+)%s", form):
            here, used = self.texts_of(source, values[0], place)
            return {one[:int(cut[1])] + cut[2] + one[int(cut[1]):] for one in here}, used
        numbers = re.findall(r"\{n\}|%\w", form)
        texts, used = {form}, set()
        for conversion, value in zip(numbers, values):
            if conversion != "%s":
                continue
            here, tables = self.texts_of(source, value, place)
            used |= tables
            texts = {text.replace("%s", one, 1) for text in texts for one in here or {"*"}}
        return texts, used

    def texts_of(self, source, value, place):
        if found := literals(value):
            return set(found), set()
        identifiers = re.findall(r"\w+", value)
        tables = {name for name in identifiers if name in self.tables}
        for name in [] if tables else identifiers:
            if name in source.assigned:
                return source.assigned[name], set()
            tables |= source.aliases(name, place) & set(self.tables)
        if not tables and re.search(r"stat\w*(\[\w+\])?(->|\.)name\b", value):
            tables = {name for name, (head, _) in source.tables.items() if re.search("stat", head, re.I)}
        return {numbered(text) for name in tables for text in self.tables[name][1]}, tables

    def file_of(self, name):
        """The file that has a name of a table, or None."""
        if name in self.names:
            return self.names[name]
        pattern = re.compile(re.escape(name).replace(r"\{n\}", r"(?:\d+|\{n\})"))
        return next((path for known, path in self.names.items() if pattern.fullmatch(known)), None)


def is_full_name(text):
    return bool(re.fullmatch(r"[\w{}*\[\]. -]{3,63}", text)) and bool(re.search("[a-z]{2}", text.replace("{n}", "")))


def version(release):
    year, month = release.split(".")
    return int(year), int(month)


def ranges(found, releases):
    """`21.11-` or `21.11-22.11`, or several of them: runs of the releases that have a name."""
    runs, last = [], None
    for place, release in enumerate(releases):
        if release in found:
            if last is not None and place == last + 1:
                runs[-1][1] = release
            else:
                runs.append([release, release])
            last = place
    return ",".join(f"{first}-" if end == releases[-1] else f"{first}-{end}" for first, end in runs)


def claimed(text, releases):
    """The releases of `21.11-` or `21.11-22.11`, or several of them with commas between."""
    found = set()
    for run in text.split(","):
        if not (parts := re.fullmatch(r"(\d\d\.\d\d)-(\d\d\.\d\d)?", run.strip())):
            raise Problem(f"releases is {text!r}: write 21.11- or 21.11-22.11")
        first, last = version(parts[1]), version(parts[2] or "99.99")
        found |= {release for release in releases if first <= version(release) <= last}
    return found


def without_numbers(name):
    return re.sub(r"\d+|\{n\}", "{n}", name)


class Check:
    """What is known of one driver: its table and its names in all releases."""

    def __init__(self, table, trees):
        self.driver, self.table, self.trees, self.releases = table["driver"], table, trees, list(trees)
        self.found = {release: Driver(tree, self.driver) for release, tree in trees.items()}
        self.problems, self.lines = [], {}

    def run(self):
        newest, tree = list(self.found.values())[-1], list(self.trees.values())[-1]
        for basic in self.table.get("basic", []):
            if not (tree / basic["source"]).is_file():
                self.problems.append(f"{basic['counter']}: there is no {basic['source']} in {self.releases[-1]}")
            words = {basic["counter"], *(["rx_mbuf_alloc_failed"] if basic["counter"] == "rx_nombuf" else [])}
            if not basic.get("never") and not words & newest.basic:
                self.problems.append(f"{basic['counter']} is set nowhere in {self.releases[-1]}: it is never counted")
        for name in self.table.get("arrived", []):
            if not any(driver.file_of(name) for driver in self.found.values()):
                self.problems.append(f"arrived: {name} is in no release")
        covered = set()
        for counter in self.table.get("counter", []):
            covered |= {without_numbers(name) for name in counter["names"]}
            if ":" in counter["source"]:
                for name in counter["names"]:
                    self.lines[name] = ("-", counter["source"])
            else:
                self.counter(counter)
        for release, driver in self.found.items():
            for name, path in driver.names.items():
                if not SUSPICIOUS.search(name) or "*" in name:
                    continue
                if without_numbers(name) not in covered:
                    self.problems.append(f"{name} of {path} is in no counter of the table")
                elif name not in self.lines and not self.line(name):
                    self.problems.append(f"{name} was found once only")

    def line(self, name):
        having = {release: path for release, driver in self.found.items() if (path := driver.file_of(name))}
        if having:
            self.lines[name] = (ranges(having, self.releases), str(list(having.values())[-1]))
        return having

    def counter(self, counter):
        try:
            claims = claimed(counter["releases"], self.releases)
        except Problem as problem:
            self.problems.append(f"{counter['names'][0]}: {problem}")
            return
        everywhere = set()
        for name in counter["names"]:
            if not (having := self.line(name)):
                self.problems.append(f"{name} is in no release")
            everywhere |= set(having)
        if everywhere and everywhere != claims:
            self.problems.append(f"{counter['names'][0]}: releases = \"{ranges(everywhere, self.releases)}\" is right, "
                                 f"not \"{counter['releases']}\"")
        paths = {str(driver.file_of(name)) for driver in self.found.values() for name in counter["names"]} - {"None"}
        if everywhere and counter["source"] not in paths:
            self.problems.append(f"{counter['names'][0]}: source is one of {', '.join(sorted(paths))}, "
                                 f"not {counter['source']}")


HEAD = """\
# Written by devtools/driver-names.py; do not edit. Read from the sources of DPDK
# {releases}.
# Names of extended statistics (xstats) that count losses, errors, pauses and limits, or look as if they did, and all
# other names that the tables have. One name a line, sorted, four fields with tabs between:
#   driver     as in the tables; `ethdev` has the names that every port has
#   name       {{n}} stands for the decimal number of a queue, priority or traffic class
#   releases   the first and the last release that has the name: `21.11-` is still there in the last one above,
#              `22.03-23.11` is not; several ranges have commas between; `-` is a name from outside DPDK
#   source     the file of the newest release that has the name; outside of DPDK `linux:FILE`, or `vendor:PAGE`
# A name in a table is right if it is here. A name here is covered if a table has it, with {{n}} for its numbers.
"""


def trees_of(texts):
    trees = {}
    for text in texts:
        release, _, tree = text.partition("=")
        path = pathlib.Path(tree)
        if not re.fullmatch(r"\d\d\.\d\d", release) or not (path / "drivers/net").is_dir():
            raise Problem(f"{text}: write RELEASE=DIRECTORY, as in 22.11=/usr/src/dpdk-22.11")
        trees[release] = path
    return dict(sorted(trees.items(), key=lambda one: version(one[0])))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trees", nargs="+", metavar="RELEASE=DIRECTORY")
    parser.add_argument("--list", metavar="DRIVER")
    options = parser.parse_args()
    try:
        trees = trees_of(options.trees)
    except Problem as problem:
        print(f"driver-names.py: {problem}", file=sys.stderr)
        return 2
    if options.list:
        print_names(options.list, trees)
        return 0
    return check(trees)


def print_names(driver, trees):
    found = {release: Driver(tree, driver) for release, tree in trees.items()}
    for name in sorted({name for one in found.values() for name in one.names}):
        having = {release: one.names[name] for release, one in found.items() if name in one.names}
        mark = "!" if SUSPICIOUS.search(name) else " "
        print(f"{mark} {name:45} {ranges(having, list(trees)):14} {list(having.values())[-1]}")


def check_signatures(checks):
    """A signature is a name of this driver in some release, and of no other one."""
    names = {one.driver: {without_numbers(name) for driver in one.found.values() for name in driver.names}
             for one in checks}
    for one in checks:
        for name in one.table.get("signature", []):
            having = [driver for driver, known in names.items() if without_numbers(name) in known]
            if having != [one.driver]:
                one.problems.append(f"signature: {name} is a name of {', '.join(having) or 'no driver'}")


def check(trees):
    lines, wrong = [], 0
    checks = [Check(tomllib.loads(path.read_text()), trees) for path in sorted(TABLES.glob("*.toml"))]
    check_signatures(checks)
    for one in checks:
        one.run()
        one.problems = list(dict.fromkeys(one.problems))
        wrong += len(one.problems)
        for problem in one.problems:
            print(f"{one.driver}.toml: {problem}", file=sys.stderr)
        lines += [f"{one.driver}\t{name}\t{releases}\t{source}" for name, (releases, source) in one.lines.items()]
    if wrong:
        print(f"{wrong} problems; {LIST.name} is unchanged", file=sys.stderr)
        return 1
    LIST.write_text(HEAD.format(releases=", ".join(trees)) + "".join(line + "\n" for line in sorted(lines)))
    print(f"{len(lines)} names of {len({line.split(chr(9))[0] for line in lines})} drivers in {LIST.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
