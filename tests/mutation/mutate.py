#!/usr/bin/env python3
"""Plants plausible bugs, one at a time, and reports which of them the tests notice: see README.md beside this file.

usage: tests/mutation/mutate.py [--room core/io] [--count 220] [--seed 1]      all rooms, or one
       tests/mutation/mutate.py --shard                                        up to 25 mutants of one room, as CI does
"""

import argparse
import json
import pathlib
import random
import shutil
import subprocess
import sys
import time

import measure
import plant

ROOT = pathlib.Path(__file__).resolve().parents[2]
EQUIVALENTS = pathlib.Path(__file__).with_name("equivalents.txt")
# Each room and the test programs that concern it. A file belongs to the room with the longest name that fits.
ROOMS = {
    "core": "core ops autograd layers wrong_calls backends optim graph",
    "core/io": "io checkpoint data training inspect layers",
    "core/platform": "io core checkpoint training",
    "core/runtime": "core graph autograd",
    "graph": "graph inspect training",
    "onnx": "onnx",
    "inspect": "inspect graph",
    "backends/naive": "backends ops core",
    "backends/openmp": "backends ops layers optim",
    "autograd": "autograd ops autocast layers wrong_calls",
    "layers": "layers ops wrong_calls torch_programs lenet",
    "optim": "optim training checkpoint torch_programs graph",
    "data": "data wrong_calls torch_programs",
    "training": "training checkpoint torch_programs graph",
    "distributed": "distributed training",
}
OTHER_PROGRAMS = ("distributed/launcher/", "distributed/comm/mpi/")  # their tests start programs that are not traced
BOUND = 50  # per cent that a shard must kill: a lower score means that the tests of its room do not run as they should


SHARD, SHARD_SECONDS = 25, 100  # mutants, and the time after which no more of them are judged
LEAST = 10  # mutants that are judged, however long it takes
COUNTED = ("killed", "survived", "not reached")


def room_of(path):
    return max((room for room in ROOMS if path.startswith(room + "/")), key=len, default=None)


def programs_of(rooms):
    return sorted({f"test_{name}" for room in rooms for name in ROOMS[room].split()})


def read_equivalents():
    """{identity: reason}; a line is `path|rule|hash|number  reason`."""
    entries = {}
    for line in EQUIVALENTS.read_text().splitlines():
        if line and not line.startswith("#"):
            identity, _, reason = line.partition("  ")
            entries[identity] = reason.strip()
    return entries


