#!/usr/bin/env python3
"""E7, communication: E4's plain net on two GPUs with gradients averaged by NCCL, TCP, shared memory and MPI, 32 and 128
images a GPU and step, and PyTorch's DistributedDataParallel by NCCL and by gloo beside it; and on two processes of the
CPU. Writes E7.jsonl, E7.html, E7_steps.png and E7_gpu.png.
"""

import training
from e4 import ON_GPU
from gpu_recorder import ABOUT_RECORDINGS, draw_recordings
from record import ROOT, mean, page, picture, pyplot, table
from training import Row

BATCHES = (32, 128)
TORCH = ["python3", str(ROOT / "scripts/experiments/torch_stl10.py")]


def of(options, batch, comm, start="gradus-run"):
    return Row([*options, "--batch-size", str(2 * batch), "--comm", comm], 2, start)


def rows_of(batch):
    def torch(comm):
        return Row(["--device", "cuda", "--batch-size", str(2 * batch), "--comm", comm, "--ranks", "2"], 2,
                   command=TORCH)

    return {
        "nccl": of(ON_GPU, batch, "nccl"),
        "nccl, captured": of([*ON_GPU, "--graph"], batch, "nccl"),
        "tcp": of(ON_GPU, batch, "tcp"),
        "shm": of(ON_GPU, batch, "shm"),
        "mpi": of(ON_GPU, batch, "mpi", "mpirun"),
        "PyTorch, nccl": torch("nccl"),
        "PyTorch, gloo": torch("gloo"),
        "one GPU": Row([*ON_GPU, "--batch-size", str(batch)]),
    }


ROWS = {f"{name}, {batch}": row for batch in BATCHES for name, row in rows_of(batch).items()}
ON_CPU = {f"CPU, {comm}, 32": of(["--threads", "1"], 32, comm, start)._replace(epochs=2)
          for comm, start in (("tcp", "gradus-run"), ("shm", "gradus-run"), ("mpi", "mpirun"))}
ROWS |= ON_CPU

ELSEWHERE = [[32, "gloo", "87.3"], [32, "nccl", "63.9"], [128, "gloo", "61.6"], [128, "nccl", "57.9"]]


def draw(found, path):
    figure, axes = pyplot().subplots(1, len(BATCHES), figsize=(12, 3.8), constrained_layout=True)
    for axis, batch in zip(axes, BATCHES):
        names = [name for name in rows_of(batch) if f"{name}, {batch}" in found]
        heights = [mean(map(training.step_ms, found[f"{name}, {batch}"])) for name in names]
        bars = axis.bar(range(len(names)), heights, color=["C1" if "PyTorch" in name else "C0" for name in names])
        axis.bar_label(bars, [f"{ms:.2f}" for ms in heights], fontsize="small")
        axis.set_xticks(range(len(names)), names, rotation=30, ha="right", fontsize="small")
        axis.set_title(f"{batch} images a GPU")
        axis.set_ylabel("ms a step")
        axis.grid(alpha=0.3, axis="y")
    figure.savefig(path, dpi=120)


def render(results):
    folder = results.folder
    found = training.by_row(results, ROWS)
    draw(found, folder / "E7_steps.png")
    gpu = draw_recordings({row: runs[-1]["gpu_over_time"] for row, runs in found.items()}, folder / "E7_gpu.png")
    text = page(
        "E7: communication",
        f"<p>{training.libraries_of(found)}</p><p>E4's plain net for 10 epochs on two GPUs (2 epochs on the CPU, where "
        "each rank has a thread); the number is the images of a rank and step. Steps are eager unless the row says "
        "captured, which only NCCL can be. Over tcp, shm and mpi gradients go through the host's memory. PyTorch "
        "trains the same net on the same images, which are on its GPUs too, eagerly.</p>",
        training.ABOUT_TABLE, training.rows_table(found), results.skipped(ROWS),
        "<h2>Time of a step</h2>", picture(folder / "E7_steps.png", "milliseconds a step"),
        "<h2>Reported elsewhere</h2>", table(["images a GPU", "gradients by", "s"], ELSEWHERE),
        *([ABOUT_RECORDINGS, picture(folder / "E7_gpu.png", "memory and utilisation")] if gpu else []))
    (folder / "E7.html").write_text(text, encoding="utf-8")
    print(f"wrote {folder / 'E7.html'}")


if __name__ == "__main__":
    training.run("E7", __doc__, "stl10", ROWS, render)
