#!/usr/bin/env python3
"""E11, graphs: the same training step built anew each time (eager), captured once and replayed, and recorded once and
run from planned memory (static), for several nets, on random inputs that lie on the device; and what each can express:
a net whose depth depends on its input. Writes E11.jsonl, E11.html and E11_steps.png.
"""

import json
import pathlib
import tempfile

from record import Runs, arguments_of, call, page, picture, program, pyplot, table, where

# Net of benchmarks/nets.h: batch
NETS = {"pure_linear": 128, "conv2_c1": 128, "conv10_c1": 128, "conv2_c32": 128, "lenet": 64, "stl10_net": 32,
        "resnet18": 32, "lstm": 32, "attention": 16}
MODES = {"eager": "eager", "captured": "graph", "static": "static"}  # of benchmarks/train_step
# A row's last word: options. Without one, the GPU's default backend.
PLACES = {"": ["--device", "cuda"], ", cuda": ["--device", "cuda", "--backend", "cuda"], ", CPU": ["--device", "cpu"]}
DYNAMIC = {"dynamic net": "cpu", "dynamic net, cuda": "cuda"}
COLUMNS = {"": list(MODES), ", cuda": ["captured", "static"], ", CPU": ["eager", "static"]}
ROWS = [*(f"{mode}, {net}{place}" for place, modes in COLUMNS.items() for net in NETS for mode in modes), *DYNAMIC]


def measure_step(row, more):
    mode, net, *place = row.split(", ")
    options = ["--net", net, "--batch", str(NETS[net]), *PLACES["".join(f", {word}" for word in place)], "--seconds",
               "0.3", "--step-only", "--mode", MODES[mode], *more]
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "rows.jsonl"
        command = [program("benchmarks/train_step"), *options, "--json", str(file)]
        _, recording = call(command, gpus=int(place != ["CPU"]))
        figures = json.loads(file.read_text())
    figures["device_name"] = figures.pop("machine")  # a run's machine is more
    return {"options": options, **figures, "gpu_over_time": recording}


def measure_dynamic(row, more):
    device = DYNAMIC[row]
    options = ["--device", device, "--seconds", "0.3", *more]
    output, _ = call([program("benchmarks/dynamic_net"), *options])
    return {"options": options, "device": device, "variants": list(map(json.loads, output.splitlines()))}


def step_lines(newest):
    lines = []
    for net, batch in NETS.items():
        runs = {(mode, place): newest.get(f"{mode}, {net}{place}")
                for place, modes in COLUMNS.items() for mode in modes}
        ms = [f"{run['step_ms']:.3f}" if run else "" for run in runs.values()]
        eager, captured, static = (runs[mode, ""] for mode in MODES)
        ratio = f"{eager['step_ms'] / captured['step_ms']:.2f}" if eager and captured else ""
        memory = [f"{run['peak_bytes'] / 2**20:.1f}" if run else "" for run in (eager, static)]
        codes = sorted({run["code"] for run in runs.values() if run})
        lines.append([net, batch, *ms, ratio, *memory, " ".join(codes)])
    return lines


def dynamic_lines(run):
    return [[one.get("mode") or ("captured" if one["captured"] else "eager"), one["step"], one.get("rounds", ""),
             f"{one['step_ms']:.3f}" if "step_ms" in one else "",
             f"{one['max_difference']:.2g}" if "step_ms" in one else "",
             one.get("error", "")] for one in run["variants"]]


def draw(newest, path):
    figure, axis = pyplot().subplots(figsize=(10, 4), constrained_layout=True)
    kinds = (("eager", ", CPU"), ("static", ", CPU"), ("eager", ""), ("captured", ""), ("static", ""))
    for number, (mode, suffix) in enumerate(kinds):
        runs = [newest.get(f"{mode}, {net}{suffix}") for net in NETS]
        if any(runs):
            label = f"{mode}, {where(next(filter(None, runs)))}"
            bars = axis.bar([place + 0.18 * (number - 2) for place in range(len(NETS))],
                            [run["step_ms"] if run else 0 for run in runs], 0.17, label=label)
            axis.bar_label(bars, labels=[f"{run['step_ms']:.3g}" if run else "" for run in runs], fontsize=5)
    axis.set_xticks(range(len(NETS)), [f"{net}\nbatch {batch}" for net, batch in NETS.items()], fontsize="small")
    axis.set_yscale("log")
    axis.set_ylabel("ms a training step")
    axis.grid(alpha=0.3, axis="y")
    axis.legend(fontsize="small")
    figure.savefig(path, dpi=120)


def render(results):
    folder = results.folder
    newest = {run["row"]: run for run in results.runs()}
    draw(newest, folder / "E11_steps.png")
    steps = [run for row, run in newest.items() if row not in DYNAMIC]
    machines = sorted({f"{where(run)}{'; ' + run['libraries'] if run['libraries'] else ''}" for run in steps})
    dynamic = []
    for row in DYNAMIC:
        if row in newest:
            dynamic += [f"<p>{where(newest[row])}, code {newest[row]['code']}:</p>",
                        table(["step", "how", "rounds for four inputs", "ms a step", "parameters' largest difference",
                               "what it says"], dynamic_lines(newest[row]))]
    text = page(
        "E11: steps built anew, captured steps and static steps",
        "<p>A training step: forward, cross-entropy, backward, Adam. Eager steps are built and launched operator by "
        "operator; a captured step is recorded once, as the kernels that it launches, and launched as a whole; a "
        "static step is recorded once, as the operations that it calls, and runs from planned memory, on a GPU "
        "launched as a whole. Medians; on the GPU by the backend cudnn, where no other is named. "
        f"{'. '.join(machines)}.</p>",
        table(["net", "batch", "GPU eager, ms", "GPU captured, ms", "GPU static, ms", "cuda captured, ms",
               "cuda static, ms", "CPU eager, ms", "CPU static, ms", "GPU: eager by captured",
               "GPU eager: peak MiB of tensors", "GPU static: peak MiB", "code"], step_lines(newest)),
        picture(folder / "E11_steps.png", "milliseconds a step"),
        "<h2>What each can express</h2>"
        "<p>A net applies its layer until the norm of its state is small: how often depends on the input. Eagerly this "
        "is a loop in which the host reads the norm. A captured step cannot wait for a number, and in a static one "
        "nothing has computed it: the recording ends with an error that names the operator, and the program goes on. "
        "Rounds that are masked where the loop would have ended need no such number, so they can be recorded; they "
        "cost the greatest number of rounds every time.</p>", *dynamic,
        "<p>Neither do changing shapes fit one recording: a batch of another size is trained on eagerly "
        "(training::CapturedStep) or recorded by itself (training::StaticStep), and operators whose result's shape "
        "depends on numbers (nonzero, masked_select, unique) are refused by name as above. Dropout, clipping on the "
        "device, mixed precision and learning-rate schedules can be captured and recorded.</p>",
        results.skipped(ROWS))
    (folder / "E11.html").write_text(text, encoding="utf-8")
    print(f"wrote {folder / 'E11.html'}")


def main():
    arguments, more = arguments_of(__doc__, ROWS)
    results = Runs("E11", pathlib.Path(arguments.out))
    if not arguments.render:
        for row in arguments.rows:
            measure = measure_dynamic if row in DYNAMIC else measure_step
            results.record(row, lambda: measure(row, more))
    if not arguments.record:
        render(results)


if __name__ == "__main__":
    main()
