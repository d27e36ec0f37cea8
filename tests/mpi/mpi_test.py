#!/usr/bin/env python3
"""The backend "mpi" under mpirun: sums, what ranks hear of a failure, and how jobs end. The ranks are mpi_ranks.cpp.

usage: mpi_test.py [MPI_RANKS]         without it the build has no MPI
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import unittest

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "launcher"))

from launcher_test import belongings, wait_until  # marks what is started here

RANKS = sys.argv.pop() if len(sys.argv) > 1 and pathlib.Path(sys.argv[-1]).is_file() else None
# Open MPI refuses to start as root, or more ranks than cores, unless told so. Ranks of this machine need no network.
os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_rmaps_base_oversubscribe="1",
                  OMPI_MCA_btl="self,vader")
TIMEOUT, MISMATCH, ABORTED = 1, 3, 4  # of CommFailure


def run(*command, **environment):
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False,
                          env=os.environ | environment)


def mpirun(ranks, job, **environment):
    return run("mpirun", "-n", str(ranks), RANKS, job, **environment)


@unittest.skipUnless(RANKS and shutil.which("mpirun"), "for want of MPI")
class Mpi(unittest.TestCase):
    def setUp(self):
        self.before = belongings()

    def tearDown(self):
        wait_until(lambda: not belongings() - self.before)
        self.assertEqual(belongings() - self.before, set())

    def expect_success(self, result):
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "", ""))

    def failures(self, ranks, job):
        """What ranks heard in each failing call: the kind of the failure, whom it is about, the message."""
        result = mpirun(ranks, job)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        heard = re.findall(r"^rank (\d): failure (\d) of rank (-?\d): (.*);$", result.stdout, flags=re.M)
        self.assertEqual({int(rank) for rank, *_ in heard}, set(range(ranks)))
        return [(int(failure), int(about), message) for _, failure, about, message in heard]

    def test_collectives(self):
        for ranks in (1, 2, 3, 4):
            with self.subTest(ranks=ranks):
                self.expect_success(mpirun(ranks, "collectives"))

    def test_over_sockets(self):
        self.expect_success(mpirun(2, "collectives", OMPI_MCA_btl="self,tcp", OMPI_MCA_btl_tcp_if_include="lo"))

    def test_messages_of_all_sizes_at_the_same_time(self):
        for ranks in (2, 4):
            self.expect_success(mpirun(ranks, "messages"))

    def test_strict_sums_have_the_bits_of_other_transports(self):
        for ranks in (2, 4):
            self.expect_success(mpirun(ranks, "strict"))

    def test_training(self):
        for ranks in (1, 2, 3, 4):
            with self.subTest(ranks=ranks):
                self.expect_success(mpirun(ranks, "training"))

    def test_sub_groups(self):
        self.expect_success(mpirun(4, "sub_groups"))

    def test_without_mpirun_there_is_one_rank(self):
        self.expect_success(run(RANKS, "collectives"))

    def test_a_launcher_that_mpi_does_not_know(self):
        result = run(RANKS, "collectives", RANK="1", WORLD_SIZE="2")
        self.assertEqual(result.returncode, 1)
        self.assertIn("the launcher started 2 ranks, but MPI knows of this process alone: start the program with "
                      "mpirun", result.stderr)

    def test_all_hear_both_sides_of_a_disagreement(self):
        for ranks in (2, 3):
            heard = self.failures(ranks, "disagreement")
            self.assertEqual(len(heard), 2 * ranks)
            for failure, _, message in heard:
                self.assertEqual(failure, MISMATCH)
                self.assertRegex(message, r"rank 1 called all_reduce #1 \(sum of 100(0001|1) float32\)")
                self.assertRegex(message, r"rank [02] called all_reduce #1 \(sum of 100(0000|0) float32\)")

    def test_ranks_that_take_each_other_for_the_root(self):
        for failure, _, message in self.failures(3, "roots"):
            self.assertEqual(failure, MISMATCH)
            self.assertEqual(len(set(re.findall(r"root \d", message))), 2, message)

    def test_a_rank_that_does_not_come_is_named(self):
        for job, call in (("late", "all_reduce #2"), ("chain", "send #1")):
            for failure, about, message in self.failures(3, job):
                self.assertEqual((failure, about), (TIMEOUT, 2))
                self.assertRegex(message, rf"{call} .* waited 700 ms for rank 2$")

    def test_the_cause_of_an_abort_reaches_all(self):
        for heard in self.failures(3, "aborted"):
            self.assertEqual(heard, (ABORTED, 1, "rank 1 ended the group: the loss is NaN"))

    def test_a_rank_that_fails_ends_the_job(self):
        for job, code in (("killed", 128 + 9), ("failed", 7), ("stopped", 1)):
            with self.subTest(job=job):
                begin = time.monotonic()
                result = mpirun(3, job)
                self.assertEqual(result.returncode, code, result.stderr)
                self.assertLess(time.monotonic() - begin, 20)  # of a deadline of 60, but for "stopped"

    def test_ranks_that_are_done_wait_for_the_others(self):
        self.expect_success(mpirun(3, "end"))

    def test_a_program_that_uses_mpi_itself(self):
        self.expect_success(mpirun(2, "own"))
        result = mpirun(1, "own_single")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("call MPI_Init_thread with MPI_THREAD_MULTIPLE", result.stderr)

    def test_a_program_that_does_not_call_init_process_group_in_time(self):
        result = mpirun(2, "own_late")
        self.assertIn("waited 500 ms for all processes of the MPI job to call init_process_group", result.stdout)
        self.assertEqual(result.returncode, 0, result.stderr)  # by a second attempt


if __name__ == "__main__":
    unittest.main(verbosity=2)  # which names the skipped ones
