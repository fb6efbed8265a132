#!/usr/bin/env python3
"""Do the tests fail when the code is wrong? Draws mutants of the engine by a seed, and runs the tests against each.

    tests/mutants.py draw SEED [COUNT]           prints the mutants that the seed draws
    tests/mutants.py run SEED [COUNT]            builds them, runs tests against each, prints a table
    tests/mutants.py run SEED [COUNT] --only N   the same of mutant N alone

The mutants are those of `cargo mutants --list` (`cargo install cargo-mutants --locked`). SEED is any word, and draws
the same mutants of the same tree. COUNT is 30 by default. Of 30 mutants 12 are of `exchange/`, and 3 of each other area
in AREAS.

All mutants are in one build. Each function with mutants has its body twice or more, and the environment variable MUTANT
chooses one. The build is a copy of the working tree in target/mutants. It takes 10 minutes the first time; the tests
take half an hour. Three kinds of mutants are not drawn, because no variable can choose them: of constants, of
`const fn`, and those that do not compile in this form.

Test binaries run until the first test fails. A mutant that no test catches is printed as SURVIVES, and the exit status
is 1. A survivor needs a new test, or a reason in EQUIVALENT why the mutant changes nothing.
"""

import argparse
import collections
import fnmatch
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TREE = ROOT / "target" / "mutants"
CARGO = os.environ.get("CARGO", "cargo")

ENGINE = "crates/ike-proto/src/"
# Name, files, weight, packages whose test binaries run.
AREAS = [
    ("exchange", [ENGINE + "exchange/*.rs"], 12, ["ike-proto", "ike-tests"]),
    ("keys", [ENGINE + "keys/*.rs"], 3, ["ike-proto", "ike-tests"]),
    ("window", [ENGINE + "channel/window*.rs"], 3, ["ike-proto", "ike-tests"]),
    ("crash", [ENGINE + "endpoint/crash.rs"], 3, ["ike-proto", "ike-tests"]),
    ("cookie", [ENGINE + "endpoint/cookie.rs"], 3, ["ike-proto", "ike-tests"]),
    ("path", ["crates/pki/src/path.rs", "crates/pki/src/path/*.rs"], 3, ["ike-pki", "ike-tests"]),
    ("replay", ["crates/esp/src/replay.rs", "crates/xfrm/src/state/replay.rs"], 3, ["ike-esp", "xfrm"]),
]
# Words of a file's path, and the test binary that is most likely to catch a mutant there.
NEAR = [
    ("mobike", "mobike"), ("ppk", "ppk"), ("resume", "resumption"), ("qcd", "qcd"), ("crash", "qcd"),
    ("redirect", "redirect"), ("followup", "followup"), ("auth", "auth"), ("resource", "child_options"),
    ("tfc", "child_options"), ("mode", "child_options"), ("config", "exchanges"), ("cookie", "bug_classes"),
    ("intermediate", "rfc7296"), ("child", "engine"), ("rekey", "engine"), ("window", "exchanges"),
]
# Binaries in the order in which they run after those; the rest of a package comes last.
USUAL = ["ike_proto", "ike_pki", "ike_esp", "xfrm", "it", "exchanges", "rfc7296", "engine", "bug_classes", "survival"]
LEFT_OUT = ["links", "fuzz_inputs", "retransmission_allocation"]

# Mutants that change nothing, without line and column, and why.
EQUIVALENT = {
    ENGINE + "exchange/auth_lifetime.rs: replace Established::await_reauthentication_by with ()":
        "the timer ReauthIke of the resumed IKE SA fires at the same time at the latest, and sets the same end",
}

SWITCH = """
/// True if the mutant of this number is switched on.
pub(crate) fn mutant(number: u32) -> bool {
    static ON: std::sync::OnceLock<Option<u32>> = std::sync::OnceLock::new();
    *ON.get_or_init(|| std::env::var("MUTANT").ok()?.parse().ok()) == Some(number)
}
"""


def listed():
    """The mutants that can be switched, by area, each area in the order of the names."""
    patterns = [pattern for _, files, _, _ in AREAS for pattern in files]
    # A star of cargo-mutants does not match a slash.
    globs = patterns + [pattern.replace("/*", "/**/*") for pattern in patterns]
    command = ["cargo", "mutants", "--list", "--json", *(word for glob in globs for word in ("-f", glob))]
    found = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    areas = {name: [] for name, *_ in AREAS}
    for mutant in json.loads(found.stdout):
        area = next((n for n, files, *_ in AREAS if any(fnmatch.fnmatch(mutant["file"], f) for f in files)), None)
        if area and switchable(mutant):
            areas[area].append({**mutant, "area": area})
    return {area: sorted(all, key=lambda mutant: mutant["name"]) for area, all in areas.items()}