def draw_all(build, rooms, count, seed):
    """[(room, mutation)], and {room: how many there were}. A fifth more than `count`, for some will not compile."""
    files = subprocess.run(["git", "ls-files", "*.cpp", "*.h"], cwd=ROOT, capture_output=True, text=True, check=True)
    by_room = {room: [] for room in rooms}
    for file in files.stdout.split():
        if (room := room_of(file)) in by_room:
            by_room[room].append(file)
    drawn, there = [], {}
    for index, room in enumerate(rooms):
        share = count // len(rooms) + (index < count % len(rooms))
        found = plant.candidates(build, by_room[room])
        there[room] = len(found)
        chosen = plant.draw(found, share + share // 5 + 1, seed)
        drawn += [(room, mutation) for mutation in chosen]
    return drawn, there


def limit_to(count, rooms, numbered):
    """The first mutants of each room, `count` in all."""
    share = {room: count // len(rooms) + (index < count % len(rooms)) for index, room in enumerate(rooms)}
    kept = {}
    for number, (room, mutation) in numbered.items():
        if share[room] > 0:
            share[room] -= 1
            kept[number] = room, mutation
    return kept


def describe(mutation, source):
    statement = mutation.statement
    original = plant.flat(source, statement.first, statement.last)
    mutated = plant.flat(source, statement.first, statement.last, mutation)
    return original, mutated


def runs_elsewhere(mutation, source):
    """Returns true for code that only runs on a GPU, on CPUs with AVX-512 if this is none, or in other programs."""
    if mutation.path.endswith("cuda.cpp") or mutation.path.startswith(OTHER_PROGRAMS):
        return True
    text = mutation.path + source.range_text(mutation.statement.first, mutation.statement.last)
    return ("avx512" in text or "_mm512" in text) and "avx512" not in pathlib.Path("/proc/cpuinfo").read_text()


def table(results, rooms):
    verdicts = (*COUNTED, "equivalent", "elsewhere", "late")
    lines = ["".join([f"{'room':<18}{'mutants':>8}", *(f"{verdict:>13}" for verdict in verdicts), f"{'score':>9}"])]
    totals = dict.fromkeys(verdicts, 0)

    def row(name, counts):
        counted = sum(counts[verdict] for verdict in COUNTED)
        score = f"{100 * counts['killed'] / counted:.1f} %" if counted else "-"
        return "".join([f"{name:<18}{sum(counts.values()):>8}", *(f"{count:>13}" for count in counts.values()),
                        f"{score:>9}"])

    for room in rooms:
        counts = {verdict: sum(result["room"] == room and result["verdict"] == verdict for result in results)
                  for verdict in totals}
        lines.append(row(room, counts))
        totals = {verdict: totals[verdict] + counts[verdict] for verdict in totals}
    return lines + [row("all", totals)]


def judge(tests, programs, entry, source, equivalents, has_time):
    """The result of one mutant, as it is written to the JSON file."""
    number, (room, mutation) = entry
    verdict, by, seconds = "late", "", 0.0
    if mutation.identity in equivalents:
        verdict, by = "equivalent", equivalents[mutation.identity]
    elif has_time:
        verdict, by, seconds = tests.verdict(number, programs)
        if verdict == "not reached" and runs_elsewhere(mutation, source):
            verdict = "elsewhere"
    original, mutated = describe(mutation, source)
    if verdict in ("survived", "not reached"):
        print(f"{verdict}: {mutation.path}:{mutation.line} ({mutation.rule})\n  - {original}\n  + {mutated}\n"
              f"  {mutation.identity}", flush=True)
    return {"room": room, "identity": mutation.identity, "file": mutation.path, "line": mutation.line,
            "rule": mutation.rule, "original": original, "mutated": mutated, "verdict": verdict, "by": by,
            "seconds": round(seconds, 2)}


def judge_all(tests, rooms, numbered, sources, end, json_file=None):
    """The results, room after room. From the time `end` on mutants are late, except the first LEAST that count."""
    equivalents, results, counted = read_equivalents(), [], 0
    for room in rooms:
        start, programs = time.monotonic(), programs_of([room])
        tests.trace(programs)
        for entry in numbered.items():
            if entry[1][0] == room:
                has_time = counted < LEAST or time.monotonic() < end
                results.append(judge(tests, programs, entry, sources[entry[1][1].path], equivalents, has_time))
                counted += results[-1]["verdict"] in COUNTED
        print(f"{table(results, [room])[1]}   in {time.monotonic() - start:.0f} s", flush=True)
        if json_file:
            json_file.write_text(json.dumps(results, indent=1) + "\n")
    return results


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/cpu-release", help="a build with tests")
    parser.add_argument("--work", type=pathlib.Path, help="folder for rewritten sources and programs (BUILD/mutation)")
    parser.add_argument("--room", choices=list(ROOMS), action="append", help="all, if none is given")
    parser.add_argument("--count", type=int, default=220, help="mutants in all")
    parser.add_argument("--seed", default="1", help="any text: the same text, the same mutants")
    parser.add_argument("--shard", action="store_true", help=f"{SHARD} mutants of one room, both chosen by the commit; "
                        f"fails if less than {BOUND} %% of those that are judged are killed")
    parser.add_argument("--seconds", type=float, help="after these, which begin when the build is up to date, no "
                        f"further mutant is judged, except the first {LEAST} (a shard: {SHARD_SECONDS})")
    parser.add_argument("--jobs", type=int, default=3, help="compilers and test programs that run side by side (3)")
    parser.add_argument("--json", type=pathlib.Path, help="where all results go")
    parser.add_argument("--no-build", action="store_true", help="the test programs are up to date")
    parser.add_argument("--list", action="store_true", help="print the drawn mutants and end")
    options = parser.parse_args()
    if options.shard:
        commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
        options.seed, options.count = commit.stdout.strip(), SHARD
        options.room = [random.Random(options.seed).choice(list(ROOMS))]
        options.seconds = options.seconds or SHARD_SECONDS
    return options


def main():
    options = parse_options()
    rooms = options.room or list(ROOMS)
    work = (options.work or options.build / "mutation").resolve()
    names = programs_of(rooms)
    if not options.no_build:
        subprocess.run(["cmake", "--build", options.build, "--target", *names], check=True, stdout=subprocess.DEVNULL)
    begin = time.monotonic()
    build = plant.Build(ROOT, options.build.resolve())
    drawn, there = draw_all(build, rooms, options.count, options.seed)
    print(f"seed {options.seed}: {options.count} of {sum(there.values())} mutants in {', '.join(rooms)}", flush=True)

    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    numbered = dict(enumerate(drawn, 1))
    start = time.monotonic()
    plantation = plant.Plantation(build, work, {number: mutation for number, (_, mutation) in numbered.items()},
                                  options.jobs)
    if options.list:
        for room, mutation in drawn:
            original, mutated = describe(mutation, plantation.sources[mutation.path])
            print(f"{mutation.identity} ({room}, line {mutation.line})\n  - {original}\n  + {mutated}")
        return 0
    plantation.compile()
    programs = plantation.link(names)
    print(f"built in {time.monotonic() - start:.0f} s; {len(plantation.uncompilable)} mutants do not compile",
          flush=True)

    tests = measure.Tests(programs, ROOT, work, options.jobs)
    numbered = limit_to(options.count, rooms, {number: numbered[number] for number in sorted(plantation.mutants)})
    end = begin + (options.seconds or float("inf"))
    results = judge_all(tests, rooms, numbered, plantation.sources, end, options.json)
    for case in tests.failed:
        print(f"fails without any mutant: {case.program}, {case.name}")
    print("\n".join(table(results, rooms)))
    late = sum(result["verdict"] == "late" for result in results)
    print(f"{len(results) - late} of {len(results)} mutants were judged in {time.monotonic() - begin:.0f} s")
    counted = [result["verdict"] == "killed" for result in results if result["verdict"] in COUNTED]
    if options.shard and 100 * sum(counted) < BOUND * len(counted):
        print(f"less than {BOUND} % of a shard are killed: tests are missing for the mutants above")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
