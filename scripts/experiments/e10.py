#!/usr/bin/env python3
"""E10, memory: LeNet's parameters by layer, and what a training step takes: parameters + gradients + state of the
optimizer + activations, for SGD with momentum and AdamW, in float32 and under autocast to bfloat16, without, with
selective and with full recomputation, 8 images; and inference with one. Each by a formula, by the plan, and as the
allocator counts it. Writes E10.jsonl, E10.html, E10_memory.png and E10_timeline.png.
"""

import json
import pathlib
import tempfile

from memory_timeline import draw as draw_timeline, read
from record import Runs, arguments_of, call, page, picture, program, pyplot, table

BATCH = 8
# Of examples and benchmarks alike: layer, what it is, numbers that a batch of one image has behind it, parameters.
LAYERS = [("conv1", "conv", 6 * 28 * 28, 6 * 25 + 6), ("pool1", "pool", 6 * 14 * 14, 0),
          ("conv2", "conv", 16 * 10 * 10, 16 * 6 * 25 + 16), ("pool2", "pool", 16 * 5 * 5, 0),
          ("flatten", "view", 16 * 5 * 5, 0), ("fc1", "linear", 120, 400 * 120 + 120), ("relu1", "relu", 120, 0),
          ("fc2", "linear", 84, 120 * 84 + 84), ("relu2", "relu", 84, 0), ("fc3", "linear", 10, 84 * 10 + 10)]
PARAMETERS = sum(layer[3] for layer in LAYERS)
STATES = {"sgd": 1, "adamw": 2}  # numbers that the optimizer keeps for each parameter
STEP_BLOCK = 8 * 5  # its step, learning rate and so on, as float64

TYPES = {"float32": [], "bfloat16": ["--mixed"]}
ROWS = [*(f"{optimizer}, {dtype}, {recompute}" for optimizer in STATES for dtype in TYPES
          for recompute in ("none", "selective", "full")), "inference"]


def measured(options, more):
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "row.jsonl"
        call([program("benchmarks/memory"), "--net", "lenet", *map(str, options), *more, "--measure", "--json", file])
        return json.loads(file.read_text(encoding="utf-8"))


