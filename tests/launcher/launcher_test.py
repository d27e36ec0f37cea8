#!/usr/bin/env python3
"""gradus-run: the variables of ranks, their output, which failure counts, and that nothing is left behind.

usage: launcher_test.py GRADUS_RUN ALL_REDUCE_RANK
"""

import fcntl
import os
import pathlib
import random
import re
import resource
import secrets
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest

LAUNCHER = ALL_REDUCE_RANK = None
# Present in the environment of every process that a test starts, directly or through other processes.
MARK = f"GRADUS_LAUNCHER_TEST={os.getpid()}"
os.environ.update([MARK.split("=")])
# A shell's "&" ignores SIGINT, and processes that are started here would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A rank that prints its process number and that of a child, then sleeps.
SLEEPER = """
import os, subprocess, sys, time
child = subprocess.Popen(["sleep", "1000"])
print("pids", os.getpid(), child.pid, flush=True)
time.sleep(1000)
"""


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def wait_until(condition, seconds=10):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return False


def unread(pipe):
    """Number of unread bytes in a pipe."""
    return struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4))[0]


def command(*options, program):
    return [LAUNCHER, *options, sys.executable, "-c", program]


def run(*options, program, **more):
    return subprocess.run(command(*options, program=program), capture_output=True, text=True, timeout=60, check=False,
                          **more)


