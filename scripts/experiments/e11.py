#!/usr/bin/env python3
"""E11, graphs: the same training step built anew each time (eager), captured once and replayed, and recorded once and
run from planned memory (static), for several nets, on random inputs that lie on the device, on a GPU beside PyTorch's;
and what each can express: a net whose depth depends on its input. Writes E11.jsonl, E11.html and E11_steps.png.
"""

import itertools
import json
import pathlib
import statistics
import sys
import tempfile

from record import ROOT, Runs, Skipped, arguments_of, call, page, picture, program, pyplot, table, where

sys.path.insert(0, str(ROOT / "benchmarks"))

# Net of benchmarks/nets.h: batch
NETS = {"pure_linear": 128, "conv2_c1": 128, "conv10_c1": 128, "conv2_c32": 128, "lenet": 64, "stl10_net": 32,
        "resnet18": 32, "lstm": 32, "attention": 16}
MODES = {"eager": "eager", "captured": "graph", "static": "static"}  # of benchmarks/train_step
PYTORCH = {"PyTorch eager": "eager", "PyTorch captured": "graph", "PyTorch compiled": "compiled"}  # of pytorch_step.py
# A row's last word: options. Without one, the GPU's default backend.
BF16 = ["--precision", "bf16"]
PLACES = {"": ["--device", "cuda"], "cuda": ["--device", "cuda", "--backend", "cuda"],
          "bf16": ["--device", "cuda", *BF16], "cuda bf16": ["--device", "cuda", "--backend", "cuda", *BF16],
          "CPU": ["--device", "cpu"]}
COLUMNS = {"": [*MODES, *PYTORCH], "cuda": ["captured", "static"], "bf16": [*MODES, *PYTORCH],
           "cuda bf16": ["captured", "static"], "CPU": ["eager", "static"]}
DYNAMIC = {"dynamic net": "cpu", "dynamic net, cuda": "cuda"}


def row_of(mode, net, place):
    return ", ".join(filter(None, [mode, net, place]))


def parts_of(row):
    """Mode, net, place."""
    return (*row.split(", "), "")[:3]


ROWS = [*(row_of(mode, net, place) for place, modes in COLUMNS.items() for net in NETS for mode in modes), *DYNAMIC]


def measure_modes(net, place, modes, arguments, more):
    """Each mode's figures, medians of rounds in which all of them take their turn."""
    options = ["--net", net, "--batch", str(NETS[net]), *PLACES[place], "--seconds", str(arguments.seconds),
               "--step-only", *more]
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "rows.jsonl"
        turns = ",".join(MODES[mode] for _ in range(arguments.rounds) for mode in modes)
        call([program("benchmarks/train_step"), *options, "--mode", turns, "--json", str(file)])
        lines = list(map(json.loads, file.read_text().splitlines()))
    runs = {}
    for number, mode in enumerate(modes):
        rounds = lines[number::len(modes)]
        runs[mode] = {"options": options, **rounds[0], "rounds_ms": [line["step_ms"] for line in rounds],
                      "step_ms": statistics.median(line["step_ms"] for line in rounds)}
        runs[mode]["device_name"] = runs[mode].pop("machine")  # a run's machine is more
    return runs


class PyTorch:
    """The same steps, with PyTorch's fused Adam."""

    def __init__(self, rows, arguments):
        self.compiled, self.seconds, self.rounds = None, arguments.seconds, arguments.rounds
        jobs = [self.job(net, place, "compiled") for mode, net, place in map(parts_of, rows) if "compiled" in mode]
        try:
            import pytorch_step
        except ImportError as error:
            self.steps = error
            return
        self.steps = pytorch_step
        if not pytorch_step.torch.cuda.is_available():
            self.steps = ImportError("PyTorch sees no GPU")
            return
        if jobs:
            self.compiled = pytorch_step.CompiledSteps(jobs, "cuda", arguments.compile_seconds, processes=12)

    @staticmethod
    def job(net, place, mode):
        from variant import Variant

        return net, NETS[net], Variant(mode, precision="bf16" if "bf16" in place else "fp32", fused=True)

    def measure(self, net, place, mode):
        if isinstance(self.steps, ImportError):
            raise Skipped(str(self.steps))
        job = self.job(net, place, PYTORCH[mode])
        if mode == "PyTorch compiled":
            if job not in self.compiled.ready:
                raise Skipped(self.compiled.failed.get(job, "it was not compiled in time"))
            rounds = [self.compiled.time_step(job, self.seconds) for _ in range(self.rounds)]
        else:
            rounds = [self.steps.time_step(*job[:2], "cuda", job[2], self.seconds) for _ in range(self.rounds)]
        version = self.steps.torch.version
        return {"options": [], "net": net, "batch": NETS[net], "device": "cuda", "mode": mode,
                "precision": job[2].precision, "step_ms": statistics.median(one["ms"] for one in rounds),
                "rounds_ms": [one["ms"] for one in rounds], "peak_bytes": rounds[0].get("peak_bytes"),
                "libraries": f"PyTorch {version.__version__}, CUDA {version.cuda}",
                "device_name": self.steps.torch.cuda.get_device_name()}


