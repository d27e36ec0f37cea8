#!/usr/bin/env python3
"""Measures the size of the library, room by room, and compares it with the budget in budget.txt.

usage: budget.py [--record] [ROOT]      Prints a table; exit status 1 if a number is above its ceiling.

budget.txt has two numbers for each measure: the goal, and the ceiling, which is the value when it was last recorded.
Ceilings may only fall: --record lowers each to today's value, but not below its goal, and raises none.

A line of code is a line that is not empty once comments are removed. Two measures keep lines from being saved by making
them denser: the mean length of a line, and the number of statements on 100 lines that have a statement. A line's length
is that without its indentation and without the text of strings. Lines without a word, directives of the preprocessor
and beginnings of namespaces are left out of the mean, so that joined files and longer paths do not change it.
Statements are semicolons outside of parentheses and the keywords if, for, while and switch.
"""

import argparse
import collections
import math
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
TABLE = pathlib.Path(__file__).with_name("budget.txt")

# The room of a file, by the beginning of its path; the longest that matches decides.
ROOMS = {
    "core/": "core",
    "gradus.h": "core",
    "backends/naive/": "naive",
    "backends/openmp/": "openmp",
    "backends/cuda/": "cuda",
    "backends/cudnn/": "cudnn",
    "autograd/": "autograd",
    "layers/": "layers",
    "optim/": "optim",
    "data/": "data",
    "training/": "training",
    "graph/": "graph",
    "inspect/": "inspect",
    "onnx/": "onnx",
    "compat/": "compat",
    "torch.h": "compat",
    "distributed/": "distributed",
}
KINDS = {
    "heart": ["core", "naive", "autograd", "layers", "optim", "data", "training"],
    "speed": ["openmp", "cuda", "cudnn", "graph"],
    "scale and tools": ["distributed", "inspect", "onnx", "compat"],
}
NOT_LIBRARY = re.compile(r"(benchmarks|docs|examples|scripts|tests)$|build|\.")
SUFFIXES = {".h", ".cuh", ".cpp", ".cu"}
MANY_FILES = 22  # "at most about twenty" files in a folder

# Numbers come first, because ' may separate their digits.
TOKEN = re.compile(
    r"""(?P<number>\b\d[\w.']*)
      | (?P<comment>//(?:\\\n|[^\n])*|/\*.*?\*/)
      | (?P<string>R"(?P<end>[^(\s]*)\(.*?\)(?P=end)"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')""", re.S | re.X)
MARK = re.compile(r"[(){}\[\]\n;]|(?<!#)\b(?:if|for|while|switch)\b")
HAS_LENGTH = re.compile(r"(?!#|namespace\b).*\w")


class Size(collections.namedtuple("Size", "files lines characters measured_lines statements lines_with_statements",
                                  defaults=(0,) * 6)):
    def __add__(self, other):
        return Size(*map(sum, zip(self, other)))

    def mean_length(self):
        return self.characters / max(self.measured_lines, 1)

    def density(self):
        return 100 * self.statements / max(self.lines_with_statements, 1)


def without_comments(text):
    def shortened(match):
        # A comment between two words separates them, and one of several lines leaves lines that are empty.
        return " " + "\n" * match[0].count("\n") if match["comment"] else match[0]

    return TOKEN.sub(shortened, text)


def without_strings(code):
    return TOKEN.sub(lambda match: '""' + "\n" * match[0].count("\n") if match["string"] else match[0], code)


def statements_of(code):
    """The number of statements on each line of code without comments and strings."""
    statements, brackets = [0], []
    for mark in MARK.findall(code):
        if mark == "\n":
            statements.append(0)
        elif mark in "([{":
            brackets.append(mark)
        elif mark in ")]}":
            if brackets:  # the parts of an #if may open and close brackets unevenly
                brackets.pop()
        elif mark != ";" or brackets[-1:] != ["("]:
            statements[-1] += 1
    return statements


def size_of(text):
    code = without_comments(text)
    lines = sum(1 for line in code.splitlines() if line.strip())
    plain = without_strings(code)
    lengths = [len(line.strip()) for line in plain.splitlines() if HAS_LENGTH.match(line.strip())]
    statements = [count for count in statements_of(plain) if count > 0]
    return Size(1, lines, sum(lengths), len(lengths), sum(statements), len(statements))


def room_of(path):
    """The room of a file, or None if no prefix of ROOMS matches."""
    return ROOMS.get(max((prefix for prefix in ROOMS if path.startswith(prefix)), key=len, default=None))


def library_files(root):
    for top in sorted(root.iterdir()):
        if not NOT_LIBRARY.match(top.name):
            for file in sorted(top.rglob("*")) if top.is_dir() else [top]:
                if file.suffix in SUFFIXES:
                    yield file.relative_to(root).as_posix()


