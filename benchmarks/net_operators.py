#!/usr/bin/env python3
"""Compares gradus with PyTorch for operators with the shapes of nets: the rows of benchmarks/net_operators.cpp, in one
run.

Each round runs all rows on gradus and then on PyTorch; the table shows medians and PyTorch / gradus (above 1: gradus is
faster). PyTorch's batch norm is cuDNN's, as in PyTorch's nets.

    python3 benchmarks/net_operators.py --program build/cuda/benchmarks/net_operators --device cuda --json ops.json
    python3 benchmarks/net_operators.py --table ops.json
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts/experiments"))

from record import code_version, machine  # noqa: E402

CAPTURED = 5  # calls, as in time_kernel_ms of benchmarks/timing.h


def measure(options):
    """Returns PyTorch's milliseconds for each row."""
    import torch
    import torch.nn.functional as F

    from pytorch_step import captured, timed

    results = {}

    def random(*shape, dtype=torch.float32, layout=torch.contiguous_format):
        x = torch.randn(shape, device=options.device).to(dtype)
        return x.contiguous(memory_format=layout) if len(shape) == 4 else x

    def add(name, work):
        if options.rows and not any(part in name for part in options.rows):
            return
        if options.device == "cuda" and not name.startswith("eager "):
            results[name] = timed(captured(work, CAPTURED), options.device, options.seconds) / CAPTURED
        else:
            results[name] = timed(work, options.device, options.seconds)

    def plain(name, work):
        with torch.no_grad():
            add(name, work)

    def pair(name, inputs, f):
        plain(name, lambda: f(*inputs))
        leaves = [x.clone().requires_grad_() for x in inputs]
        y = f(*leaves)
        dy = torch.ones_like(y)
        add(name + " backward", lambda: torch.autograd.grad(y, leaves, dy, retain_graph=True))

    def text(shape):
        return "x".join(map(str, shape))

    def images(dtype, layout, suffix):
        for shape in ((128, 64, 32, 32), (128, 128, 16, 16), (128, 512, 4, 4)):
            mean, variance = random(shape[1]), random(shape[1]).abs()
            pair(f"batch_norm {text(shape)}{suffix}",
                 [random(*shape, dtype=dtype, layout=layout), random(shape[1]), random(shape[1])],
                 lambda x, w, b: F.batch_norm(x, mean, variance, w, b, True))
        slice_mean, slice_variance = random(64), random(64).abs()
        pair(f"batch_norm of a slice 128x64x32x32{suffix}",
             [random(128, 65, 32, 32, dtype=dtype, layout=layout), random(64), random(64)],
             lambda x, w, b: F.batch_norm(x[:, :64], slice_mean, slice_variance, w, b, True))
        for shape in ((1024, 6, 28, 28), (128, 32, 96, 96), (128, 64, 48, 48)):
            pair(f"max_pool 2x2 {text(shape)}{suffix}", [random(*shape, dtype=dtype, layout=layout)],
                 lambda x: F.max_pool2d(x, 2))
        pair(f"max_pool 3x3/2 32x64x112x112{suffix}", [random(32, 64, 112, 112, dtype=dtype, layout=layout)],
             lambda x: F.max_pool2d(x, 3, 2, 1))
        x, y = (random(128, 64, 32, 32, dtype=dtype, layout=layout) for _ in range(2))
        pair(f"avg_pool 2x2 128x64x32x32{suffix}", [x], lambda x: F.avg_pool2d(x, 2))
        pair(f"avg_pool global 128x512x4x4{suffix}", [random(128, 512, 4, 4, dtype=dtype, layout=layout)],
             lambda x: F.adaptive_avg_pool2d(x, 1))
        pair(f"relu 128x64x32x32{suffix}", [x], F.relu)
        plain(f"add 128x64x32x32{suffix}", lambda: x + y)
        plain(f"sum of channels 128x64x32x32{suffix}", lambda: x.sum((0, 2, 3)))

    def matrices(dtype, suffix):
        for shape in ((4096, 64), (4096, 8192)):
            pair(f"softmax {text(shape)}{suffix}", [random(*shape, dtype=dtype)], lambda x: x.softmax(1))
        for classes in (10, 1000, 50257):
            labels = torch.randint(0, classes, (1024,), device=options.device)
            pair(f"log_softmax 1024x{classes}{suffix}", [random(1024, classes, dtype=dtype)],
                 lambda x: x.log_softmax(1))
            pair(f"cross_entropy 1024x{classes}{suffix}", [random(1024, classes, dtype=dtype)],
                 lambda x: F.cross_entropy(x, labels))
        for shape in ((1024, 128), (8192, 1024)):
            pair(f"layer_norm {text(shape)}{suffix}",
                 [random(*shape, dtype=dtype), random(shape[1], dtype=dtype), random(shape[1], dtype=dtype)],
                 lambda x, w, b: F.layer_norm(x, shape[1:], w, b))
        pair(f"gelu 1024x2048{suffix}", [random(1024, 2048, dtype=dtype)], F.gelu)
        x, y = random(8192, 1024, dtype=dtype), random(8192, 1024, dtype=dtype)
        plain(f"mul 8192x1024{suffix}", lambda: x * y)
        plain(f"dropout 8192x1024{suffix}", lambda: F.dropout(x, 0.5, True))
        plain(f"sum 8192x1024{suffix}", lambda: x.sum())
        plain(f"sum of rows 8192x1024{suffix}", lambda: x.sum(1))
        plain(f"sum of columns 8192x1024{suffix}", lambda: x.sum(0))
        plain(f"argmax of rows 8192x1024{suffix}", lambda: x.argmax(1))

    def sorting():
        million, square, logits, words = random(1 << 20), random(1024, 1024), random(128, 1000), random(8, 50257)
        plain("eager sort 1M", lambda: million.sort())
        plain("eager sort 1024x1024", lambda: square.sort(1))
        plain("eager topk 5 of 128x1000", lambda: logits.topk(5))
        plain("eager topk 50 of 8x50257", lambda: words.topk(50))
        plain("eager topk 100 of 1M", lambda: million.topk(100))
        plain("eager cumsum 1024x1024", lambda: square.cumsum(1))
        tokens = torch.randint(0, 10000, (8192,), device=options.device)
        pair("eager embedding 8192 of 10000x128", [random(10000, 128)], lambda table: F.embedding(tokens, table))

    def all_rows():
        for dtype, name in ((torch.float32, ""), (torch.bfloat16, " bf16")):
            images(dtype, torch.contiguous_format, name)
            images(dtype, torch.channels_last, name + " channels_last")
            matrices(dtype, name)
        sorting()

    if options.device == "cuda":
        with torch.cuda.stream(torch.cuda.Stream()):  # gradients run on the stream of their forward: it can be captured
            all_rows()
    else:
        all_rows()
    return results


