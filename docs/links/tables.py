#!/usr/bin/env python3
"""Puts the figures of this folder's CSV files into README.md.

A table stands between a line `<!-- table NAME -->` and the next empty line; the line with the count of cells that are
inside stands behind `<!-- summary -->` in the same way.
"""

import csv
import re
from pathlib import Path

HERE = Path(__file__).parent
PUBLISHED = [
    "ecdsa/x25519", "ed25519/x25519", "rsa/x25519", "falcon512/x25519", "falcon1024/x25519", "dilithium2/x25519",
    "dilithium3/ke1_kyber3-x25519", "dilithium5/ke1_kyber5-x25519", "dilithium5/ke1_kyber3-ke2_bike3-ke3_hqc3-x25519",
]


def rows(name):
    with open(HERE / f"{name}.csv", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def time(text):
    if not text:
        return ""
    seconds = float(text)
    if seconds < 0.0995:
        return f"{seconds * 1000:.1f} ms"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.2f} s" if seconds < 99.95 else f"{seconds:.0f} s"


def octets(text):
    if not text:
        return ""
    number = float(text)
    if number < 9999.5:
        return f"{number:.0f}"
    return f"{number / 1e3:.1f} k" if number < 999_500 else f"{number / 1e6:.2f} M"


def share(text):
    return f"{float(text) * 100:.1f} %"


def pairs(name):
    """(link, suite, row of our rules, row of strongSwan's) in the order of the file."""
    found = {}
    for row in rows(name):
        found.setdefault((row["link"], row["suite"]), {})[row["initiator_rules"]] = row
    return [(link, suite, by["ours"], by["strongswan"]) for (link, suite), by in found.items()]


def clean(row):
    return f"{float(row['ike_octets_p95']) / float(row['ike_octets_clean']):.2f}"


def excess(row):
    return octets(str(max(0.0, float(row["ike_octets_p95"]) - float(row["ike_octets_clean"]))))


def table(head, lines):
    lines = [head, ["--"] * len(head), *lines]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def common(name, published=False):
    head = ["link", "suite"]
    for what in ["median", "mean", "p95", "octets p95", "x clean", "excess", "in 60 s"]:
        head += [f"{what}: ours", "strongSwan"]
    lines = []
    for link, suite, *both in pairs(name):
        line = [link, suite]
        for figure in [
            lambda row: time(row["median_s"]),
            lambda row: time(row["mean_s"]),
            lambda row: time(row["p95_s"]),
            lambda row: octets(row["ike_octets_p95"]),
            clean,
            excess,
            lambda row: share(row["within_60s"]),
        ]:
            line += [figure(row) for row in both]
        if published:
            ours = both[0]
            worst = ours["published_octets_worst"]
            line.append(octets(ours["published_octets_p95"]) + (f"worst {octets(worst)}" if worst else ""))
        lines.append(line)
    return table(head + (["published p95"] if published else []), lines)


def frodokem():
    head = ["loss", "suite", "published mean of 30", "mean: strongSwan's rules", "mean: ours"]
    head += ["published worst of 30", "p95: strongSwan's rules", "p95: ours", "worst: strongSwan's rules", "ours"]
    return table(head, [
        [link, suite, time(a["published_mean_s"]), time(b["mean_s"]), time(a["mean_s"]), time(a["published_worst_s"]),
         time(b["p95_s"]), time(a["p95_s"]), time(b["worst_s"]), time(a["worst_s"])]
        for link, suite, a, b in pairs("frodokem")
    ])


def rate():
    head = ["rate", "suite", "octets and round trips", "ours", "over that", "strongSwan's rules", "datagrams: ours",
            "strongSwan"]
    lines = []
    for link, suite, a, b in pairs("rate"):
        least = min(float(a["ideal_s"]), float(b["ideal_s"]))
        ever = float(b["established"]) > 0
        lines.append([
            link, suite, time(str(least)), time(a["median_s"]), f"{float(a['median_s']) / least:.2f}",
            time(b["median_s"]) if ever else "never", f"{float(a['datagrams_mean']):.0f}",
            f"{float(b['datagrams_mean']):.0f}" if ever else "",
        ])
    return table(head, lines)


def rtt():
    head = ["RTT, loss", "suite", "round trips", "median / p95: ours", "strongSwan's rules", "resent: ours",
            "strongSwan"]
    return table(head, [
        [link, suite, time(a["ideal_s"])]
        + [f"{time(row['median_s'])} / {time(row['p95_s'])}" for row in (a, b)]
        + [share(row["resent"]) for row in (a, b)]
        for link, suite, a, b in pairs("rtt")
    ])


def psk_rsa():
    head = ["link", "suite", "published mean", "strongSwan's rules: median", "mean", "ours: median", "mean"]
    return table(head, [
        [link, suite, time(a["published_mean_s"]), time(b["median_s"]), time(b["mean_s"]), time(a["median_s"]),
         time(a["mean_s"])]
        for link, suite, a, b in pairs("psk-rsa")
    ])


def pq_ipsec():
    head = ["suite", "loss", "mean: published", "simulated", "p95: published", "simulated", "over 4 s: published",
            "simulated", "datagrams"]
    found = {(row["suite"], row["link"]): row for row in rows("pq-ipsec")}
    lines = []
    for suite in PUBLISHED:
        for loss in ["1", "2.5", "5"]:
            row = found.get((suite, f"0 ms {loss} %"))
            if row is None:
                continue
            line = [suite, f"{loss} %"]
            for figure in ["published_mean_s", "mean_s", "published_p95_s", "p95_s"]:
                line.append(f"{float(row[figure]):.2f} s")
            lines.append(line + [share(row["published_over_4s"]), share(row["over_timer"]), row["datagrams_clean"]])
    return table(head, lines)


TABLES = {
    "pq-ipsec": pq_ipsec,
    "loss": lambda: common("loss"),
    "measuredswan": lambda: common("measuredswan", published=True),
    "measuredswan-1ms": lambda: common("measuredswan-1ms"),
    "setup": lambda: common("setup"),
    "wireless": lambda: common("wireless", published=True),
    "frodokem": frodokem,
    "rate": rate,
    "rtt": rtt,
    "psk-rsa": psk_rsa,
}


def main():
    readme = HERE / "README.md"
    text = readme.read_text(encoding="utf-8")
    for name, make in TABLES.items():
        place = re.compile(rf"(<!-- table {re.escape(name)} -->\n).*?\n\n", re.DOTALL)
        text, times = place.subn(lambda match, made=make(): match.group(1) + made + "\n", text)
        if times != 1:
            raise SystemExit(f"README.md has no single place for the table {name}")
    lines = (HERE / "pq-ipsec.txt").read_text(encoding="utf-8").splitlines()
    summary = next(line for line in lines if line.startswith("inside"))
    text = re.sub(r"(<!-- summary -->\n).*?\n\n", lambda match: f"{match.group(1)}**{summary}.**\n\n", text, flags=re.DOTALL)
    readme.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
