#!/usr/bin/env python3
"""Compares training steps with the library's thread pool and with OpenMP's threads, on an idle machine and on a machine
with other busy processes.

Each round runs every net of benchmarks/nets.h on one and on the other (train_step, --seconds each), beginning with
either in turn; beside busy processes only those whose step takes less than --busy-below ms alone. A run gives the
median and the mean of its steps (on a busy machine some wait for a thread that has no core: the median does not see
them); figures are medians over the rounds, ratios OpenMP / pool (above 1: the pool is faster). OMP_WAIT_POLICY and
OMP_PROC_BIND of the environment hold, and are kept with the figures. Prints the table of docs/threads.md.

    python3 benchmarks/thread_runtimes.py --program build/cpu-release/benchmarks/train_step --threads 2 \\
        --json benchmarks/results/thread_runtimes_two_cores.json
"""
import argparse
import contextlib
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts/experiments"))

from record import code_version, machine  # noqa: E402

RUNTIMES = ("pool", "openmp")
BUSY = "import os; parent = os.getppid()\nwhile os.getppid() == parent: sum(range(1000000))"


def steps(options, runtime, *arguments):
    """Returns train_step's figures for each net and batch of the arguments."""
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as file:
        command = [options.program, "--step-only", "--threads", str(options.threads), "--json", file.name, *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL,
                       env={**os.environ, "GRADUS_THREAD_RUNTIME": runtime})
        rows = [json.loads(line) for line in file.read().splitlines()]
    assert all(row["thread_runtime"] == runtime for row in rows), f"the program did not run on {runtime}"
    return rows


@contextlib.contextmanager
def busy_processes(count):
    processes = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(count)]
    try:
        time.sleep(1 if count else 0)
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def markdown(rows):
    """Returns the lines of a table: median / mean."""
    lines = []
    for row in rows:
        pool, openmp = row["pool"], row["openmp"]
        where = f"beside {row['busy']} busy processes" if row["busy"] else "quiet"
        ratios = [openmp[key] / pool[key] for key in ("median_ms", "mean_ms")]
        lines.append(f"| {row['row']}, {where} | {pool['median_ms']:.3g} / {pool['mean_ms']:.3g} | "
                     f"{openmp['median_ms']:.3g} / {openmp['mean_ms']:.3g} | {ratios[0]:.2f} / {ratios[1]:.2f} |")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, help="the built train_step, with GRADUS_OPENMP")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--nets", nargs="+", default=[], help="these alone, by the names of nets.h")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="per measurement")
    parser.add_argument("--busy", type=int, default=16, help="number of busy processes")
    parser.add_argument("--busy-below", type=float, default=20.0, help="ms of the longest step measured beside them")
    parser.add_argument("--json", default="", help="write all figures to this file")
    options = parser.parse_args()

    found = [row for net in options.nets or ["all"]
             for row in steps(options, "pool", "--net", net, "--seconds", "0.01")]
    measured = {(row["net"], row["batch"], busy): {runtime: [] for runtime in RUNTIMES}
                for busy in dict.fromkeys([0, options.busy]) for row in found
                if not busy or row["step_ms"] < options.busy_below}
    for turn in range(options.rounds):
        for busy in dict.fromkeys([0, options.busy]):
            with busy_processes(busy):
                for (net, batch, beside), runs in measured.items():
                    if beside != busy:
                        continue
                    for runtime in RUNTIMES[::-1 if turn % 2 else 1]:
                        runs[runtime] += steps(options, runtime, "--net", net, "--batch", str(batch), "--seconds",
                                               str(options.seconds))
            print(f"round {turn + 1} of {options.rounds}, {busy} busy processes", file=sys.stderr)

    rows = [{"row": f"{net} {batch}", "busy": busy,
             **{runtime: {"median_ms": statistics.median(run["step_ms"] for run in runs[runtime]),
                          "mean_ms": statistics.median(run["mean_step_ms"] for run in runs[runtime])}
                for runtime in RUNTIMES}} for (net, batch, busy), runs in measured.items()]
    print("| a step, median / mean in ms | the pool | OpenMP | OpenMP / pool |\n|---|---|---|---|")
    print("\n".join(markdown(rows)))
    if options.json:
        results = {"machine": machine(), "code": code_version(),
                   "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="minutes"),
                   "environment": {key: value for key, value in os.environ.items() if key.startswith("OMP_")},
                   "threads": options.threads, "rounds": options.rounds, "seconds": options.seconds, "rows": rows}
        pathlib.Path(options.json).write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
