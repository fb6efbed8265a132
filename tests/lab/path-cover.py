#!/usr/bin/env python3
"""The cases of the lab's scenario `path-matrix`: one line for each.

    tests/lab/path-cover.py          a cover of the pairs: any two values of two factors meet in one of these cases; and those of FOUND
    tests/lab/path-cover.py all      all cases
"""

import itertools
import sys

FACTORS = [
    ["mid1280", "mid1300", "mid1320", "mid1450", "mid1460", "own", "both"],
    ["4in4", "6in4", "4in6", "6in6"],
    ["plain", "udp", "tcp"],
    ["tunnel", "transport"],
    ["icmp", "silent"],
    ["frags", "nofrags"],
]

# Cases that found a fault and are not in the cover.
FOUND = ["mid1280-6in6-plain-tunnel-silent-frags", "mid1300-6in6-udp-transport-silent-frags"]


def possible(case):
    """Transport mode has one IP header."""
    return case[3] == "tunnel" or case[1] in ("4in4", "6in6")


def pairs(case):
    return {(i, case[i], j, case[j]) for i, j in itertools.combinations(range(len(case)), 2)}


def cover(cases):
    """Takes the case that brings the most new pairs, until all pairs are there."""
    left = set().union(*map(pairs, cases))
    while left:
        best = max(cases, key=lambda case: len(pairs(case) & left))
        left -= pairs(best)
        yield best


def main():
    cases = [case for case in itertools.product(*FACTORS) if possible(case)]
    every = sys.argv[1:] == ["all"]
    for case in cases if every else cover(cases):
        print("-".join(case))
    for case in () if every else FOUND:
        print(case)


main()
