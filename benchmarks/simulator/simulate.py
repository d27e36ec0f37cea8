#!/usr/bin/env python3
"""Simulates training on N ranks: compares the simulator (step.py, failures.py) with stored measurements, and simulates
16 to 65,536 ranks. Writes check.jsonl and forecast.jsonl, docs/scaling_on_paper.png, and the tables of
docs/scaling_on_paper.md.

    benchmarks/simulator/simulate.py
    benchmarks/simulator/simulate.py --check       # whether the page says what the files say
    benchmarks/simulator/simulate.py --measure build/cpu-release/benchmarks --ranks 1 2 4 8    # runs to compare with
"""

import argparse
import itertools
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

import failures
from step import Cluster, Link, Transformer, best, data_parallel, fit

HERE = pathlib.Path(__file__).resolve().parent
BENCHMARKS, ROOT = HERE.parent, HERE.parent.parent
PAGE = ROOT / "docs/scaling_on_paper.md"
sys.path.insert(0, str(ROOT / "scripts/experiments"))
from record import Runs, code_version, machine, pyplot  # noqa: E402

GRADIENTS = {"lenet": 4 * 61706, "conv10_c32": 4 * 334442, "stl10_net": 4 * 9536074, "resnet18": 4 * 11173962}  # bytes


def load(name):
    return json.loads((BENCHMARKS / "results" / name).read_text(encoding="utf-8"))


# ---- The check ----


def all_reduces(name, way):
    """Returns (ranks, bytes, seconds) from a file of all_reduce.py or all_reduce_cuda.py."""
    found = load(name)
    return [(found["ranks"], row["bytes"],
             1e-6 * (statistics.median(row["us"][way]) if "us" in row else row[way]["us"])) for row in found["rows"]]