class Launched:
    """A launcher in the background and its processes."""

    def __init__(self, *options, program, ranks):
        self.process = subprocess.Popen(command("--nproc", str(ranks), *options, program=program),
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.pids = []
        while len(self.pids) < 2 * ranks:
            self.pids += [int(pid) for pid in re.findall(r"\d+", self.process.stdout.readline().split("pids")[1])]

    def all_gone(self):
        return wait_until(lambda: not any(alive(pid) for pid in self.pids))

    def close(self):
        self.process.stdout.close()
        self.process.stderr.close()
        for pid in self.pids:
            if alive(pid):
                os.kill(pid, signal.SIGKILL)


def belongings():
    """The descriptors, processes, shared memory and temporary files of this process and its descendants."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{number}")
            if "/Testing/Temporary/" not in target:  # the log of ctest, which another ctest may delete
                found.add(("descriptor", number, target))
        except FileNotFoundError:  # the descriptor by which the folder was read
            pass
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if MARK.encode() in file.read() and int(pid) != os.getpid() and alive(pid):
                    found.add(("process", pid))
        except (FileNotFoundError, PermissionError, ProcessLookupError):
            pass
    for folder in ("/dev/shm", tempfile.gettempdir()):
        found |= {("file", folder, name) for name in os.listdir(folder)
                  if "gradus" in name and str(os.getpid()) in name}
    return found


class Launcher(unittest.TestCase):
    def setUp(self):
        self.before = belongings()
        self.addCleanup(self.expect_nothing_left)

    def expect_nothing_left(self):
        wait_until(lambda: not belongings() - self.before)
        self.assertEqual(belongings() - self.before, set())

    def test_ranks_learn_their_numbers(self):
        program = """
import os
names = ["RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR",
         "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS"]
print(*[os.environ[name] for name in names], int(os.environ["MASTER_PORT"]) > 0, int(os.environ["OMP_NUM_THREADS"]) > 0)
token = os.read(int(os.environ["GRADUS_TOKEN_FD"]), 100)
print("token", len(token), os.environ["GRADUS_STORE"] == os.environ["MASTER_ADDR"] + ":" + os.environ["MASTER_PORT"])
"""
        result = run("--nproc", "3", program=program)
        self.assertEqual(result.returncode, 0, result.stderr)
        lines = set(result.stdout.splitlines())
        self.assertEqual(lines, {f"[{r}] {r} {r} 3 3 0 127.0.0.1 0 0 True True" for r in range(3)} |
                         {f"[{r}] token 64 True" for r in range(3)})
        self.assertNotIn("token", " ".join(command(program="")))

    def test_a_thread_count_of_the_user_is_kept(self):
        program = "import os; print(os.environ['OMP_NUM_THREADS'])"
        result = run("--nproc", "2", program=program, env={**os.environ, "OMP_NUM_THREADS": "7"})
        self.assertEqual(sorted(result.stdout.splitlines()), ["[0] 7", "[1] 7"])

    def test_arguments_reach_the_program(self):
        result = subprocess.run([LAUNCHER, "--nproc", "1", "echo", "--nproc", "9", "-x"], capture_output=True,
                                text=True, timeout=60, check=False)
        self.assertEqual(result.stdout, "[0] --nproc 9 -x\n")

    def test_output_is_printed_in_whole_lines_and_written_to_files(self):
        program = """
import os, sys, time
for i in range(200):
    sys.stdout.write(f"{i} "); sys.stdout.flush()
    sys.stdout.write("x" * 300 + "\\n"); sys.stdout.flush()
sys.stderr.write("to stderr\\n")
sys.stdout.write("without an end")
"""
        with tempfile.TemporaryDirectory() as directory:
            result = run("--nproc", "3", "--log-dir", directory + "/logs", program=program)
            self.assertEqual(result.returncode, 0, result.stderr)
            for rank in range(3):
                lines = [line for line in result.stdout.splitlines() if line.startswith(f"[{rank}] ")]
                self.assertEqual(lines,
                                 [f"[{rank}] {i} {'x' * 300}" for i in range(200)] + [f"[{rank}] without an end"])
                self.assertIn(f"[{rank}] to stderr\n", result.stderr)
                log = pathlib.Path(directory, "logs", f"rank{rank}.log").read_text(encoding="utf-8")
                self.assertIn("199 xxx", log)
                self.assertIn("to stderr\n", log)
            self.assertEqual(len(result.stdout.splitlines()), 3 * 201)

    def test_the_first_failure_counts_and_ends_the_others(self):
        program = """
import os, sys, time
if os.environ["RANK"] == "1":
    print("about to fail", flush=True)
    sys.exit(7)
time.sleep(1000)
"""
        begin = time.monotonic()
        result = run("--nproc", "3", program=program)
        self.assertLess(time.monotonic() - begin, 5)  # they end when asked to, before the grace period is over
        self.assertEqual(result.returncode, 7)
        self.assertIn("rank 1 ended with code 7", result.stderr)
        self.assertIn("  about to fail\n", result.stderr)

    def test_a_killed_rank_is_named_with_its_signal(self):
        program = "import os, signal\nif os.environ['RANK'] == '0': os.kill(os.getpid(), signal.SIGKILL)"
        result = run("--nproc", "2", program=program)
        self.assertEqual(result.returncode, 128 + signal.SIGKILL)
        self.assertIn("rank 0 was killed by Killed (signal 9), possibly out of memory", result.stderr)
        result = run("--nproc", "1", program="import os; os.abort()")
        self.assertEqual(result.returncode, 128 + signal.SIGABRT)
        self.assertIn("(signal 6)", result.stderr)
        self.assertNotIn("memory", result.stderr)

    def test_a_killed_rank_takes_precedence_over_those_that_miss_it(self):
        program = """
import os, signal, sys, time
if os.environ["RANK"] == "0":
    while not os.path.exists(os.environ["DYING"]): time.sleep(0.001)
    exec(os.environ["END"])
open(os.environ["DYING"], "w").close()
time.sleep(0.04)
os.kill(os.getpid(), signal.SIGKILL)
"""
        for end in ["os._exit(1)", "os.abort()"]:  # abort() as after an uncaught exception
            with tempfile.TemporaryDirectory() as directory:
                result = run("--nproc", "2", program=program,
                             env={**os.environ, "DYING": directory + "/dying", "END": end})
            self.assertEqual(result.returncode, 128 + signal.SIGKILL)
            self.assertIn("rank 1 was killed by Killed (signal 9)", result.stderr)

    def test_a_program_that_does_not_exist(self):
        result = subprocess.run([LAUNCHER, "--nproc", "2", "/no/such/program"], capture_output=True, text=True,
                                timeout=60, check=False)
        self.assertEqual(result.returncode, 127)
        self.assertIn("cannot run '/no/such/program': No such file", result.stderr)

    def test_wrong_options(self):
        for options, message in [(["--nproc", "0"], "a job needs processes"),
                                 (["--nnodes", "2"], "several nodes need an address at which to meet"),
                                 (["--nnodes", "2", "--node-rank", "2", "--rdzv", "a:1"],
                                  "--node-rank is 2, not 0 to 1"),
                                 (["--max-restarts", "-1"], "--max-restarts is -1, not 0 or more"),
                                 (["--rdzv", "nonsense"], "'nonsense' is not an address"),
                                 (["--rdzv", ""], "'' is not an address"),
                                 (["--rdzv", "no-such-host.invalid:1"], "does not resolve to an address"),
                                 (["--rdzv", "192.0.2.1:29500"], "this machine does not have that address"),
                                 (["--nnodes", "2", "--rdzv", "a:0"], "a:0 has port 0"),
                                 (["--nproc", "-1"], "a job needs processes"),
                                 (["--nproc", "1025"], "--nproc is 1025, not 1 to 1024"),
                                 (["--nproc", "1000000"], "--nproc is 1000000, not 1 to 1024"),
                                 (["--nproc", "1000", "--spares", "25"], "--spares is 25, not 0 to 24"),
                                 (["--nproc", "2", "--nnodes", "32769"], "--nnodes is 32769, not 1 to 32768"),
                                 (["--nnodes", "2147483647"], "--nnodes is 2147483647, not 1 to 65536"),
                                 *[(["--grace", text], "--grace is " + text.lower())
                                   for text in ["nan", "NaN", "-1", "inf", "-inf", "1e+300"]],
                                 (["--nnodes", "2", "--rdzv", "127.0.0.1:1"], "GRADUS_TOKEN_FILE")]:
            result = run(*options, program="")
            self.assertEqual(result.returncode, 2)
            self.assertIn(message, result.stderr)
        result = subprocess.run([LAUNCHER], capture_output=True, text=True, timeout=60, check=False)
        self.assertIn("no program to run", result.stderr)
        for option in ["--nproc", "--nnodes", "--node-rank", "--spares", "--min-nproc", "--max-restarts", "--grace"]:
            for text in ["x", "", "1.5x", "99999999999x", "1 2"]:
                result = run(option, text, program="")
                self.assertNotEqual(result.returncode, 0)
                self.assertIn(option, result.stderr)

    def test_descriptors_are_counted_before_processes_start(self):
        limit = lambda soft, hard: lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        result = run("--nproc", "40", program="", preexec_fn=limit(100, 100))
        self.assertEqual(result.returncode, 2)
        self.assertIn("the output of 40 processes takes 144 descriptors, and this process may have 100", result.stderr)
        result = subprocess.run([LAUNCHER, "--nproc", "40", "true"], preexec_fn=limit(100, 144), timeout=60,
                                check=False)
        self.assertEqual(result.returncode, 0)

    def test_a_rank_that_ignores_the_request_to_end_is_killed_after_the_grace_period(self):
        program = """
import os, signal, sys, time
if os.environ["RANK"] == "0":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    open(os.environ["DEAF"], "w").close()
    time.sleep(1000)
while not os.path.exists(os.environ["DEAF"]): time.sleep(0.01)
sys.exit(3)
"""
        with tempfile.TemporaryDirectory() as directory:
            begin = time.monotonic()
            result = run("--nproc", "2", "--grace", "0.5", program=program,
                         env={**os.environ, "DEAF": directory + "/deaf"})
        took = time.monotonic() - begin
        self.assertEqual(result.returncode, 3)
        self.assertGreater(took, 0.5)
        self.assertLess(took, 0.5 + 3)

    def test_signals_are_passed_on(self):
        for number in [signal.SIGINT, signal.SIGTERM]:
            job = Launched(program=SLEEPER, ranks=2)
            job.process.send_signal(number)
            self.assertEqual(job.process.wait(20), 128 + number)
            self.assertTrue(job.all_gone())
            job.close()

    def test_a_killed_launcher_leaves_nothing_behind(self):
        for ranks in (1, 3):
            job = Launched(program=SLEEPER, ranks=ranks)
            begin = time.monotonic()
            job.process.kill()
            job.process.wait(20)
            self.assertTrue(job.all_gone())
            self.assertLess(time.monotonic() - begin, 3)
            job.close()

    def test_a_launcher_that_is_killed_while_it_starts_leaves_nothing_behind(self):
        moments = random.Random(1)
        for number in [signal.SIGKILL, signal.SIGTERM] * 4:
            processes = []
            for _ in range(10):
                process = subprocess.Popen([LAUNCHER, "--nproc", "2", "sh", "-c", "sleep 1000 & sleep 1000"],
                                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                time.sleep(moments.uniform(0, 0.1))
                process.send_signal(number)
                processes.append(process)
            for process in processes:
                process.wait(60)
            time.sleep(1)
            self.assertEqual(belongings() - self.before, set())

    def test_what_ranks_leave_behind_is_killed(self):
        program = "import subprocess as s; print(s.Popen(['sleep', '1000'], stdout=s.DEVNULL).pid)"
        result = run("--nproc", "2", program=program)
        self.assertEqual(result.returncode, 0)
        pids = [int(line.split()[1]) for line in result.stdout.splitlines()]
        self.assertEqual(len(pids), 2)
        self.assertTrue(wait_until(lambda: not any(alive(pid) for pid in pids)))

    def flooded(self, *options, program, **streams):
        """A launcher whose output is a pipe without a reader, once the pipe and the launcher's buffer are full."""
        process = subprocess.Popen(command(*options, program=program), **streams)
        blocked = process.stdout or process.stderr
        self.addCleanup(blocked.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.assertTrue(wait_until(lambda: unread(blocked) > 1 << 15, 60))
        time.sleep(0.5)
        return process

    def test_a_rank_that_floods_its_output_does_not_delay_signals(self):
        process = subprocess.Popen([LAUNCHER, "sh", "-c", "echo up >&2; yes & yes & yes"], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.assertEqual(process.stderr.readline(), b"[0] up\n")
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(60), 128 + signal.SIGINT)

    def test_a_rank_that_floods_its_output_does_not_delay_other_ranks(self):
        program = """
import os, sys
if os.environ["RANK"] == "0":
    while True: os.write(1, b"y\\n" * 5000)
print("rank 1 was here", flush=True)
sys.exit(3)
"""
        with tempfile.TemporaryFile() as file:
            result = subprocess.run(command("--nproc", "2", program=program), stdout=file, stderr=subprocess.PIPE,
                                    timeout=60, check=False)
            file.seek(0)
            self.assertIn(b"[1] rank 1 was here\n", file.read())
        self.assertEqual(result.returncode, 3)

    def test_a_blocked_stream_does_not_delay_signals(self):
        for number, name in [(1, "stdout"), (2, "stderr")]:
            with tempfile.TemporaryFile() as other:
                streams = {"stdout": other, "stderr": other, name: subprocess.PIPE}
                program = f"import os\nwhile True: os.write({number}, b'y' * 99 + b'\\n')"
                process = self.flooded("--nproc", "1", program=program, **streams)
                process.send_signal(signal.SIGTERM)
                self.assertEqual(process.wait(60), 128 + signal.SIGTERM)
                other.seek(0)
                if name == "stdout":
                    self.assertRegex(other.read(), rb"gradus-run: \d+ bytes of stdout were lost: they were not read\n")

    def test_a_blocked_stdout_does_not_hide_a_failure(self):
        program = """
import os, sys, time
if os.environ["RANK"] == "0":
    while True: os.write(1, b"y" * 99 + b"\\n")
while not os.path.exists(os.environ["FAIL"]): time.sleep(0.02)
sys.exit(7)
"""
        with tempfile.TemporaryDirectory() as directory, tempfile.TemporaryFile() as errors:
            os.environ["FAIL"] = directory + "/fail"
            process = self.flooded("--nproc", "2", program=program, stdout=subprocess.PIPE, stderr=errors)
            pathlib.Path(os.environ.pop("FAIL")).touch()
            self.assertEqual(process.wait(60), 7)
            errors.seek(0)
            self.assertIn(b"gradus-run: rank 1 ended with code 7", errors.read())

    def test_nothing_is_lost_when_the_reader_is_late(self):
        program = "for i in range(60000): print(i, 'x' * 90)"
        process = self.flooded("--nproc", "2", program=program, stdout=subprocess.PIPE)
        lines = process.communicate(timeout=60)[0].decode().splitlines()
        self.assertEqual(process.returncode, 0)
        for rank in range(2):
            self.assertEqual([line for line in lines if line.startswith(f"[{rank}] ")],
                             [f"[{rank}] {i} {'x' * 90}" for i in range(60000)])

    def test_nothing_is_lost_if_stdout_is_non_blocking(self):
        read_end, write_end = os.pipe()
        os.set_blocking(write_end, False)  # as another process may have done
        with open(read_end, encoding="ascii") as output, subprocess.Popen([LAUNCHER, "seq", "50000"], stdout=write_end):
            os.close(write_end)
            time.sleep(0.5)
            self.assertEqual(output.read().splitlines(), [f"[0] {i}" for i in range(1, 50001)])

    def test_output_that_cannot_be_written_is_counted(self):
        with tempfile.TemporaryDirectory() as directory, open("/dev/full", "wb") as full:
            os.symlink("/dev/full", directory + "/rank0.log")
            program = "print('x' * 99999)"
            result = run("--nproc", "1", "--log-dir", directory, program=program)
            self.assertEqual((result.returncode, len(result.stdout)), (0, 2 * len("[0] \n") + 99999))
            self.assertIn(f"100000 bytes of the output of rank 0 in '{directory}/rank0.log' were lost: No space left",
                          result.stderr)
            result = subprocess.run(command(program=program), stdout=full, stderr=subprocess.PIPE, timeout=60,
                                    check=False)
            self.assertEqual(result.returncode, 0)
            self.assertIn(b"gradus-run: 100009 bytes of stdout were lost: No space left", result.stderr)
            os.remove(directory + "/rank0.log")
            os.mkfifo(directory + "/rank0.log")
            result = run("--nproc", "1", "--log-dir", directory, program=program)
            self.assertEqual(result.returncode, 2)
            self.assertIn("cannot write", result.stderr)

    def test_a_line_without_an_end_is_printed_in_pieces(self):
        result = run("--nproc", "1", program="print('x' * 1000000, end='')")
        pieces = result.stdout.splitlines()
        self.assertEqual("".join(piece.removeprefix("[0] ") for piece in pieces), "x" * 1000000)
        self.assertLessEqual(max(map(len, pieces)), 4 + 65536)

    def test_a_rank_may_close_its_output_and_continue(self):
        result = run(program="import os, time; os.close(1); os.close(2); time.sleep(0.3); os._exit(3)")
        self.assertEqual(result.returncode, 3)

    def test_a_launcher_without_descriptors_0_to_2(self):
        with tempfile.TemporaryDirectory() as directory:
            subprocess.run(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", LAUNCHER, "--log-dir", directory, "sh", "-c",
                            "readlink /proc/$PPID/fd/[012]; echo err >&2"], timeout=60, check=True)
            self.assertEqual(sorted(pathlib.Path(directory, "rank0.log").read_text(encoding="utf-8").split()),
                             ["/dev/null"] * 3 + ["err"])  # and not a pipe of the launcher

    def test_an_ignored_signal_stays_ignored(self):
        ignore = lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
        process = subprocess.Popen(command(program="import time; print('up', flush=True); time.sleep(1000)"),
                                   stdout=subprocess.PIPE, preexec_fn=ignore)
        with process.stdout:
            self.assertEqual(process.stdout.readline(), b"[0] up\n")
            process.send_signal(signal.SIGHUP)
            with self.assertRaises(subprocess.TimeoutExpired):
                process.wait(1)
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(60), 128 + signal.SIGTERM)
        ignore = lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        self.assertEqual(run("--nproc", "2", program="raise SystemExit(5)", preexec_fn=ignore).returncode, 5)

    def test_processes_in_sessions_of_their_own_are_killed(self):
        # The rank starts a process in a session of its own that ignores SIGTERM, and which starts another such session.
        program = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGINT, signal.SIG_DFL)
