"""Compares gradus with PyTorch: the training steps of benchmarks/train_step.cpp and a matrix product, in one run on one
machine.

Each round measures every row on gradus and on PyTorch in turn, so that a machine whose speed drifts slows both; the
table shows medians over the rounds and PyTorch / gradus (above 1: gradus is faster), each with the better of contiguous
and channels-last. Peak: the most bytes that tensors held during a step (benchmarks/README.md says what counts).

    python3 benchmarks/vs_pytorch.py --programs build/cpu-release/benchmarks --threads 2
    python3 benchmarks/vs_pytorch.py --programs build/cpu-release/benchmarks --threads 2 --quick --rows lenet matmul
    python3 benchmarks/vs_pytorch.py --table benchmarks/results/vs_pytorch_two_cores.json

On a GPU rows are steps alone: eager, captured and (PyTorch) compiled, in each precision, with either Adam of PyTorch:

    python3 benchmarks/vs_pytorch.py --programs build/cuda/benchmarks --device cuda --modes eager graph compiled \\
        --precisions fp32 tf32 bf16
    python3 benchmarks/vs_pytorch.py --programs build/cuda/benchmarks --device cuda --backend cuda --no-cudnn \\
        --modes eager
"""
import argparse
import ctypes
import ctypes.util
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts/experiments"))

from comparison_table import print_results  # noqa: E402
from record import code_version, machine  # noqa: E402
from variant import PRECISIONS, Variant  # noqa: E402


class Step:
    """A row: the training step of a net."""

    def __init__(self, workload, batch):
        self.workload, self.batch = workload, batch
        self.name = f"{workload.name} {batch}"
        self.layouts = ["contiguous", "channels_last"] if len(workload.input(1)) == 4 else ["contiguous"]
        self.contenders = {"gradus": self.gradus, "pytorch": self.pytorch}

    def variants(self, options, threads):
        """Returns gradus's variants."""
        return [Variant(mode, layout, precision, threads=threads) for mode in options.modes if mode != "compiled"
                for precision in options.precisions for layout in self.layouts]

    def peer_variants(self, options, threads):
        """Returns PyTorch's variants. On a GPU, Adam is fused; eager steps in fp32 are also measured with the default
        Adam."""
        variants = self.variants(options, threads)
        fused = [v._replace(fused=True) for v in variants] if options.device == "cuda" else []
        plain = [v for v in variants if options.device == "cpu" or (v.mode == "eager" and v.precision == "fp32")]
        return plain + fused

    def compile_jobs(self, options):
        """Returns the variants to compile, starting with those that are probably the fastest."""
        variants = [Variant("compiled", layout, precision, True) for precision in options.compile_precisions
                    for layout in self.layouts]
        variants.sort(key=lambda v: len(self.layouts) > 1 and (v.layout == "channels_last") != (v.precision == "bf16"))
        return [(self.workload.name, self.batch, variant) for variant in variants]

    def gradus(self, options, threads):
        """Measures all variants in one process."""
        with tempfile.NamedTemporaryFile(suffix=".jsonl") as file:
            command = [f"{options.programs}/train_step", "--net", self.workload.name, "--batch", str(self.batch),
                       "--seconds", str(options.seconds), "--step-only", "--json", file.name,
                       "--mode", ",".join(m for m in options.modes if m != "compiled"),
                       "--precision", ",".join(options.precisions), "--format", ",".join(self.layouts)]
            done = subprocess.run(command + shared_arguments(options, threads), stdout=subprocess.DEVNULL, check=False)
            lines = [json.loads(line) for line in file.read().splitlines()]
        if done.returncode != 0:
            options.failures.append(f"gradus: {self.name} after {len(lines)} variants")
        return {variant.key(): {"ms": line["step_ms"], "peak_bytes": line["peak_bytes"]}
                for variant, line in zip(self.variants(options, threads), lines)}

    def pytorch(self, options, threads):
        from pytorch_step import time_step

        found = {}
        for variant in self.peer_variants(options, threads):
            try:
                found[variant.key()] = time_step(self.workload.name, self.batch, options.device, variant,
                                                 options.seconds)
            except RuntimeError as error:
                options.failures.append(f"PyTorch: {self.name} {variant.key()}: {error}")
        for job in self.compile_jobs(options):
            if options.compiled and job in options.compiled.ready:
                found[job[2].key()] = options.compiled.time_step(job, options.seconds)
        return found

    def pytorch_peaks(self, options):
        from pytorch_step import cpu_peak_bytes

        return {variant.key(): cpu_peak_bytes(self.workload.name, self.batch, variant)
                for variant in self.peer_variants(options, options.threads)}


