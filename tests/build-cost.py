#!/usr/bin/env python3
"""What dependencies cost a build of the daemon, in units of cargo and in seconds of a processor.

The table of docs/dependencies.md names the dependencies. A row counts what would not be built without its crates:
these, and what they alone bring. Units are what cargo runs: a compiler, or a build script.

usage: tests/build-cost.py check              the units of the table are true, and no large dependency is missing
       tests/build-cost.py measure FOLDER     builds the release in FOLDER and logs the seconds of each unit there
       tests/build-cost.py update [FOLDER]    writes the units into the table, and the seconds that were measured
"""

import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
DOCUMENT = TOP / "docs/dependencies.md"
BUILD = ["build", "--release", "--locked", "-p", "ike-daemon"]
# A direct dependency that alone brings as many units stands in the table.
LARGE = 8
# | `crate`, `crate` | units | seconds | remark |
ROW = re.compile(r"^\| ((?:`[\w-]+`(?:, )?)+|all) \| ([\d,]+) \| ([\d,]+|–) \| (.*) \|$", re.M)
# Set for what a measured compiler starts itself: its time is in the compiler's.
INSIDE = "IKE_COST_INSIDE"
LOG = "IKE_COST_LOG"


class Graph:
    """The units of the daemon's release build."""

    def __init__(self):
        command = ["cargo", *BUILD, "--unit-graph", "-Z", "unstable-options"]
        environment = {**os.environ, "RUSTC_BOOTSTRAP": "1"}
        graph = json.loads(subprocess.run(command, cwd=TOP, env=environment, check=True, stdout=subprocess.PIPE).stdout)
        self.units, self.roots = graph["units"], graph["roots"]
        self.packages = [package(unit["pkg_id"]) for unit in self.units]

    def built_without(self, crates):
        """The units that are built if no package of these names is."""
        built, open_ = set(), list(self.roots)
        while open_:
            unit = open_.pop()
            if unit not in built and self.packages[unit][0] not in crates:
                built.add(unit)
                open_ += [dependency["index"] for dependency in self.units[unit]["dependencies"]]
        return built

    def brought_by(self, crates):
        """The units that are built for these packages alone, they included."""
        missing = crates - {name for name, _ in self.packages}
        if missing:
            sys.exit(f"{DOCUMENT.name}: the daemon is built without {', '.join(sorted(missing))}: strike it")
        return set(range(len(self.units))) - self.built_without(crates)

    def direct(self):
        """The names of packages that packages of this tree depend on, these excepted."""
        own = {at for at, unit in enumerate(self.units) if unit["pkg_id"].startswith("path+")}
        needed = {dependency["index"] for at in own for dependency in self.units[at]["dependencies"]}
        return {self.packages[at][0] for at in needed - own}

    def seconds(self, units, log):
        """The seconds of these units. The log has those of packages: a package's units share them."""
        parts, all_ = defaultdict(int), defaultdict(int)
        for at, key in enumerate(self.packages):
            all_[key] += 1
            parts[key] += at in units
        unknown = set(log) - set(all_)
        if unknown:
            sys.exit(f"the log is of another build: {sorted(unknown)}")
        return sum(seconds * parts[key] / all_[key] for key, seconds in log.items())


def package(identity):
    """Name and version of a package, by its identity in cargo's unit graph."""
    place, _, end = identity.partition("#")
    name, _, version = end.rpartition("@")
    return (name or place.rsplit("/", 1)[1], version)


def crates(cell):
    return set(re.findall(r"`([\w-]+)`", cell))


def check():
    graph, text = Graph(), DOCUMENT.read_text()
    rows = ROW.findall(text)
    if len(rows) < 10:
        sys.exit(f"{DOCUMENT.name}: the table has {len(rows)} rows; its form is another one")
    faults, named = [], set()
    for cell, units, _, _ in rows:
        named |= crates(cell)
        count = len(graph.units) if cell == "all" else len(graph.brought_by(crates(cell)))
        if f"{count:,}" != units:
            faults.append(f"{cell} brings {count} units, not {units}")
    for name in sorted(graph.direct() - named):
        count = len(graph.brought_by({name}))
        if count >= LARGE:
            faults.append(f"`{name}` brings {count} units and has no row: argue it")
    if faults:
        sys.exit("\n".join([f"{DOCUMENT}:", *faults, "tests/build-cost.py update writes the figures."]))
    print(f"the units of {len(rows)} rows are true: {len(graph.units)} in all")


def update(folder=None):
    graph, log = Graph(), read_log(folder) if folder else None

    def row(match):
        cell, _, seconds, remark = match.groups()
        units = set(range(len(graph.units))) if cell == "all" else graph.brought_by(crates(cell))
        if log is not None:
            seconds = f"{graph.seconds(units, log):,.0f}"
        return f"| {cell} | {len(units):,} | {seconds} | {remark} |"

    DOCUMENT.write_text(ROW.sub(row, DOCUMENT.read_text()))


def measure(folder):
    """Builds the release, with this file in place of the compilers of Rust and C."""
    folder = Path(folder).resolve()
    if folder.exists():
        sys.exit(f"{folder} is there already: only a build from nothing has all units")
    (folder / "bin").mkdir(parents=True)
    environment = {**os.environ, "RUSTC_WRAPPER": str(folder / "bin/wrapper"), LOG: str(folder / "log")}
    environment["CARGO_TARGET_DIR"] = str(folder / "target")
    environment["PATH"] = f"{folder / 'bin'}:{environment['PATH']}"
    # Build scripts call a C compiler by one of these names.
    for name, real in [("wrapper", ""), *((name, which(name)) for name in ("cc", "gcc", "c++", "g++", "cmake"))]:
        if real is not None:
            script = folder / "bin" / name
            script.write_text(f'#!/bin/sh\nexec {sys.executable} "{Path(__file__).resolve()}" compile {real} "$@"\n')
            script.chmod(0o755)
    subprocess.run(["cargo", *BUILD], cwd=TOP, env=environment, check=True)
    print(f"{sum(read_log(folder).values()):,.0f} CPU seconds in {folder / 'log'}")


def which(name):
    found = subprocess.run(["sh", "-c", f"command -v {name}"], stdout=subprocess.PIPE, text=True).stdout.strip()
    return found or None


def compile_(command):
    """Runs a compiler and logs the seconds that it and its children take."""
    inside = os.environ.get(INSIDE)
    name = os.environ.get("CARGO_PKG_NAME")
    process = os.posix_spawnp(command[0], command, {**os.environ, INSIDE: "1"})
    _, status, usage = os.wait4(process, 0)
    if name and not inside:
        line = f"{name} {os.environ['CARGO_PKG_VERSION']} {usage.ru_utime + usage.ru_stime:.3f}\n"
        with open(os.environ[LOG], "a", encoding="utf-8") as log:
            log.write(line)
    sys.exit(os.waitstatus_to_exitcode(status))


def read_log(folder):
    """Seconds by name and version of the package."""
    log = defaultdict(float)
    for line in (Path(folder) / "log").read_text().splitlines():
        name, version, seconds = line.split()
        log[name, version] += float(seconds)
    return log


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["check"]:
            check()
        case ["measure", folder]:
            measure(folder)
        case ["update"]:
            update()
        case ["update", folder]:
            update(folder)
        case ["compile", *command]:
            compile_(command)
        case _:
            sys.exit(__doc__)