code = "import signal, subprocess, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
code += "print('pids', subprocess.Popen(['sleep', '1000'], start_new_session=True).pid, flush=True); time.sleep(1000)"
child = subprocess.Popen([sys.executable, "-c", code], start_new_session=True, stdout=subprocess.PIPE)
print(child.stdout.readline().decode().strip(), child.pid, flush=True)
"""
        for end, expected in [("", 0), ("sys.exit(4)", 4), ("os.kill(os.getpid(), 9)", 137), ("time.sleep(1000)", 130)]:
            job = Launched(program=program + end, ranks=1)
            if expected == 130:
                job.process.send_signal(signal.SIGINT)
            self.assertEqual(job.process.wait(60), expected)
            self.assertFalse(any(alive(pid) for pid in job.pids))  # they were waited for
            job.close()

    def test_children_from_before_exec_are_left_alone(self):
        result = subprocess.run(["sh", "-c", 'sleep 1000 >&- 2>&- & echo $!; exec "$@"', "sh", LAUNCHER, "true"],
                                capture_output=True, text=True, timeout=60, check=True)
        child = int(result.stdout)
        self.assertTrue(alive(child))
        os.kill(child, signal.SIGKILL)


class Restarts(unittest.TestCase):
    setUp = Launcher.setUp
    expect_nothing_left = Launcher.expect_nothing_left
    flooded = Launcher.flooded

    def test_all_ranks_restart(self):
        program = """
