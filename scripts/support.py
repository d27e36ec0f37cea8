#!/usr/bin/env python3
"""Writes docs/support.md: which of LibTorch's operators and modules gradus has.

usage: scripts/support.py BUILD/tests/test_ops [--check]

Names come from tests/support/libtorch.txt. A name is covered if an op case runs it (the test program lists them) or a public
header declares it. With --check nothing is written, and a page that is out of date is an error.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
NAMES, PAGE = ROOT / "tests/support/libtorch.txt", ROOT / "docs/support.md"
HEADERS = ("autograd/*.h", "autograd/ops/*.h", "layers/*.h", "optim/*.h", "data/*.h", "training/*.h", "core/*.h")
KERNELS = ROOT / "core/backend.h"  # no operators of users


def op_cases(test_ops):
    """The operators that have cases."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        environment = {**os.environ, "GRADUS_OP_CASE_LIST": file.name}
        environment.pop("GRADUS_OP_CASES", None)
        subprocess.run([test_ops, "list the op cases"], check=True, stdout=subprocess.DEVNULL, env=environment)
        return {case["name"].partition(".")[0] for case in json.load(open(file.name, encoding="utf-8"))}


def code_of(patterns):
    """All code in the files, without comments and strings."""
    text = "\n".join(path.read_text() for pattern in patterns for path in sorted(ROOT.glob(pattern))
                     if path != KERNELS)
    return re.sub(r'//.*|"(?:\\.|[^"\\\n])*"', "", text)


def functions(text):
    """What the headers declare: a name behind a type and before a parenthesis."""
    return set(re.findall(r"^[ \w:<>,&*\[\]]*[\w>&*] +[&*]?(\w+)\(", text, flags=re.M))


def types(text):
    """Classes and module holders that the headers define."""
    return set(re.findall(r"(?:class|struct|using|GRADUS_MODULE\()\s*(\w+)", text))


def read_names(text):
    """[(section, [(name, name here, difference)])]"""
    sections = []
    for line in text.splitlines():
        if line.startswith("["):
            sections.append((line.strip("[]"), []))
        elif line and not line.startswith("#"):
            head, _, difference = line.partition("~")
            name, _, here = head.partition("=")
            sections[-1][1].append((name.strip(), here.strip() or name.strip(), difference.strip()))
    return sections


def page_of(sections, cases, declared):
    parts, counts = [], []
    for section, names in sections:
        compared, covered, differing, missing = [], [], [], []
        for name, here, difference in names:
            is_compared = here in cases or f"{here}_" in cases
            if not is_compared and here not in declared:
                missing.append(f"`{name}`")
            elif difference:
                differing.append(f"| `{name}` | {difference} |")
            else:
                (compared if is_compared else covered).append(f"`{name}`" if here == name else f"`{name}` (`{here}`)")
        count = len(compared) + len(covered)
        counts.append(f"| [{section}](#{anchor(section)}) | {count} | {len(differing)} | {len(missing)} |")
        parts.append(f"## {section}\n")
        if compared:
            parts.append(f"**Covered, compared with PyTorch case by case**: {', '.join(compared)}\n")
        if covered:
            parts.append(f"**{'Also covered' if compared else 'Covered'}**: {', '.join(covered)}\n")
        if differing:
            parts.append("\n".join(["| differing | how |", "|---|---|", *differing]) + "\n")
        if missing:
            parts.append(f"**Missing**: {', '.join(missing)}\n")
    known = {here for _, names in sections for _, here, _ in names} | {name for _, names in sections for name, _, _ in names}
    own = sorted(case for case in cases if case not in known and case.rstrip("_") not in known)
    head = [
        "<!-- Written by scripts/support.py from the op cases, the tests and tests/support/libtorch.txt. -->",
        "# What of LibTorch there is\n",
        "Operators that are compared run on every backend, element type and layout against the numbers that PyTorch gives,",
        "with their derivatives. A name in parentheses is the one it has here.\n",
        "| | covered | differing | missing |",
        "|---|---|---|---|",
        *counts,
        "",
        f"Cases of operators under names that LibTorch does not have: {', '.join(f'`{name}`' for name in own)}.\n",
    ]
    return "\n".join(head + parts)


def anchor(heading):
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("test_ops")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    headers = code_of(HEADERS)
    page = page_of(read_names(NAMES.read_text()), op_cases(options.test_ops), functions(headers) | types(headers))
    if not options.check:
        PAGE.write_text(page)
    elif not PAGE.exists() or PAGE.read_text() != page:
        sys.exit(f"docs/support.md is out of date; run: scripts/support.py {options.test_ops}")


if __name__ == "__main__":
    main()
