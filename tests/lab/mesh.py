"""What `mesh.sh` looks at: the IKE SAs and children of all hosts, once a second, and pings."""

import collections
import json
import os
import subprocess
import sys
import time

hosts, work, daemon, seconds, plane, tag = sys.argv[1:]
hosts, seconds = int(hosts), float(seconds)
wanted = hosts * (hosts - 1)
begin = time.time()


def listed(host):
    """IKE SAs and children of one host, counted by the peer's address."""
    ikes, children = collections.Counter(), collections.Counter()

    def walk(item):
        if isinstance(item, list):
            for one in item:
                walk(one)
        elif isinstance(item, dict) and "child-sas" in item:
            peer = item.get("remote-host")
            ikes[peer] += item.get("state") == "ESTABLISHED"
            inner = item["child-sas"]
            for child in inner.values() if isinstance(inner, dict) else inner:
                children[peer] += child.get("state") == "INSTALLED"
        elif isinstance(item, dict):
            for one in item.values():
                walk(one)

    command = [daemon, "list", "--control", f"{work}/s{host}", "--json"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=20)
        walk(json.loads(answer.stdout))
    except (subprocess.TimeoutExpired, ValueError):
        pass
    return +ikes, +children


def look():
    return {host: listed(host) for host in range(1, hosts + 1)}


def count(seen):
    """IKE SAs, children, peers with several of one or the other, and peers with no child."""
    ikes = sum(sum(ike.values()) for ike, _ in seen.values())
    children = sum(sum(child.values()) for _, child in seen.values())
    double = sum(sum(n > 1 for n in ike.values()) for ike, _ in seen.values())
    twice = sum(sum(n > 1 for n in child.values()) for _, child in seen.values())
    missing = wanted - sum(len(child) for _, child in seen.values())
    return ikes, children, double, twice, missing


def address(host):
    return f"10.77.0.{host}"


def echo(host):
    """The process that sends and answers pings in the namespace of `host`."""
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "mesh_echo.py")
    command = ["ip", "netns", "exec", f"{tag}-{host}", "python3", program, f"10.88.0.{host}"]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)


pairs = []
if plane != "none":
    pairs = [(i, (i + step - 1) % hosts + 1) for i in range(1, hosts + 1) for step in (1, 2, 3)]
    pairs = sorted({(i, j) for i, j in pairs if i != j})
echoes = {host: echo(host) for host in range(1, hosts + 1)} if pairs else {}
pings, most = set(), 0
while True:
    seen = look()
    at = time.time() - begin
    ikes, children, double, twice, missing = count(seen)
    most = max(most, double, twice)
    print(
        f"{at:5.1f} s: {ikes} IKE SAs and {children} children of {wanted}, "
        f"{double} and {twice} peers with several, {missing} with none",
        flush=True,
    )
    for pair in pairs:
        i, j = pair
        both = seen[i][1][address(j)] and seen[j][1][address(i)]
        if pair not in pings and both and at < seconds - 4:
            pings.add(pair)
            echoes[i].stdin.write(f"10.88.0.{j}\n")
            echoes[i].stdin.flush()
    if at >= seconds:
        break
    time.sleep(1)

sent = lost = 0
for process in echoes.values():
    process.stdin.close()
for host, process in echoes.items():
    for line in process.stdout.read().splitlines():
        peer, out, back = line.split()
        sent, lost = sent + int(out), lost + int(out) - int(back)
        if out != back:
            print(f"{host} to {peer}: {int(out) - int(back)} of {out} pings lost")
if pairs:
    print(f"pings: {sent} by {len(pings)} of {len(pairs)} pairs, {lost} lost")
print(f"at most {most} peers with several at a time")
good = (ikes, children, double, twice, missing) == (wanted, wanted, 0, 0, 0)
sys.exit(not (good and lost == 0 and len(pings) == len(pairs) and (not pairs or sent > 0)))