import os, sys, time
count = os.environ["TORCHELASTIC_RESTART_COUNT"]
print("attempt", count, "of", os.environ["TORCHELASTIC_MAX_RESTARTS"], flush=True)
if os.environ["RANK"] != "1":
    open(os.environ["UP"] + os.environ["RANK"] + count, "w").close()
    if count == "0": time.sleep(1000)
while not all(os.path.exists(os.environ["UP"] + rank + count) for rank in "02"): time.sleep(0.01)
if count == "0": sys.exit(7)
"""
        with tempfile.TemporaryDirectory() as directory:
            for log in pathlib.Path(directory, "rank0.log"), pathlib.Path(directory, "rank1.log"):
                log.write_text("of an earlier job\n", encoding="utf-8")
            result = run("--nproc", "3", "--max-restarts", "3", "--log-dir", directory, program=program,
                         env={**os.environ, "UP": directory + "/up"})
            for rank in range(3):
                log = pathlib.Path(directory, f"rank{rank}.log").read_text(encoding="utf-8")
                self.assertEqual(log, "attempt 0 of 3\ngradus-run: restart 1 of 3\nattempt 1 of 3\n")
        self.assertEqual(result.returncode, 0, result.stderr)
        lines = result.stdout.splitlines()
        self.assertEqual(set(lines[:3]), {f"[{rank}] attempt 0 of 3" for rank in range(3)})
        self.assertEqual(set(lines[3:]), {f"[{rank}] attempt 1 of 3" for rank in range(3)})
        self.assertEqual(result.stderr, "gradus-run: rank 1 ended with code 7; the others were stopped. "
                                        "Its last lines:\n  attempt 0 of 3\ngradus-run: restart 1 of 3\n")

    def test_a_job_that_always_fails_is_given_up(self):
        program = """
