"""Compares the nets of the zoo with PyTorch's.

Parity: both frameworks start from the same weights and inputs in float64, and must agree in the names of the weights,
the losses, all gradients and the buffers after the step.

    python3 benchmarks/zoo/zoo.py --program build/cpu-release/benchmarks/zoo --parity [--nets NAME...]

Time: training steps in turn, in one run on one machine. Each figure is the median of the rounds, with the better of
both layouts; above 1, a ratio says that gradus is faster. On the CPU, graph is gradus's static step, and PyTorch has
none. Frozen nets are timed only with --frozen or by name; registry.cpp says why.

    python3 benchmarks/zoo/zoo.py --program build/cpu-release/benchmarks/zoo --threads 2 --modes eager graph compiled
    python3 benchmarks/zoo/zoo.py --program build/cuda/benchmarks/zoo --device cuda --modes eager graph compiled \\
        --precisions fp32 tf32 bf16 --json table.json
    python3 benchmarks/zoo/zoo.py --table table.json
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ["benchmarks", "scripts/experiments", "tests/golden", "tests/transfer"]
sys.path[:0] = [str(ROOT / folder) for folder in FOLDERS]

from comparison_table import best, print_table  # noqa: E402
from record import code_version, machine  # noqa: E402
from variant import PRECISIONS, Variant  # noqa: E402

TOLERANCE = 1e-10  # of a tensor's largest element; rounding in float64 leaves about 1e-12


def list_nets(options):
    """Returns what the program says of each net that was asked for, by name."""
    command = [options.program, "--list", "--net", ",".join(options.nets)]
    if options.batch:
        command += ["--batch", str(options.batch)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {net["net"]: net for net in map(json.loads, output.splitlines())}


# ---- Parity ----


def pytorch_results(net, inputs, given_path):
    """Writes weights and inputs to a file, and returns what PyTorch computes from them under the names that zoo.cpp
    gives: losses, gradients and buffers."""
    import torch
    import torch.nn.functional as F
    from frame import all_nets, draw_batch
    from make_golden import write_safetensors

    F.hardsigmoid = lambda x: F.relu6(x + 3) / 6  # PyTorch's multiplies gradients in float64 by 1/6 in float32
    torch.manual_seed(1)
    made = all_nets()[net]()
    made.module.double()
    for module in made.module.modules():
        if isinstance(module, torch.nn.Dropout):
            module.eval()
    batch = [x.double() if x.is_floating_point() else x for x in draw_batch(inputs)]
    given = {f"net.{name}": x for name, x in made.module.state_dict().items()}
    given |= {f"input.{i}": x for i, x in enumerate(batch)}
    write_safetensors(given_path, {name: x.numpy() for name, x in given.items()})
    results = {}
    for i, phase in enumerate(made.phases):
        made.module.zero_grad()
        loss = phase.loss(*batch)
        loss.backward()
        results[f"{i}.loss"] = loss.detach()
        results |= {f"{i}.grad.{name}": x.grad.clone() for name, x in made.module.named_parameters()
                    if x.grad is not None}
    return results | {f"buffer.{name}": x for name, x in made.module.named_buffers()}


def largest_difference(expected, found):
    """Returns the largest difference of two sets of tensors and the name of its tensor. Differences are relative to the
    largest element of a tensor, or to a thousandth of the largest element of all gradients (or of all buffers) if that
    is more, because some are only rounding: gradients of biases before batch norm, and means of a linear function of
    normalised numbers."""

    def kind(name):
        return "buffer" if name.startswith("buffer.") else name.split(".grad.")[0]

    sizes = {name: x.abs().max().item() for name, x in expected.items()}

    def difference(name):
        scale = max(sizes[name], 1e-3 * max(size for other, size in sizes.items() if kind(other) == kind(name))) or 1
        error = (expected[name].double() - found[name].double()).abs().max().item()
        return error / scale if error == error else float("inf")

    return max((difference(name), name) for name in expected)


def check_parity(net, options):
    """Returns an empty text, or what is wrong. Prints a line."""
    from make_models import read_safetensors

    with tempfile.TemporaryDirectory() as folder:
        given, results = f"{folder}/given.safetensors", f"{folder}/results.safetensors"
        expected = pytorch_results(net["net"], net["inputs"], given)
        command = [options.program, "--net", net["net"], "--parity", given, "--results", results, "--device",
                   options.device]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return done.stderr.strip()
        found = read_safetensors(results)
    if different := sorted(set(expected) ^ set(found)):
        return "names that only one framework has: " + ", ".join(different)
    if shapes := [name for name in expected if expected[name].shape != found[name].shape]:
        return "shapes differ: " + ", ".join(shapes)
    error, name = largest_difference(expected, found)
    print(f"{net['net']:<20} {net['parameters']:>9} parameters, {len(expected):>4} tensors, loss "
          f"{expected['0.loss'].item():<9.6g} largest difference {error:.1e} ({name})", flush=True)
    return "" if error <= TOLERANCE else f"{name} differs by {error:.1e} of its largest element"


def check_all(options):
    options.batch = options.batch or 4
    failures = {name: message for name, net in list_nets(options).items() if (message := check_parity(net, options))}
    for name, message in failures.items():
        print(f"{name} FAILED: {message}")
    if failures:
        raise SystemExit(f"zoo: {len(failures)} nets without parity")


# ---- Time ----


def layouts(net):
    has_images = any(len(text.split()[1].split(",")) == 4 for text in net["inputs"].split(";"))
    return ["contiguous", "channels_last"] if has_images else ["contiguous"]


def gradus_times(net, options):
    """Measures all variants in one process. Returns {variant's key: milliseconds} and the same for peak bytes."""
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as file:
        command = [options.program, "--net", net["net"], "--batch", str(net["batch"]), "--device", options.device,
                   "--seconds", str(options.seconds), "--json", file.name, "--precision", ",".join(options.precisions),
                   "--mode", ",".join(mode for mode in options.modes if mode != "compiled"),
                   "--format", ",".join(layouts(net))]
        command += ["--threads", str(options.threads)] if options.threads else []
        command += ["--backend", options.backend] if options.backend else []
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
        lines = [json.loads(line) for line in file.read().splitlines()]
    if done.returncode != 0:
        options.failures.append(f"gradus: {net['net']}: {done.stderr.strip()}")
    keys = [Variant(line["mode"], line["format"], line["precision"], threads=options.threads).key() for line in lines]
    return ({key: line["step_ms"] for key, line in zip(keys, lines)},
            {key: line["peak_bytes"] for key, line in zip(keys, lines)})


def pytorch_variants(net, options):
    on_gpu = options.device == "cuda"
    modes = [mode for mode in options.modes if on_gpu or mode != "graph"]
    return [Variant(mode, layout, precision, fused=on_gpu, threads=options.threads) for mode in modes
            for precision in options.precisions for layout in layouts(net)]


def pytorch_times(net, options):
    from frame import make_step
    from pytorch_step import time_step

    times, peaks = {}, {}
    for variant in pytorch_variants(net, options):
        job = (net["net"], net["inputs"], variant)
        try:
            if variant.mode != "compiled":
                found = time_step(*job[:2], options.device, variant, options.seconds, make_step)
            elif options.compiled and job in options.compiled.ready:
                found = options.compiled.time_step(job, options.seconds)
            else:
                continue
        except RuntimeError as error:
            options.failures.append(f"PyTorch: {net['net']} {variant.key()}: {str(error).splitlines()[0]}")
            continue
        times[variant.key()] = found["ms"]
        if "peak_bytes" in found:
            peaks[variant.key()] = found["peak_bytes"]
    return times, peaks


def compile_steps(nets, options):
    """Returns the compiled steps of all nets, or None if they were not asked for or PyTorch cannot compile."""
    import torch
    from frame import make_step
    from pytorch_step import CompiledSteps

    if "compiled" not in options.modes:
        return None
    if not hasattr(torch, "compile"):
        print(f"PyTorch {torch.__version__} cannot compile steps: mode compiled is left out", file=sys.stderr)
        return None
    jobs = [(net["net"], net["inputs"], variant) for net in nets.values() for variant in pytorch_variants(net, options)
            if variant.mode == "compiled"]
    start = time.perf_counter()
    compiled = CompiledSteps(jobs, options.device, options.compile_seconds, len(os.sched_getaffinity(0)), make_step)
    print(f"compiled {len(compiled.ready)} of {len(jobs)} steps in {time.perf_counter() - start:.0f} s",
          file=sys.stderr)
    options.failures += [f"PyTorch: not compiled: {job[0]} {job[2].key()}: {error}"
                         for job, error in compiled.failed.items()]
    return compiled


def measure(nets, options):
    """Returns a record for each net, with medians by contender and variant. If interrupted, returns the results so
    far."""
    samples, peaks = {}, {}  # net -> contender -> variant -> milliseconds of each round; bytes

    def measure_net(name):
        for contender, work in (("gradus", gradus_times), ("pytorch", pytorch_times)):
            times, bytes_held = work(nets[name], options)
            for key, ms in times.items():
                samples.setdefault(name, {}).setdefault(contender, {}).setdefault(key, []).append(ms)
            peaks.setdefault(name, {})[contender] = bytes_held

    try:
        for turn in range(options.rounds):
            for name in nets:
                measure_net(name)
                print(f"round {turn + 1} of {options.rounds}: {name}", file=sys.stderr)
    except KeyboardInterrupt:
        options.failures.append("interrupted")
    return [{"row": f"{name} {nets[name]['batch']}", "frozen": nets[name]["frozen"], "threads": options.threads,
             "backend": options.backend, "peak_bytes": peaks[name],
             "ms": {who: {key: statistics.median(ms) for key, ms in samples[name].get(who, {}).items()}
                    for who in ("gradus", "pytorch")}} for name in samples]


def ratio_columns(results):
    """Returns (head, condition of PyTorch's variants, condition of gradus's). Eager steps are compared with eager ones.
    "Best" is the fastest step of any mode, of both."""

    def of(modes, precision):
        return lambda v: v.precision == precision and (not modes or v.mode in modes)

    return [(f"{title} {precision}", of(modes, precision)) for precision in results["precisions"]
            for title, modes in (("eager", ["eager"]), ("best", [])) if title == "eager" or len(results["modes"]) > 1]


def print_results(results):
    """Prints a table of each half, with the geometric mean of its ratios."""
    where = results["machine"]
    print(f"PyTorch {results['pytorch']} / gradus, milliseconds a step; {where['gpu'] or where['cpu']}")
    columns = ratio_columns(results)
    for title, frozen in (("Open nets", False), ("Frozen nets", True)):
        records = [record for record in results["rows"] if record["frozen"] == frozen]
        if not records:
            continue
        lines, ratios = [], {head: [] for head, _ in columns}
        for record in records:
            lines.append([record["row"]])
            for head, wanted in columns:
                (peer_key, peer), (own_key, own) = (best(record, who, wanted) for who in ("pytorch", "gradus"))
                lines[-1] += [f"{step_cell(peer_key, peer)} / {step_cell(own_key, own)}", ""]
                if peer and own:
                    ratios[head].append(peer / own)
                    lines[-1][-1] = f"{peer / own:.2f}"
        means = [["", f"{statistics.geometric_mean(found):.2f}" if found else ""] for found in ratios.values()]
        lines.append(["geometric mean", *sum(means, [])])
        print(f"\n{title}\n")
        print_table(["net, batch", *sum(([f"{head} ms", "ratio"] for head, _ in columns), [])], lines)


def step_cell(key, ms):
    """Returns the time with the layout if it is channels-last, and the mode if it is not eager."""
    if not key:
        return "-"
    variant = Variant.of(key)
    return (f"{ms:.0f}" if ms >= 1000 else f"{ms:.3g}") + (" cl" if variant.layout == "channels_last" else "") + (
        f" {variant.mode}" if variant.mode != "eager" else "")


def time_all(options):
    import torch

    options.failures = []
    asked_for_all = options.nets == ["all"]
    nets = {name: net for name, net in list_nets(options).items()
            if options.frozen or not (asked_for_all and net["frozen"])}
    options.compiled = compile_steps(nets, options)
    results = {"pytorch": torch.__version__, "machine": machine(), "code": code_version(), "device": options.device,
               "modes": options.modes, "precisions": options.precisions, "rounds": options.rounds,
               "seconds": options.seconds, "rows": measure(nets, options)}
    print_results(results)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if options.failures:
        raise SystemExit("zoo: failed:\n" + "\n".join(options.failures))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", help="the built program zoo")
    parser.add_argument("--parity", action="store_true", help="compare losses and gradients instead of times")
    parser.add_argument("--nets", nargs="+", default=["all"])
    parser.add_argument("--frozen", action="store_true", help="time the frozen nets too")
    parser.add_argument("--batch", type=int, default=0, help="default: each net's own; with --parity 4")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--backend", default="", help="of gradus")
    parser.add_argument("--threads", type=int, default=0, help="of the CPU, for both")
    parser.add_argument("--modes", nargs="+", default=["eager"], choices=["eager", "graph", "compiled"])
    parser.add_argument("--precisions", nargs="+", default=["fp32"], choices=[p for p in PRECISIONS if p != "fp16"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.5, help="per measurement")
    parser.add_argument("--compile-seconds", type=float, default=300,
                        help="no step is begun to be compiled after these")
    parser.add_argument("--json", default="", help="put all figures into this file")
    parser.add_argument("--table", default="", metavar="FILE", help="only print what --json has stored")
    options = parser.parse_args()
    if options.table:
        print_results(json.loads(pathlib.Path(options.table).read_text(encoding="utf-8")))
    elif not options.program:
        parser.error("--program is needed")
    elif options.parity:
        check_all(options)
    else:
        time_all(options)


if __name__ == "__main__":
    main()
