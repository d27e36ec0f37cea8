#!/usr/bin/env python3
"""Writes docs/support.md: which of LibTorch's operators and modules gradus has, with which overloads and options.

usage: scripts/support.py BUILD/tests/test_ops [--check]
       scripts/support.py --probes FILE.cpp

Names come from tests/support/libtorch.txt. A name is there if an op case runs it (the test program lists them) or a
public header declares it; it is covered if all of its overloads and options compile besides. The build asks for the
latter with --probes: the file, a part of the test program, lists those that do. With --check nothing is written, and a
page that is out of date is an error.
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
TESTS = ROOT / "tests/support/pytorch_tests.md"  # what PyTorch's own tests say, counted by hand: the page's last section
HEADERS = ("autograd/**/*.h", "layers/**/*.h", "optim/*.h", "data/**/*.h", "training/*.h",
           "inspect/**/*.h", "onnx/export.h", "core/*.h", "core/array/*.h", "core/runtime/*.h", "core/parallel/*.h")
KERNELS = (ROOT / "core/backend.h", ROOT / "core/backend_interceptor.h")  # no operators of users


# What stands for a parameter of each type in a probe; int[2] is {1, 1}. x depends on a template parameter.
ARGUMENTS = {
    "Tensor": "x", "Tensor?": "x", "Tensor[]": "std::vector<T>{x}", "Tensor?[]": "std::vector<gradus::TensorIndex>{x}",
    "Scalar": "0.5", "Scalar?": "std::optional<gradus::Scalar>(0.5)", "int": "int64_t{1}",
    "int?": "std::optional<int64_t>(1)", "int[]": "gradus::IntArrayRef{1}", "int[]?": "gradus::IntArrayRef{1}",
    "bool": "true", "bool?": "std::optional<bool>(true)", "float": "0.5", "float?": "std::optional<double>(0.5)",
    "float[]?": "std::optional<std::vector<double>>()", "ScalarType": "gradus::kFloat",
    "ScalarType?": "std::optional<gradus::DType>()", "options": "gradus::TensorOptions()", "Device": "gradus::Device()",
    "MemoryFormat": "gradus::MemoryFormat::contiguous", "MemoryFormat?": "std::optional<gradus::MemoryFormat>()",
    "str": "std::string_view()", "str?": "std::optional<std::string_view>()", "reduction": "gradus::Reduction::mean",
}

PROBES = """// Written by scripts/support.py --probes.
#include <cstdlib>
#include <fstream>

#include <gradus/tests/catch.h>
#include <gradus/torch.h>

// A name that is nowhere else is in here, so that it can be asked for.
namespace absent {{
struct Never;
{absent}
}}
namespace here {{
using namespace torch;
using namespace absent;
}}

