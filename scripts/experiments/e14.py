#!/usr/bin/env python3
"""E14, wire and byte order: the bytes of 6.342e-5 as a float32 in the memory of a little-endian machine (this one) and
of a big-endian one (s390x, emulated by qemu), and in network order; and all-reduces over TCP between ranks on both, of
every type. Writes E14.jsonl, E14.html and E14_bytes.png.
"""

import json
import os
import pathlib
import secrets
import subprocess
import tempfile

from record import ROOT, Runs, Skipped, arguments_of, page, picture, program, pyplot, table

EMULATED = ["qemu-s390x-static", "-L", "/usr/s390x-linux-gnu", str(ROOT / "build/s390x/benchmarks/byte_order")]
BYTES = "bytes"
# Row: the machine of each rank. Five ranks send partial sums round a ring where the order of the sum is left open.
JOBS = {", ".join(machines): machines
        for machines in (["x86-64", "s390x"], ["s390x", "x86-64"], ["x86-64", "s390x", "x86-64", "s390x", "x86-64"])}
ROWS = [BYTES, *JOBS]


def command(machine):
    return EMULATED if machine == "s390x" else [program("benchmarks/byte_order")]


def build():
    """The ranks of both machines; those of this one unless experiment.sh has."""
    subprocess.run([ROOT / "scripts/install_dependencies.sh", "s390x"], check=True)
    subprocess.run([ROOT / "scripts/s390x_libcrypto.sh"], check=True)
    subprocess.run(["cmake", "--preset", "s390x"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", "--preset", "s390x"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def lines_of(process, seconds=120):
    try:
        output, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        raise Skipped(f"a rank did not end within {seconds} s") from None
    if process.returncode not in (0, 1):  # 1: a sum is wrong, which the lines say
        raise Skipped((errors.strip().splitlines() or [f"exit status {process.returncode}"])[-1])
    return list(map(json.loads, output.splitlines()))


def start(machine, *arguments, environment=None):
    return subprocess.Popen([*command(machine), *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True, env=environment)


def measure_bytes():
    return {"machines": {machine: lines_of(start(machine))[0] for machine in ("x86-64", "s390x")}}


def reduce_together(machines):
    with tempfile.NamedTemporaryFile("w", prefix="gradus-token-") as token:  # its mode is 0600
        token.write(secrets.token_hex(32))
        token.flush()
        environment = {**os.environ, "GRADUS_TOKEN_FILE": token.name}
        size = len(machines)
        ranks = [start(machines[0], 0, size, environment=environment)]
        store = json.loads(ranks[0].stdout.readline() or "{}").get("store", "")
        ranks += [start(machines[rank], rank, size, store, environment=environment) for rank in range(1, size)]
        try:
            return {"machines": machines, "sums": [line for rank in ranks for line in lines_of(rank)]}
        finally:
            for rank in ranks:
                rank.kill()


def draw(found, path):
    figure, axis = pyplot().subplots(figsize=(7.5, 2.6), constrained_layout=True)
    rows = [(f"memory, {machine} ({one['order']}-endian)", one["memory"]) for machine, one in found["machines"].items()]
    rows.append(("network order", found["machines"]["x86-64"]["wire"]))
    for y, (name, text) in enumerate(reversed(rows)):
        axis.text(-0.15, y, name, ha="right", va="center")
        for x, byte in enumerate(text.split()):
            significance = found["machines"]["x86-64"]["wire"].split().index(byte)  # all four differ
            axis.add_patch(pyplot().Rectangle((x, y - 0.4), 0.95, 0.8, color=f"C{significance}", alpha=0.35))
            axis.text(x + 0.475, y, byte, ha="center", va="center", family="monospace", size="x-large")
    axis.set_xlim(-3.6, 4.1)
    axis.set_ylim(-0.9, 2.6)
    for x in range(4):
        axis.text(x + 0.475, -0.75, f"address + {x}", ha="center", size="small")
    axis.axis("off")
    figure.savefig(path, dpi=120)


def sum_lines(run):
    """A line for each type and kind of sum: what all ranks have to agree on."""
    groups = {}
    for line in run["sums"]:
        groups.setdefault((line["dtype"], line["strict"], line["count"]), []).append(line)
    lines = []
    for (dtype, strict, count), found in groups.items():
        agree = len({line["checksum"] for line in found}) == 1
        lines.append([dtype, "in the order of the ranks" if strict else "as it comes, exact", count,
                      f"{found[0]['last']:.9g}", " ".join(sorted({line["checksum"] for line in found})),
                      "yes" if agree and all(line["right"] for line in found) else "NO"])
    return lines


def render(runs, folder):
    newest = {run["row"]: run for run in runs.runs()}
    parts = []
    if BYTES in newest:
        draw(newest[BYTES], folder / "E14_bytes.png")
        parts.append("<h2>Four bytes</h2><p>6.342e-5 as a float32. Headers of messages are in network order; the "
                     "elements of an array travel in the order of the machine that sends them, which it declares when "
                     "two ranks meet, so that nothing is turned round between machines of one kind.</p>")
        parts.append(picture(folder / "E14_bytes.png", "the bytes by address"))
        print(*(f"{machine}: {one['memory']}" for machine, one in newest[BYTES]["machines"].items()), sep="\n")
    for row in (row for row in JOBS if row in newest):
        lines = sum_lines(newest[row])
        right = sum(line[-1] == "yes" for line in lines)
        parts.append(f"<h2>Ranks on {row}</h2><p>All-reduces over TCP; {right} of {len(lines)} have the right sum "
                     "with the same bits on all ranks. The checksum is of the elements in network order.</p>")
        parts.append(table(["type", "sum", "elements", "last element", "CRC-32C on all ranks", "right"], lines))
        print(f"{row}: {right} of {len(lines)} right")
    last = list(newest.values())[-1]
    head = f"<p>{last['machine']['cpu']}, s390x emulated on it by qemu; code {last['code']}.</p>"
    (folder / "E14.html").write_text(page("E14: wire and byte order", head, *parts, runs.skipped(ROWS)),
                                     encoding="utf-8")
    print(f"wrote {folder / 'E14.html'}")


def main():
    arguments, _ = arguments_of(__doc__, ROWS)
    runs = Runs("E14", arguments.out)
    if not arguments.render:
        build()
        for row in arguments.rows:
            runs.record(row, measure_bytes if row == BYTES else lambda: reduce_together(JOBS[row]))
    if not runs.runs():
        raise SystemExit("e14: no runs yet")
    if not arguments.record:
        render(runs, pathlib.Path(arguments.out))


if __name__ == "__main__":
    main()
