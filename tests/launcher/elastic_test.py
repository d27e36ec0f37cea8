#!/usr/bin/env python3
"""gradus-run --spares and --min-nproc: who takes a dead worker's place, what counts as a failure, and what is said.

usage: elastic_test.py GRADUS_RUN ELASTIC_WORKER
"""

import os
import subprocess
import sys
import unittest

import launcher_test

WORKER = None
KILLED = "was killed by Killed (signal 9), possibly out of memory"


def command(*options, script):
    """A job of elastic_worker (elastic_worker.cpp): "LAST EVENT…"."""
    return [launcher_test.LAUNCHER, *options, WORKER, *script.split()]


def run(*options, script):
    return subprocess.run(command(*options, script=script), capture_output=True, text=True, timeout=60, check=False)


def met(generation, *workers, attempts=1):
    """What the ranks of a generation print when they have met, given their workers."""
    return sorted(f"[{rank}] generation {generation}: worker {worker} is rank {rank} of {len(workers)}"
                  for rank, worker in enumerate(workers)) * attempts


class Elastic(unittest.TestCase):
    setUp = launcher_test.Launcher.setUp
    expect_nothing_left = launcher_test.Launcher.expect_nothing_left

    def expect_met(self, result, generation, *workers):
        lines = [line for line in result.stdout.splitlines() if f"generation {generation}:" in line]
        self.assertEqual(sorted(lines), met(generation, *workers), result.stdout + result.stderr)

    def said(self, result):
        return [line for line in result.stderr.splitlines() if line.startswith("gradus-run: ")]

    def test_workers_learn_who_they_are(self):
        program = """
import os, time
names = ["GRADUS_WORKER", "GRADUS_SPARE", "RANK", "LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"]
print(*[os.environ.get(name, "-") for name in names], os.environ["OMP_NUM_THREADS"], flush=True)
if "GRADUS_SPARE" in os.environ: time.sleep(1000)
if os.environ["RANK"] == "0": time.sleep(1)
"""
        plain = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
        # As in a rank of another job, whose number is none of a spare's.
        env = {**plain, "RANK": "9", "LOCAL_RANK": "9", "GROUP_RANK": "9", "GRADUS_WORKER": "9", "GRADUS_SPARE": "1"}
        share = str(max(1, len(os.sched_getaffinity(0)) // 2))
        result = launcher_test.run("--nproc", "2", "--spares", "1", program=program, env=env)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual(sorted(result.stdout.splitlines()),
                         [f"[0] 0 - 0 0 0 2 2 {share}", f"[1] 1 - 1 1 0 2 2 {share}", f"[spare 2] 2 1 - - - 2 2 {share}"])
        result = launcher_test.run("--nproc", "2", program=program, env=env)
        self.assertEqual(sorted(result.stdout.splitlines()),
                         [f"[0] - - 0 0 0 2 2 {share}", f"[1] - - 1 1 0 2 2 {share}"])

    def test_a_spare_takes_the_place_of_a_rank(self):
        for event, cause in [("kill", KILLED), ("fail", "ended with code 7")]:
            result = run("--nproc", "3", "--spares", "2", script=f"1 1:0:{event}")
            self.assertEqual(result.returncode, 0, result.stderr)
            self.expect_met(result, 1, 0, 3, 2)
            self.assertEqual(result.stderr, f"gradus-run: rank 1 {cause}; worker 3, a spare, takes its place\n")
            self.assertIn("[spare 4] worker 4, a spare, pid", result.stdout)


if __name__ == "__main__":
    launcher_test.LAUNCHER, WORKER = sys.argv.pop(1), sys.argv.pop(1)
    unittest.main()