import os, sys
print(len(os.listdir(f"/proc/{os.getppid()}/fd")), "descriptors")
sys.exit(10 + int(os.environ["TORCHELASTIC_RESTART_COUNT"]))
"""
        result = run("--nproc", "1", "--max-restarts", "2", program=program)
        self.assertEqual(result.returncode, 12)
        lines = result.stdout.splitlines()
        self.assertEqual((len(lines), len(set(lines))), (3, 1), lines)
        self.assertEqual(re.findall("ended with code .*?;|restart . of .", result.stderr),
                         ["ended with code 10;", "restart 1 of 2", "ended with code 11;", "restart 2 of 2",
                          "ended with code 12;"])

    def test_a_request_to_end_in_a_later_attempt(self):
        program = "import os, sys\nif os.environ['TORCHELASTIC_RESTART_COUNT'] == '0': sys.exit(3)\n" + SLEEPER
        for number in [signal.SIGINT, signal.SIGTERM]:
            job = Launched("--max-restarts", "3", program=program, ranks=2)
            job.process.send_signal(number)
            self.assertEqual(job.process.wait(20), 128 + number)
            self.assertTrue(job.all_gone())
            self.assertEqual(re.findall("restart . of 3", job.process.stderr.read()), ["restart 1 of 3"])
            job.close()

    def test_a_request_to_end_after_a_failure(self):
        """The request comes while a rank that was asked to end because of the failure has not ended yet."""
        program = """
