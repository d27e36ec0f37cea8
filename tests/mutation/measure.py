"""Runs test programs: once to see which case reaches which mutant, then for each mutant the cases that reach it."""

import collections
import contextlib
import dataclasses
import os
import re
import resource
import signal
import subprocess
import time

MEMORY = 12 << 30  # bytes of address space; a mutant that asks for more fails
SPECIAL, BACKSLASHED = r'([\\,"])', r"\\\1"  # of Catch2's filters, inside quotes
BATCH = 1.0  # seconds: the cases of one process take no longer, unless it has a single case
PATIENCE = 10  # seconds; a process hangs if it takes that much more than five times its expected time
PARTS = 8  # processes that trace one program; side by side, because some cases wait for ranks and deadlines


@dataclasses.dataclass(frozen=True)
class Case:
    program: str
    name: str
    seconds: float


def start(command, root, variables):
    """Starts a test program, which may end all processes of its group without harm."""
    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    return subprocess.Popen(command, cwd=root, env={**os.environ, **variables}, stdin=subprocess.DEVNULL,
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
                            preexec_fn=limit)


def kill(process):
    """Ends a process and what it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def run_all(commands, root, variables, jobs):
    """Runs commands [(words, seconds that each may take)], `jobs` at a time, in this order.

    Yields (words, exit status) of each that ends; the status is None if its time was over. Closing the generator kills
    the commands that are still running.
    """
    waiting, running = collections.deque(commands), {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                words, seconds = waiting.popleft()
                running[start(words, root, variables)] = words, time.monotonic() + seconds
            time.sleep(0.005)
            for process, (words, end) in list(running.items()):
                status = process.poll()
                if status is not None or time.monotonic() > end:
                    kill(process)
                    del running[process]
                    yield words, status
    finally:
        for process in running:
            kill(process)


def batches(cases):
    """Divides the cases into lists, one for each process: of one program, and of at most BATCH seconds, or a long case.

    Lists of short cases come first.
    """
    lists = []
    for program in sorted({case.program for case in cases}):
        batch, total = [], 0.0
        for case in sorted((case for case in cases if case.program == program), key=lambda case: case.seconds):
            if batch and total + case.seconds > BATCH:
                lists.append(batch)
                batch, total = [], 0.0
            batch.append(case)
            total += case.seconds
        lists.append(batch)
    return sorted(lists, key=lambda batch: batch[-1].seconds)


class Tests:
    """The test programs, as {name: path}, of a plantation in `folder`, run in the folder `root`."""

    def __init__(self, programs, root, folder, jobs):
        self.programs, self.root, self.folder, self.jobs = programs, root, folder, jobs
        self.reaching = collections.defaultdict(list)  # number of a mutant -> cases
        self.traced = set()
        self.failed = []  # without any mutant: these say nothing

    def trace(self, programs):
        """Runs those of the programs that have not been traced yet once, with all mutants dead."""
        parts = []
        for program in sorted(set(programs) - self.traced):
            names = self._case_names(program)
            parts += [(program, self._select(f"{program}.{part}", names[part::PARTS]))
                      for part in range(min(PARTS, len(names)))]
        self.traced |= set(programs)
        commands = [(["env", f"GRADUS_MUTANT_TRACE={names}.trace", self.programs[program], "-f", names], 3600)
                    for program, names in parts]
        for _ in run_all(commands, self.root, {}, self.jobs):
            pass
        for program, names in parts:
            self._read_trace(program, names.with_name(names.name + ".trace"))

    def verdict(self, number, programs):
        """(verdict, which program, seconds) of a mutant: killed, survived or not reached."""
        begin = time.monotonic()
        cases = [case for case in self.reaching.get(number, ()) if case.program in programs]
        if not cases:
            return "not reached", "", 0.0
        commands, program_of = [], {}
        for index, batch in enumerate(batches(cases)):
            names = self._select(f"{number}.{index}", [case.name for case in batch])
            commands.append(([self.programs[batch[0].program], "--abort", "-f", names],
                             PATIENCE + 5 * sum(case.seconds for case in batch)))
            program_of[names] = batch[0].program
        with contextlib.closing(run_all(commands, self.root, {"GRADUS_MUTANT": str(number)}, self.jobs)) as ended:
            for words, status in ended:
                if status != 0:
                    reason = "hangs" if status is None else f"signal {-status}" if status < 0 else f"status {status}"
                    return "killed", f"{program_of[words[-1]]} ({reason})", time.monotonic() - begin
        return "survived", "", time.monotonic() - begin

    def _case_names(self, program):
        for options in (["--list-test-names-only"], ["--list-tests", "--verbosity", "quiet"]):  # Catch2 2, Catch2 3
            listing = subprocess.run([self.programs[program], *options], cwd=self.root, capture_output=True, text=True,
                                     check=False)
            if listing.stdout:
                return listing.stdout.splitlines()
        raise RuntimeError(f"{program} lists no test cases:\n{listing.stderr}")

    def _select(self, file, names):
        """The path of a new file that selects the cases with these names."""
        path = self.folder / f"{file}.cases"
        path.write_text("".join(f'"{re.sub(SPECIAL, BACKSLASHED, name)}"\n' for name in names))
        return path

    def _read_trace(self, program, file):
        for line in file.read_text().splitlines() if file.exists() else ():
            seconds, passed, numbers, name = line.split("\t", 3)
            case = Case(program, name, float(seconds))
            if passed != "1":
                self.failed.append(case)
                continue
            for number in map(int, numbers.split()):
                self.reaching[number].append(case)
