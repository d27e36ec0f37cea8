#!/usr/bin/env python3
"""Compares gradus with PyTorch for single operations: the rows of benchmarks/elementwise.cpp, in one run on one
machine.

Each round runs all rows on gradus and then on PyTorch; the table shows the least time of each and PyTorch / gradus
(above 1: gradus is faster).

    python3 benchmarks/elementwise.py --program build/cpu-release/benchmarks/elementwise --threads 1 2
"""
import argparse
import json
import subprocess
import sys
import time

import torch
import torch.nn.functional as F

MILLION = 1 << 20


def make_rows():
    rows = {}

    def add(name, work):
        def run():
            with torch.no_grad():
                work()
        rows[name] = run

    def pair(name, inputs, f):
        add(name, lambda: f(*inputs))
        leaves = [t.clone().requires_grad_() for t in inputs]
        y = f(*leaves)
        dy = torch.randn_like(y)
        rows[name + " backward"] = lambda: torch.autograd.grad(y, leaves, dy, retain_graph=True)

    x, y, positive = torch.randn(MILLION), torch.randn(MILLION), torch.rand(MILLION) + 0.1
    for name in ("neg abs square exp expm1 log log1p log2 log10 sqrt rsqrt reciprocal sin cos erf relu sigmoid "
                 "tanh").split():
        on = positive if name in ("log", "log1p", "log2", "log10", "sqrt", "rsqrt", "reciprocal") else x
        pair(name, [on], getattr(torch, name))
    for name in "leaky_relu elu gelu silu softplus mish logsigmoid hardswish".split():
        pair(name, [x], getattr(F, name))
    pair("gelu tanh", [x], lambda t: F.gelu(t, approximate="tanh"))
    add("floor", lambda: x.floor())
    add("clamp", lambda: x.clamp(-1, 1))

    square, row, column = x.reshape(1024, 1024), torch.randn(1024), torch.randn(1024, 1)
    add("add", lambda: x + y)
    add("mul", lambda: x * y)
    add("div", lambda: x / y)
    add("pow", lambda: positive.pow(y))
    add("pow 2", lambda: x.pow(2))
    add("fmod", lambda: x.fmod(y))
    add("remainder", lambda: x.remainder(y))
    add("maximum", lambda: torch.maximum(x, y))
    add("atan2", lambda: torch.atan2(x, y))
    add("lt", lambda: x < y)
    add("add scalar", lambda: x + 1.5)
    add("add row", lambda: square + row)
    add("add column", lambda: square + column)
    total, mask = torch.zeros(MILLION), x > 0
    add("add in place", lambda: total.add_(x))
    add("where", lambda: torch.where(mask, x, y))
    add("masked_fill", lambda: x.masked_fill(mask, 0.5))
    b, h = x.bfloat16(), x.half()
    add("to bfloat16", lambda: x.to(torch.bfloat16))
    add("from bfloat16", lambda: b.float())
    add("to float16", lambda: x.half())
    add("from float16", lambda: h.float())
    add("add bfloat16", lambda: b + b)
    add("gelu bfloat16", lambda: F.gelu(b))
    whole, bits = torch.randint(0, 100, (MILLION,)), mask.logical_not()
    add("add int64", lambda: whole + whole)
    add("eq int64", lambda: whole == whole)
    add("and bool", lambda: mask.logical_and(bits))

    add("sum", lambda: x.sum())
    add("sum rows", lambda: square.sum(1))
    add("sum columns", lambda: square.sum(0))
    add("mean", lambda: x.mean())
    add("max", lambda: x.max())
    add("amax rows", lambda: square.amax(1))
    add("amax columns", lambda: square.amax(0))
    add("argmax rows", lambda: square.argmax(1))
    add("argmax columns", lambda: square.argmax(0))
    add("prod", lambda: x.prod())
    add("norm", lambda: x.norm())
    add("var rows", lambda: square.var(1))
    add("logsumexp rows", lambda: square.logsumexp(1))
    add("cumsum rows", lambda: square.cumsum(1))
    add("cumsum columns", lambda: square.cumsum(0))
    add("all", lambda: mask.all())

    logits, images, words = torch.randn(128, 1000), torch.randn(64, 64, 32, 32), torch.randn(4096, 512)
    last = images.contiguous(memory_format=torch.channels_last)
    pair("softmax 128x1000", [logits], lambda t: t.softmax(1))
    pair("log_softmax 128x1000", [logits], lambda t: t.log_softmax(1))
    pair("softmax channels", [images], lambda t: t.softmax(1))
    weight, bias, wide, shift = torch.rand(64), torch.rand(64), torch.rand(512), torch.rand(512)
    batch = lambda t, w, c: F.batch_norm(t, None, None, w, c, True)
    pair("batch_norm", [images, weight, bias], batch)
    pair("batch_norm channels_last", [last, weight, bias], batch)
    pair("layer_norm 4096x512", [words, wide, shift], lambda t, w, c: F.layer_norm(t, (512,), w, c))
    pair("group_norm 8", [images, weight, bias], lambda t, w, c: F.group_norm(t, 8, w, c))

    def both_layouts(name, shape, parameters, f):
        images = torch.randn(shape)
        pair(name, [images, *parameters], f)
        pair(name + " channels_last", [images.contiguous(memory_format=torch.channels_last), *parameters], f)

    for shape in ((32, 64, 32, 32), (128, 32, 28, 28), (8, 256, 16, 16)):
        channels, of = shape[1], " of " + "x".join(map(str, shape))
        for groups in sorted({1, 8, 32, channels}):
            both_layouts(f"group_norm {groups}{of}", shape, [torch.rand(channels), torch.rand(channels)],
                         lambda t, w, c, groups=groups: F.group_norm(t, groups, w, c))
        both_layouts("layer_norm" + of, shape, [torch.rand(shape[1:]), torch.rand(shape[1:])],
                     lambda t, w, c, shape=shape[1:]: F.layer_norm(t, shape, w, c))
    both_layouts("max_pool 2x2", (4, 32, 96, 96), [], lambda t: F.max_pool2d(t, 2))
    both_layouts("max_pool 3x3/2", (2, 64, 112, 112), [], lambda t: F.max_pool2d(t, 3, 2, 1))
    both_layouts("max_pool 3x3/1", (4, 256, 14, 14), [], lambda t: F.max_pool2d(t, 3, 1, 1))
    both_layouts("avg_pool 2x2", (4, 32, 96, 96), [], lambda t: F.avg_pool2d(t, 2))
    both_layouts("avg_pool global", (8, 512, 7, 7), [], lambda t: F.adaptive_avg_pool2d(t, 1))
    for mode in ("nearest", "bilinear"):
        both_layouts(f"{mode} twice as large", (2, 64, 56, 56), [],
                     lambda t, mode=mode: F.interpolate(t, scale_factor=2, mode=mode))
    both_layouts("depthwise 3x3", (8, 64, 56, 56), [torch.randn(64, 1, 3, 3)],
                 lambda t, w: F.conv2d(t, w, None, 1, 1, 1, 64))

    add("topk 5 of 128x1000", lambda: logits.topk(5))
    add("topk 100 of 1M", lambda: x.topk(100))
    add("sort 1M", lambda: x.sort())
    add("sort 1024x1024", lambda: square.sort(1))
    add("argsort int64", lambda: whole.argsort())
    add("multinomial 128x1000", lambda: logits.abs().multinomial(1))
    add("flip", lambda: square.flip(1))
    add("tril", lambda: square.tril())
    add("roll", lambda: square.roll(3, 1))
    add("nonzero", lambda: mask.nonzero())
    add("masked_select", lambda: x.masked_select(mask))
    places, all_places = torch.randint(0, 1024, (1024,)), torch.randint(0, 1024, (1024, 1024))
    add("gather", lambda: square.gather(1, all_places))
    add("index_select rows", lambda: square.index_select(0, places))
    add("index_select columns", lambda: square.index_select(1, places))
    add("scatter_add", lambda: square.scatter_add(1, all_places, square))
    table, tokens = torch.randn(10000, 128), torch.randint(0, 10000, (8192,))
    pair("embedding", [table], lambda t: F.embedding(tokens, t))

    add("clone", lambda: x.clone())
    add("transpose", lambda: square.t().contiguous())
    add("to channels_last", lambda: images.contiguous(memory_format=torch.channels_last))
    add("add channels_last", lambda: last + images)
    add("to channels_first", lambda: last.contiguous())
    add("permute 0213", lambda: images.permute(0, 2, 1, 3).contiguous())
    add("zeros", lambda: torch.zeros(MILLION))
    add("rand", lambda: torch.rand(MILLION))
    add("randn", lambda: torch.randn(MILLION))
    add("dropout", lambda: F.dropout(x, 0.5, True))
    add("cat", lambda: torch.cat([square, square], 1))
    return rows