def check_rows():
    rows = []

    def add(group, what, on, ranks, predicted, measured_ms):
        name = on["gpu" if "GPU" in group else "cpu"]
        rows.append({"group": group, "what": what, "machine": f"{name}, {on['cores']} cores", "ranks": ranks,
                     "predicted_ms": predicted * 1e3, "measured_ms": measured_ms,
                     "error": predicted * 1e3 / measured_ms - 1, "memory_shared": "thread" in group})

    times = {}
    for name, reduces, way, group in (
            ("ddp_h200.json", "all_reduce_nccl_h200.json", "nccl", "nccl, 2 GPUs"),
            ("ddp_tcp_h200.json", "all_reduce_staged_h200.json", "tcp", "tcp by way of the hosts, 2 GPUs")):
        found, link = load(name), fit(all_reduces(reduces, way))
        for row in found["rows"] + found.get("alone", []):
            key = group, f"{row['net']} {row['mode']} {row['precision']}"
            times.setdefault(key, {})[row["batch"]] = local = row["local_ms"] / 1e3
            largest = min(row["bucket_megabytes"] * 1e6, GRADIENTS[row["net"]])
            buckets = [(1 - max(0, row["backward_left_us"]) / 1e6 / local, largest)]
            if largest < GRADIENTS[row["net"]]:
                buckets.append((1, GRADIENTS[row["net"]] - largest))
            add(group, f"{key[1]} {row['batch']}", found["machine"], 2, data_parallel(local, local, buckets, link, 2),
                row["step_ms"])
    for (_, what), by_batch in times.items():  # a line through the smallest batch and the largest
        low, *others, high = sorted(by_batch) if len(by_batch) > 2 else (0, 1)
        for batch in others:
            line = by_batch[low] + (by_batch[high] - by_batch[low]) * (batch - low) / (high - low)
            add("1 GPU", f"{what} {batch}", load("ddp_h200.json")["machine"], 1, line, by_batch[batch] * 1e3)

    def add_cpu(group, what, on, ranks, local, net, link, measured_ms):
        step = data_parallel(local, local, [(1, GRADIENTS[net])], link, ranks, overlap=False)
        add(f"{group}, {ranks} ranks of one thread", f"{net} {what}", on, ranks, step, measured_ms)

    links = {way: fit(all_reduces("all_reduce_two_cores.json", way)) for way in ("shm", "tcp")}
    found = load("ddp_two_cores.json")
    alone = {row["row"]: row["ms"]["gradus"] for row in load("vs_pytorch_two_cores.json")["rows"]}
    for row in found["rows"]:  # two threads' time by one's is another machine's of the kind; Adam waits for memory
        one, two = (alone[f"{row['net']} {row['batch']}"][f"eager contiguous {n} threads"] for n in (1, 2))
        local = (row["process_ms"] * one / two + row["optimizer_ms"]) / 2e3
        add_cpu("shm", row["batch"], found["machine"], 2, local, row["net"], links["shm"], row["ranks_ms"])

    def step_of(run, images, key="seconds"):
        return run["epochs"][-1][key] / (images // run["epochs"][-1]["batch_size"])

    runs = {run["row"]: run for name in ("E5", "E7", "E9") for run in Runs(name, BENCHMARKS / "experiments").runs()}
    for way, link in links.items():
        run, local = runs[f"CPU, {way}, 32"], step_of(runs["one CPU process"], 5000)
        add_cpu(way, "epoch of E7", run["machine"], 2, local, "stl10_net", link, step_of(run, 5000) * 1e3)
    run, one = runs["DDP, 8 processes, CPU"], runs["one process of 1 thread, CPU"]
    adam = step_of(one, 60000, "optimizer_seconds")
    add_cpu("with loaders, shm", "epoch of E9", run["machine"], 8, (step_of(one, 60000) - adam) / 8 + adam, "lenet",
            links["shm"], step_of(run, 60000) * 1e3)
    for run in Runs("measured", HERE).runs():
        for row in run["steps"]:  # predicted from a rank's own step beside the others', who share the memory
            if row["ranks"] == 1:
                continue
            link = fit([(one["ranks"], one["bytes"], one["us"] * 1e-6) for one in run["all_reduces"]
                        if (one["ranks"], one["comm"]) == (row["ranks"], row["comm"])])
            local = row.get("slowest_ms", row["local_ms"]) / 1e3
            add_cpu(row["comm"], row["batch"], run["machine"], row["ranks"], local, row["net"], link, row["step_ms"])
    return rows


def measure(programs, counts):
    """Measures steps and all-reduces of ranks with one thread, and returns a line of measured.jsonl."""
    run = {"row": "ranks of one thread", "steps": [], "all_reduces": []}
    for ranks in counts:
        for comm in ("shm", "tcp"):
            command = [programs / "ddp", "--device", "cpu", "--comm", comm, "--ranks", str(ranks), "--nets",
                       "lenet,conv10_c32,stl10_net", "--batches", "32", "--modes", "eager", "--precisions", "fp32",
                       "--samples", "5", "--step-only"]
            output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
            run["steps"] += [json.loads(line) for line in output.splitlines() if line.startswith("{")]
        if ranks > 1:
            with tempfile.NamedTemporaryFile("r") as file:
                subprocess.run([programs / "all_reduce", "--ranks", str(ranks), "--rounds", "1", "--smallest", "65536",
                                "--json", file.name], stdout=subprocess.DEVNULL, check=True)
                for row in json.load(file)["rows"]:
                    run["all_reduces"] += [{"ranks": ranks, "comm": comm, "bytes": row["bytes"], "us": row[comm]}
                                           for comm in ("shm", "tcp")]
    Runs("measured", HERE).add(run)


# ---- The forecast ----

RANKS = [2**i for i in range(4, 17)]
NETS = [Transformer("1.3B", 24, 2048), Transformer("13B", 40, 5120), Transformer("175B", 96, 12288)]
# Name: (value, unit, why)
ASSUMED = {
    "efficiency": (0.6, "of the rate of a measured large product", "what a transformer's kernels reach of it"),
    "host": (8, "ranks", "joined by links like the one that was measured between two"),
    "far_alpha": (5e-6, "s", "a message between hosts"),
    "far_rate": (50e9, "bytes/s", "a port of 400 Gb/s for each rank"),
    "memory": (139 * 2**30, "bytes", "an H200's"),
    "tokens": (2**22, "tokens", "of a step; more where each group needs a sequence,"),
    "most_tokens": (2**24, "tokens", "but not more: larger batches learn little more from a token (Llama 3, 2024)"),
    "rank_hours": (50000, "h", "between failures of one rank; Llama 3 (2024) had 419 in 54 days on 16,384 GPUs"),
    "storage_all": (200e9, "bytes/s", "of all ranks to the checkpoints' disks"),
    "storage_rank": (2e9, "bytes/s", "of one rank"),
    "restart": (300, "s", "from a failure to the first step after a checkpoint was loaded"),
    "keep": (10, "s", "the same where a spare copies the state from its peers (DDP); of a tiny net a fraction of one"),
    "repair": (24 * 3600, "s", "until a failed rank is back"),
}


def forecast_rows():
    a = {name: value for name, (value, _, _) in ASSUMED.items()}
    product = next(row["tflops"] for row in load("roofline_h200.json")["rows"] if "bfloat16" in row["row"])
    here = Cluster(fit(all_reduces("all_reduce_nccl_h200.json", "nccl")), Link(a["far_alpha"], 1 / a["far_rate"]),
                   a["host"], a["efficiency"] * product * 1e12, a["memory"])
    rows = [{"kind": "assumption", "name": name, "value": value, "unit": unit, "why": why}
            for name, (value, unit, why) in ASSUMED.items()]
    rows.append({"kind": "measured", "near_alpha_us": here.near.alpha * 1e6, "near_rate": 1 / here.near.beta,
                 "flops": here.flops})
    for net, ranks in itertools.product(NETS, RANKS):
        step = {"kind": "step", "net": net.name, "ranks": ranks}
        if found := best(net, here, ranks, a["tokens"], a["most_tokens"]):
            speed, scheme, tensor, micro, rounds = found
            half_step = ranks // tensor * micro * rounds / speed / 2
            step |= {"scheme": scheme, "tensor": tensor, "micro": micro, "rounds": rounds,
                     "tokens_per_s": speed * net.sequence, "of_compute": speed * net.flops / here.flops / ranks}
        rows.append(step)
        mean = a["rank_hours"] * 3600 / ranks
        saving = 12 * net.parameters / min(a["storage_all"], ranks * a["storage_rank"])
        young, daly = failures.young(saving, mean), failures.daly(saving, mean)
        if found and ranks in RANKS[::4]:
            curve = {interval: failures.work(interval, saving, a["restart"], mean)
                     for interval in (young, 3600, *(daly * 2 ** (i / 2) for i in range(-8, 9)))}
            rows.append({"kind": "checkpoints", "net": net.name, "ranks": ranks, "mean_s": mean, "checkpoint_s": saving,
                         "young_s": young, "daly_s": daly, "best_s": max(curve, key=curve.get),
                         "work_young": curve[young], "work_best": max(curve.values()), "work_hour": curve[3600],
                         "curve": sorted(curve.items())})
        for spares in (0, 1, 2, 4, 8, 16, 32, 64) if net is NETS[0] and ranks in RANKS[::2] else ():
            by_file, by_peers = (failures.work(daly, saving, a[restart], mean, spares, a["repair"], keep)
                                 for restart, keep in (("restart", 0), ("keep", half_step)))
            rows.append({"kind": "spares", "net": net.name, "ranks": ranks, "spares": spares, "work": by_file,
                         "work_peers": by_peers})
    return rows


def draw(rows, path):
    figure, (speed, spare, interval) = pyplot().subplots(1, 3, figsize=(15, 4.4), constrained_layout=True)
    marks = {"DDP": "o", "ZeRO 1": "s", "ZeRO 2": "D", "FSDP": "^"}
    for number, net in enumerate(NETS):
        line = [row for row in rows if row["kind"] == "step" and row["net"] == net.name and "scheme" in row]
        speed.plot([row["ranks"] for row in line], [row["of_compute"] for row in line], f"C{number}", label=net.name)
        for row in line:
            at = row["ranks"], row["of_compute"]
            speed.plot(*at, f"C{number}{marks[row['scheme']]}", markersize=5)
            if row["tensor"] > 1:
                speed.annotate(row["tensor"], at, fontsize=7, xytext=(2, 5), textcoords="offset points")
    for scheme, mark in marks.items():
        speed.plot([], [], "k" + mark, label=scheme)
    for ranks in RANKS[::2]:
        line = [row for row in rows if row["kind"] == "spares" and row["ranks"] == ranks]
        spare.plot([row["spares"] for row in line], [row["work"] for row in line], ".-", label=f"{ranks} ranks")
    for number, row in enumerate(row for row in rows if row["kind"] == "checkpoints" and row["net"] == NETS[1].name):
        interval.plot(*zip(*row["curve"]), f"C{number}", label=f"{row['ranks']} ranks")
        interval.axvline(row["young_s"], color=f"C{number}", linestyle=":")
    speed.set(xscale="log", ylim=(0, 1.05), xlabel="ranks (numbers: tensor-parallel)", title="step: part that computes")
    spare.set(xscale="symlog", ylim=(0, 1.05), xlabel="spares", title=f"{NETS[0].name}: part of the time that is work")
    interval.set(xscale="log", ylim=(0.5, 1.01), xlabel="s between checkpoints (dotted: Young's)",
                 title=f"{NETS[1].name}: part of the time that is work")
    for axis in (speed, spare, interval):
        axis.grid(alpha=0.3)
        axis.legend(fontsize="x-small")
    figure.savefig(path, dpi=100)


# ---- The page ----


def table(head, lines):
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in [head, ["---"] * len(head), *lines])