def measure_dynamic(row, more):
    device = DYNAMIC[row]
    options = ["--device", device, "--seconds", "0.3", *more]
    output, _ = call([program("benchmarks/dynamic_net"), *options])
    return {"options": options, "device": device, "variants": list(map(json.loads, output.splitlines()))}


def step_lines(newest, places):
    """A net's row: milliseconds of each column of these places."""
    lines = []
    for net, batch in NETS.items():
        runs = {(mode, place): newest.get(row_of(mode, net, place)) for place in places for mode in COLUMNS[place]}
        ms = [f"{run['step_ms']:.3f}" if run else "" for run in runs.values()]
        eager, captured, static = (runs[mode, places[0]] for mode in MODES)
        ratio = f"{eager['step_ms'] / captured['step_ms']:.2f}" if eager and captured else ""
        memory = [f"{run['peak_bytes'] / 2**20:.1f}" if run else "" for run in (eager, static)]
        codes = sorted({run["code"] for run in runs.values() if run})
        lines.append([net, batch, *ms, ratio, *memory, " ".join(codes)])
    return lines


def step_table(newest, places):
    def name(mode, place):
        device = place.replace("bf16", "").strip() or "GPU"
        return f"{mode}, ms" if mode in PYTORCH else f"{device} {mode}, ms"

    head = [name(mode, place) for place in places for mode in COLUMNS[place]]
    return table(["net", "batch", *head, "GPU: eager by captured", "GPU eager: peak MiB of tensors",
                  "GPU static: peak MiB", "code"], step_lines(newest, places))


def dynamic_lines(run):
    return [[one.get("mode") or ("captured" if one["captured"] else "eager"), one["step"], one.get("rounds", ""),
             f"{one['step_ms']:.3f}" if "step_ms" in one else "",
             f"{one['max_difference']:.2g}" if "step_ms" in one else "",
             one.get("error", "")] for one in run["variants"]]


def draw(newest, path):
    figure, axis = pyplot().subplots(figsize=(10, 4), constrained_layout=True)
    kinds = (("eager", "CPU"), ("static", "CPU"), ("eager", ""), ("captured", ""), ("static", ""),
             ("PyTorch compiled", ""))
    for number, (mode, place) in enumerate(kinds):
        runs = [newest.get(row_of(mode, net, place)) for net in NETS]
        if any(runs):
            label = f"{mode}, {where(next(filter(None, runs)))}"
            bars = axis.bar([at + 0.15 * (number - 2.5) for at in range(len(NETS))],
                            [run["step_ms"] if run else 0 for run in runs], 0.14, label=label)
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
        "launched as a whole. Medians of rounds in which the modes take turns; on the GPU by the backend cudnn, where "
        "no other is named. PyTorch: with its fused Adam; compiled by torch.compile(mode='reduce-overhead'). "
        f"{'. '.join(machines)}.</p>",
        "<h2>float32</h2>", step_table(newest, ["", "cuda", "CPU"]),
        "<h2>Mixed precision, bfloat16</h2>", step_table(newest, ["bf16", "cuda bf16"]),
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


def is_at(row, places):
    if row in DYNAMIC:
        return ("CPU" if DYNAMIC[row] == "cpu" else "") in places
    return parts_of(row)[2] in places


def add_arguments(parser):
    parser.add_argument("--places", nargs="+", choices=list(PLACES), default=list(PLACES), metavar="PLACE",
                        help="of the rows, those of these: CPU, cuda, 'cuda bf16', bf16, ''; default: all")
    parser.add_argument("--seconds", type=float, default=0.3, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3, help="in which the modes of a net take turns")
    parser.add_argument("--compile-seconds", type=float, default=600, help="after which PyTorch compiles no more steps")


def measure(rows, results, arguments, more):
    pytorch = PyTorch(rows, arguments) if any("PyTorch" in row for row in rows) else None
    for _, group in itertools.groupby(rows, lambda row: parts_of(row)[1:]):
        group = list(group)
        if group[0] in DYNAMIC:
            results.record(group[0], lambda: measure_dynamic(group[0], more))  # noqa: B023, called at once
            continue
        _, net, place = parts_of(group[0])
        modes = [parts_of(row)[0] for row in group]
        own = [mode for mode in modes if mode in MODES]
        try:
            runs = measure_modes(net, place, own, arguments, more) if own else {}
        except Skipped as reason:
            runs = dict.fromkeys(modes, reason)

        def run_of(mode):
            if mode in PYTORCH:
                return pytorch.measure(net, place, mode)  # noqa: B023
            if isinstance(runs[mode], Skipped):  # noqa: B023
                raise runs[mode]  # noqa: B023
            return runs[mode]  # noqa: B023

        for row, mode in zip(group, modes):
            results.record(row, lambda: run_of(mode))  # noqa: B023


def main():
    arguments, more = arguments_of(__doc__, ROWS, add_arguments)
    results = Runs("E11", pathlib.Path(arguments.out))
    if not arguments.render:
        rows = [row for row in arguments.rows if is_at(row, arguments.places)]
        measure(rows, results, arguments, more)
    if not arguments.record:
        render(results)


if __name__ == "__main__":
    main()
