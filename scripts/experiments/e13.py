#!/usr/bin/env python3
"""E13, failure: how likely a job of n workers is lost when worker i fails with probability p_i, without and with one
spare: by formula, in a simulation of a million jobs, and in real jobs under gradus-run whose workers kill themselves
(benchmarks/job_loss). Writes E13.jsonl, E13.html and E13_loss.png.
"""

import collections
import math
import random
import re
import statistics
import subprocess
import time

from record import Runs, Skipped, arguments_of, page, picture, program, pyplot, table, where

# Row: the probability of each worker, and of each spare that has taken a place.
PROBABILITIES = {2: [0.2, 0.4], 4: [0.1, 0.15, 0.2, 0.25]}
ROWS = {f"{workers} workers, {name}": (p, spares) for workers, p in PROBABILITIES.items()
        for name, spares in (("no spare", []), ("a spare", [0]), ("a spare that fails too", [p[-1]]))}


def formula(p, spares):
    """A job with no spare is lost when one worker fails; one with a spare, when two do or one and then the spare."""
    none = math.prod(1 - one for one in p)
    one = sum(p[i] * math.prod(1 - p[j] for j in range(len(p)) if j != i) for i in range(len(p)))
    return 1 - none - sum((1 - q) * one for q in spares)


def simulate(p, spares, jobs, seed):
    """How many of so many jobs are lost: each worker draws whether it fails, and when; the first that fails is replaced
    by a spare, which may fail from then on."""
    draw, lost = random.Random(seed).random, 0
    for _ in range(jobs):
        failures = sorted(draw() for one in p if draw() < one)
        for at, q in zip(failures[:], spares):
            failures.remove(at)
            if draw() < q:
                failures.append(at + (1 - at) * draw())
        lost += bool(failures)
    return lost


def run_jobs(p, spares, jobs, seed):
    """Real ones. The workers say whether they will die; how a job ends has to follow from it."""
    ended, losses, seconds = collections.Counter(), set(), []
    for job in range(jobs):
        begin = time.monotonic()
        done = subprocess.run(
            [program("gradus-run"), "--nproc", str(len(p)), *(["--spares", str(len(spares))] if spares else []),
             program("benchmarks/job_loss"), "--job", str(job), "--seed", str(seed), "--threads", "1",
             "--probabilities", ",".join(map(str, [*p, *spares]))],
            capture_output=True, text=True, timeout=120, check=False)
        seconds.append(time.monotonic() - begin)
        dying = {int(worker) for worker in re.findall(r"worker (\d+) dies", done.stdout)}
        dead = sum(worker < len(p) for worker in dying)
        spare_died = dead > 0 and len(p) in dying
        lost = done.returncode != 0
        if lost != (dead + spare_died > len(spares)):
            raise Skipped(f"job {job} of seed {seed} ended with code {done.returncode} though of its workers "
                          f"{sorted(dying)} were to die: {done.stderr[-300:]}")
        ended[dead, spare_died, lost] += 1
        losses |= set(re.findall(r"loss (\S+)", done.stdout))
    return {"lost": sum(count for (_, _, lost), count in ended.items() if lost), "final_losses": sorted(losses),
            "ended": [{"workers_died": dead, "spare_died": spare, "lost": lost, "jobs": count}
                      for (dead, spare, lost), count in sorted(ended.items())],
            "median_seconds": statistics.median(seconds)}


def measure(row, arguments):
    p, spares = ROWS[row]
    seed = 13 + list(ROWS).index(row)
    return {"probabilities": p, "spare_probabilities": spares, "seed": seed, "formula": formula(p, spares),
            "simulated_jobs": arguments.simulated, "simulated_lost": simulate(p, spares, arguments.simulated, seed),
            "jobs": arguments.jobs, **run_jobs(p, spares, arguments.jobs, seed)}


def interval(lost, jobs, z=2.576):
    """Wilson's, in which the probability is with 99 %."""
    part = lost / jobs
    middle, width = part + z**2 / (2 * jobs), z * math.sqrt(part * (1 - part) / jobs + z**2 / (4 * jobs**2))
    return tuple((middle + side * width) / (1 + z**2 / jobs) for side in (-1, 1))


def columns(run):
    """(value, low, high) of the simulation and of the jobs."""
    return [(lost / jobs, *interval(lost, jobs))
            for lost, jobs in ((run["simulated_lost"], run["simulated_jobs"]), (run["lost"], run["jobs"]))]