def switchable(mutant):
    function = mutant["function"]
    if not function:
        return False
    text = (ROOT / mutant["file"]).read_text()
    start, end = span(text, function["span"])
    return not re.search(r"\bconst\s+fn\b", text[start:end].split("{")[0])


def draw(seed, count, listed, unfit):
    """`count` mutants; those named in `unfit` are passed over."""
    rng = random.Random(seed)
    whole = sum(weight for *_, weight, _ in AREAS)
    drawn = []
    for area, _, weight, _ in AREAS:
        share = count * weight // whole
        order = rng.sample(listed[area], len(listed[area]))
        drawn += [mutant for mutant in order if mutant["name"] not in unfit][:share]
    rest = rng.sample(listed["exchange"], len(listed["exchange"]))
    taken = {mutant["name"] for mutant in drawn} | unfit
    drawn += [mutant for mutant in rest if mutant["name"] not in taken][: count - len(drawn)]
    return drawn


def span(text, span):
    """Offsets of a span of lines and columns, which count from 1."""
    lines = [0] + [at.end() for at in re.finditer("\n", text)]
    return tuple(lines[span[end]["line"] - 1] + span[end]["column"] - 1 for end in ("start", "end"))


def body_of(text, start):
    """The offset of the brace that opens the body of the function at `start`."""
    depth, at = 0, text.index("fn ", start)
    while text[at] != "{" or depth:
        depth += (text[at] in "([") - (text[at] in ")]")
        at += 1
    return at


def switched(text, mutants):
    """`text` with mutants (number, mutant) that the variable switches, and the lines of each in it."""
    functions = collections.defaultdict(list)
    for number, mutant in mutants:
        functions[span(text, mutant["function"]["span"])].append((number, mutant))
    edits = []
    for (start, end), group in functions.items():
        body = body_of(text, start)
        bodies = []
        for number, mutant in group:
            first, last = span(text, mutant["span"])
            changed = text[body:first] + (mutant["replacement"] or "") + text[last:end]
            bodies.append(f"/*<{number}*/ if crate::mutant({number}) {changed} /*{number}>*/ else ")
        edits.append((body, end, "{\n" + "".join(bodies) + text[body:end] + "\n}"))
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def write(path, text):
    """Writes where the text has changed, so that no more is built than that."""
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def lay_out(mutants):
    """The working tree with the mutants, in TREE."""
    files = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True, text=True)
    by_file = collections.defaultdict(list)
    for number, mutant in mutants:
        by_file[mutant["file"]].append((number, mutant))
    crates = {"/".join(name.split("/")[:2]) for name in by_file}
    for name in files.stdout.splitlines():
        source, target = ROOT / name, TREE / name
        if not source.is_file():
            continue
        if name in by_file or name in {crate + "/src/lib.rs" for crate in crates}:
            text = source.read_text()
            text = switched(text, by_file[name]) if name in by_file else text
            write(target, text + SWITCH if name.endswith("/src/lib.rs") else text)
        elif not target.exists() or target.read_bytes() != source.read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)


def build(packages, mutants):
    """Test binaries by name, and mutants that do not compile."""
    command = [CARGO, "build", "--tests", "--message-format=json", *(word for p in packages for word in ("-p", p))]
    # A directory of its own: cargo takes what was built of one tree for another tree with the same packages.
    env = {**os.environ, "CARGO_TARGET_DIR": str(TREE / "target")}
    built = subprocess.run(command, cwd=TREE, env=env, stdout=subprocess.PIPE, text=True)
    binaries, unfit = {}, set()
    for line in built.stdout.splitlines():
        message = json.loads(line) if line.startswith("{") else {}
        if message.get("executable") and message["profile"]["test"]:
            home = pathlib.Path(message["manifest_path"]).parent
            binaries[message["target"]["name"]] = (message["executable"], home, package_of(message))
        if message.get("reason") == "compiler-message" and message["message"]["level"] == "error":
            unfit |= blamed(message["message"], mutants)
    if built.returncode and not unfit:
        sys.exit("mutants.py: the tree does not build for another reason than its mutants")
    return binaries, unfit


def package_of(message):
    return re.split(r"[#@]", message["package_id"].removesuffix("/"))[-2].split("/")[-1]


def blamed(message, mutants):
    """Names of the mutants whose text an error of the compiler is about."""
    unfit = set()
    for place in message["spans"] + [place for child in message["children"] for place in child["spans"]]:
        path = TREE / place["file_name"]
        text = path.read_text() if path.is_file() else ""
        for number, mutant in mutants:
            start, end = text.find(f"/*<{number}*/"), text.find(f"/*{number}>*/")
            lines = range(text.count("\n", 0, start) + 1, text.count("\n", 0, end) + 2)
            if start >= 0 and mutant["file"] == place["file_name"] and place["line_start"] in lines:
                unfit.add(mutant["name"])
    return unfit