class Product:
    """A row: the product of two square matrices. Also measures OpenBLAS if it is installed."""

    def __init__(self, size):
        self.size, self.name = size, f"matmul {size}"
        self.contenders = {"gradus": self.gradus, "pytorch": self.pytorch}
        if ctypes.util.find_library("openblas"):
            self.contenders["openblas"] = self.openblas

    def pytorch(self, options, threads):
        import torch

        from pytorch_step import timed

        if threads:
            torch.set_num_threads(threads)
        a, b, c = (torch.randn(self.size, self.size) for _ in range(3))
        return {Variant(threads=threads).key(): {"ms": timed(lambda: torch.mm(a, b, out=c), "cpu", options.seconds)}}

    def openblas(self, options, threads):
        # In a process of its own: its threads and PyTorch's would wait for work on the same cores. Releases older than
        # a CPU take it for one without AVX-512.
        environment = {**os.environ, "OPENBLAS_CORETYPE": "SkylakeX"} if has_avx512() else os.environ
        command = [sys.executable, __file__, "--openblas", str(self.size), "--seconds", str(options.seconds)]
        command += ["--threads", str(threads)] if threads else []
        output = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
        return {Variant(threads=threads).key(): {"ms": float(output.stdout)}}

    def gradus(self, options, threads):
        command = [f"{options.programs}/matmul", "--size", str(self.size), "--seconds", str(options.seconds)]
        output = subprocess.run(command + shared_arguments(options, threads), check=True, capture_output=True,
                                text=True)
        return {Variant(threads=threads).key(): {"ms": json.loads(output.stdout)["ms"]}}


def has_avx512():
    try:
        return " avx512f" in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return False


def time_openblas(size, threads, seconds):
    import torch

    from pytorch_step import timed

    blas = ctypes.CDLL(ctypes.util.find_library("openblas"))
    if threads:
        blas.openblas_set_num_threads(threads)
    row_major, plain, one, zero = 101, 111, ctypes.c_float(1), ctypes.c_float(0)
    a, b, c = (torch.randn(size, size) for _ in range(3))
    pa, pb, pc = (ctypes.c_void_p(x.data_ptr()) for x in (a, b, c))
    return timed(lambda: blas.cblas_sgemm(row_major, plain, plain, size, size, size, one, pa, size, pb, size, zero, pc,
                                          size), "cpu", seconds)


def shared_arguments(options, threads):
    """Of train_step and matmul."""
    return (["--device", options.device] + (["--backend", options.backend] if options.backend else []) +
            (["--threads", str(threads)] if threads else []))


def all_rows(device):
    """On a GPU steps alone: the product of matrices is cuBLAS's in both."""
    from nets import WORKLOADS

    on_gpu = device == "cuda"
    steps = [Step(workload, batch) for workload in WORKLOADS
             for batch in workload.batches + (workload.larger_batches if on_gpu else [])]
    return steps if on_gpu else [*steps, Product(1024)]


def measure(rows, options):
    """Returns a record for each row, with medians by contender and variant. If interrupted, returns the results so
    far."""
    samples, peaks = {}, {}  # row -> contender -> variant -> milliseconds; bytes

    def measure_row(row):
        for threads in [options.threads] + ([1] if options.scaling else []):
            for contender, work in row.contenders.items():
                for key, found in work(options, threads).items():
                    samples.setdefault(row, {}).setdefault(contender, {}).setdefault(key, []).append(found["ms"])
                    if "peak_bytes" in found:
                        peaks.setdefault(row, {}).setdefault(contender, {})[key] = found["peak_bytes"]

    try:
        for turn in range(options.rounds):
            for row in rows:
                measure_row(row)
                if turn == 0 and isinstance(row, Step) and options.device == "cpu":
                    peaks[row]["pytorch"] = row.pytorch_peaks(options)
                print(f"round {turn + 1} of {options.rounds}: {row.name}", file=sys.stderr)
    except KeyboardInterrupt:
        options.failures.append("interrupted")
        samples = {row: cells for row, cells in samples.items() if len(cells) == len(row.contenders)}
    return [{"row": row.name, "backend": options.backend, "cudnn": not options.no_cudnn, "threads": options.threads,
             "rounds": options.rounds, "seconds": options.seconds, "code": code_version(),
             "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="minutes"),
             "ms": {who: {key: statistics.median(ms) for key, ms in cell.items()} for who, cell in cells.items()},
             "peak_bytes": peaks.get(row, {})}
            for row, cells in samples.items()]


