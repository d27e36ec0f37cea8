#!/usr/bin/env python3
"""Compares gradus with PyTorch on tiny tensors: the rows of benchmarks/eager.cpp, in one run on one machine.

Each round runs every row on PyTorch and on gradus in turn; the table shows medians over the rounds, in microseconds per
call, and PyTorch / gradus (above 1: gradus is faster). For optimizer steps, PyTorch's time is that of the fastest of
PyTorch's loop, foreach and fused forms.

    python3 benchmarks/eager.py --eager build/cpu-release/benchmarks/eager --threads 2
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import torch
import torch.nn as nn

CHAIN = 1000  # operators in a row
TINY = 100  # parameters of a step


def add_scalars():
    a, b = torch.tensor(1.5, requires_grad=True), torch.tensor(2.5, requires_grad=True)
    return lambda: a + b


def add_scalars_no_grad():
    a, b = torch.tensor(1.5), torch.tensor(2.5)
    return lambda: a + b


def add_number():
    a = torch.randn(4, requires_grad=True)
    return lambda: a + 0.1


def chain(x):
    for _ in range(CHAIN // 2):
        x = x * 1.001 + 0.1
    return x


def chain_forward():
    x = torch.randn(4, requires_grad=True)
    return lambda: chain(x)


def chain_forward_backward():
    x, dy = torch.randn(4, requires_grad=True), torch.ones(4)

    def work():
        x.grad = None
        chain(x).backward(dy)

    return work


def linear_call():
    module, x = nn.Linear(4, 4), torch.randn(1, 4)
    return lambda: module(x)


def mlp_forward_backward():
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
    x = torch.randn(2, 4)

    def work():
        net.zero_grad()
        net(x).sum().backward()

    return work


def tiny_step(make, **options):
    parameters = [torch.randn(4, requires_grad=True) for _ in range(TINY)]
    for parameter in parameters:
        parameter.grad = torch.randn(4)
    return make(parameters, **options).step


def sgd(**options):
    return lambda: tiny_step(torch.optim.SGD, lr=0.01, momentum=0.9, **options)


def adam(**options):
    return lambda: tiny_step(torch.optim.Adam, lr=1e-3, **options)


FORMS = [{"foreach": False}, {"foreach": True}, {"fused": True}]
ROWS = {  # name: ways to do it, of which the fastest counts
    "add_scalars": [add_scalars],
    "add_scalars_no_grad": [add_scalars_no_grad],
    "add_number": [add_number],
    "chain_forward": [chain_forward],
    "chain_forward_backward": [chain_forward_backward],
    "linear_call": [linear_call],
    "mlp_forward_backward": [mlp_forward_backward],
    "sgd_100_tiny": [sgd(**form) for form in FORMS],
    "adam_100_tiny": [adam(**form) for form in FORMS],
}


def time_us(work, seconds):
    """Returns the median microseconds per call. A sample consists of as many calls as take 50 us."""
    warm = time.perf_counter() + seconds / 10
    while time.perf_counter() < warm:
        work()
    once = time.perf_counter()
    work()
    calls = max(1, int(50e-6 / max(time.perf_counter() - once, 1e-8)))
    samples, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(samples) < 5:
        start = time.perf_counter()
        for _ in range(calls):
            work()
        samples.append((time.perf_counter() - start) / calls * 1e6)
    return statistics.median(samples)


def torch_us(ways, seconds):
    torch.manual_seed(0)
    times = []
    for prepare in ways:
        try:
            work = prepare()
        except (TypeError, RuntimeError):  # older versions lack fused steps on the CPU
            continue
        times.append(time_us(work, seconds / len(ways)))
    return min(times)


def gradus_us(options):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rows.jsonl")
        command = [options.eager, "--seconds", str(options.seconds), "--json", path, "--row", options.row]
        command += ["--threads", str(options.threads)] if options.threads else []
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        with open(path) as rows:
            return {row["row"]: row["us"] for row in map(json.loads, rows)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--eager", required=True, help="the built eager program")
    parser.add_argument("--row", default="", help="only rows whose name starts with this")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.2, help="per measurement")
    parser.add_argument("--json", default="", help="write all figures to this file")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    names = [name for name in ROWS if name.startswith(options.row)]
    print(f"PyTorch {torch.__version__} and gradus on {torch.get_num_threads()} CPU threads; "
          f"medians of {options.rounds} rounds, us a call")

    figures = {name: {"pytorch": [], "gradus": []} for name in names}
    for _ in range(options.rounds):
        for name, us in gradus_us(options).items():
            figures[name]["gradus"].append(us)
        for name in names:
            figures[name]["pytorch"].append(torch_us(ROWS[name], options.seconds))

    rows = []
    print(f"{'row':26} {'PyTorch':>12} {'gradus':>12} {'ratio':>7}")
    for name in names:
        pytorch, gradus = (statistics.median(figures[name][who]) for who in ("pytorch", "gradus"))
        rows.append({"row": name, "pytorch_us": pytorch, "gradus_us": gradus, "ratio": pytorch / gradus})
        print(f"{name:26} {pytorch:12.3f} {gradus:12.3f} {pytorch / gradus:7.2f}")
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"pytorch": torch.__version__, "threads": torch.get_num_threads(), "rounds": options.rounds,
                       "rows": rows}, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