def print_table(results):
    where = results["machine"]
    print(f"PyTorch {results['pytorch']} and gradus; {where['gpu'] or where['cpu']}\n")
    print("| operator | PyTorch us | gradus us | ratio |\n|---|---|---|---|")
    for row in results["rows"]:
        print(f"| {row['row']} | {row['pytorch_ms'] * 1e3:.4g} | {row['gradus_ms'] * 1e3:.4g} | "
              f"{row['pytorch_ms'] / row['gradus_ms']:.2f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", help="the built net_operators program")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--backend", default="", help="of gradus")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.05, help="per row and round")
    parser.add_argument("--rows", nargs="+", default=[], help="names that rows must contain")
    parser.add_argument("--json", default="", help="write all figures to this file")
    parser.add_argument("--table", default="", metavar="FILE", help="only print what --json has stored")
    options = parser.parse_args()
    if options.table:
        print_table(json.loads(pathlib.Path(options.table).read_text(encoding="utf-8")))
        return
    if not options.program:
        parser.error("--program is needed")
    import torch

    command = [options.program, "--device", options.device, "--seconds", str(options.seconds)]
    command += ["--backend", options.backend] if options.backend else []
    command += ["--rows", ",".join(options.rows)] if options.rows else []
    ours, theirs = [], []
    for _ in range(options.rounds):
        ours.append(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout))
        theirs.append(measure(options))
    results = {"pytorch": torch.__version__, "machine": machine(), "code": code_version(), "rounds": options.rounds,
               "seconds": options.seconds,
               "rows": [{"row": name, "pytorch_ms": statistics.median(each[name] for each in theirs),
                         "gradus_ms": statistics.median(each[name] for each in ours)} for name in theirs[0]]}
    print_table(results)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