def measure(root):
    """The size of each room, the number of files of each folder, and the files that belong to no room."""
    rooms, folders, homeless = collections.defaultdict(Size), collections.Counter(), []
    for path in library_files(root):
        room = room_of(path)
        if room is None:
            homeless.append(path)
        else:
            rooms[room] += size_of((root / path).read_text(encoding="utf-8"))
            folders[pathlib.PurePosixPath(path).parent.as_posix()] += 1
    return rooms, folders, homeless


def total(rooms, names):
    return sum((rooms[name] for name in names), Size())


def values_of(rooms, folders):
    """What budget.txt limits, in its order."""
    library = total(rooms, list(rooms))
    values = {f"lines of code: {kind}": total(rooms, names).lines for kind, names in KINDS.items()}
    values["files in the library"] = library.files
    values["files in the largest folder"] = max(folders.values(), default=0)
    values[f"folders of more than {MANY_FILES} files"] = sum(count > MANY_FILES for count in folders.values())
    values["mean length of a line"] = library.mean_length()
    values["statements on 100 lines"] = library.density()
    return values


def read_table(text):
    """measure -> (goal or None, ceiling) of the lines "MEASURE | GOAL | CEILING"; # begins a comment."""
    table = {}
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            name, goal, ceiling = (cell.strip() for cell in line.split("|"))
            table[name] = (None if goal == "-" else float(goal), float(ceiling))
    return table


def rounded_up(value):
    """As ceilings are written: whole numbers as they are, means with one digit."""
    return value if isinstance(value, int) else math.ceil(round(10 * value, 6)) / 10


def lowest_ceiling(value, goal):
    """A ceiling is no reason to stay below the goal."""
    return value if goal is None else max(value, goal)


def shown(value):
    return f"{value:,.1f}" if value % 1 else f"{value:,.0f}"


def table_of_rooms(rooms, folders):
    row = "{:<18}{:>7}{:>10}{:>13}{:>25}".format
    lines = [row("room", "files", "lines", "mean length", "statements on 100 lines")]

    def add(name, size):
        lines.append(row(name, size.files, shown(size.lines), f"{size.mean_length():.1f}", f"{size.density():.1f}"))

    for kind, names in KINDS.items():
        add(kind, total(rooms, names))
        for name in names:
            add("  " + name, rooms[name])
    add("all", total(rooms, list(rooms)))
    large = [f"{folder} {count}" for folder, count in folders.most_common() if count > MANY_FILES]
    return lines + [f"folders of more than {MANY_FILES} files: {', '.join(large) or 'none'}"]


def table_of_limits(values, limits):
    """The lines of the table, and what is wrong."""
    row = "{:<36}{:>9}{:>9}{:>9}  {}".format
    lines, wrong = [row("measure", "goal", "ceiling", "today", "").rstrip()], []
    for name in sorted(values.keys() ^ limits.keys()):
        wrong.append(f"budget.txt and budget.py do not both have the measure '{name}'")
    for name, value in values.items():
        goal, ceiling = limits.get(name, (None, math.inf))
        value, remark = rounded_up(value), ""
        if value > ceiling:
            remark = "above the ceiling"
            wrong.append(f"{name}: {shown(value)} is above the ceiling of {shown(ceiling)}")
        elif lowest_ceiling(value, goal) < ceiling:
            remark = "lower the ceiling: budget.py --record"
        elif goal is not None and value > goal:
            remark = f"{shown(value - goal)} above the goal"
        lines.append(row(name, "-" if goal is None else shown(goal), shown(ceiling), shown(value), remark).rstrip())
    return lines, wrong


def lowered(text, values):
    """budget.txt with its ceilings lowered as far as `values` and its goals allow."""
    limits, lines = read_table(text), []
    for line in text.splitlines():
        name, _, _ = map(str.strip, line.partition("|"))
        if name in limits and name in values:
            goal, ceiling = limits[name]
            ceiling = min(ceiling, lowest_ceiling(rounded_up(values[name]), goal))
            line = f"{line.rpartition('|')[0]}|{ceiling:>8g}"
        lines.append(line + "\n")
    return "".join(lines)


def report(root, table=TABLE):
    """The lines to print, and what is wrong."""
    rooms, folders, homeless = measure(root)
    limits, wrong = table_of_limits(values_of(rooms, folders), read_table(table.read_text(encoding="utf-8")))
    wrong += [f"{path}: no room of ROOMS in budget.py has this file" for path in homeless]
    return table_of_rooms(rooms, folders) + [""] + limits, wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="lower the ceilings of budget.txt to today's values")
    parser.add_argument("root", type=pathlib.Path, nargs="?", default=ROOT)
    options = parser.parse_args()
    if options.record:
        values = values_of(*measure(options.root)[:2])
        TABLE.write_text(lowered(TABLE.read_text(encoding="utf-8"), values), encoding="utf-8")
    lines, wrong = report(options.root)
    print("\n".join(lines + [f"budget: {message}" for message in wrong]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
