#!/usr/bin/env python3
"""gradus beside PyTorch: the training steps of benchmarks/train_step.cpp and a product of matrices, both in one run on
one machine.

Each round measures every row on PyTorch and on gradus in turn, so that a machine whose speed drifts slows both; the table
shows medians over the rounds and PyTorch / gradus (above 1: gradus is faster), each with the better of contiguous and
channels-last. Peak: the most bytes that tensors held during a step (benchmarks/README.md says what counts).

    python3 benchmarks/vs_pytorch.py --programs build/cpu-release/benchmarks --threads 2
    python3 benchmarks/vs_pytorch.py --programs build/cpu-release/benchmarks --threads 2 --quick --rows lenet matmul
    python3 benchmarks/vs_pytorch.py --programs build/cuda/benchmarks --device cuda --graph --amp bf16
    python3 benchmarks/vs_pytorch.py --table benchmarks/results/vs_pytorch_two_cores.json
"""
import argparse
import ctypes
import ctypes.util
import datetime
import gc
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts/experiments"))
os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # PyTorch's profiler tells when it starts and stops

from record import code_version, machine  # noqa: E402


class Variant(NamedTuple):
    """How a row is measured."""

    mode: str = "eager"  # or graph
    layout: str = "contiguous"  # or channels_last
    threads: int = 0  # of the CPU; 0: all

    def key(self):
        return " ".join([self.mode, self.layout, *([f"{self.threads} threads"] if self.threads else [])])


def timed(work, device, seconds):
    """Median milliseconds of a call, measured as benchmarks/timing.h does."""
    import torch

    row, wait = (20, torch.cuda.synchronize) if device == "cuda" else (1, lambda: None)
    warm, calls = time.perf_counter() + seconds / 5, 0
    while time.perf_counter() < warm or calls < 2:
        work()
        calls += 1
    wait()
    samples, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(samples) < 3:
        start = time.perf_counter()
        for _ in range(row):
            work()
        wait()
        samples.append((time.perf_counter() - start) * 1e3 / row)
    return statistics.median(samples)


