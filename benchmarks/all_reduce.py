#!/usr/bin/env python3
"""Compares all-reduce between processes of this machine, in one run: gradus, Gloo, and Open MPI (over TCP and through
shared memory, alone and as gradus's backend "mpi").

Each round measures everything once (benchmarks/all_reduce.cpp); a figure is the median of the rounds' medians, in
microseconds. The ratio of Gloo's time is the median of the ratios in each round, because a change of the machine's
speed then affects both. Without mpirun, Open MPI is left out. "Sockets alone" and "reading alone" are lower limits for
an all-reduce over TCP and in shared memory on this machine.

    python3 benchmarks/all_reduce.py --programs build/cpu-release/benchmarks --ranks 2 --json table.json
    python3 benchmarks/all_reduce.py --table two.json four.json --plot curves.png     # once more, and as curves
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "scripts" / "experiments"))
from record import code_version, machine, pyplot  # noqa: E402

OPEN_MPI = ["self,tcp", "self,vader"]  # vader: shared memory
WAYS = ["tcp, naive", "tcp", "tcp, sockets alone", "shm", "shm, its own arrays", "shm, reading alone", "mpi",
        "Gloo", "Open MPI"]


def run(command, options):
    """Returns the results that the program prints for one round."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rows.json")
        command = command + ["--rounds", "1", "--seconds", str(options.seconds), "--json", path]
        command += ["--smallest", str(options.smallest), "--largest", str(options.largest)]
        allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, **allowed})
        with open(path, encoding="utf-8") as file:
            return json.load(file)


def measure(options):
    program = os.path.join(options.programs, "all_reduce")
    commands = [[program, "--ranks", str(options.ranks)]]
    if shutil.which("mpirun"):
        mpirun = ["mpirun", "-n", str(options.ranks), "--oversubscribe", "--bind-to", "none", "--mca", "btl"]
        commands += [[*mpirun, transport, program, *way] for transport in OPEN_MPI for way in ([], ["--mpi"])]
    figures, pacing = {}, {}
    for _ in range(options.rounds):
        for command in commands:
            result = run(command, options)
            pacing["gradus" if command is commands[0] else "others"] = result["tcp_paced_by"]
            for row in result["rows"]:
                for way, microseconds in row.items():
                    if way != "bytes":
                        figures.setdefault(row["bytes"], {}).setdefault(way, []).append(microseconds)
    rows = [{"bytes": size, "us": ways} for size, ways in sorted(figures.items())]
    return {"machine": machine(), "code": code_version(), "ranks": options.ranks, "rounds": options.rounds,
            "congestion_control": pacing, "rows": rows}


def size_name(size):
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def ways_of(results):
    """Returns the names of the contenders, gradus's first."""
    place = {way: WAYS.index(way if way in WAYS else way.split(",")[0]) for way in results["rows"][0]["us"]}
    return sorted(place, key=place.get)


def ratio(row, slower, faster):
    return statistics.median(a / b for a, b in zip(row["us"][slower], row["us"][faster]))


def print_table(results):
    ways = ways_of(results)
    gloo = next((way for way in ways if way.startswith("Gloo")), None)
    ratios = [way for way in ways if gloo and way.startswith(("tcp", "shm")) and way != "tcp, naive"]
    print("| size | " + " | ".join(ways) + "".join(f" | Gloo / {way}" for way in ratios) + " |")
    print("|---" * (1 + len(ways) + len(ratios)) + "|")
    for row in results["rows"]:
        us = {way: statistics.median(rounds) for way, rounds in row["us"].items()}
        cells = [f"{us[way]:.3g}" if us[way] < 1000 else f"{us[way]:.0f}" for way in ways]
        cells += [f"{ratio(row, gloo, way):.1f}" for way in ratios]
        print(f"| {size_name(row['bytes'])} | " + " | ".join(cells) + " |")


def plot(tables, path):
    """Plots time and bus bandwidth by size, with a row of panels for each number of ranks."""
    plt = pyplot()
    colours = {way: f"C{i}" for i, way in enumerate(dict.fromkeys(w for table in tables for w in ways_of(table)))}
    figure, panels = plt.subplots(len(tables), 2, figsize=(11, 4.2 * len(tables)), squeeze=False)
    for results, (time, bandwidth) in zip(tables, panels):
        ranks, rows = results["ranks"], results["rows"]
        sizes = [row["bytes"] for row in rows]
        for way in ways_of(results):
            us = [statistics.median(row["us"][way]) for row in rows]
            style = ":" if way.endswith("alone") else "-" if way in WAYS else "--"
            buses = [2 * (ranks - 1) / ranks * n / t / 1e3 for n, t in zip(sizes, us)]
            time.plot(sizes, us, style, label=way, color=colours[way])
            bandwidth.plot(sizes, buses, style, color=colours[way])
        time.set(yscale="log", title=f"{ranks} ranks: microseconds")
        bandwidth.set(title=f"{ranks} ranks: GB/s of the bus")
        for panel in (time, bandwidth):
            ticks = [1 << shift for shift in range(10, 27, 4)]
            panel.set_xscale("log", base=2)
            panel.set_xticks(ticks, [size_name(tick) for tick in ticks])
            panel.grid(alpha=0.3)
        time.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=80)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", default="build/cpu-release/benchmarks", help="folder of the benchmark programs")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.05, help="of calls a round, way and size")
    parser.add_argument("--smallest", type=int, default=1 << 10, help="bytes")
    parser.add_argument("--largest", type=int, default=64 << 20, help="bytes")
    parser.add_argument("--json", help="file to write")
    parser.add_argument("--table", nargs="+", help="show files that were written")
    parser.add_argument("--plot", help="draw curves into this file (needs matplotlib)")
    options = parser.parse_args()
    if options.table:
        tables = [json.loads(pathlib.Path(file).read_text(encoding="utf-8")) for file in options.table]
    else:
        tables = [measure(options)]
        if options.json:
            pathlib.Path(options.json).write_text(json.dumps(tables[0], indent=1) + "\n", encoding="utf-8")
    for results in tables:
        print_table(results)
    if options.plot:
        plot(tables, options.plot)


if __name__ == "__main__":
    main()
