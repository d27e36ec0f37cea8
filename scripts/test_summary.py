#!/usr/bin/env python3
"""How many test cases of a build's last ctest run passed, failed and were skipped, and what the skipped ones lacked.

usage: scripts/test_summary.py BUILD_DIR

A case may be skipped for what this build or machine lacks, and for nothing else: a skip for what is there, or for a
reason that is not listed here, makes the exit status 1.
"""

import argparse
import collections
import glob
import os
import pathlib
import re
import shutil
import subprocess
import sys

CATCH = re.compile(r"^cases: (\d+) passed, (\d+) failed, (\d+) skipped", re.M)  # tests/catch_main.cpp prints it
UNITTEST = re.compile(r"^Ran (\d+) tests? in [^\n]*\n+(?:OK|FAILED)(?: \((.*)\))?", re.M)
SKIPS = re.compile(r"^skipped for want of (.+?): |skipped ['\"](?:for want of )?(.+)['\"]$", re.M)


class Counts(collections.namedtuple("Counts", "passed failed skipped")):
    def __add__(self, other):
        return Counts(*map(sum, zip(self, other)))


def counts_of(output, passed):
    """The cases of one ctest test, from what it printed; itself, where it is not made of cases."""
    total = Counts(0, 0, 0)
    for groups in CATCH.findall(output):
        total += Counts(*map(int, groups))
    for ran, details in UNITTEST.findall(output):
        number = {name: int(count) for name, count in re.findall(r"(\w+)=(\d+)", details)}
        failed, skipped = number.get("failures", 0) + number.get("errors", 0), number.get("skipped", 0)
        total += Counts(int(ran) - failed - skipped, failed, skipped)
    if sum(total) == 0:
        return Counts(int(passed), int(not passed), 0)
    return total if passed or total.failed else total + Counts(0, 1, 0)  # it ended badly behind its last case


def read_log(text):
    """The counts of all tests of a LastTest.log, and how often each want was given for a skip."""
    total, wants = Counts(0, 0, 0), collections.Counter()
    for test in re.split(r"^\d+/\d+ Testing: .*$", text, flags=re.M)[1:]:
        output, _, end = test.partition("<end of output>")
        total += counts_of(output, re.search(r"^Test Passed\.", end, re.M) is not None)
        wants.update(first or second for first, second in SKIPS.findall(output))
    return total, wants


def has(build, variable):
    """Whether a variable of CMake's cache is on."""
    return f"\n{variable}:INTERNAL=ON\n" in (build / "CMakeCache.txt").read_text()


def succeeds(*command):
    return shutil.which(command[0]) is not None and subprocess.run(command, capture_output=True).returncode == 0


def has_data(pattern):
    roots = (os.environ.get("GRADUS_DATA"), "../shared/data", "data")
    return any(root and glob.glob(f"{root}/{pattern}") for root in roots)


def has_module(name, *others):
    pythons = (sys.executable, "/usr/bin/python3", *others)
    return any(os.path.exists(python) and succeeds(str(python), "-c", f"import {name}") for python in pythons)


def is_there(want, build):
    """Whether build and machine have what a case was skipped for; None for a want that is not known."""
    gpus = 0
    if has(build, "GRADUS_WITH_CUDA") and shutil.which("nvidia-smi"):
        gpus = len(re.findall(r"^GPU ", subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout,
                              re.M))
        if visible := os.environ.get("CUDA_VISIBLE_DEVICES"):
            gpus = min(gpus, visible.count(",") + 1)
    if want.startswith("not run: "):
        return False  # a block of a page, which says why
    if devices := re.fullmatch(r"(\d+) CUDA devices?", want):
        return gpus >= int(devices[1])
    tests = {
        "a machine without CUDA devices": lambda: gpus == 0,
        "cuDNN": lambda: gpus > 0 and has(build, "GRADUS_WITH_CUDNN"),
        "NCCL": lambda: gpus > 0 and has(build, "GRADUS_WITH_NCCL"),
        "MPI": lambda: has(build, "GRADUS_WITH_MPI") and shutil.which("mpirun"),
        "OpenMP": lambda: has(build, "GRADUS_WITH_OPENMP"),
        "MNIST": lambda: has_data("mnist/train-images*"),
        "CIFAR-10": lambda: has_data("cifar10/*.bin.xz") and shutil.which("xz"),
        "STL-10": lambda: has_data("stl10/*.bin.xz") and shutil.which("xz"),
        "network namespaces": lambda: succeeds("unshare", "-n", "ip", "link", "add", "a", "type", "veth", "peer",
                                               "name", "b"),
        "PyTorch": lambda: has_module("torch"),
        "onnxruntime": lambda: has_module("onnxruntime", build.parent / "onnx-venv/bin/python3"),
        "chromium": lambda: shutil.which("chromium"),
        "gdb": lambda: shutil.which("gdb"),
        "matplotlib": lambda: has_module("matplotlib"),
    }
    return bool(tests[want]()) if want in tests else None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("build", type=pathlib.Path)
    build = parser.parse_args().build
    total, wants = read_log((build / "Testing/Temporary/LastTest.log").read_text(errors="replace"))
    wrong = 0
    for want, times in wants.most_common():
        there = is_there(want, build)
        remark = {None: "  <- not a reason that scripts/test_summary.py knows", True: "  <- but it is there",
                  False: ""}[there]
        wrong += bool(remark)
        print(f"skipped for want of {want}: {times}{remark}")
    print("{} passed, {} failed, {} skipped".format(*total))
    return int(wrong > 0 or total.failed > 0)


if __name__ == "__main__":
    sys.exit(main())
