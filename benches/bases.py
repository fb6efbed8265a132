#!/usr/bin/env python3
"""Are the bases of the guards those that were measured? Reads counts.txt, size.txt and memory.txt and their history.

usage: benches/bases.py

It fails if

- a base differs from the file of the commit that it names, unless its own commit wrote it and names its parent;
- a commit since FIRST has moved a base or a limit and changed another file than these three;
- a base or a limit has risen, or a case is gone;
- allowances of a case sum to more than 5 % since 65a59d7, those that were taken back not counted;
- the history does not reach back to FIRST, or to a commit that a base names.

A case is taken out by a later FIRST: that is a change of this program, with its reason.
"""

import collections
import re
import subprocess
import sys

FILES = ["benches/counts.txt", "benches/size.txt", "benches/memory.txt"]
# The commit that set the bases to the figures of 65a59d7.
FIRST = "14c9737bedb7b800f0b189f22e4ee587514032b5"
# Percent by which allowances may raise a base.
MOST = 5.0

LINE = re.compile(r"(\S+) +(\d+)(?: +([0-9a-f]{7,40}))?(?: +\+([\d.]+)%.*)?$")
LIMIT = re.compile(r"limit +(\S+) +(\d+)")
Base = collections.namedtuple("Base", "number commit allowance")


class Fault(Exception):
    """The history cannot be read."""


def git(*arguments):
    done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Fault(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def read(text):
    """The bases of a file by their names, and its limits."""
    bases, limits = {}, {}
    for line in text.splitlines():
        if limit := LIMIT.match(line):
            limits[limit[1]] = int(limit[2])
        elif base := LINE.match(line):
            bases[base[1]] = Base(int(base[2]), base[3], float(base[4] or 0))
    return bases, limits


def at(commit, file):
    """The file in a commit; empty if the commit lacks it."""
    return git("show", f"{commit}:{file}") if git("ls-tree", commit, file) else ""


def named(commit):
    """The subject of a commit behind its hash."""
    return git("log", "-1", "--format=%h %s", commit).strip()


def require(commit, why):
    """The history has this commit."""
    ancestor = ["git", "merge-base", "--is-ancestor", commit, "HEAD"]
    if subprocess.run(ancestor, stderr=subprocess.DEVNULL, check=False).returncode == 0:
        return
    if git("rev-parse", "--is-shallow-repository").strip() == "true":
        raise Fault(f"this clone is shallow and lacks {commit[:8]}, {why}: run git fetch --unshallow")
    raise Fault(f"the history of HEAD has no commit {commit[:8]}, {why}")


class History:
    """A file since FIRST."""

    def __init__(self, file, first):
        self.file, self.faults = file, []
        self.bases, self.limits = read(at(first, file))
        # Percent that allowances and raised bases have added to each case. A limit stands for what there was at first.
        self.added = collections.Counter()
        if file != "benches/memory.txt":
            self.added.update({name: base.allowance for name, base in self.bases.items()})
        # The commit that wrote each base, and the parent of that commit.
        self.written = {}
        range_ = f"{first}..HEAD"
        for commit in git("rev-list", "--reverse", "--topo-order", "--full-history", range_, "--", file).split():
            self.follow(commit)
        with open(file, encoding="utf-8") as now:
            self.step(read(now.read()), "the changed file", None, "HEAD")

    def follow(self, commit):
        parents = git("log", "-1", "--format=%P", commit).split()
        text = at(commit, self.file)
        if len(parents) > 1:
            if all(text != at(parent, self.file) for parent in parents):
                self.faults.append(f"{named(commit)}: a merge changes {self.file}")
            return
        changed = git("diff-tree", "--no-commit-id", "--name-only", "-r", commit).splitlines()
        others = [path for path in changed if path not in FILES]
        self.step(read(text), named(commit), others, parents[0])

    def step(self, new, where, others, parent):
        (bases, limits), moved = new, []
        for name, old in self.bases.items():
            if name not in bases:
                self.faults.append(f"{where}: {name} is gone")
                continue
            now = bases[name]
            self.added[name] += now.allowance - old.allowance
            if now.number != old.number:
                moved.append(name)
            if now.number > old.number:
                self.faults.append(f"{where}: the base of {name} rises from {old.number} to {now.number}")
        for name, now in bases.items():
            old = self.bases.get(name)
            if not old:
                self.added[name] += now.allowance
            if not old or now.number != old.number:
                self.written[name] = parent
            if self.added[name] > MOST:
                sum_ = f"{self.added[name]:g} % since 65a59d7, and {MOST:g} are the limit"
                self.faults.append(f"{where}: the allowances of {name} sum to {sum_}")
        for name, old in self.limits.items():
            if limits.get(name, old + 1) > old:
                self.faults.append(f"{where}: the limit of {name} was {old}, and is {limits.get(name, 'gone')}")
            elif limits[name] != old:
                moved.append(f"the limit of {name}")
        if moved and others:
            self.faults.append(f"{where}: moves {', '.join(moved)} and changes {others[0]}; a base moves alone")
        self.bases, self.limits = bases, limits

    def check_origins(self):
        """Each base stands in the file of the commit that it names."""
        for name, base in self.bases.items():
            if not base.commit:
                self.faults.append(f"{self.file}: {name} names no commit")
                continue
            require(base.commit, f"which {self.file} names for {name}")
            origin = read(at(base.commit, self.file))[0].get(name)
            parent = self.written.get(name)
            if origin and origin.number == base.number:
                continue
            if parent and git("rev-parse", parent) == git("rev-parse", base.commit):
                continue
            said = f"has {origin.number}" if origin else "has no such case"
            self.faults.append(f"{self.file}: {name} is {base.number}, and the file of {base.commit} {said}")


def main():
    require(FIRST, "with which the guards begin")
    faults = []
    for file in FILES:
        history = History(file, FIRST)
        history.check_origins()
        faults += history.faults
    for fault in faults:
        print(f"bases: {fault}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    import os

    if len(sys.argv) > 1:
        sys.exit(__doc__)
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    try:
        sys.exit(main())
    except Fault as fault:
        sys.exit(f"bases: {fault}")
