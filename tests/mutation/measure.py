"""Runs test programs: once to see which case reaches which mutant, then for each mutant the cases that reach it."""

import collections
import concurrent.futures
import dataclasses
import os
import re
import resource
import signal
import subprocess
import time

MEMORY = 12 << 30  # bytes of address space; a mutant that asks for more fails
SPECIAL, BACKSLASHED = r'([\\,"])', r"\\\1"  # of Catch2's filters, inside quotes
SHORT = 0.5  # seconds; shorter cases run first


@dataclasses.dataclass(frozen=True)
class Case:
    program: str
    name: str
    seconds: float


def run(command, root, timeout, variables):
    """The exit status of a test program; None if it was still running after `timeout` seconds."""
    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    with subprocess.Popen(command, cwd=root, env={**os.environ, **variables}, stdin=subprocess.DEVNULL,
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
                          preexec_fn=limit) as process:
        try:
            return process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None
        finally:  # with what it started
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


class Tests:
    """The test programs, as {name: path}, of a plantation in `folder`, run in the folder `root`."""

    def __init__(self, programs, root, folder, jobs):
        self.programs, self.root, self.folder, self.jobs = programs, root, folder, jobs
        self.reaching = collections.defaultdict(list)  # number of a mutant -> cases
        self.traced = set()
        self.failed = []  # without any mutant: these say nothing

    def trace(self, programs):
        """Runs those of the programs that have not been traced yet once, with all mutants dead."""
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            list(pool.map(self._trace_program, sorted(set(programs) - self.traced)))
        self.traced |= set(programs)

    def _trace_program(self, program):
        file = self.folder / f"{program}.trace"
        file.unlink(missing_ok=True)
        run([self.programs[program], "--order", "decl"], self.root, 3600, {"GRADUS_MUTANT_TRACE": str(file)})
        for line in file.read_text().splitlines() if file.exists() else ():
            seconds, passed, numbers, name = line.split("\t", 3)
            case = Case(program, name, float(seconds))
            if passed != "1":
                self.failed.append(case)
                continue
            for number in map(int, numbers.split()):
                self.reaching[number].append(case)

    def verdict(self, number, programs, limit):
        """(verdict, which case or program, seconds): killed, survived, not reached, or, after `limit` seconds, late."""
        start = time.monotonic()
        batches = collections.defaultdict(list)  # short cases of a program run together, each long one alone
        for case in self.reaching.get(number, ()):
            if case.program in programs:
                batches[case.program, case.name if case.seconds >= SHORT else ""].append(case)
        if not batches:
            return "not reached", "", 0.0
        for cases in sorted(batches.values(), key=lambda cases: sum(case.seconds for case in cases)):
            program, expected = cases[0].program, sum(case.seconds for case in cases)
            if time.monotonic() - start > limit:
                return "late", program, time.monotonic() - start
            names = self.folder / f"{number}.cases"
            names.write_text("".join(f'"{re.sub(SPECIAL, BACKSLASHED, case.name)}"\n' for case in cases))
            status = run([self.programs[program], "--abort", "-f", names], self.root, 20 + 5 * expected,
                         {"GRADUS_MUTANT": str(number)})
            names.unlink()
            if status != 0:
                reason = "hangs" if status is None else f"signal {-status}" if status < 0 else f"status {status}"
                return "killed", f"{program} ({reason})", time.monotonic() - start
        return "survived", "", time.monotonic() - start
