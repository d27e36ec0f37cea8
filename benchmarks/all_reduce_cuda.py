#!/usr/bin/env python3
"""Compares all-reduce of arrays on GPUs for several sizes: gradus's nccl, tcp and shm, and torch.distributed's nccl and
gloo.

usage: all_reduce_cuda.py --program BUILD/benchmarks/all_reduce_cuda [--ranks 2] [--rounds 3] [--json FILE]

The rounds alternate between the two programs; in each, a sample is a row of calls between two waits for the device, and
a figure is the median of all samples of all rounds. A ratio is PyTorch's time over gradus's: above 1 gradus is faster.
"""

import argparse
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "scripts" / "experiments"))
from record import code_version, machine  # noqa: E402

PEERS = {"nccl": "nccl", "tcp": "gloo", "shm": "gloo"}


def sizes(settings):
    bytes_ = settings.smallest
    while bytes_ <= settings.largest:
        yield bytes_
        bytes_ *= 4


def calls_of(backend, bytes_):
    """Returns the number of calls between two waits for the device, the same as in all_reduce_cuda.cpp."""
    if backend == "nccl":
        return 200 if bytes_ <= 1 << 20 else 100 if bytes_ <= 16 << 20 else 30
    return 100 if bytes_ <= 64 << 10 else 50 if bytes_ <= 1 << 20 else 10 if bytes_ <= 16 << 20 else 4


def run_torch_rank(settings):
    """Runs a rank of PyTorch's job. RANK and similar variables come from the environment."""
    import torch
    import torch.distributed as dist

    rank = int(os.environ["RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    groups = {"nccl": dist.group.WORLD, "gloo": dist.new_group(backend="gloo")}
    if rank == 0:
        print(json.dumps({"torch": torch.__version__, "nccl_version": list(torch.cuda.nccl.version())}), flush=True)
    for backend in dict.fromkeys(PEERS[name] for name in settings.backends):
        group = groups[backend]
        first = torch.zeros(settings.smallest // 4, device="cuda")
        for _ in range(500):  # until clocks and connections have found their pace
            dist.all_reduce(first, group=group)
        for bytes_ in sizes(settings):
            x = torch.zeros(bytes_ // 4, device="cuda")
            for _ in range(5):
                dist.all_reduce(x, group=group)
            samples = []
            for _ in range(settings.samples):
                dist.barrier(group=group)
                torch.cuda.synchronize()
                calls = calls_of(backend, bytes_)
                before = time.perf_counter()
                for _ in range(calls):
                    dist.all_reduce(x, group=group)
                torch.cuda.synchronize()
                samples.append((time.perf_counter() - before) * 1e6 / calls)
            if rank == 0:
                print(json.dumps({"backend": backend, "bytes": bytes_, "us": samples}), flush=True)
    dist.destroy_process_group()


def lines_of(output):
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def common_options(settings):
    return ["--ranks", str(settings.ranks), "--samples", str(settings.samples), "--smallest", str(settings.smallest),
            "--largest", str(settings.largest), "--backends", ",".join(settings.backends)]


def torch_nccl():
    """Returns the path of the libnccl that PyTorch loads, or None if PyTorch does not bring one."""
    import torch

    packages = pathlib.Path(torch.__file__).resolve().parent.parent
    return next(iter(packages.glob("nvidia/**/libnccl.so.2")), None)


def run_gradus(settings):
    environment = dict(os.environ)
    if settings.same_nccl and (library := torch_nccl()):
        environment["LD_PRELOAD"] = str(library)
    done = subprocess.run([settings.program, *common_options(settings)], stdout=subprocess.PIPE, text=True, check=True,
                          env=environment)
    return lines_of(done.stdout)


def run_torch(settings):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ranks = []
    for rank in range(settings.ranks):
        environment = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(settings.ranks),
                           MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
        command = [sys.executable, __file__, "--torch-rank", *common_options(settings)]
        ranks.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True))
    outputs = [process.communicate()[0] for process in ranks]
    if any(process.returncode for process in ranks):
        sys.exit("PyTorch's ranks failed")
    return lines_of(outputs[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--samples", type=int, default=5)
    parser.add_argument("--smallest", type=int, default=4 << 10)
    parser.add_argument("--largest", type=int, default=256 << 20)
    parser.add_argument("--backends", type=lambda text: text.split(","), default=list(PEERS))
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--same-nccl", action="store_true",
                        help="let gradus load PyTorch's libnccl, which may be newer")
    parser.add_argument("--torch-rank", action="store_true", help=argparse.SUPPRESS)
    settings = parser.parse_args()
    if settings.torch_rank:
        run_torch_rank(settings)
        return

    samples, versions = {}, {}
    for _ in range(settings.rounds):
        for name, run in ("gradus", run_gradus), ("torch", run_torch):
            for line in run(settings):
                if "us" in line:
                    samples.setdefault((name, line["backend"], line["bytes"]), []).extend(line["us"])
                else:
                    versions[name] = line
    print("gradus:", versions["gradus"], " PyTorch:", versions["torch"])
    print(f"{'bytes':>10}" + "".join(f"  {name:>9} {PEERS[name] + ' (torch)':>13} ratio" for name in settings.backends))
    rows = []
    for bytes_ in sizes(settings):
        row, text = {"bytes": bytes_}, f"{bytes_:>10}"
        for name in settings.backends:
            ours = statistics.median(samples["gradus", name, bytes_])
            theirs = statistics.median(samples["torch", PEERS[name], bytes_])
            row[name] = {"us": ours, "torch_us": theirs, "ratio": theirs / ours}
            text += f"  {ours:9.1f} {theirs:13.1f} {theirs / ours:5.2f}"
        rows.append(row)
        print(text)
    if settings.json:
        result = {"machine": machine(), "code": code_version(), "ranks": settings.ranks, "rounds": settings.rounds,
                  "versions": versions, "rows": rows}
        settings.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