def first_failure(binary, number, skip, limit):
    """The first test that fails with mutant `number`; None if all pass. And the seconds that took."""
    exe, home, _ = binary
    env = {**os.environ, "MUTANT": str(number), "CARGO_MANIFEST_DIR": str(home), "IKE_LIVES": "100"}
    command = [exe, *(word for test in skip for word in ("--skip", test))]
    begun = time.monotonic()
    child = subprocess.Popen(command, cwd=home, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    late = threading.Timer(limit, child.kill)
    late.start()
    failed, running, ended = None, None, False
    for line in child.stdout:
        overflow = re.match(r"thread '(.*?)'.* has overflowed its stack", line)
        if overflow:
            failed = overflow.group(1)
        found = re.match(r"test (.*?)(?: - should panic)? \.\.\. (.*)", line)
        if found and "FAILED" in line:
            failed = found.group(1)
            child.kill()
            break
        ended |= line.startswith("test result:")
        # A test that prints has its result in a line of its own.
        running = found.group(1) if found else running
        if line.startswith("FAILED"):
            failed = running
            child.kill()
            break
    child.wait()
    took = time.monotonic() - begun
    if not late.is_alive() and failed is None:
        failed = f"no end within {limit:.0f} s"
    late.cancel()
    if failed is None and not ended:
        failed = "the process has crashed"
    return failed, took


def order(binaries, mutant):
    """Names of the binaries that run against a mutant, the most likely first."""
    packages = next(packages for name, *_, packages in AREAS if name == mutant["area"])
    names = [name for name, (_, _, package) in binaries.items() if package in packages and name not in LEFT_OUT]
    near = [binary for word, binary in NEAR if word in mutant["file"]]
    rank = {name: place for place, name in reversed(list(enumerate(near + USUAL)))}
    # A crate's own tests are quick.
    own = lambda name: binaries[name][2] == mutant["package"]
    return sorted(names, key=lambda name: (not own(name), rank.get(name, len(rank) + 99), name))


def prepare(seed, count):
    """Mutants by number and the binaries that have them."""
    all, unfit = listed(), set()
    while True:
        mutants = list(enumerate(draw(seed, count, all, unfit), 1))
        packages = {package for _, mutant in mutants for name, *_, of in AREAS if name == mutant["area"] for package in of}
        lay_out(mutants)
        binaries, more = build(sorted(packages), mutants)
        if not more:
            return mutants, binaries
        print("\n".join(f"not drawn, does not compile as a switch: {name}" for name in sorted(more)), flush=True)
        unfit |= more


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["draw", "run"])
    parser.add_argument("seed")
    parser.add_argument("count", type=int, nargs="?", default=30)
    parser.add_argument("--only", type=int, action="append")
    options = parser.parse_args()
    print(f"seed {options.seed!r}, {options.count} mutants", flush=True)
    if options.what == "draw":
        for number, mutant in enumerate(draw(options.seed, options.count, listed(), set()), 1):
            print(f"{number:3} {mutant['name']}")
        return 0
    mutants, binaries = prepare(options.seed, options.count)
    usual = {}
    survivors = 0
    for number, mutant in mutants:
        if options.only and number not in options.only:
            continue
        reason = EQUIVALENT.get(re.sub(r":\d+:\d+:", ":", mutant["name"], count=1))
        if reason:
            print(f"{number:3} {mutant['name']}\n      equivalent: {reason}", flush=True)
            continue
        outcome = "SURVIVES"
        for name in order(binaries, mutant):
            if name not in usual:
                usual[name] = without_mutant(binaries[name])
            skip, seconds = usual[name]
            failed, _ = first_failure(binaries[name], number, skip, 60 + 5 * seconds)
            if failed:
                outcome = f"{name}: {failed}"
                break
        survivors += outcome == "SURVIVES"
        print(f"{number:3} {mutant['name']}\n      {outcome}", flush=True)
    print(f"{survivors} survive")
    return 1 if survivors else 0


def without_mutant(binary):
    """The tests that fail without a mutant, as those that need root, and the seconds that a run takes."""
    skip = []
    while True:
        failed, took = first_failure(binary, 0, skip, 1200)
        if failed is None:
            return skip, took
        if " " in failed:
            sys.exit(f"mutants.py: {binary[0]} without a mutant: {failed}")
        print(f"fails without a mutant, left out: {failed}", flush=True)
        skip.append(failed)


if __name__ == "__main__":
    sys.exit(main())
