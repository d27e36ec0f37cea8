#!/usr/bin/env python3
"""Measures how much DistributedDataParallel adds to a training step, in gradus and in PyTorch, on the GPUs of this
machine.

usage: ddp.py --program BUILD/benchmarks/ddp [--comm nccl] [--nets stl10_net,lenet] [--batches 16,32,64,128]
              [--rounds 2] [--json FILE]
       ddp.py --program BUILD/benchmarks/ddp --device cpu [--comm shm] [--json FILE]

On the cpu, compares two ranks of one thread with one process of two threads and the same total batch, only in gradus.

Both programs alternately time a step with DDP and the same step without. gradus also measures the communication that
cannot overlap with the backward pass ("exposed"): the all-reduces of the buckets, one after the other, each starting
when its bucket is full, minus the rest of the backward pass. Batch sizes are those of a rank. The rounds alternate
between the two programs; figures are medians of all rounds.
"""

import argparse
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "scripts" / "experiments"))
from record import code_version, machine  # noqa: E402

PEERS = {"nccl": "nccl", "tcp": "gloo", "shm": "gloo"}
FIGURES = ["step_ms", "local_ms", "exposed_us", "bucket_megabytes", "bucket_all_reduce_us", "backward_left_us"]


def time_torch_case(net, batch, mode, precision, rank, settings):
    """Returns (step_ms, local_ms) of PyTorch."""
    import torch
    import torch.distributed as dist
    from nets import WORKLOADS
    from pytorch_step import captured

    workload = next(workload for workload in WORKLOADS if workload.name == net)
    torch.manual_seed(0)

    def make(with_ddp):
        model = workload.make().cuda()
        x = torch.randn(workload.input(batch), device="cuda")
        y = torch.randint(0, 10, (batch,), device="cuda")
        called = model
        if with_ddp:
            called = torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank], gradient_as_bucket_view=True)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True, capturable=mode == "graph")

        def step():
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16"):
                loss = torch.nn.functional.cross_entropy(called(x), y)
            loss.backward()
            optimizer.step()

        return step

    kept = []

    def ready(make_one):
        if mode != "graph":
            step = make_one()
            for _ in range(5):
                step()
            return step
        with torch.cuda.stream(torch.cuda.Stream()):  # where DDP has to be made, too, for its hooks to be captured
            step = make_one()
            for _ in range(11):  # DDP needs as many before a capture
                step()
            replay = captured(step)
            kept.append(step)  # the graph reads its memory
            return replay

    def time_row(step):
        dist.barrier()
        torch.cuda.synchronize()
        before = time.perf_counter()
        for _ in range(50):
            step()
        torch.cuda.synchronize()
        return (time.perf_counter() - before) * 1e3 / 50

    alone, averaged = ready(lambda: make(False)), ready(lambda: make(True))
    samples = [(time_row(alone), time_row(averaged)) for _ in range(settings.samples)]
    return {"local_ms": statistics.median(a for a, _ in samples), "step_ms": statistics.median(b for _, b in samples)}


def run_torch_rank(settings):
    """Runs a rank of PyTorch's job. RANK and similar variables come from the environment."""
    import torch
    import torch.distributed as dist

    rank = int(os.environ["RANK"])
    torch.cuda.set_device(rank)
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    dist.init_process_group(PEERS[settings.comm])
    for net in settings.nets:
        for batch in settings.batches:
            for mode in settings.modes:
                for precision in settings.precisions:
                    row = {"net": net, "batch": batch, "mode": mode, "precision": precision}
                    row |= time_torch_case(net, batch, mode, precision, rank, settings)
                    if rank == 0:
                        print(json.dumps(row), flush=True)
    dist.destroy_process_group()


def lines_of(output):
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def common_options(settings):
    options = ["--comm", settings.comm, "--samples", str(settings.samples)]
    for name in "nets", "batches", "modes", "precisions":
        options += ["--" + name, ",".join(map(str, getattr(settings, name)))]
    return options


def run_gradus(settings):
    command = [settings.program, "--ranks", str(settings.ranks), *common_options(settings)]
    return lines_of(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


def run_torch(settings):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ranks = []
    for rank in range(settings.ranks):
        environment = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(settings.ranks),
                           MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo",
                           TORCH_NCCL_ASYNC_ERROR_HANDLING="0")  # which captured DDP asks for
        command = [sys.executable, __file__, "--torch-rank", *common_options(settings)]
        ranks.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True))
    outputs = [process.communicate()[0] for process in ranks]
    if any(process.returncode for process in ranks):
        sys.exit("PyTorch's ranks failed")
    return lines_of(outputs[0])


