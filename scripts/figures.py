#!/usr/bin/env python3
"""Figures of the pages, from the files of results.

    scripts/figures.py [--check]     writes tables anew; --check only says what differs from its file

A comment before a table says which file of benchmarks/ it is made from, and how:

    <!-- figures: results/ddp_two_cores.json
    | {net} {batch} | {process_ms:.1f} | {ranks_ms / process_ms:.2f} |
    -->

Each record of the file makes a row: the line is a Python f-string that knows the record's fields. A cell whose field
the record lacks stays empty; a record without a first cell is left out. If the line contains `at(threads=2)`,
`each("{ms}", threads=2)` or `mean_of(function, threads=2)`, records with the same first cell make one row, and these
are the one record, or all records, of the row with such fields. The file's name may be followed by a key of the file
(instead of "rows") and by `if CONDITION`; `some` before it means that the page shows a selection of the rows. Several
lines that begin with `|` make rows each; `= EXPRESSION` gives whole rows. Files in results/tables/ keep cells as text,
as their raw output is lost, and need no line. A line that does not begin with `|` is a phrase of the paragraph behind
the comment.

`<!-- figures: not measured -->` precedes tables that are worked out or chosen. Everything else is counted:
docs/unsourced_figures.txt has the number of tables, and of numbers with a unit of time, rate or percent in the text,
that a page may have without a file. They may only become fewer.
"""

import itertools
import json
import operator
import pathlib
import re
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path += [str(ROOT / "benchmarks"), str(ROOT / "scripts" / "experiments")]

import comparison_table
import e1
import e10
import record
import thread_runtimes
import training

BUDGET = ROOT / "docs/unsourced_figures.txt"
PAGES = ["README.md", "CONTRIBUTING.md", "docs/**/*.md", "backends/*/README.md", "benchmarks/**/README.md",
         "examples/**/README.md"]


def number(of):
    """Three digits, of several rounds their median."""
    of = statistics.median(of) if isinstance(of, list) else of
    return f"{of:.3g}" if of < 1000 else f"{of:.0f}"


def speedups(records, wanted=lambda variant: True):
    """The least and the greatest of PyTorch's times by gradus's."""
    ratios = [comparison_table.best(row, "pytorch")[1] / comparison_table.best(row, "gradus", wanted)[1]
              for row in records if row["cudnn"]]
    return f"{min(ratios):.2g} to {max(ratios):.2g} times"


HELPERS = {
    "e1": e1, "training": training, "thread_runtimes": thread_runtimes, "formula": e10.formula,
    "best": comparison_table.best, "gpu_cells": comparison_table.gpu_cells, "speedups": speedups, "number": number,
    "cpu_cells": lambda row: comparison_table.cpu_cells(row, "fp32"), "median": statistics.median, "join": " | ".join,
    "records_of": lambda path: records_of(path), "size": lambda n: f"{n >> 20} MiB" if n >> 20 else f"{n >> 10} KiB",
    "ratio": lambda row, slower, faster: statistics.median(map(operator.truediv, row[slower], row[faster])),
    "gradus_pytorch": lambda row: f"{1e3 * row.gradus_ms:.0f} / {1e3 * row.pytorch_ms:.0f}",
}
# Pages whose tables other scripts make and check: scripts/support.py and benchmarks/simulator/simulate.py.
MADE_ELSEWHERE = ["docs/support.md", "docs/scaling_on_paper.md"]
UNIT = re.compile(r"\d (?:ns|us|µs|ms|s|%|[KMGT]B/s|[GT]FLOP/s|times)(?![\w/])")
# A block of code, a comment, a table or a paragraph.
BLOCK = re.compile(r"^ *```.*?^ *```$|^ *<!--.*?-->|(?:^ *\|[^\n]*\n?)+|(?:^(?! *(?:```|<!--|\|))[^\n]+\n?)+",
                   re.M | re.S)


class Record(dict):
    """A record whose fields are attributes."""

    def __getattr__(self, name):
        return self[name]


def records_of(path, key="rows"):
    if "+" in path:
        return [one for part in path.split("+") for one in records_of(part, key)]
    file = ROOT / "benchmarks" / path
    if file.parent.name == "experiments":
        newest = {(run["row"], run.get("seed")): run for run in record.Runs(file.stem, file.parent).runs()}
        return json.loads(json.dumps(list(newest.values())), object_hook=Record)
    text = file.read_text(encoding="utf-8")
    if text.startswith('{"'):  # a record on each line
        return [json.loads(line, object_hook=Record) for line in text.splitlines()]
    found = json.loads(text, object_hook=Record)
    found = found[key] if isinstance(found, dict) else found
    return found["rows"] if isinstance(found, dict) else found


