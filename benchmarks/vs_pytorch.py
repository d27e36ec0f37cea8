#!/usr/bin/env python3
"""gradus beside PyTorch: the training steps of benchmarks/train_step.cpp, both in one run on one machine.

Each round runs every net on PyTorch and on gradus in turn, so that a machine whose speed drifts slows both; the table
shows medians over the rounds and PyTorch / gradus (above 1: gradus is faster). PyTorch's best of contiguous and
channels-last, and on cuda of eager and graph, is named in its column.

    python3 benchmarks/vs_pytorch.py --train-step build/cpu-release/benchmarks/train_step --threads 2
    python3 benchmarks/vs_pytorch.py --device cuda --graph --train-step build/cuda/benchmarks/train_step
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
import torch.nn.functional as F


def conv_net(depth, channels):
    layers = []
    for i in range(depth):
        layers += [nn.Conv2d(1 if i == 0 else channels, channels, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels * 28 * 28, 10))


def lenet():
    return nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(),
                         nn.MaxPool2d(2), nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(),
                         nn.Linear(84, 10))


def stl10_net():
    layers, width = [], 3
    for out in (32, 64, 128):
        layers += [nn.Conv2d(width, out, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        width = out
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(128 * 12 * 12, 512), nn.Dropout(0.5), nn.Linear(512, 10))


NETS = {
    "pure_linear": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 10)), (1, 28, 28), [128]),
    "conv2_c1": (lambda: conv_net(2, 1), (1, 28, 28), [128]),
    "conv10_c1": (lambda: conv_net(10, 1), (1, 28, 28), [128]),
    "conv2_c32": (lambda: conv_net(2, 32), (1, 28, 28), [128]),
    "conv10_c32": (lambda: conv_net(10, 32), (1, 28, 28), [128]),
    "lenet": (lenet, (1, 28, 28), [64, 1024]),
    "stl10_net": (stl10_net, (3, 96, 96), [32, 128]),
}


def timed(step, device, seconds):
    """Median milliseconds of a step; on cuda, of rows of steps between two events."""
    for _ in range(5):
        step()
    samples = []
    if device == "cuda":
        torch.cuda.synchronize()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(samples) < 5:
        if device == "cuda":
            a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            a.record()
            for _ in range(20):
                step()
            b.record()
            b.synchronize()
            samples.append(a.elapsed_time(b) / 20)
        else:
            start = time.perf_counter()
            step()
            samples.append((time.perf_counter() - start) * 1e3)
    return statistics.median(samples)


def torch_step(name, batch, device, variant, seconds):
    make, image, _ = NETS[name]
    torch.manual_seed(0)
    net = make().to(device)
    graph = "graph" in variant
    x, y = torch.randn(batch, *image, device=device), torch.randint(0, 10, (batch,), device=device)
    if "channels_last" in variant:
        net, x = net.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
    fused = {"fused": True} if device == "cuda" and not graph else {}
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, **({"capturable": True} if graph else fused))

    def step():
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(net(x), y).backward()
        optimizer.step()

    if not graph:
        return timed(step, device, seconds)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(5):
            step()
    torch.cuda.current_stream().wait_stream(side)
    optimizer.zero_grad(set_to_none=True)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        F.cross_entropy(net(x), y).backward()
        optimizer.step()
    return timed(captured.replay, device, seconds)


def gradus_steps(options, name, variant):
    """Milliseconds by batch, from one run of train_step."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rows.jsonl")
        command = [options.train_step, "--net", name, "--device", options.device, "--seconds", str(options.seconds),
                   "--step-only", "--json", path]
        command += ["--backend", options.backend] if options.backend else []
        command += ["--threads", str(options.threads)] if options.threads else []
        command += ["--graph"] if "graph" in variant else []
        command += ["--format", "channels_last"] if "channels_last" in variant else []
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        with open(path) as rows:
            return {row["batch"]: row["step_ms"] for row in map(json.loads, rows)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train-step", required=True, help="the built train_step program")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--backend", default="")
    parser.add_argument("--net", default="all")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5, help="per measurement")
    parser.add_argument("--graph", action="store_true", help="cuda: compare captured steps too")
    parser.add_argument("--tf32", action="store_true", help="let PyTorch use TF32")
    parser.add_argument("--json", default="", help="write all figures to this file")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = options.tf32
    torch.backends.cudnn.benchmark = True
    formats = ["contiguous", "channels_last"]
    modes = ["eager", "graph"] if options.graph else ["eager"]
    machine = torch.cuda.get_device_name() if options.device == "cuda" else f"{torch.get_num_threads()} CPU threads"
    print(f"PyTorch {torch.__version__} and gradus on {machine}; medians of {options.rounds} rounds, ms a step")

    figures = {}  # (net, batch, mode, framework, format) -> samples
    names = [name for name in NETS if options.net in ("all", name)]
    for _ in range(options.rounds):
        for name in names:
            for mode in modes:
                for layout in formats:
                    variant = f"{mode} {layout}"
                    for batch, ms in gradus_steps(options, name, variant).items():
                        figures.setdefault((name, batch, mode, "gradus", layout), []).append(ms)
                    for batch in NETS[name][2]:
                        ms = torch_step(name, batch, options.device, variant, options.seconds)
                        figures.setdefault((name, batch, mode, "pytorch", layout), []).append(ms)

    rows = []
    print(f"{'net':12} {'batch':>6} {'mode':>6} {'PyTorch':>10} {'layout':>14} {'gradus':>10} {'layout':>14} {'ratio':>7}")
    for name in names:
        for batch in NETS[name][2]:
            for mode in modes:
                best = {}
                for framework in ("pytorch", "gradus"):
                    medians = {layout: statistics.median(figures[name, batch, mode, framework, layout]) for layout in formats}
                    layout = min(medians, key=medians.get)
                    best[framework] = (medians[layout], layout, medians)
                ratio = best["pytorch"][0] / best["gradus"][0]
                rows.append({"net": name, "batch": batch, "mode": mode, "ratio": ratio,
                             "pytorch_ms": best["pytorch"][2], "gradus_ms": best["gradus"][2]})
                print(f"{name:12} {batch:6} {mode:>6} {best['pytorch'][0]:10.3f} {best['pytorch'][1]:>14} "
                      f"{best['gradus'][0]:10.3f} {best['gradus'][1]:>14} {ratio:7.2f}")
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"pytorch": torch.__version__, "machine": machine, "device": options.device,
                       "rounds": options.rounds, "tf32": options.tf32, "rows": rows}, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