import os, signal, sys, time
def slow(*_): print("pids", os.getpid(), flush=True)
signal.signal(signal.SIGTERM, slow)
open(os.environ["UP"] + os.environ["RANK"], "w").close()
while not all(os.path.exists(os.environ["UP"] + rank) for rank in "01"): time.sleep(0.01)
if os.environ["RANK"] == "0": sys.exit(3)
while True: time.sleep(1)
"""
        with tempfile.TemporaryDirectory() as directory:
            os.environ["UP"] = directory + "/up"
            self.addCleanup(os.environ.pop, "UP")
            process = subprocess.Popen(command("--nproc", "2", "--max-restarts", "3", "--grace", "60", program=program),
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            with process.stdout, process.stderr:
                self.assertIn("pids", process.stdout.readline())
                process.send_signal(signal.SIGINT)
                self.assertEqual(process.wait(20), 3)
                self.assertNotIn("restart", process.stderr.read())

    def test_output_is_not_lost_when_the_reader_is_late(self):
        program = """
import os, sys
for i in range(5000): print(i, "x" * 90)
sys.exit(os.environ["TORCHELASTIC_RESTART_COUNT"] < "3")
"""
        process = self.flooded("--max-restarts", "3", program=program, stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL)
        time.sleep(6)  # longer than output is kept after the end of a job
        lines = process.communicate(timeout=60)[0].decode().splitlines()
        self.assertEqual(process.returncode, 0)
        self.assertEqual(lines, [f"[0] {i} {'x' * 90}" for i in range(5000)] * 4)

    def test_groups_meet_again(self):
        """The last rank is killed during an all_reduce."""
        for backend in ["tcp", "shm"]:
            result = subprocess.run([LAUNCHER, "--nproc", "3", "--max-restarts", "1", ALL_REDUCE_RANK, backend],
                                    capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(sorted(result.stdout.splitlines()), [f"[{rank}] the sums are right" for rank in range(3)])
            self.assertIn("gradus-run: rank 2 was killed by Killed (signal 9)", result.stderr)
            self.assertIn("gradus-run: restart 1 of 1\n", result.stderr)


def has_socket(pid):
    return any(os.readlink(entry).startswith("socket:") for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir())


class Node(subprocess.Popen):
    """The launcher of one node of a job of two, with one rank, which prints "up" when it has started."""

    def __init__(self, job, number, program, options):
        super().__init__(command(*options, "--nnodes", "2", "--node-rank", str(number), "--rdzv", job.address,
                                 program="import os, signal, sys, time\nprint('up', flush=True)\n" + program),
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                         env={**os.environ, "GRADUS_TOKEN_FILE": job.token})

    def end(self):
        """Returns the exit code and stderr. `lines` becomes what the rank has printed after its first "up"."""
        code = self.wait(120)
        self.lines = [line.split(" ", 1)[1] for line in self.stdout.read().splitlines()]
        return code, self.stderr.read()


class Job:
    """Two launchers on this machine that act as two nodes."""

    def __init__(self, test, programs, *options):
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.address = f"127.0.0.1:{server.getsockname()[1]}"
        file = tempfile.NamedTemporaryFile(mode="w")
        test.addCleanup(file.close)
        file.write(secrets.token_hex(32))
        file.flush()
        self.token = file.name
        self.nodes = [Node(self, number, program, options) for number, program in enumerate(programs)]
        for node in self.nodes:
            test.addCleanup(node.communicate)
            test.addCleanup(node.kill)
            test.assertRegex(node.stdout.readline(), "up")


class SeveralNodes(unittest.TestCase):
    setUp = Launcher.setUp
    expect_nothing_left = Launcher.expect_nothing_left

    def expect(self, job, code, *causes):
        """Both launchers end with `code`, and each prints its cause to stderr."""
        for node, cause in zip(job.nodes, causes):
            found, errors = node.end()
            self.assertIn(cause, errors)
            self.assertEqual(found, code, errors)

    def test_all_nodes_succeed_together(self):
        job = Job(self, ["", "time.sleep(2)"])
        self.assertEqual([node.end() for node in job.nodes], [(0, ""), (0, "")])

    def test_a_failure_ends_all_nodes(self):
        job = Job(self, ["time.sleep(1000)", "time.sleep(1); sys.exit(7)"])
        self.expect(job, 7, "gradus-run: the job failed: rank 1 on node 1 ended with code 7\n",
                    "gradus-run: rank 1 on node 1 ended with code 7; the others were stopped.")
        # The failure may come before node 1 has joined.
        job = Job(self, ["os.kill(os.getpid(), signal.SIGKILL)", "time.sleep(1000)"])
        self.expect(job, 137, "gradus-run: rank 0 on node 0 was killed by Killed (signal 9)",
                    "gradus-run: the job failed: rank 0 on node 0 was killed by Killed (signal 9)")

    def test_a_failure_after_the_others_have_ended_counts_for_all_nodes(self):
        for programs in [["", "time.sleep(2); sys.exit(7)"], ["time.sleep(2); sys.exit(7)", ""]]:
            self.expect(Job(self, programs), 7, "ended with code 7", "ended with code 7")

    def test_a_request_to_end_reaches_all_nodes(self):
        for number in range(2):
            job = Job(self, ["time.sleep(1000)"] * 2, "--max-restarts", "3")
            job.nodes[number].send_signal(signal.SIGTERM)
            cause = f"gradus-run: the job failed: node {number} was asked to end: Terminated (signal 15)\n"
            self.expect(job, 143, *["" if node == number else cause for node in range(2)])

    def test_all_nodes_restart_together(self):
        """One rank fails, the other ignores requests to end, and no rank restarts before it has ended."""
        fails = """
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    while not os.path.exists(os.environ["DEAF"]): time.sleep(0.01)
    sys.exit(7)