def measure(row, more):
    if row == "inference":
        return {"figures": measured(["--batch", 1, "--inference"], more)}
    optimizer, dtype, recompute = row.split(", ")
    options = ["--batch", BATCH, "--optimizer", optimizer, *TYPES[dtype]]
    if recompute == "selective":
        peaks = [measured([*options, "--recompute", one], more)["peak"] for one in ("none", "full")]
        options += ["--budget", sum(peaks) // 2]
    return {"options": options, "figures": measured([*options, "--recompute", recompute], more)}


def parts_of(text):
    """[(0, 2), (2, 4)] of "[0, 2) [2, 4)"."""
    return [tuple(map(int, part.strip("[) ").split(","))) for part in text.split(") ") if part]


def kept(batch, mixed, parts):
    """Bytes that forward leaves for backward: what each layer saves, but in recomputed parts their input alone."""
    size = 2 if mixed else 4
    tensors = {}  # by name, those that several layers keep once

    def keep(layer):  # what comes out of a layer, before the first one the image; flattening copies nothing
        if LAYERS[layer][1] == "view":
            layer -= 1
        if layer >= 0:
            tensors[f"out {layer}"] = batch * LAYERS[layer][2] * size
        elif mixed and not any(begin == 0 for begin, _ in parts):
            tensors["image"] = batch * 28 * 28 * size  # in the lower type; in float32 it is the input itself

    for begin, _ in parts:
        keep(begin - 1)
    for i, (name, kind, numbers, _) in enumerate(LAYERS):
        if any(begin <= i < end for begin, end in parts):
            continue
        if kind in ("conv", "linear"):
            keep(i - 1)
        if kind in ("conv", "relu"):
            keep(i)  # where it is 0, ReLU lets no gradient through
        if kind == "pool":
            tensors[f"where the maxima of {name} were"] = batch * numbers * 4
    logits = batch * 10 * 4  # in float32, as the logarithms of the probabilities are
    return sum(tensors.values()) + 2 * logits + 4 + 4  # the number of rows that count, and the loss


def formula(figures):
    parameters = 4 * PARAMETERS
    if figures["optimizer"] == "none":
        return {"parameters": parameters}
    copies = 2 * PARAMETERS if figures["mixed"] else 0  # of the lower type; the optimizer writes them for the next step
    return {"parameters": parameters, "gradients": copies or parameters,
            "state": STATES[figures["optimizer"]] * parameters + copies + STEP_BLOCK,
            "activations": kept(figures["batch"], figures["mixed"], parts_of(figures["recomputed"]))}


def lines_of(figures):
    """What, formula, plan, allocator, whether they agree."""
    by_formula = formula(figures)
    lines = []
    for key in ("parameters", "gradients", "state", "activations", "peak"):
        three = [by_formula.get(key), figures.get(key), figures.get(f"measured_{key}")]
        if three[2] is None:
            continue
        known = [number for number in three if number is not None]
        lines.append([key, *("" if number is None else f"{number:,}" for number in three),
                      "yes" if len(set(known)) == 1 else "NO"])
    return lines


def draw(newest, path):
    rows = [row for row in ROWS if row in newest]
    figure, axis = pyplot().subplots(figsize=(9, 4.5), constrained_layout=True)
    left = [0.0] * len(rows)
    kinds = [key.removeprefix("at_peak ") for key in newest[rows[0]]["figures"] if key.startswith("at_peak ")]
    for kind in kinds:
        width = [newest[row]["figures"][f"at_peak {kind}"] / 1024 for row in rows]
        if any(width):
            axis.barh(rows, width, left=left, label=kind)
            left = [a + b for a, b in zip(left, width)]
    axis.plot([newest[row]["figures"]["measured_peak"] / 1024 for row in rows], rows, "k|", markersize=14,
              label="allocator")
    axis.invert_yaxis()
    axis.set_xlabel("KiB at the peak")
    axis.legend(fontsize="small")
    figure.savefig(path, dpi=100)
    pyplot().close(figure)


def render(runs, folder):
    newest = {run["row"]: run for run in runs.runs()}
    draw(newest, folder / "E10_memory.png")
    parts = ["<h2>Parameters</h2>",
             table(["layer", "numbers", "bytes as float32"],
                   [*([name, f"{count:,}", f"{4 * count:,}"] for name, _, _, count in LAYERS if count),
                    ["all", f"{PARAMETERS:,}", f"{4 * PARAMETERS:,}"]]),
             "<h2>At the peak</h2>", picture(folder / "E10_memory.png", "memory at the peak by kind")]
    if (folder / "E10_timeline.png").exists():
        parts += ["<h2>Over the step</h2>", picture(folder / "E10_timeline.png", "what lives when")]
    agree = total = 0
    for row in (row for row in ROWS if row in newest):
        figures = newest[row]["figures"]
        lines = lines_of(figures)
        agree, total = agree + sum(line[-1] == "yes" for line in lines), total + len(lines)
        recomputed = f", recomputed: {figures['recomputed']}" if figures["recomputed"] else ""
        parts.append(f"<h2>{row}</h2><p>{figures['batch']} images{recomputed}</p>")
        parts.append(table(["bytes", "formula", "plan", "allocator", "agree"], lines))
    print(f"{agree} of {total} lines agree to the byte")
    last = list(newest.values())[-1]
    head = (f"<p>Bytes on the CPU (backend openmp, {last['machine']['cpu']}, {last['machine']['cores']} cores; code "
            f"{last['code']}). {agree} of {total} lines agree to the byte. The peak, which has the memory of kernels "
            "in it, has no formula.</p>")
    (folder / "E10.html").write_text(page("E10: memory", head, *parts, runs.skipped(ROWS)), encoding="utf-8")
    print(f"wrote {folder / 'E10.html'}")


def picture_of_a_step(folder, more):
    with tempfile.TemporaryDirectory() as temporary:
        file = pathlib.Path(temporary) / "timeline.jsonl"
        call([program("benchmarks/memory"), "--net", "lenet", "--batch", str(BATCH), *more, "--timeline", file])
        report, spans = read(file)
    draw_timeline(report, spans, folder / "E10_timeline.png", f"LeNet, {BATCH} images, SGD with momentum: ")


def main():
    arguments, more = arguments_of(__doc__, ROWS)
    runs, folder = Runs("E10", arguments.out), pathlib.Path(arguments.out)
    if not arguments.render:
        for row in arguments.rows:
            runs.record(row, lambda: measure(row, more))  # noqa: B023, called at once
    if not runs.runs():
        raise SystemExit("e10: no runs yet")
    if not arguments.record:
        if not arguments.render:
            picture_of_a_step(folder, more)
        render(runs, folder)


if __name__ == "__main__":
    main()