def percent(x):
    return f"{100 * x:.1f} %"


def blocks(check, forecast):
    """Returns the parts of the page that contain figures, by name."""
    groups = {}
    for row in check:
        groups.setdefault((row["group"], row["machine"]), []).append(row)
    lines = []
    for (group, on), rows in groups.items():
        worst = max(rows, key=lambda row: abs(row["error"]))
        limit = 0.25 if worst.get("memory_shared") else 0.15
        lines.append([group, on, len(rows), percent(statistics.median(abs(row["error"]) for row in rows)),
                      f"{percent(worst['error'])} ({worst['what']})",
                      f"{sum(abs(row['error']) < limit for row in rows)} of {len(rows)} below {100 * limit:.0f} %"])
    kinds = {kind: [row for row in forecast if row["kind"] == kind]
             for kind in ("assumption", "measured", "step", "checkpoints", "spares")}
    near = kinds["measured"][0]
    steps = {(row["net"], row["ranks"]): row for row in kinds["step"]}

    def cell(row):
        if "scheme" not in row:
            return "does not fit"
        tensor = f", tensor {row['tensor']}" if row["tensor"] > 1 else ""
        return f"{row['scheme']}{tensor}: {percent(row['of_compute'])}"

    spare_counts = list(dict.fromkeys(row["spares"] for row in kinds["spares"]))
    spares = {}
    for row in kinds["spares"]:
        spares.setdefault(row["ranks"], []).append(row)
    return {
        "check": table(["runs", "machine", "rows", "median error", "largest", "target"], lines),
        "measured": f"Measured: between two H200s over NVLink {near['near_alpha_us']:.1f} µs a message and "
                    f"{near['near_rate'] / 1e9:.0f} GB/s. A rank computes\n{near['flops'] / 1e12:.0f} TFLOP/s, by the "
                    "assumed part of the measured product.",
        "assumptions": table(["assumed", "value", "what it is"],
                             [[f"`{row['name']}`", f"{row['value']:g} {row['unit']}", row["why"]]
                              for row in kinds["assumption"]]),
        "steps": table(["ranks", *(net.name for net in NETS)],
                       [[ranks, *(cell(steps[net.name, ranks]) for net in NETS)] for ranks in RANKS]),
        "checkpoints": table(
            ["net", "ranks", "a failure every", "a checkpoint takes", "Young", "Daly", "best simulated",
             "work at Young's", "at the best", "at an hour"],
            [[row["net"], row["ranks"], f"{row['mean_s'] / 3600:.3g} h", f"{row['checkpoint_s']:.2g} s",
              *(f"{row[key] / 60:.3g} min" for key in ("young_s", "daly_s", "best_s")),
              *(percent(row[key]) for key in ("work_young", "work_best", "work_hour"))]
             for row in kinds["checkpoints"]]),
        "spares": table(["ranks", *(f"{count} spares" if count != 1 else "1 spare" for count in spare_counts),
                         "the most, state from peers"],
                        [[ranks, *(percent(row["work"]) for row in rows), percent(rows[-1]["work_peers"])]
                         for ranks, rows in spares.items()]),
    }


