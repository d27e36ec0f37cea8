#!/usr/bin/env python3
"""Writes the source with all answers to an exercise that the tests check: the stub, the solution, and wrong ones.

    examples/exercises/common/answers.py FOLDER OUT

The stub is the solution (solution.h, or solution.cuh in CUDA) with its holes: lines from `// [hole] text` to `// [end]`,
where todo("text") stands.
A wrong answer is the solution with a mistake. wrong.txt tells the mistakes, each by its name and a part of what the check
must say of it, and by lines of the solution and what stands there instead (none: nothing does):

    assigned: used twice
    -->gradient += (*step)
    +->gradient = (*step)
"""

import pathlib
import subprocess
import sys

HOLE = pathlib.Path(__file__).with_name("hole.awk")


def mistakes(text):
    """(name, says, old, new) of each."""
    found = []
    for line in text.splitlines():
        if line.startswith("-") and found:
            found[-1][2].append(line[1:])
        elif line.startswith("+") and found:
            found[-1][3].append(line[1:])
        elif line:
            name, says = line.split(": ", 1)
            found.append((name, says, [], []))
    return [(name, says, "\n".join(old), "\n".join(new)) for name, says, old, new in found]


def stub_of(solution):
    """Returns the stub that hole.awk makes of the solution."""
    return subprocess.run(["awk", "-f", HOLE], input=solution, capture_output=True, text=True, check=True).stdout


def main():
    folder, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    file = next(folder.glob("solution.*"))
    solution = file.read_text()
    answers = [("stub", "", stub_of(solution)), ("solution", "", solution)]
    for name, says, old, new in mistakes((folder / "wrong.txt").read_text()):
        if solution.count(old) != 1:
            sys.exit(f"{folder / 'wrong.txt'}: {name}: the solution has {solution.count(old)} times, not once:\n{old}")
        answers.append((name, says, solution.replace(old, new)))

    # Includes must be outside of the namespaces.
    includes = {line.replace('"..', f'"{folder.parent}'): None for _, _, text in answers for line in text.splitlines()
                if line.startswith("#include ")}
    code = ['#include "answers.h"', *includes]
    for name, says, text in answers:
        code.append(f"namespace answer_{folder.name}_{name} {{")
        code += [line for line in text.splitlines() if not line.startswith("#include ")]
        code.append(f'#include "{folder / "check"}{file.suffix}"')
        code += [f'const exercise::Answer::Add added({{"{folder.name}", "{name}", check, R"({says})"}});', "}"]
    out.write_text("\n".join(code) + "\n")


if __name__ == "__main__":
    main()