print("alive:", os.path.exists("/proc/" + open(os.environ["DEAF"]).read()))
"""
        is_deaf = """
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with open(os.environ["DEAF"] + ".new", "w") as file: file.write(str(os.getpid()))
    os.rename(file.name, os.environ["DEAF"])
    time.sleep(1000)
"""
        self.addCleanup(os.environ.pop, "DEAF")
        for failing in range(2):
            with tempfile.TemporaryDirectory() as directory:
                os.environ["DEAF"] = directory + "/deaf"
                programs = [fails, is_deaf] if failing == 0 else [is_deaf, fails]
                job = Job(self, programs, "--max-restarts", "2", "--grace", "2")
                errors = [errors for code, errors in map(Node.end, job.nodes) if code == 0]
                self.assertEqual(len(errors), 2)
                for number, text in enumerate(errors):
                    self.assertIn(f"rank {failing} on node {failing} ended with code 7", text)
                    self.assertEqual(re.findall("restart . of .", text), ["restart 1 of 2"])
                    self.assertEqual(job.nodes[number].lines, ["up", "alive: False"] if number == failing else ["up"])

    def test_a_job_that_always_fails_is_given_up(self):
        fails = "sys.exit(10 + int(os.environ['TORCHELASTIC_RESTART_COUNT']))"
        job = Job(self, ["time.sleep(1000)", fails], "--max-restarts", "2")
        self.expect(job, 12, *["restart 2 of 2"] * 2)
        self.assertEqual(job.nodes[1].lines, ["up"] * 2)

    def test_a_request_to_end_after_a_failure_of_another_node(self):
        """The request comes while a rank that was asked to end because of the failure has not ended yet."""
        slow = "signal.signal(signal.SIGTERM, lambda *_: print('asked to end', flush=True))\nwhile True: time.sleep(1)"
        job = Job(self, ["time.sleep(1); sys.exit(3)", slow], "--max-restarts", "3", "--grace", "2")
        self.assertRegex(job.nodes[1].stdout.readline(), "asked to end")
        job.nodes[1].send_signal(signal.SIGTERM)
        cause = "gradus-run: the job failed: rank 0 on node 0 ended with code 3; node 1 was asked to end: Terminated"
        ends = [node.end() for node in job.nodes]
        for code, errors in ends:
            self.assertEqual(code, 3)
            self.assertIn(cause, errors)
            self.assertNotIn("restart", errors)

    def test_a_request_to_end_in_a_later_attempt_reaches_all_nodes(self):
        program = "if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0': sys.exit(3)\ntime.sleep(1000)"
        job = Job(self, [program] * 2, "--max-restarts", "3")
        for node in job.nodes:
            self.assertRegex(node.stdout.readline(), "up")
        job.nodes[1].send_signal(signal.SIGTERM)
        self.expect(job, 143, "restart 1 of 3\ngradus-run: the job failed: node 1 was asked to end", "restart 1 of 3\n")

    def test_the_loss_of_a_launcher_ends_all_nodes(self):
        """A launcher is killed, or stopped, which looks like a lost network. The others notice it within 15 s."""
        jobs = {(lost, number): Job(self, ["time.sleep(1000)"] * 2, "--max-restarts", "3")
                for lost in range(2) for number in [signal.SIGKILL, signal.SIGSTOP]}
        missing = Job(self, ["time.sleep(1000)"] * 2, "--max-restarts", "3")  # and a rank fails
        for job in [*jobs.values(), missing]:
            self.assertTrue(wait_until(lambda: has_socket(job.nodes[1].pid), 60))
        time.sleep(1)  # until they have joined
        for (lost, number), job in jobs.items():
            job.nodes[lost].send_signal(number)
        missing.nodes[1].send_signal(signal.SIGSTOP)
        missing.nodes[0].send_signal(signal.SIGUSR1)
        begin = time.monotonic()
        for (lost, number), job in jobs.items():
            code, errors = job.nodes[1 - lost].end()
            self.assertLess(time.monotonic() - begin, 15 + 5 + 10)
            self.assertEqual(code, 1)
            self.assertIn(f"gradus-run: the job failed: node {lost} was lost: ", errors)
            self.assertNotIn("restart", errors)
            job.nodes[lost].kill()
        code, errors = missing.nodes[0].end()
        self.assertEqual(code, 128 + signal.SIGUSR1)
        self.assertIn("(signal 10); node 1 was lost: ", errors)
        self.assertNotIn("restart", errors)
        missing.nodes[1].kill()


if __name__ == "__main__":
    LAUNCHER, ALL_REDUCE_RANK = sys.argv.pop(1), sys.argv.pop(1)
    unittest.main()
