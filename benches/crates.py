#!/usr/bin/env python3
"""Prints which crates the octets of a binary belong to, the largest ten first: `crates.py BINARY [TABLE]`.

TABLE has a line for each of these ten: the name, the octets, and why the binary has them. The program fails where a crate
is in one of the two alone, or differs from its line by more than 3 %.

The sizes are those of nm's symbols, so the binary must not be stripped. An instance of generic code of the standard
library counts for the first other crate among its types. The rest of a stripped binary has no symbols: unwind
tables, relocations, and most constants.
"""

import collections
import os
import re
import subprocess
import sys
import tempfile

# The first part of a path: nothing of a path stands before it.
HEAD = re.compile(r"(?<![\w:])([a-z_]\w*)::")
STD = {"alloc", "core", "std"}
SHOWN = 10
PERCENT = 3


def crate(symbol):
    """The crate of a demangled symbol."""
    heads = HEAD.findall(symbol)
    if not heads:
        return "C-code"
    return next((head for head in heads if head not in STD), "std")


def faults(largest, table):
    """What the table says that is not so."""
    with open(table, encoding="utf-8") as file:
        lines = [line.split(maxsplit=2) for line in file if line.strip() and not line.startswith("#")]
    found = [f"{table}: {line[0]}: no octets or no reason" for line in lines if len(line) != 3]
    rows = {line[0]: int(line[1]) for line in lines if len(line) == 3}
    found += [f"{name}: {size} octets, and no line in {table}" for name, size in largest.items() if name not in rows]
    for name, said in rows.items():
        if name not in largest:
            found.append(f"{name}: a line in {table}, and not among the {SHOWN} largest")
        elif abs(largest[name] - said) * 100 > said * PERCENT:
            found.append(f"{name}: {largest[name]} octets, and {table} says {said}")
    return found


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: crates.py BINARY [TABLE]")
    binary = sys.argv[1]
    lines = subprocess.run(
        ["nm", "--demangle", "--print-size", "--defined-only", binary],
        check=True, capture_output=True, text=True,
    ).stdout.splitlines()
    octets, seen = collections.Counter(), set()
    for line in lines:
        # ADDRESS SIZE TYPE NAME; several names of one place count once, and .bss is not in the file.
        fields = line.split(maxsplit=3)
        if len(fields) != 4 or len(fields[1]) != 16 or fields[2] in "bB" or fields[0] in seen:
            continue
        seen.add(fields[0])
        octets[crate(fields[3])] += int(fields[1], 16)
    if not octets:
        sys.exit(f"crates.py: {binary} has no symbols")
    with tempfile.TemporaryDirectory() as folder:
        stripped = os.path.join(folder, "stripped")
        subprocess.run(["strip", "-o", stripped, binary], check=True)
        total = os.path.getsize(stripped)
    named = sum(octets.values())
    for name, size in octets.most_common(SHOWN):
        print(f"{size:10} {100 * size / total:5.1f}%  {name}")
    others = sum(size for _, size in octets.most_common()[SHOWN:])
    print(f"{others:10} {100 * others / total:5.1f}%  {len(octets) - min(SHOWN, len(octets))} others")
    print(f"{total - named:10} {100 * (total - named) / total:5.1f}%  without symbols")
    print(f"{total:10} 100.0%  stripped")
    if len(sys.argv) == 3:
        wrong = faults(dict(octets.most_common(SHOWN)), sys.argv[2])
        if wrong:
            sys.exit("\n".join(f"crates.py: {line}" for line in wrong))


main()
