#!/usr/bin/env python3
"""E9, MNIST in full: pure_linear, simple_conv and LeNet for 20 epochs with a cosine schedule, LeNet with random affine
augmentation, each with several seeds; the three nets on a GPU, where the step is captured and the images lie on the
device, and LeNet without the one or the other; what a step waits for its batch with 0, 2 and 4 loader workers; LeNet by
8 processes, by 8 replicas in one and by one alone, on the CPU; and an epoch of LeNet with max-pooling's backward in a
loop instead of a kernel. Writes E9.jsonl, E9.html, E9_curves.png and E9_gpu.png.
"""

import json
import math
import pathlib

from gpu_recorder import ABOUT_RECORDINGS, draw_recordings
from record import Runs, arguments_of, call, mean, page, picture, program, pyplot, table, train, where

# Net: (options of examples/mnist, test error in % and seconds of 20 epochs reported elsewhere for a course's own small
# framework on a GPU)
NETS = {
    "pure_linear": (["--model", "pure_linear"], "2.20", "14"),
    "simple_conv": (["--model", "simple_conv"], "2.18", "78"),
    "lenet": (["--model", "lenet"], "0.93", "186"),
}
CAPTURED, RESIDENT = ["--graph"], ["--device-data"]


def on(backend, *more):
    return ["--device", "cuda", "--backend", backend, *more]


# Row: (options, test error and seconds reported elsewhere)
ROWS = {
    **NETS,
    "lenet, affine": ([*NETS["lenet"][0], "--augment", "affine"], "0.81 (PyTorch, 10 epochs)", ""),
    **{f"{net}, {backend}": ([*options, *on(backend, *CAPTURED, *RESIDENT)], error, seconds)
       for net, (options, error, seconds) in NETS.items() for backend in ("cuda", "cudnn")},
    "lenet, cudnn, from the loader": ([*NETS["lenet"][0], *on("cudnn", *CAPTURED)], *NETS["lenet"][1:]),
    "lenet, cudnn for small convolutions too": (
        [*NETS["lenet"][0], *on("cudnn", "--cudnn-small", *CAPTURED, *RESIDENT)], *NETS["lenet"][1:]),
    "lenet, cudnn, eager": ([*NETS["lenet"][0], *on("cudnn", *RESIDENT)], *NETS["lenet"][1:]),
}

# Row: (workers, milliseconds that loading took of a step elsewhere, where the update took 1.1). A few epochs of the net
# with augmentation: the row is about time.
WORKERS = {f"loader, {count} workers": (count, elsewhere) for count, elsewhere in ((0, "6.4"), (2, "4.3"), (4, "0.5"))}
WORKERS_EPOCHS = 4

# Row: (options, processes, seconds of 10 epochs reported elsewhere for PyTorch). Each process and each replica computes
# with one thread, and there are as many loader threads.
PROCESSES_EPOCHS = 10
PROCESSES = {f"{name}, CPU": ([*ROWS["lenet, affine"][0], "--batch-size", "512", *options], processes, elsewhere)
             for name, options, processes, elsewhere in (
                 ("one process of 1 thread", ["--threads", "1", "--workers", "1"], 1, "73"),
                 ("one process of 8 threads", ["--threads", "8", "--workers", "8"], 1, ""),
                 ("DDP, 8 processes", ["--threads", "1", "--workers", "1"], 8, "26"),
                 ("data_parallel, 8 replicas", ["--threads", "1", "--workers", "8", "--data-parallel", "8"], 1, "161"))}

# Row of benchmarks/pool_loop, and the seconds of an epoch elsewhere with the kernel and with the loop.
POOL_LOOP = "max-pool backward"
POOL_LOOP_ELSEWHERE = {"kernel": "9.3", "loop": "228"}


def options_of(row, seed, epochs):
    if row in WORKERS:
        return [*ROWS["lenet, affine"][0], "--workers", str(WORKERS[row][0]), "--epochs", str(WORKERS_EPOCHS)]
    if row in PROCESSES:
        return [*PROCESSES[row][0], "--epochs", str(min(epochs, PROCESSES_EPOCHS)), "--seed", str(seed)]
    return [*ROWS[row][0], "--epochs", str(epochs), "--seed", str(seed)]