class Step:
    """A row: the training step of a net."""

    def __init__(self, workload, batch):
        self.workload, self.batch = workload, batch
        self.name = f"{workload.name} {batch}"
        self.layouts = ["contiguous", "channels_last"] if len(workload.input(1)) == 4 else ["contiguous"]
        self.contenders = {"pytorch": self.pytorch, "gradus": self.gradus}

    def pytorch(self, options, variant):
        import torch

        if variant.threads:
            torch.set_num_threads(variant.threads)
        step = self.pytorch_step(options, variant)
        if variant.mode == "eager":
            return {"ms": timed(step, options.device, options.seconds)}
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(5):
                step()
        torch.cuda.current_stream().wait_stream(side)
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            step()
        return {"ms": timed(captured.replay, options.device, options.seconds)}

    def pytorch_step(self, options, variant):
        """A function that does a step."""
        import torch

        device, half = options.device, {"fp16": torch.float16, "bf16": torch.bfloat16}.get(options.amp)
        torch.manual_seed(0)
        net = self.workload.make().to(device)
        x = torch.randn(self.workload.input(self.batch), device=device)
        y = torch.randint(0, 10, (self.batch,), device=device)
        if variant.layout == "channels_last":
            net, x = net.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
        scaled = options.amp == "fp16"
        how = {"capturable": True, "fused": scaled} if variant.mode == "graph" else {"fused": device == "cuda"}
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, **how)
        scaler = torch.amp.GradScaler(device, enabled=scaled)

        def step():
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(device, half, enabled=half is not None):
                loss = torch.nn.functional.cross_entropy(net(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()

        return step

    def pytorch_peak(self, options, variant):
        """Bytes that the profiler sees allocated at most during a step, all that was made before included."""
        import torch

        if options.device == "cuda":
            step = self.pytorch_step(options, variant)
            step(), step()
            torch.cuda.reset_peak_memory_stats()
            step()
            return torch.cuda.max_memory_allocated()
        if not torch.profiler.kineto_available():
            return None
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
            step = self.pytorch_step(options, variant)
            step(), step()
            with torch.profiler.record_function("measured step"):
                step()
            del step
            gc.collect()  # what outlives the profile would be counted in the next one
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            profile.export_chrome_trace(file.name)
            events = json.load(open(file.name, encoding="utf-8"))["traceEvents"]
        start = next(float(e["ts"]) for e in events if e.get("name") == "measured step")
        end = start + next(float(e["dur"]) for e in events if e.get("name") == "measured step")
        totals = sorted((float(e["ts"]), e["args"]["Total Allocated"], e["args"]["Bytes"]) for e in events
                        if e.get("name") == "[memory]")
        base = totals[0][1] - totals[0][2]
        before = [total for time, total, _ in totals if time < start][-1]
        return max([before] + [total for time, total, _ in totals if start <= time <= end]) - base

    def gradus(self, options, variant):
        with tempfile.NamedTemporaryFile(suffix=".jsonl") as file:
            command = [f"{options.programs}/train_step", "--net", self.workload.name, "--batch", str(self.batch),
                       "--format", variant.layout, "--seconds", str(options.seconds), "--step-only", "--json", file.name]
            command += ["--amp", options.amp, "--accuracy", options.accuracy]
            command += ["--graph"] if variant.mode == "graph" else []
            subprocess.run(command + shared_arguments(options, variant), check=True, stdout=subprocess.DEVNULL)
            line = json.loads(file.read())
        return {"ms": line["step_ms"], "peak_bytes": line["peak_bytes"]}


class Product:
    """A row: the product of two square matrices. OpenBLAS takes part where it is installed."""

    layouts = ["contiguous"]

    def __init__(self, size):
        self.size, self.name = size, f"matmul {size}"
        self.contenders = {"pytorch": self.pytorch, "gradus": self.gradus}
        if ctypes.util.find_library("openblas"):
            self.contenders["openblas"] = self.openblas

    def pytorch(self, options, variant):
        import torch

        if variant.threads:
            torch.set_num_threads(variant.threads)
        a, b, c = (torch.randn(self.size, self.size, device=options.device) for _ in range(3))
        return {"ms": timed(lambda: torch.mm(a, b, out=c), options.device, options.seconds)}

    def openblas(self, options, variant):
        # In a process of its own: its threads and PyTorch's would wait for work on the same cores. Releases older than a
        # CPU take it for one without AVX-512.
        environment = {**os.environ, "OPENBLAS_CORETYPE": "SkylakeX"} if has_avx512() else os.environ
        command = [sys.executable, __file__, "--openblas", str(self.size), "--seconds", str(options.seconds)]
        command += ["--threads", str(variant.threads)] if variant.threads else []
        output = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
        return {"ms": float(output.stdout)}

    def gradus(self, options, variant):
        command = [f"{options.programs}/matmul", "--size", str(self.size), "--seconds", str(options.seconds)]
        output = subprocess.run(command + shared_arguments(options, variant), check=True, capture_output=True, text=True)
        return {"ms": json.loads(output.stdout)["ms"]}


def has_avx512():
    try:
        return " avx512f" in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return False


def time_openblas(size, threads, seconds):
    import torch

    blas = ctypes.CDLL(ctypes.util.find_library("openblas"))
    if threads:
        blas.openblas_set_num_threads(threads)
    row_major, plain, one, zero = 101, 111, ctypes.c_float(1), ctypes.c_float(0)
    a, b, c = (torch.randn(size, size) for _ in range(3))
    pa, pb, pc = (ctypes.c_void_p(x.data_ptr()) for x in (a, b, c))
    return timed(lambda: blas.cblas_sgemm(row_major, plain, plain, size, size, size, one, pa, size, pb, size, zero, pc,
                                          size), "cpu", seconds)


def shared_arguments(options, variant):
    """Of train_step and matmul."""
    return (["--device", options.device] + (["--backend", options.backend] if options.backend else []) +
            (["--threads", str(variant.threads)] if variant.threads else []) + (["--tf32"] if options.tf32 else []))


def all_rows():
    from nets import WORKLOADS

    return [Step(workload, batch) for workload in WORKLOADS for batch in workload.batches] + [Product(1024)]


def measure(rows, options):
    """A record for each row and mode: medians by contender and variant."""
    samples, peaks = {}, {}  # (row, mode) -> contender -> variant -> milliseconds; bytes
    modes = ["eager", "graph"] if options.graph else ["eager"]
    threads = [options.threads] + ([1] if options.scaling else [])
    for turn in range(options.rounds):
        for row in rows:
            for variant in (Variant(mode, layout, n) for mode in modes for layout in row.layouts for n in threads):
                for contender, work in row.contenders.items():
                    found = work(options, variant)
                    cell = samples.setdefault((row, variant.mode), {}).setdefault(contender, {})
                    cell.setdefault(variant.key(), []).append(found["ms"])
                    if "peak_bytes" in found:
                        peaks.setdefault((row, variant.mode), {}).setdefault(contender, {})[variant.key()] = found["peak_bytes"]
                if turn == 0 and isinstance(row, Step) and variant.threads == options.threads:
                    peaks[row, variant.mode].setdefault("pytorch", {})[variant.key()] = row.pytorch_peak(options, variant)
            print(f"round {turn + 1} of {options.rounds}: {row.name}", file=sys.stderr)
    return [{"row": row.name, "mode": mode, "amp": options.amp, "threads": options.threads, "rounds": options.rounds,
             "seconds": options.seconds, "code": code_version(),
             "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="minutes"),
             "ms": {who: {key: statistics.median(ms) for key, ms in cell.items()} for who, cell in cells.items()},
             "peak_bytes": peaks.get((row, mode), {})}
            for (row, mode), cells in samples.items()]


def best(record, who, threads):
    """The variant with the least time at this number of threads, and that time; (None, None) where there is none."""
    suffix = f" {threads} threads" if threads else ""
    found = {key: ms for key, ms in record["ms"].get(who, {}).items() if not threads or key.endswith(suffix)}
    key = min(found, key=found.get) if found else None
    return key, found.get(key)


def cells_of(record):
    """The texts of a line of the table."""
    amp = record.get("amp", "off")
    name = record["row"] + ("" if amp == "off" else f", {amp}") + ("" if record["mode"] == "eager" else ", captured")
    threads, cells = record["threads"], [name]
    product = record["row"].startswith("matmul")
    peers = {who: best(record, who, threads) for who in ("pytorch", "gradus", "openblas") if who in record["ms"]}

    def figure(who):
        key, ms = peers[who]
        if product:
            return f"{2 * int(record['row'].split()[1]) ** 3 / ms / 1e6:.0f} GFLOP/s"
        return f"{ms:.3g}" + (" cl" if "channels_last" in key else "")

    cells += [figure("pytorch") + (f"; OpenBLAS {figure('openblas')}" if "openblas" in peers else ""), figure("gradus")]
    ratios = [f"{peers['pytorch'][1] / peers['gradus'][1]:.2f}"]
    if "openblas" in peers:
        ratios.append(f"{peers['openblas'][1] / peers['gradus'][1]:.2f}")
    cells.append("; ".join(ratios))
    one = {who: best(record, who, 1)[1] for who in ("pytorch", "gradus")}
    cells.append(" / ".join(f"{one[who] / peers[who][1]:.2f}" for who in one) if threads != 1 and all(one.values()) else "")
    peaks = [record["peak_bytes"].get(who, {}).get(peers[who][0]) for who in ("pytorch", "gradus")]
    cells.append(" / ".join(f"{peak / 2**20:.3g}" for peak in peaks) if all(peaks) else "")
    return cells


def print_table(results):
    where = results["machine"]
    print(f"PyTorch {results['pytorch']} and gradus; {where['gpu'] or where['cpu']}\n")
    head = ["row", "PyTorch ms", "gradus ms", "ratio", "1 to n threads", "peak MiB"]
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for record in results["rows"]:
        print("| " + " | ".join(cells_of(record)) + " |")


def store(path, results):
    """Into the file: rows that it has from an earlier run on this machine are replaced, others stay."""
    path = pathlib.Path(path)
    if path.exists():
        old = {"accuracy": "exact", **json.loads(path.read_text(encoding="utf-8"))}  # files from before it could be chosen
        for key in ("pytorch", "machine", "accuracy"):
            if old.get(key) != results[key]:
                raise SystemExit(f"vs_pytorch: {path} has figures of another {key}; name another file")
        key = lambda row: (row["row"], row["mode"], row.get("amp", "off"))  # noqa: E731
        new = {key(row) for row in results["rows"]}
        kept = [row for row in old["rows"] if key(row) not in new]
        order = [row.name for row in all_rows()]
        results = {**results, "rows": sorted(kept + results["rows"], key=lambda row: order.index(row["row"]))}
    path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", help="folder of the built programs train_step and matmul")
    parser.add_argument("--rows", nargs="+", default=[""], help="those whose names begin so, such as lenet or 'lenet 64'")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--backend", default="", help="of gradus")
    parser.add_argument("--accuracy", default="exact", choices=["exact", "winograd_2x2", "winograd_4x4"],
                        help="of gradus's convolutions")
    parser.add_argument("--threads", type=int, default=0, help="of the CPU, for both")
    parser.add_argument("--scaling", action="store_true", help="measure with one thread too")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5, help="per measurement")
    parser.add_argument("--quick", action="store_true", help="one short round, for a look during development")
    parser.add_argument("--graph", action="store_true", help="cuda: compare captured steps too")
    parser.add_argument("--amp", default="off", choices=["off", "fp16", "bf16"], help="mixed precision in both; steps alone")
    parser.add_argument("--tf32", action="store_true", help="let both use TF32")
    parser.add_argument("--json", default="", help="put all figures into this file")
    parser.add_argument("--table", default="", metavar="FILE", help="only print what --json has stored")
    parser.add_argument("--openblas", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.table:
        print_table(json.loads(pathlib.Path(options.table).read_text(encoding="utf-8")))
        return
    if options.openblas:
        print(time_openblas(options.openblas, options.threads, options.seconds))
        return
    if not options.programs:
        parser.error("--programs is needed")
    if options.quick:
        options.rounds, options.seconds = 1, min(options.seconds, 0.2)
    import torch

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = options.tf32
    torch.backends.cudnn.benchmark = True
    rows = [row for row in all_rows() if any(row.name.startswith(name) for name in options.rows)]
    if not rows:
        parser.error(f"no such row; there are {', '.join(row.name for row in all_rows())}")
    results = {"pytorch": torch.__version__, "machine": machine(), "device": options.device, "tf32": options.tf32,
               "accuracy": options.accuracy, "rows": measure(rows, options)}
    print_table(results)
    if options.json:
        store(options.json, results)


if __name__ == "__main__":
    main()
