#!/usr/bin/env python3
"""How tests/mutation runs test programs: which cases together, what ends a run, and when no more mutants are judged."""

import contextlib
import io
import pathlib
import sys
import tempfile
import time
import types
import unittest
import unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import measure  # noqa: E402
import mutate  # noqa: E402
from measure import Case  # noqa: E402

# A test program of three cases: both "short" ones reach mutant 1, which the second notices; "long, \"slow\"" reaches
# mutants 1 and 2, and hangs with mutant 2.
PROGRAM = r"""#!/bin/sh
if [ "$1" = --list-test-names-only ]; then
  printf '%s\n' 'short 1' 'short 2' 'long, "slow"'
  exit 3
fi
for file; do :; done
if [ -n "$GRADUS_MUTANT_TRACE" ]; then
  grep -q 'short 1' "$file" && printf '0.1\t1\t1 \tshort 1\n' >> "$GRADUS_MUTANT_TRACE"
  grep -q 'short 2' "$file" && printf '0.1\t1\t1 \tshort 2\n' >> "$GRADUS_MUTANT_TRACE"
  grep -qF '"long\, \"slow\""' "$file" && printf '1.1\t1\t1 2 4 \tlong, "slow"\n' >> "$GRADUS_MUTANT_TRACE"
  exit 0
fi
grep -q 'short 2' "$file" && [ "$GRADUS_MUTANT" = 1 ] && exit 42
grep -q 'slow' "$file" && [ "$GRADUS_MUTANT" != 4 ] && sleep 60
exit 0
"""


class MeasureTest(unittest.TestCase):
    def test_short_cases_of_a_program_run_together_and_first(self):
        cases = [Case("a", "long", 3.0), Case("a", "1", 0.5), Case("b", "2", 0.1), Case("a", "3", 0.4),
                 Case("a", "4", 0.2), Case("c", "5", 0.0)]
        self.assertEqual([[case.name for case in batch] for batch in measure.batches(cases)],
                         [["5"], ["2"], ["4", "3"], ["1"], ["long"]])

    def test_runs_are_side_by_side_and_end_with_their_status_or_their_time(self):
        commands = [(["sleep", "60"], 0.2), (["false"], 60), (["true"], 60), (["sh", "-c", "kill -9 $$"], 60)]
        ended = {words[-1]: status for words, status in measure.run_all(commands, "/", {}, 2)}
        self.assertEqual(ended, {"60": None, "false": 1, "true": 0, "kill -9 $$": -9})

    def test_closing_kills_the_runs_and_what_they_started(self):
        with tempfile.TemporaryDirectory() as folder:
            alive = pathlib.Path(folder) / "alive"
            command = ["sh", "-c", "(while :; do touch $ALIVE; sleep 0.02; done) & wait"]
            commands = [(command, 60), (["sh", "-c", "while [ ! -e $ALIVE ]; do sleep 0.02; done"], 60)]
            with contextlib.closing(measure.run_all(commands, "/", {"ALIVE": str(alive)}, 2)) as ended:
                self.assertEqual(next(ended)[1], 0)
            alive.unlink()
            time.sleep(0.2)
            self.assertFalse(alive.exists())

    def test_verdicts(self):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder) / "test_x"
            program.write_text(PROGRAM)
            program.chmod(0o755)
            tests = measure.Tests({"test_x": program}, folder, pathlib.Path(folder), 2)
            tests.trace(["test_x"])
            self.assertEqual(sorted(case.name for case in tests.reaching[1]), ['long, "slow"', "short 1", "short 2"])
            verdicts = [tests.verdict(number, ["test_x"])[:2] for number in (1, 3, 4)]
            with unittest.mock.patch.object(measure, "PATIENCE", -5):  # the hang is noticed after 5 * 1.1 - 5 seconds
                verdicts.append(tests.verdict(2, ["test_x"])[:2])
        self.assertEqual(verdicts, [("killed", "test_x (status 42)"), ("not reached", ""), ("survived", ""),
                                    ("killed", "test_x (hangs)")])

    def test_when_the_time_is_over_no_mutant_is_judged_but_the_first_ones(self):
        statement = types.SimpleNamespace(first=0, last=0)
        drawn = {number: ("data", types.SimpleNamespace(path="data/x.cpp", line=1, rule="sign", identity=str(number),
                                                       statement=statement)) for number in range(1, 26)}
        sources = {"data/x.cpp": types.SimpleNamespace(tokens=[], range_text=lambda first, last: "")}

        def judged(end):
            numbers = []
            tests = types.SimpleNamespace(
                trace=lambda programs: None,
                verdict=lambda number, programs: (numbers.append(number), ("killed", "test_data", 0.0))[1])
            with contextlib.redirect_stdout(io.StringIO()):
                results = mutate.judge_all(tests, ["data"], drawn, sources, end)
            self.assertEqual([result["verdict"] for result in results],
                             ["killed"] * len(numbers) + ["late"] * (len(drawn) - len(numbers)))
            late, score = mutate.table(results, ["data"])[-1].split()[-3:-1]
            self.assertEqual((int(late), score), (len(drawn) - len(numbers), "100.0"))
            return numbers

        self.assertEqual(judged(time.monotonic() - 1), list(range(1, mutate.LEAST + 1)))
        self.assertEqual(judged(time.monotonic() + 3600), list(range(1, 26)))


if __name__ == "__main__":
    unittest.main()
