#!/usr/bin/env python3
"""Reads the #includes of the tree and reports what breaks the dependency rules of the design.

usage: layering.py [ROOT]      Prints one line for each violation; exit status 1 if there are any.
"""

import pathlib
import re
import sys

# What each part may include. The longest matching prefix decides; a part not named here may include anything.
ALLOWED = {
    "core": ["core"],
    "backends/naive": ["core", "backends/naive"],
    "backends/openmp": ["core", "backends/naive", "backends/openmp"],
    "backends/cuda": ["core", "backends/cuda"],
    "backends/cudnn": ["core", "backends/cuda", "backends/cudnn"],
    "autograd": ["core", "autograd"],
    "layers": ["core", "autograd", "layers"],
    "optim": ["core", "autograd", "optim"],
    "data": ["core", "autograd", "data"],
    "graph": ["core", "graph"],
    "training": ["core", "graph", "autograd", "layers", "optim", "data", "distributed/comm", "training"],
    "inspect": ["core", "graph", "autograd", "layers", "optim", "distributed/comm", "inspect"],
    "onnx": ["core", "graph", "autograd", "layers", "onnx"],
    "distributed": ["core", "distributed", "autograd", "layers", "optim"],
    "distributed/comm": ["core", "distributed/comm"],
    "distributed/launcher": ["core", "distributed/comm", "distributed/elastic", "distributed/launcher"],
    "distributed/parallel": ["core", "distributed", "autograd", "layers", "optim"],
}

# Backends with a folder for each family of kernels, and the folders that all families share.
FAMILIES = {"backends/cuda": {"runtime", "device"}, "backends/openmp": {"simd"}}

# Where a kind of header, pragma or condition may stand: (pattern of the line, allowed prefixes, what to say).
RESTRICTED = [
    (
        re.compile(r"#\s*include\s*[<\"](cu(da|blas|dnn|rand|fft|sparse)|nccl|cooperative_groups|mma\.h|cub/|thrust/)"),
        ["backends/cuda", "backends/cudnn", "distributed/comm/nccl", "benchmarks/ladders"],
        "vendor headers stay under backends/cuda, backends/cudnn, distributed/comm/nccl and benchmarks/ladders",
    ),
    (
        re.compile(r"#\s*include\s*[<\"]mpi\.h"),
        ["distributed/comm/mpi", "benchmarks/all_reduce/open_mpi.cpp", "tests/mpi"],
        "mpi.h stays under distributed/comm/mpi",
    ),
    (
        re.compile(r"#\s*(el)?if.*\bGRADUS_WITH_"),
        ["distributed/comm/process_group_factory.cpp"],
        "#if GRADUS_WITH_ stands in the process-group factory alone",
    ),
    (
        re.compile(r"#\s*include\s*<((unistd|fcntl|dlfcn|sched|pthread|signal|dirent|poll|netdb|spawn|termios|malloc|"
                   r"ifaddrs|pwd|link)\.h|(sys|arpa|net|netinet|linux)/)|"
                   r"#\s*(el)?if.*\b(__linux__|__APPLE__|__FreeBSD__|__unix__|__GLIBC__|_WIN32)\b"),
        ["core/platform", "distributed/comm", "examples", "benchmarks", "tests",
         "distributed/launcher"],  # until its processes and signals have an interface in core/platform
        "the operating system is asked in core/platform and distributed/comm alone",
    ),
    (
        re.compile(r"#\s*(include\s*<omp\.h>|pragma\s+omp\s+(parallel|for|task|sections))"),
        ["core/parallel/parallel_openmp.cpp"],
        "threads are used through parallel_for alone",
    ),
]

FOLDERS = ["core", "backends", "autograd", "layers", "optim", "data", "training", "graph", "inspect", "onnx", "compat",
           "distributed", "examples", "benchmarks", "tests"]
SUFFIXES = {".h", ".cuh", ".cpp", ".cu"}
INCLUDE = re.compile(r"\s*#\s*include\s*([<\"])([^>\"]+)[>\"]")


def within(path, prefix):
    return path == prefix or path.startswith(prefix + "/")


def part_of(path):
    """The most specific part of ALLOWED that holds `path`, or None where there is no rule."""
    return max((part for part in ALLOWED if within(path, part)), key=len, default=None)


def family_of(path, backend):
    """The folder of the backend that holds `path`, "" for the files above them, None outside of it."""
    if not within(path, backend):
        return None
    return path[len(backend) + 1:].rpartition("/")[0]


def check_families(path, target):
    """A family includes what all share and what is its own; what is shared includes no family."""
    for backend, shared in FAMILIES.items():
        own, other = family_of(path, backend), family_of(target, backend)
        if own and other and other not in shared | {own}:
            return f"{backend}/{own} may include {' and '.join(sorted(shared))} of its backend, no other family"
    return None


def check_line(path, line):
    """Says what is wrong with one line of the file `path` (relative to the root), or None."""
    for pattern, places, message in RESTRICTED:
        if pattern.match(line.strip()) and not any(within(path, place) for place in places):
            return message
    include = INCLUDE.match(line)
    if not include:
        return None
    quote, name = include.groups()
    part = part_of(path)
    if part is None:
        return None
    if quote == '"':
        return "includes are root-relative: <gradus/folder/file.h>"
    if not name.startswith("gradus/"):
        return None
    target = name[len("gradus/"):]
    if any(within(target, allowed) for allowed in ALLOWED[part]):
        return check_families(path, target)
    return f"{part} may include only {', '.join(ALLOWED[part])}"


def violations(root):
    root = pathlib.Path(root)
    found = []
    files = [file for folder in FOLDERS for file in sorted((root / folder).rglob("*")) if file.suffix in SUFFIXES]
    for file in files + sorted(root.glob("*.h")):
        path = file.relative_to(root).as_posix()
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            message = check_line(path, line)
            if message:
                found.append(f"{path}:{number}: {line.strip()}: {message}")
    return found


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[2]
    found = violations(root)
    print("\n".join(found) if found else "layering: every #include keeps the rules")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