def draw(newest, path):
    figure, axis = pyplot().subplots(figsize=(8, 3), constrained_layout=True)
    for y, (row, run) in enumerate(reversed(newest.items())):
        axis.plot(run["formula"], y, "k|", markersize=22, label=None if y else "formula")
        for (value, low, high), name, shift in zip(columns(run), ("simulation", "real jobs"), (0.15, -0.15)):
            axis.errorbar(value, y + shift, xerr=[[value - low], [high - value]], fmt="o", markersize=4, capsize=3,
                          color="C0" if shift > 0 else "C1", label=None if y else name)
    axis.set_yticks(range(len(newest)), list(newest)[::-1])
    axis.set_xlabel("probability that the job is lost (bars: 99 %)")
    axis.set_xlim(left=0)
    axis.grid(alpha=0.3, axis="x")
    axis.legend(fontsize="small")
    figure.savefig(path, dpi=120)


def render(runs):
    newest = {run["row"]: run for run in runs.runs()}
    newest = {row: newest[row] for row in ROWS if row in newest}
    lines, agreed = [], 0
    for row, run in newest.items():
        (simulated, low, high), (part, part_low, part_high) = columns(run)
        agree = low <= run["formula"] <= high and part_low <= run["formula"] <= part_high
        agreed += agree
        survivors = sum(one["jobs"] for one in run["ended"] if one["workers_died"] and not one["lost"])
        lines.append([row, " ".join(map(str, run["probabilities"])), " ".join(map(str, run["spare_probabilities"])),
                      f"{run['formula']:.4f}", f"{simulated:.4f} ({low:.4f} to {high:.4f})",
                      f"{run['lost']} of {run['jobs']} = {part:.3f} ({part_low:.3f} to {part_high:.3f})",
                      "yes" if agree else "NO", survivors, " ".join(run["final_losses"]),
                      f"{run['median_seconds']:.2f}"])
    draw(newest, runs.folder / "E13_loss.png")
    last = list(newest.values())[-1]
    text = page(
        "E13: a job that loses workers",
        "<p>Worker i fails with probability p<sub>i</sub>, in any step of the job alike. Without a spare the job is "
        "lost when one fails: 1 &minus; &prod;(1 &minus; p<sub>i</sub>). With a spare, which takes the place of the "
        "first, when two fail: 1 &minus; (&prod;(1 &minus; p<sub>i</sub>) + &sum;<sub>i</sub> p<sub>i</sub> "
        "&prod;<sub>j&ne;i</sub>(1 &minus; p<sub>j</sub>)). In this formula the spare itself does not fail. One that "
        "has taken a place fails there with probability q in the rows &ldquo;a spare that fails too&rdquo;; then the "
        "sum is multiplied by 1 &minus; q.</p>"
        "<p>Bars are of 99 %, as there are twelve to hold. Real jobs: gradus-run and ranks that train by "
        "ElasticTraining and DistributedDataParallel over tcp; a worker that is to fail kills itself with SIGKILL. "
        f"Every one of them ended as the deaths that its workers drew say. {where(last)}; code "
        f"{last['code']}.</p>",
        table(["row", "p", "q of the spare", "formula", "simulation (99 %)", "real jobs (99 %)", "agree",
               "jobs that went on after a death", "final losses of the jobs that were not lost", "s a job"], lines),
        picture(runs.folder / "E13_loss.png", "probability of losing the job"), runs.skipped(ROWS))
    (runs.folder / "E13.html").write_text(text, encoding="utf-8")
    print(f"{agreed} of {len(newest)} rows agree; wrote {runs.folder / 'E13.html'}")


def main():
    def add(parser):
        parser.add_argument("--jobs", type=int, default=400, help="real ones, each row")
        parser.add_argument("--simulated", type=int, default=1_000_000, help="simulated ones, each row")

    arguments, _ = arguments_of(__doc__, ROWS, add)
    runs = Runs("E13", arguments.out)
    if not arguments.render:
        for row in arguments.rows:
            runs.record(row, lambda row=row: measure(row, arguments))
    if not runs.runs():
        raise SystemExit("e13: no runs yet")
    if not arguments.record:
        render(runs)


if __name__ == "__main__":
    main()