def least_ms(seconds, work):
    work()
    work()
    best, calls, end = 1e9, 0, time.perf_counter() + seconds
    while calls < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        work()
        best = min(best, (time.perf_counter() - start) * 1e3)
        calls += 1
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, help="the built elementwise program")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=0.04, help="per row and round")
    parser.add_argument("--rows", default="", help="names that rows must contain, separated by commas")
    parser.add_argument("--json", default="", help="write all figures to this file")
    options = parser.parse_args()
    wanted = [part for part in options.rows.split(",") if part]
    table = []
    for threads in options.threads:
        torch.set_num_threads(threads)
        peer = {name: work for name, work in make_rows().items() if not wanted or any(part in name for part in wanted)}
        ours, theirs = {}, {}
        for _ in range(options.rounds):
            command = [options.program, "--threads", str(threads), "--seconds", str(options.seconds)]
            command += ["--rows", options.rows] if wanted else []
            figures = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
            for name, work in peer.items():
                ours[name] = min(ours.get(name, 1e9), figures[name])
                theirs[name] = min(theirs.get(name, 1e9), least_ms(options.seconds, work))
        print(f"PyTorch {torch.__version__} and gradus, {threads} thread(s), least ms of {options.rounds} rounds")
        for name in peer:
            ratio = theirs[name] / ours[name]
            table.append({"row": name, "threads": threads, "pytorch_ms": round(theirs[name], 5),
                          "gradus_ms": round(ours[name], 5), "ratio": round(ratio, 3)})
            print(f"  {name:32} {theirs[name]:9.4f} {ours[name]:9.4f} {ratio:7.2f}{'' if ratio >= 1 else '  <'}")
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"pytorch": torch.__version__, "rounds": options.rounds, "rows": table}, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
