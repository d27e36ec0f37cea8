#!/usr/bin/env python3
"""gradus-run --spares and --min-nproc: which worker replaces a dead one, what is a failure, and what is printed.

usage: elastic_test.py GRADUS_RUN ELASTIC_WORKER
"""

import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest

import launcher_test

WORKER = None
KILLED = "was killed by Killed (signal 9), possibly out of memory"


def command(*options, script):
    """Starts a job of elastic_worker (elastic_worker.cpp) with the arguments in `script`: "LAST EVENT…"."""
    return [launcher_test.LAUNCHER, *options, WORKER, *script.split()]


def run(*options, script):
    return subprocess.run(command(*options, script=script), capture_output=True, text=True, timeout=60, check=False)


def said(result):
    return [line.removeprefix("gradus-run: ") for line in result.stderr.splitlines() if line.startswith("gradus-run: ")]


def failed(rank, cause, min_ranks):
    """The message when the job cannot continue."""
    return (f"rank {rank} {cause}; the job needs at least {min_ranks} ranks; the others were stopped. "
            "Its last lines:")


class Elastic(unittest.TestCase):
    setUp = launcher_test.Launcher.setUp
    expect_nothing_left = launcher_test.Launcher.expect_nothing_left

    def expect_met(self, result, generation, *workers):
        """The ranks of the generation have printed that they are these workers."""
        lines = [line for line in result.stdout.splitlines() if f"generation {generation}:" in line]
        self.assertEqual(sorted(lines), [f"[{rank}] generation {generation}: worker {worker} is rank {rank} of "
                                         f"{len(workers)}" for rank, worker in enumerate(workers)],
                         result.stdout + result.stderr)

    def start(self, *options, script):
        """Starts a launcher. Returns it and a function that reads its output until all patterns have been found."""
        process = subprocess.Popen(command(*options, script=script), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True)
        for clean_up in process.stderr.close, process.stdout.close, process.wait, process.kill:  # in reverse
            self.addCleanup(clean_up)

        def read_until(*patterns):
            found, text = [None] * len(patterns), ""
            while not all(found):
                line = process.stdout.readline()
                self.assertTrue(line, text)
                text += line
                found = [re.search(pattern, text) for pattern in patterns]
            return found

        return process, read_until

    def test_workers_learn_their_numbers(self):
        program = """
import os, time
names = ["GRADUS_WORKER", "GRADUS_SPARE", "RANK", "LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"]
print(*[os.environ.get(name, "-") for name in names], os.environ["OMP_NUM_THREADS"], flush=True)
if "GRADUS_SPARE" in os.environ: time.sleep(1000)
if os.environ["RANK"] == "0": time.sleep(1)
"""
        plain = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
        # As in a rank of another job, whose numbers must not be inherited.
        env = {**plain, "RANK": "9", "LOCAL_RANK": "9", "GROUP_RANK": "9", "GRADUS_WORKER": "9", "GRADUS_SPARE": "1"}
        share = str(max(1, len(os.sched_getaffinity(0)) // 2))
        result = launcher_test.run("--nproc", "2", "--spares", "1", program=program, env=env)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual(sorted(result.stdout.splitlines()),
                         [f"[0] 0 - 0 0 0 2 2 {share}", f"[1] 1 - 1 1 0 2 2 {share}",
                          f"[spare 2] 2 1 - - - 2 2 {share}"])
        result = launcher_test.run("--nproc", "2", program=program, env=env)
        self.assertEqual(sorted(result.stdout.splitlines()),
                         [f"[0] - - 0 0 0 2 2 {share}", f"[1] - - 1 1 0 2 2 {share}"])

    def test_a_spare_takes_the_place_of_a_rank(self):
        for event, cause in [("kill", KILLED), ("fail", "ended with code 7")]:
            result = run("--nproc", "3", "--spares", "2", script=f"1 1:0:{event}")
            self.assertEqual(result.returncode, 0, result.stderr)
            self.expect_met(result, 1, 0, 3, 2)
            self.assertEqual(said(result), [f"rank 1 {cause}; worker 3, a spare, takes its place"])
            self.assertIn("[spare 4] worker 4, a spare, pid", result.stdout)

    def test_fewer_ranks_continue(self):
        result = run("--nproc", "4", "--min-nproc", "2", script="2 0:0:kill 2:1:fail")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.expect_met(result, 2, 1, 3)
        self.assertEqual(said(result), [f"rank 0 {KILLED}; ranks left: 3",
                                        "rank 1 ended with code 7; ranks left: 2"])

    def test_fewer_ranks_than_the_minimum_do_not_continue(self):
        result = run("--nproc", "3", "--min-nproc", "2", script="9 1:0:kill 2:1:kill")
        self.assertEqual(result.returncode, 128 + signal.SIGKILL)
        self.assertEqual(said(result), [f"rank 1 {KILLED}; ranks left: 2", failed(1, KILLED, 2)])
        self.assertIn("\n  generation 1: worker 2 is rank 1 of 2\n", result.stderr)

    def test_a_death_without_a_spare_ends_the_job(self):
        result = run("--nproc", "3", "--spares", "1", script="9 1:0:kill 2:1:fail")
        self.assertEqual(result.returncode, 7)
        self.assertEqual(said(result), [f"rank 1 {KILLED}; worker 3, a spare, takes its place",
                                        failed(2, "ended with code 7", 3)])

    def test_two_die_at_once(self):
        """A spare replaces one of them."""
        result = run("--nproc", "3", "--spares", "1", "--min-nproc", "2", script="2 1:0:kill 2:0:kill")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.expect_met(result, 2, 0, 3)
        self.assertEqual([re.sub(".*; ", "", line) for line in said(result)],
                         ["worker 3, a spare, takes its place", "ranks left: 2"])

    def test_a_spare_that_dies_while_it_waits(self):
        for event, cause in [("kill", KILLED), ("fail", "ended with code 7")]:
            result = run("--nproc", "2", "--spares", "2", script=f"2 2:0:{event} 0:1:kill")
            self.assertEqual(result.returncode, 0, result.stderr)
            self.expect_met(result, 2, 3, 1)
            self.assertEqual(said(result), [f"spare 2 {cause}; spares left: 1",
                                            f"rank 0 {KILLED}; worker 3, a spare, takes its place"])
        result = run("--nproc", "2", "--spares", "1", script="9 2:0:kill 0:1:kill")
        self.assertEqual(result.returncode, 128 + signal.SIGKILL)
        self.assertEqual(said(result), [f"spare 2 {KILLED}; spares left: 0", failed(0, KILLED, 2)])

    def test_a_rank_that_stops_is_removed_by_the_others_and_killed(self):
        """The others continue meanwhile, and nothing but the launcher ends the stopped rank."""
        process, read_until = self.start("--nproc", "3", "--spares", "1", script="9 1:0:stop")
        stopped, *_ = read_until(r"worker 1 pid (\d+)", *(f"generation 1: worker {worker}" for worker in (0, 2, 3)))
        self.assertTrue(launcher_test.wait_until(lambda: not launcher_test.alive(int(stopped[1]))))
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(20), 128 + signal.SIGTERM)
        self.assertEqual(process.stderr.read(), "gradus-run: rank 1 did not arrive within 1000 ms; "
                                                "worker 3, a spare, takes its place\n")

    def test_too_many_stopped_ranks_end_the_job(self):
        result = run("--nproc", "3", "--min-nproc", "2", script="9 1:0:stop 2:0:stop")
        self.assertEqual(result.returncode, 1)
        cause = "did not arrive within 1000 ms"
        self.assertEqual(said(result), [f"rank 1 {cause}; ranks left: 2", failed(1, cause, 2)])

    def test_a_death_after_the_work_is_done_is_no_failure(self):
        for script, ranks in [("0 1:0:finish 1:0:kill", [1]), ("0 0:0:finish 0:0:kill 1:0:finish 1:0:kill", [0, 1])]:
            result = run("--nproc", "2", "--spares", "1", script=script)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(sorted(said(result)), [f"rank {rank} {KILLED}; the job's work was done by then"
                                                    for rank in ranks])

    def test_a_restart_has_all_its_spares_again(self):
        """In the first attempt a spare dies, then a rank. In the second attempt the spare takes the rank's place."""
        program = """
import os, sys, time
attempt, is_spare = os.environ["TORCHELASTIC_RESTART_COUNT"], "GRADUS_SPARE" in os.environ
def wait_for_end_of(other):
    while not os.path.exists(other + attempt): time.sleep(0.01)
    while os.path.exists("/proc/" + open(other + attempt).read()): time.sleep(0.01)
own, other = ("spare", "rank")[::1 if is_spare else -1]
with open("new" + own, "w") as file: file.write(str(os.getpid()))
os.rename("new" + own, own + attempt)
if is_spare == (attempt == "1"): wait_for_end_of(other)
elif attempt == "1":
    while not os.path.exists("spare1"): time.sleep(0.01)
sys.exit(0 if is_spare and attempt == "1" else 7)
"""
        with tempfile.TemporaryDirectory() as directory:
            result = launcher_test.run("--nproc", "1", "--spares", "1", "--max-restarts", "1", program=program,
                                       cwd=directory)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(said(result), ["spare 1 ended with code 7; spares left: 0",
                                        failed(0, "ended with code 7", 1), "restart 1 of 1",
                                        "rank 0 ended with code 7; worker 1, a spare, takes its place"])

    def test_spares_are_asked_to_end(self):
        """When the ranks have succeeded, or when the job is asked to end. Spares have the same grace period."""
        program = """
import os, signal, sys, time
def asked(*_):
    print("asked to end", flush=True)
    if not DEAF: sys.exit(5)
if "GRADUS_SPARE" in os.environ:
    signal.signal(signal.SIGTERM, asked)
    open("up", "w").close()
    while True: time.sleep(1)
while not os.path.exists("up"): time.sleep(0.01)
if INTERRUPTED:
    os.kill(os.getppid(), signal.SIGTERM)
    time.sleep(1000)
"""
        for deaf in False, True:
            for interrupted in False, True:
                with tempfile.TemporaryDirectory() as directory:
                    result = launcher_test.run(
                        "--nproc", "1", "--spares", "1", "--grace", "0.2" if deaf else "60", cwd=directory,
                        program=f"DEAF, INTERRUPTED = {deaf}, {interrupted}{program}")
                self.assertEqual(result.returncode, 128 + signal.SIGTERM if interrupted else 0)
                self.assertEqual((result.stdout, result.stderr), ("[spare 1] asked to end\n", ""))

    def test_a_killed_launcher_leaves_no_spares(self):
        """Neither a spare that has replaced a rank, nor one that waits, nor one that is stopped."""
        process, read_until = self.start("--nproc", "2", "--spares", "3", script="9 0:0:kill")
        found = read_until(*(rf"worker {worker}(?:, a spare,)? pid (\d+)" for worker in range(5)),
                           r"\[0\] generation 1: worker 2 ", r"\[1\] generation 1: worker 1 ")
        pids = [int(match[1]) for match in found[1:5]]
        os.kill(pids[-1], signal.SIGSTOP)
        process.kill()
        process.wait(20)
        self.assertTrue(launcher_test.wait_until(lambda: not any(launcher_test.alive(pid) for pid in pids)))

    def test_each_worker_has_one_log(self):
        with tempfile.TemporaryDirectory() as directory:
            result = run("--nproc", "2", "--spares", "1", "--log-dir", directory, script="1 1:0:kill")
            self.assertEqual(result.returncode, 0, result.stderr)
            logs = {path.name: path.read_text(encoding="utf-8") for path in pathlib.Path(directory).iterdir()}
        self.assertEqual(sorted(logs), ["rank0.log", "rank1.log", "spare2.log"])
        self.assertIn("generation 0: worker 1 is rank 1 of 2\n", logs["rank1.log"])
        self.assertRegex(logs["spare2.log"], "^worker 2, a spare, pid .*\ngeneration 1: worker 2 is rank 1 of 2\n$")

    def test_nonsense_in_the_store_ends_the_job(self):
        result = run("--nproc", "2", "--spares", "1", script="9 1:0:scribble")
        self.assertEqual(result.returncode, 2)
        self.assertEqual(said(result), ["not a list of a job's workers: 'nonsense'"])

    def test_wrong_options(self):
        several = ["--nnodes", "2", "--rdzv", "127.0.0.1:1"]
        on_several = "--spares and --min-nproc are for jobs on one machine, but --nnodes is 2"
        for options, message in [
                (["--spares", "-1"], "--spares is -1, not 0 or more"),
                (["--nproc", "2", "--min-nproc", "3"], "--min-nproc is 3, not 1 to 2, the value of --nproc"),
                (["--nproc", "2", "--min-nproc", "0"], "--min-nproc is 0, not 1 to 2, the value of --nproc"),
                ([*several, "--spares", "1"], on_several), ([*several, "--min-nproc", "1"], on_several)]:
            result = run(*options, script="0")
            self.assertEqual((result.returncode, result.stderr), (2, f"gradus-run: {message}\n"))


if __name__ == "__main__":
    launcher_test.LAUNCHER, WORKER = sys.argv.pop(1), sys.argv.pop(1)
    unittest.main()