def expand(template, records):
    """The template for records with the same first cell; fields are the first record's that has them."""
    def matching(fields):
        return [one for one in records if fields.items() <= {**one, **one.get("figures", {})}.items()]

    names = dict(HELPERS)
    for one in reversed(records):
        names |= one
    names |= {"at": lambda **fields: matching(fields)[0], "record": records[0], "records": records,
              "each": lambda text, **fields: " / ".join(expand(text, [one]) for one in matching(fields)),
              "mean_of": lambda figure, **fields: statistics.mean(map(figure, matching(fields)))}
    try:
        return eval(f"f'''{template}'''", names)
    except (LookupError, NameError, statistics.StatisticsError):
        return ""


def rows_of(source, template):
    """The lines of a table that its comment describes."""
    source, _, condition = source.removeprefix("some ").partition(" if ")
    records = records_of(*source.split())
    if template.startswith("="):
        return eval(template[1:], HELPERS | {"records": records})
    records = [one for one in records if not condition or eval(condition, HELPERS | one)]
    rows = [] if template else records
    for line in re.split(r"(?<=\|)\n(?=\|)", template) if template else []:
        cells, groups = [cell.strip() for cell in line.replace("\n", " ")[1:-1].split("|")], {}
        joined = "+" in source or re.search(r"\b(at|each|mean_of)\(", line)
        for index, one in enumerate(records):
            first = expand(cells[0], [one])
            groups.setdefault((first, not joined and index), []).append(one)
        rows += [[expand(cell, group) for cell in cells] for (first, _), group in groups.items() if first]
    return ["|" + "".join(f" {cell} |" if cell else " |" for cell in row) for row in rows]


def is_measured(body):
    """A table most of whose cells, beside the first of each row, begin with a number."""
    cells = [cell.strip() for line in body for cell in line.strip().strip("|").split("|")[1:]]
    return sum(bool(re.match(r"[-+]?\d", cell)) for cell in cells) > len(cells) / 2


def filled(text):
    """The page with what the files say; what differed; rows that have a file; tables and numbers that have none."""
    problems, counts, source, template = [], [0, 0, 0], "", ""

    def block(match):
        nonlocal source, template
        found = match[0]
        words = " ".join(found.split())
        if words.startswith("<!-- figures:"):
            comment = found.strip().removeprefix("<!-- figures:").removesuffix("-->").strip()
            source, _, template = comment.partition("\n")
        elif words.startswith("|"):
            head, body = found.splitlines()[:2], found.splitlines()[2:]
            if not source:
                counts[1] += is_measured(body)
            elif source != "not measured":
                rows = rows_of(source, template)
                if source.startswith("some "):
                    named = {row.split(" | ")[0]: row for row in rows}
                    rows = [named.get(row.split(" | ")[0], f"no such row in {source}") for row in body]
                problems.extend(f"{now}\n   should be: {then}" for now, then in itertools.zip_longest(body, rows)
                                if now != then)
                counts[0] += len(rows)
                found = "\n".join([*head, *rows]) + "\n"
            source = ""
        elif not words.startswith(("<!--", "```")):
            if source and source != "not measured":
                phrase = expand(template.replace("\n", " "), records_of(*source.split()))
                if not phrase or phrase not in words:
                    problems.append(f"the paragraph should have: {phrase}")
                counts[0] += 1
                words = words.replace(phrase, "")
            counts[2] += len(UNIT.findall(words)) if source != "not measured" else 0
            source = ""
        return found

    return BLOCK.sub(block, text), problems, counts


def main():
    check, failed, budget, rows = "--check" in sys.argv[1:], False, [], 0
    allowed = {page: numbers for page, *numbers in map(str.split, BUDGET.read_text().splitlines())}
    for path in sorted({path for pattern in PAGES for path in ROOT.glob(pattern)}):
        page, text = str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
        new, problems, (covered, *unsourced) = filled(text)
        rows += covered
        if page in MADE_ELSEWHERE:
            continue
        limits = [int(most) for most in allowed.get(page, (0, 0))]
        for what, count, most in zip(("tables", "numbers in the text"), unsourced, limits):
            if count > most:
                problems.append(f"{count} {what} without a file of results, docs/unsourced_figures.txt allows {most}: "
                                "store what was measured in benchmarks/results/ and name it (scripts/figures.py)")
        if any(fewer := [*map(min, unsourced, limits)]):
            budget.append(" ".join([page, *map(str, fewer)]) + "\n")
        if check or new == text:
            print("".join(f"{page}: {problem}\n" for problem in problems), end="")
            failed |= bool(problems)
        else:
            path.write_text(new, encoding="utf-8")
    if not check:
        BUDGET.write_text("".join(budget), encoding="utf-8")
    print(f"{rows} rows and phrases are those of their files")
    sys.exit(failed)


if __name__ == "__main__":
    main()