def measure(row, seed, epochs, more):
    """One run; what its line says of it."""
    if row == POOL_LOOP:
        output, _ = call([program("benchmarks/pool_loop"), *more])
        return {"options": more, "epochs": list(map(json.loads, output.splitlines()))}
    ranks = PROCESSES[row][1] if row in PROCESSES else 1
    return {"seed": seed,
            **train(options_of(row, seed, epochs), start="spawn" if ranks > 1 else "alone", ranks=ranks, more=more)}


def error(epoch):
    return 100 * (1 - epoch["test_accuracy"])


def milliseconds_a_step(epoch):
    """(waiting for the batch, all else)"""
    steps = math.ceil(epoch["seconds"] * epoch["images_per_second"] / epoch["batch_size"] - 0.001)
    wait = 1000 * epoch["data_wait_seconds"] / steps
    return wait, 1000 * epoch["seconds"] / steps - wait


def loader_table(runs):
    """The newest run of each number of workers, without its first epoch."""
    lines = []
    for row, (workers, elsewhere) in WORKERS.items():
        found = [run for run in runs if run["row"] == row]
        if not found:
            continue
        steps = [milliseconds_a_step(epoch) for epoch in found[-1]["epochs"][1:]]
        lines.append([workers, f"{mean(wait for wait, _ in steps):.3f}", f"{mean(update for _, update in steps):.3f}",
                      elsewhere, "1.1", found[-1]["code"]])
    return table(["workers", "load, ms a step", "update, ms a step", "load elsewhere", "update elsewhere", "code"],
                 lines)


def processes_table(runs):
    lines = []
    for row, (_, _, elsewhere) in PROCESSES.items():
        found = [run for run in runs if run["row"] == row][-1:]
        lines += [[row, where(run), len(run["epochs"]), f"{error(run['epochs'][-1]):.2f}", f"{seconds_of(run):.2f}",
                   f"{sum(epoch['data_wait_seconds'] for epoch in run['epochs']):.2f}", elsewhere, run["code"]]
                  for run in found]
    return table(["LeNet, affine", "on", "epochs", "test error, %", "s of training", "of them waiting for data",
                  "reported elsewhere, s", "code"], lines)


def pool_table(runs):
    found = [run for run in runs if run["row"] == POOL_LOOP][-1:]
    lines = [[epoch["backward"], f"{epoch['seconds']:.2f}", POOL_LOOP_ELSEWHERE[epoch["backward"]], run["code"]]
             for run in found for epoch in run["epochs"]]
    return table(["backward of max-pooling", "s per epoch", "elsewhere", "code"], lines)


def draw(rows, path):
    figure, (loss, test_error) = pyplot().subplots(1, 2, figsize=(11, 4.2), constrained_layout=True)
    for number, (row, runs) in enumerate(rows.items()):
        epochs = range(1, min(len(run["epochs"]) for run in runs) + 1)
        for key, style in (("train_loss", "--"), ("test_loss", "-")):
            y = [mean(run["epochs"][e - 1][key] for run in runs) for e in epochs]
            loss.plot(epochs, y, style, color=f"C{number}", label=f"{row} {key.split('_')[0]}")
        test_error.plot(epochs, [mean(error(run["epochs"][e - 1]) for run in runs) for e in epochs], color=f"C{number}",
                        label=row)
    loss.set_ylabel("loss")
    test_error.set_ylabel("test error, %")
    for axis in (loss, test_error):
        axis.set_yscale("log")
        axis.set_xlabel("epoch")
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.grid(alpha=0.3, which="both")
        axis.legend(fontsize="small")
    test_error.yaxis.set_major_formatter("{x:g}")
    test_error.yaxis.set_minor_formatter("{x:g}")
    figure.savefig(path, dpi=120)


def seconds_of(run):
    return sum(epoch["seconds"] for epoch in run["epochs"])