# Net and batch of all ranks.
ON_CPU = [("lenet", 1024), ("conv10_c32", 128), ("stl10_net", 128), ("stl10_net", 32)]


def compare_on_cpu(settings):
    """Returns [{net, batch, and the medians of the step of the ranks, of a single process, and of its optimizer}]."""
    folder = settings.program.parent
    rows = []
    for net, batch in ON_CPU:
        ranks, alone = [], []
        for _ in range(settings.rounds):
            command = [settings.program, "--device", "cpu", "--comm", settings.comm, "--nets", net, "--batches",
                       str(batch // 2), "--modes", "eager", "--precisions", "fp32", "--samples", str(settings.samples)]
            ranks += lines_of(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
            with tempfile.NamedTemporaryFile("r") as file:
                command = [folder / "train_step", "--net", net, "--batch", str(batch), "--threads", "2",
                           "--seconds", "3", "--json", file.name]
                subprocess.run(command, stdout=subprocess.PIPE, check=True)
                alone += lines_of(file.read())
        row = {"net": net, "batch": batch, "ranks_ms": statistics.median(r["step_ms"] for r in ranks),
               "process_ms": statistics.median(a["step_ms"] for a in alone),
               "optimizer_ms": statistics.median(a["optimizer_ms"] for a in alone)}
        rows.append(row)
        print(f"{net:10} {batch:5}: two ranks of one thread {row['ranks_ms']:8.2f} ms, one process of two"
              f" {row['process_ms']:8.2f} ms ({row['ranks_ms'] / row['process_ms']:.3f}), of which Adam"
              f" {row['optimizer_ms']:.2f} ms", flush=True)
    return rows


def save(settings, rows):
    if settings.json:
        result = {"machine": machine(), "code": code_version(), "ranks": settings.ranks, "comm": settings.comm,
                  "rounds": settings.rounds, "rows": rows}
        settings.json.write_text(json.dumps(result, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = {"type": lambda text: text.split(",")}
    parser.add_argument("--program", type=pathlib.Path)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--samples", type=int, default=7)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--comm", choices=list(PEERS), help="default: nccl, on the cpu shm")
    parser.add_argument("--nets", **names, default=["stl10_net", "lenet"])
    parser.add_argument("--batches", type=lambda text: [int(n) for n in text.split(",")], default=[16, 32, 64, 128])
    parser.add_argument("--modes", **names, default=["eager", "graph"])
    parser.add_argument("--precisions", **names, default=["fp32", "bf16"])
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--torch-rank", action="store_true", help=argparse.SUPPRESS)
    settings = parser.parse_args()
    settings.comm = settings.comm or ("nccl" if settings.device == "cuda" else "shm")
    if settings.torch_rank:
        run_torch_rank(settings)
        return

    if settings.device == "cpu":
        save(settings, compare_on_cpu(settings))
        return
    samples = {}
    for _ in range(settings.rounds):
        for name, run in ("gradus", run_gradus), ("torch", run_torch):
            for line in run(settings):
                key = line["net"], line["batch"], line["mode"], line["precision"]
                samples.setdefault(key, {}).setdefault(name, []).append(line)
    print(f"{'net':10} {'batch':>5} {'mode':5} {'':4} | {'step':>8} {'without':>8} {'added us':>8} {'exposed':>8} |"
          f" {'PyTorch':>8} {'without':>8} {'added us':>8} | ratio")
    rows = []
    for key, lines in samples.items():
        row = dict(zip(("net", "batch", "mode", "precision"), key))
        for name, prefix in ("gradus", ""), ("torch", "torch_"):
            for figure in FIGURES:
                values = [line[figure] for line in lines[name] if figure in line]
                if values:
                    row[prefix + figure] = statistics.median(values)
            row[prefix + "added_us"] = (row[prefix + "step_ms"] - row[prefix + "local_ms"]) * 1e3
        row["allowed_us"] = max(60, 50 * row["local_ms"], 1.15 * row["exposed_us"])
        row["ratio"] = row["torch_step_ms"] / row["step_ms"]
        verdict = "" if row["added_us"] <= row["allowed_us"] else f"  more than allowed: {row['allowed_us']:.0f}"
        rows.append(row)
        print(f"{row['net']:10} {row['batch']:5} {row['mode']:5} {row['precision']:4} | {row['step_ms']:8.3f}"
              f" {row['local_ms']:8.3f} {row['added_us']:8.0f} {row['exposed_us']:8.0f} | {row['torch_step_ms']:8.3f}"
              f" {row['torch_local_ms']:8.3f} {row['torch_added_us']:8.0f} | {row['ratio']:5.2f}{verdict}")
    save(settings, rows)


if __name__ == "__main__":
    main()