def filled(page, check, forecast):
    for name, text in blocks(check, forecast).items():
        page, count = re.subn(rf"(?s)(<!-- {name} -->\n).*?(<!-- end -->)",
                              lambda found: found[1] + text + "\n" + found[2], page)
        if count != 1:
            raise SystemExit(f"{PAGE.name}: {count} blocks <!-- {name} -->")
    return page


def rounded(value):
    if isinstance(value, float):
        return float(f"{value:.5g}")
    return [rounded(one) for one in value] if isinstance(value, (list, tuple)) else value


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the page differs from the files")
    parser.add_argument("--measure", type=pathlib.Path, help="folder of the benchmark programs ddp and all_reduce")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2], help="for --measure")
    arguments = parser.parse_args()
    if arguments.measure:
        return measure(arguments.measure, arguments.ranks)
    paths = [HERE / "check.jsonl", HERE / "forecast.jsonl"]
    if not arguments.check:
        for path, rows in zip(paths, (check_rows(), forecast_rows())):
            lines = (json.dumps({key: rounded(value) for key, value in row.items()}) + "\n" for row in rows)
            path.write_text("".join(lines), encoding="utf-8")
    files = [[json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] for path in paths]
    page = PAGE.read_text(encoding="utf-8")
    if arguments.check:
        raise SystemExit(0 if filled(page, *files) == page else f"{PAGE.name} differs from the files: run {__file__}")
    PAGE.write_text(filled(page, *files), encoding="utf-8")
    draw(files[1], PAGE.with_suffix(".png"))


if __name__ == "__main__":
    main()