def summary_line(row, found):
    last = [run["epochs"][-1] for run in found]
    return [
        row, where(found[-1]), " ".join(str(run["seed"]) for run in found), len(found[0]["epochs"]),
        f"{mean(e['train_loss'] for e in last):.4f}", f"{mean(100 * (1 - e['train_accuracy']) for e in last):.2f}",
        f"{mean(e['test_loss'] for e in last):.4f}", " ".join(f"{error(e):.2f}" for e in last),
        f"{mean(error(e) for e in last):.2f}", ROWS[row][1],
        f"{mean(e['seconds'] for run in found for e in run['epochs']):.2f}",
        f"{mean(e['data_wait_seconds'] for run in found for e in run['epochs']):.2f}",
        f"{mean(seconds_of(run) for run in found):.1f}", ROWS[row][2], found[-1]["code"]]


def render(results):
    runs, folder = results.runs(), results.folder
    by_row = {row: [run for run in runs if run["row"] == row] for row in ROWS}
    by_row = {row: found for row, found in by_row.items() if found}
    draw({row: found for row, found in by_row.items() if row in NETS or "affine" in row}, folder / "E9_curves.png")
    newest = {row: found[-1] for row, found in by_row.items()}
    gpu = draw_recordings({row: run.get("gpu_over_time") for row, run in newest.items()}, folder / "E9_gpu.png")
    summary = [summary_line(row, found) for row, found in by_row.items()]
    classes = [[row, *(f"{mean(100 * run['epochs'][-1]['class_accuracy'][c] for run in found):.2f}" for c in range(10))]
               for row, found in by_row.items()]
    libraries = sorted({run["epochs"][-1].get("libraries", "") for run in newest.values()} - {""})
    text = page(
        "E9: MNIST in full",
        f"<p>{'; '.join([*sorted({run['machine']['compiler'] for run in runs} - {''}), *libraries])}. Means over the "
        "seeds; losses are of the last epoch, seconds are of the training. On the GPU the step is captured and the "
        "images lie on the device, unless the row says otherwise. The nets' convolutions have few channels: unless "
        "told, the backend cudnn leaves them to the kernels of cuda, so the two agree to the bit.</p>",
        table(["net", "on", "seeds", "epochs", "train loss", "train error, %", "test loss", "test errors, %",
               "mean test error, %", "reported elsewhere, %", "s per epoch", "of them waiting for data", "s in all",
               "reported elsewhere, s", "code"], summary),
        results.skipped([*ROWS, *WORKERS, *PROCESSES, POOL_LOOP]),
        "<h2>Accuracy by class, %</h2>", table(["net", *range(10)], classes),
        "<h2>Loading and updating</h2>"
        "<p>LeNet with random affine augmentation: what a training step waits for its batch, and all else that it "
        "does, by the number of threads that prepare batches ahead.</p>", loader_table(runs),
        "<h2>Processes</h2>"
        "<p>LeNet with random affine augmentation on the CPU, 512 images a step of all processes together. Each "
        "process, and each replica of data_parallel, computes with one thread, and has one that prepares its "
        "images.</p>", processes_table(runs),
        "<h2>A loop instead of a kernel</h2>"
        "<p>The first epoch of LeNet; the loop goes over the windows with tensor operations on the whole batch.</p>",
        pool_table(runs),
        "<h2>Curves</h2>", picture(folder / "E9_curves.png", "loss and test error by epoch"),
        *([ABOUT_RECORDINGS, picture(folder / "E9_gpu.png", "memory and utilisation")] if gpu else []))
    (folder / "E9.html").write_text(text, encoding="utf-8")
    for line in summary:
        print(f"{line[0]:30} test error {line[7]}  mean {line[8]} %  {line[10]} s per epoch")
    print(f"wrote {folder / 'E9.html'}")


def add_options(parser):
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--epochs", type=int, default=20)


def main():
    arguments, more = arguments_of(__doc__, [*ROWS, *WORKERS, *PROCESSES, POOL_LOOP], add_options)
    results = Runs("E9", pathlib.Path(arguments.out))
    if not arguments.render:
        for row in arguments.rows:
            for seed in arguments.seeds if row in ROWS else arguments.seeds[:1]:
                results.record(row, lambda: measure(row, seed, arguments.epochs, more))
    if not arguments.record:
        render(results)


if __name__ == "__main__":
    main()