def compile_steps(rows, options):
    """Returns the compiled steps of all rows, in the order of their use if there is time for all."""
    from pytorch_step import CompiledSteps

    jobs = [row.compile_jobs(options) for row in reversed(rows)]  # large nets take longest
    turns = range(max(len(job) for job in jobs))
    jobs = [job[turn] for turn in turns for job in jobs if turn < len(job)]
    start = time.perf_counter()
    compiled = CompiledSteps(jobs, options.device, options.compile_seconds, len(os.sched_getaffinity(0)))
    print(f"compiled {len(compiled.ready)} of {len(jobs)} steps in {time.perf_counter() - start:.0f} s",
          file=sys.stderr)
    options.failures += [f"PyTorch: not compiled: {job}: {error}" for job, error in compiled.failed.items()]
    return compiled


def store(path, results):
    """Stores rows in the file. Replaces rows of an earlier run on this machine, and keeps other rows."""
    path = pathlib.Path(path)
    if path.exists():
        old = json.loads(path.read_text(encoding="utf-8"))
        for key in ("pytorch", "machine", "device"):
            if old.get(key) != results[key]:
                raise SystemExit(f"vs_pytorch: {path} has figures of another {key}; name another file")
        key = lambda row: (row["row"], row.get("cudnn", True))  # noqa: E731
        new = {key(row) for row in results["rows"]}
        kept = [row for row in old["rows"] if key(row) not in new]
        order = [row.name for row in all_rows(results["device"])]
        results = {**results, "rows": sorted(kept + results["rows"], key=lambda row: order.index(row["row"]))}
    path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", help="folder of the built programs train_step and matmul")
    parser.add_argument("--rows", nargs="+", default=[""],
                        help="those whose names begin so, such as lenet or 'lenet 64', in this order")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--backend", default="", help="of gradus")
    parser.add_argument("--threads", type=int, default=0, help="of the CPU, for both")
    parser.add_argument("--scaling", action="store_true", help="measure with one thread too")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5, help="per measurement")
    parser.add_argument("--quick", action="store_true", help="one short round, for a look during development")
    parser.add_argument("--modes", nargs="+", default=["eager"], choices=["eager", "graph", "compiled"],
                        help="cuda: captured steps and PyTorch's torch.compile too")
    parser.add_argument("--precisions", nargs="+", default=["fp32"], choices=PRECISIONS,
                        help="of both, in steps; fp16 and bf16: mixed precision")
    parser.add_argument("--compile-precisions", nargs="+", default=["tf32", "bf16"], choices=PRECISIONS)
    parser.add_argument("--compile-seconds", type=float, default=60, help="no step is begun to be compiled after these")
    parser.add_argument("--no-cudnn", action="store_true", help="PyTorch without cuDNN, to go with --backend cuda")
    parser.add_argument("--json", default="", help="put all figures into this file")
    parser.add_argument("--table", default="", metavar="FILE", help="only print what --json has stored")
    parser.add_argument("--openblas", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.table:
        print_results(json.loads(pathlib.Path(options.table).read_text(encoding="utf-8")))
        return
    if options.openblas:
        print(time_openblas(options.openblas, options.threads, options.seconds))
        return
    if not options.programs:
        parser.error("--programs is needed")
    if options.device == "cpu" and "graph" in options.modes:
        parser.error("captured steps need --device cuda")
    if options.quick:
        options.rounds, options.seconds = 1, min(options.seconds, 0.2)
    import torch

    options.failures = []
    torch.backends.cudnn.enabled = not options.no_cudnn
    every = all_rows(options.device)
    rows = list(dict.fromkeys(row for name in options.rows for row in every if row.name.startswith(name)))
    if not rows:
        parser.error(f"no such row; there are {', '.join(row.name for row in every)}")
    options.compiled = compile_steps(rows, options) if "compiled" in options.modes else None
    results = {"pytorch": torch.__version__, "machine": machine(), "device": options.device,
               "rows": measure(rows, options)}
    print_results(results)
    if options.json:
        store(options.json, results)
    if options.failures:
        raise SystemExit("vs_pytorch: failed:\n" + "\n".join(options.failures))


if __name__ == "__main__":
    main()