TEST_CASE("list the overloads", "[.]") {{
  const char* path = std::getenv("GRADUS_OVERLOAD_LIST");
  REQUIRE(path);
  std::ofstream list(path);
  const auto add = [&](const char* probe, bool compiles) {{ if (compiles) list << probe << '\\n'; }};
  const gradus::Tensor tensor;
{probes}
}}
"""


def argument(kind):
    size = re.fullmatch(r"int\[(\d)\]\??", kind)
    return f"{{{', '.join('1' * int(size[1]))}}}" if size else ARGUMENTS[kind]


def probe_of_overload(name, kinds):
    """True where a function or a method of that name takes arguments of these types."""
    given = [argument(kind) for kind in kinds]
    if not any("Tensor" in kind for kind in kinds):
        given[0] = f"std::type_identity_t<std::conditional_t<sizeof(T) != 0, decltype({given[0]}), T>>({given[0]})"
    calls = [f"here::{name}({', '.join(given)})"]
    if kinds[0] == "Tensor":
        calls += [f"x.{method}({', '.join(given[1:])})" for method in (name, f"{name}_")]
    found = " || ".join(f"requires {{ {call}; }}" for call in calls)
    return f"[]<class T>([[maybe_unused]] const T& x) {{ return {found}; }}(tensor)"


def probe_of_option(namespace, struct, option):
    return f"[]<class O>(std::type_identity<O>) {{ return requires(O o) {{ o.{option}(); }}; }}" \
           f"(std::type_identity<{namespace}::{struct}>())"


def probes_of(sections, code):
    """The C++ file that lists which overloads and options there are, by the keys of read_names."""
    absent, probes = set(), []
    for section, names in sections:
        namespace = "torch::nn" if section == "nn" else "torch::nn::functional"
        for name, here, _, parts in names:
            for key, part in parts.items():
                if section.startswith("Operators") and here.islower():
                    absent.add(f"void {here}(Never);")
                    probes.append(f'  add("{key}", {probe_of_overload(here, part.split())});')
                elif not section.startswith("Operators") and re.search(rf"\b{part.split()[0]}\b", code):
                    probes.append(f'  add("{key}", {probe_of_option(namespace, *part.split())});')
    return PROBES.format(absent="\n".join(sorted(absent)), probes="\n".join(probes))


def listed(test_ops, case, variable):
    """What a test case of the program writes into the file that the variable names."""
    with tempfile.NamedTemporaryFile() as file:
        environment = {**os.environ, variable: file.name}
        environment.pop("GRADUS_OP_CASES", None)
        subprocess.run([test_ops, case], check=True, stdout=subprocess.DEVNULL, env=environment)
        return file.read().decode()


def op_cases(test_ops):
    """The operators that have cases."""
    cases = json.loads(listed(test_ops, "list the op cases", "GRADUS_OP_CASE_LIST"))
    return {case["name"].partition(".")[0] for case in cases}


def code_of(patterns):
    """All code in the files, without comments and strings."""
    text = "\n".join(path.read_text() for pattern in patterns for path in sorted(ROOT.glob(pattern))
                     if path not in KERNELS)
    return re.sub(r'//.*|"(?:\\.|[^"\\\n])*"', "", text)


def functions(text):
    """What the headers declare: a name behind a type and before a parenthesis."""
    return set(re.findall(r"^[ \w:<>,&*\[\]]*[\w>&*] +[&*]?(\w+)\(", text, flags=re.M))


def types(text):
    """Classes and module holders that the headers define."""
    return set(re.findall(r"(?:class|struct|using|GRADUS_(?:MODULE|LAYER)\()\s*(\w+)", text))


def read_names(text):
    """[(section, [(name, name here, difference, {key of an overload or option: it})])]"""
    sections = []
    for line in text.splitlines():
        if line.startswith("["):
            sections.append((line.strip("[]"), []))
        elif line and not line.startswith("#"):
            head, _, difference = line.partition(" ~ ")
            head, _, parts = head.partition(" : ")
            name, _, here = (word.strip() for word in head.partition("="))
            section = sections[-1][0]
            if section.startswith("Operators"):
                parts = [part.strip() for part in parts.split("|") if part]
            else:  # a struct and its options
                struct, *options = parts.split() or [""]
                parts = [f"{struct} {option}" for option in options]
            keyed = {f"{section} {name} {part}": part for part in parts}
            sections[-1][1].append((name, here or name, difference.strip(), keyed))
    return sections


def page_of(sections, cases, declared, compiling):
    parts, counts = [], []
    for section, names in sections:
        compared, covered, differing, missing, total = [], [], [], [], [0, 0]
        operators = section.startswith("Operators")
        for name, here, difference, keyed in names:
            is_compared = here in cases or f"{here}_" in cases
            if not is_compared and here not in declared:
                missing.append(f"`{name}`")
                continue
            without = [part if operators else part.split()[1] for key, part in keyed.items() if key not in compiling]
            total = [total[0] + len(keyed) - len(without), total[1] + len(keyed)]
            label = f"`{name}`" if here == name else f"`{name}` (`{here}`)"
            if without:
                lacks = ", ".join(f"`({', '.join(part.split())})`" if operators else f"`{part}`" for part in without)
                difference = "; ".join(filter(None, [difference, f"no {lacks}"]))
            if difference:
                differing.append(f"| {label} | {difference} |")
            else:
                (compared if is_compared else covered).append(label)
        count = len(compared) + len(covered)
        overloads = f"{total[0]} of {total[1]}" if total[1] else ""
        counts.append(f"| [{section}](#{anchor(section)}) | {count} | {len(differing)} | {len(missing)} "
                      f"| {overloads} |")
        parts.append(f"## {section}\n")
        if compared:
            parts.append(f"**Covered, compared with PyTorch case by case**: {', '.join(compared)}\n")
        if covered:
            parts.append(f"**{'Also covered' if compared else 'Covered'}**: {', '.join(covered)}\n")
        if differing:
            parts.append("\n".join(["| differing | how |", "|---|---|", *differing]) + "\n")
        if missing:
            parts.append(f"**Missing**: {', '.join(missing)}\n")
    known = {word for _, names in sections for entry in names for word in entry[:2]}
    own = sorted(case for case in cases if case not in known and case.rstrip("_") not in known)
    head = [
        "<!-- Written by scripts/support.py from the op cases, the tests and tests/support/libtorch.txt. -->",
        "# What gradus has of LibTorch\n",
        "Compared operators are tested on every backend, element type and layout against PyTorch's numbers, including",
        "their derivatives. A name in parentheses is the name in gradus. Overloads are distinguished by the types of",
        "their parameters, as in LibTorch's schemas (`int[2]`: two numbers; `?`: optional). A covered operator has all",
        "of its overloads, a covered module or function all of its options. Named dimensions, generators and `out`",
        "are left out.\n",
        "| | covered | differing | missing | overloads or options |",
        "|---|---|---|---|---|",
        *counts,
        "",
        f"Operators with names that LibTorch does not have: {', '.join(f'`{name}`' for name in own)}.\n",
    ]
    return "\n".join(head + parts)


def anchor(heading):
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("test_ops", nargs="?")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--probes", type=pathlib.Path)
    options = parser.parse_args()
    sections, headers = read_names(NAMES.read_text()), code_of(HEADERS)
    if options.probes:
        return options.probes.write_text(probes_of(sections, headers))
    if not options.test_ops:
        parser.error("the test program, or --probes")
    compiling = set(listed(options.test_ops, "list the overloads", "GRADUS_OVERLOAD_LIST").splitlines())
    page = page_of(sections, op_cases(options.test_ops), functions(headers) | types(headers), compiling)
    page += "\n" + TESTS.read_text()
    if not options.check:
        PAGE.write_text(page)
    elif not PAGE.exists() or PAGE.read_text() != page:
        sys.exit(f"docs/support.md is out of date; run: scripts/support.py {options.test_ops}")


if __name__ == "__main__":
    main()
