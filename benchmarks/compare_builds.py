"""Compares two builds of gradus: checks whether a row of the new build is slower than in the old build.

Each round runs the program of the old build, of the new one and of the old one again, so that a machine whose speed
drifts slows all three. A row's ratio is the median over the rounds of new / old (above 1: slower), its spread the
median distance from 1 of the old build's second run / its first. A row counts as slower when its ratio is above 1.03
and above 1 + 2 spreads; then the exit status is 1.

    python3 benchmarks/compare_builds.py OLD/benchmarks NEW/benchmarks -- train_step --step-only --seconds 0.1
    python3 benchmarks/compare_builds.py OLD/benchmarks NEW/benchmarks --json table.json -- eager --threads 1
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

MEASURED = {"step_ms", "forward_ms", "backward_ms", "optimizer_ms", "samples_per_second", "peak_bytes", "us", "ms"}


def run(folder, command):
    """Returns {row: time} from the program's JSON lines."""
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as file:
        subprocess.run([folder / command[0], *command[1:], "--json", file.name], check=True, stdout=subprocess.DEVNULL)
        rows = [json.loads(line) for line in file.read().splitlines()]
    return {name_of(row): next(row[key] for key in ("step_ms", "us", "ms") if key in row) for row in rows}


def name_of(row):
    keys = ("row", "net", "batch", "backend", "mode", "precision", "format")
    return " ".join(str(row[key]) for key in keys if key in row)


def compare(rounds):
    """Returns [(name, old, new, ratio, spread, slower)] from rounds of (old, new, old again)."""
    table = []
    for name in rounds[0][0]:
        old, new, again = ([measured[i][name] for measured in rounds] for i in range(3))
        ratio = statistics.median(n / statistics.mean((a, b)) for a, n, b in zip(old, new, again))
        spread = statistics.median(abs(b / a - 1) for a, b in zip(old, again))
        table.append((name, statistics.median(old + again), statistics.median(new), ratio, spread,
                      ratio > max(1.03, 1 + 2 * spread)))
    return table


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("old", type=pathlib.Path, help="folder of the old build's benchmarks")
    parser.add_argument("new", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=pathlib.Path, help="write the table there too")
    parser.add_argument("command", nargs="+", help="a program that takes --json, and its options, behind --")
    options = parser.parse_args()
    rounds = [tuple(run(folder, options.command) for folder in (options.old, options.new, options.old))
              for _ in range(options.rounds)]
    table = compare(rounds)
    for name, old, new, ratio, spread, slower in table:
        print(f"{name:48} {old:10.4f} {new:10.4f}  {ratio:6.3f} +- {spread:.3f}{'  slower' if slower else ''}")
    slower = [row[0] for row in table if row[-1]]
    print(f"{len(table)} rows, {options.rounds} rounds, slower: {len(slower)}; geometric mean of the ratios "
          f"{statistics.geometric_mean(row[3] for row in table):.3f}")
    if options.json:
        keys = ("row", "old", "new", "ratio", "spread", "slower")
        options.json.write_text(json.dumps([dict(zip(keys, row)) for row in table], indent=1) + "\n", encoding="utf-8")
    return int(bool(slower))


if __name__ == "__main__":
    sys.exit(main())
