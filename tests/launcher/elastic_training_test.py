#!/usr/bin/env python3
"""dist::ElasticTraining in processes: a rank is killed at a random point, and the losses equal an unbroken run's.

usage: elastic_training_test.py GRADUS_RUN ELASTIC_TRAINING_WORKER [--kills N] [--ranks N] [--seed S] [--backend NAME...]
With --kills N kills N ranks with each backend, one in each job, and prints the times from the death to the next step.
For nccl set NCCL_P2P_DISABLE=1, because a GPU may need a reset if its peer is killed while reading its memory.
"""

import argparse
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import unittest

import launcher_test

WORKER = None
RANKS, STEPS, STEP_MS = 3, 60, 10
BACKENDS = ["tcp", "shm"]


class Job:
    """A job of elastic_training_worker.cpp. Its output is read line by line while it runs."""

    def __init__(self, backend, scheme, *options):
        self.folder = tempfile.mkdtemp()
        command = [launcher_test.LAUNCHER, "--nproc", str(RANKS), *options, WORKER, backend, scheme, str(STEPS),
                   str(STEP_MS), self.folder]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.pids, self.ranks = {}, []
        self.steps, self.losses = [], None  # of rank 0
        self.signalled_at = None

    def read_line(self):
        line = self.process.stdout.readline()
        if match := re.match(r"\[.*?\] worker (\d+) pid (\d+)", line):
            self.pids[int(match[1])] = int(match[2])
        elif match := re.match(r"\[.*?\] rank (\d+)", line):
            self.ranks.append(int(match[1]))
        elif match := re.match(r"\[.*?\] step (\d+) generation (\d+) at ([\d.]+)", line):
            self.steps.append((int(match[1]), int(match[2]), float(match[3])))
        elif match := re.match(r"\[.*?\] losses (.*)", line):
            self.losses = [float.fromhex(number) for number in match[1].split()]
        return line

    def read_until(self, condition):
        while not condition():
            if not self.read_line():
                raise AssertionError("the job ended too early: " + self.process.stderr.read())

    def signal(self, worker, number):
        self.signalled_at = time.monotonic()
        os.kill(self.pids[worker], number)

    def finish(self):
        """Reads the rest of the output. Returns the exit code and the launcher's messages."""
        while self.read_line():
            pass
        _, said = self.process.communicate()
        shutil.rmtree(self.folder)
        return self.process.returncode, said


class ElasticTraining(unittest.TestCase):
    setUp = launcher_test.Launcher.setUp
    expect_nothing_left = launcher_test.Launcher.expect_nothing_left
    chance = random.Random(1)

    def break_job(self, backend, scheme, victims, *options, number=signal.SIGKILL):
        """Runs a job in which these workers get a signal at random points. Returns it and the launcher's messages."""
        job = Job(backend, scheme, *options)
        for worker in victims:
            at = len(job.steps) + self.chance.randrange(STEPS // len(victims) - 2)
            job.read_until(lambda at=at, worker=worker: len(job.steps) > at and worker in job.pids)
            time.sleep(self.chance.random() * STEP_MS / 1000)  # at any point of a step
            job.signal(worker, number)
        code, said = job.finish()
        self.assertEqual(code, 0, said)
        return job, said

    def unbroken(self, backend, scheme):
        """The losses of a run in which no worker dies."""
        job = Job(backend, scheme)
        code, said = job.finish()
        self.assertEqual((code, said), (0, ""))
        if scheme == "ddp":
            self.assertEqual(sorted(job.ranks), list(range(RANKS)))
        self.assertEqual(len(job.losses), STEPS)
        self.assertLess(sum(job.losses[-10:]), sum(job.losses[:10]))
        return job.losses

    def test_a_spare_replaces_a_rank(self):
        for backend in BACKENDS:
            losses = self.unbroken(backend, "ddp")
            for victim in 0, 1:
                job, said = self.break_job(backend, "ddp", [victim], "--spares", "1")
                self.assertEqual(job.losses, losses)
                self.assertIn("worker 3, a spare, takes its place", said)

    def test_two_spares_replace_two_ranks(self):
        job, _ = self.break_job("shm", "ddp", [1, 0], "--spares", "2")
        self.assertEqual(job.losses, self.unbroken("shm", "ddp"))

    def test_the_death_of_a_spare_changes_nothing(self):
        job, _ = self.break_job("tcp", "ddp", [3], "--spares", "1")
        self.assertEqual(job.losses, self.unbroken("tcp", "ddp"))

    def test_a_rank_that_stops_is_replaced(self):
        job, said = self.break_job("tcp", "ddp", [1], "--spares", "1", number=signal.SIGSTOP)
        self.assertEqual(job.losses, self.unbroken("tcp", "ddp"))
        self.assertIn("worker 3, a spare, takes its place", said)

    def test_fewer_ranks_keep_the_batch(self):
        for backend in BACKENDS:
            job, _ = self.break_job(backend, "alike", [1], "--min-nproc", "2")
            for got, expected in zip(job.losses, self.unbroken(backend, "alike"), strict=True):
                self.assertAlmostEqual(got, expected, delta=1e-9)

    def test_shards_return_to_their_checkpoint(self):
        for backend, scheme in ("tcp", "sharded"), ("shm", "sharded"), ("tcp", "tensor"):
            losses = self.unbroken(backend, scheme)
            job, _ = self.break_job(backend, scheme, [1], "--spares", "1")
            self.assertEqual(job.losses, losses)
            job, said = self.break_job(backend, scheme, [2], "--max-restarts", "1")
            self.assertEqual(job.losses, losses)
            self.assertIn("restart 1 of 1", said)


def measure(kills, backends):
    """Kills a rank in each of `kills` jobs and prints how much time the others lost."""
    case = ElasticTraining("unbroken")
    print("| backend | kills | losses as unbroken | median, s | 90 % | longest |\n|---|---|---|---|---|---|")
    for backend in backends:
        losses = case.unbroken(backend, "ddp")
        lost, same = [], 0
        for _ in range(kills):
            job, _ = case.break_job(backend, "ddp", [case.chance.randrange(RANKS)], "--spares", "1")
            same += job.losses == losses
            lost.append(next(at for _, generation, at in job.steps if generation > 0) - job.signalled_at)
        lost.sort()
        print(f"| {backend} | {kills} | {same} | {statistics.median(lost):.2f} | {lost[int(0.9 * kills)]:.2f} | "
              f"{lost[-1]:.2f} |", flush=True)


if __name__ == "__main__":
    launcher_test.LAUNCHER, WORKER = sys.argv.pop(1), sys.argv.pop(1)
    if "--kills" in sys.argv:
        parser = argparse.ArgumentParser()
        parser.add_argument("--kills", type=int)
        parser.add_argument("--ranks", type=int, default=RANKS)
        parser.add_argument("--seed", type=int, default=1)
        parser.add_argument("--backend", nargs="+", default=BACKENDS)
        arguments = parser.parse_args()
        RANKS = arguments.ranks
        ElasticTraining.chance = random.Random(arguments.seed)
        measure(arguments.kills, arguments.backend)
    else:
        unittest.main()
