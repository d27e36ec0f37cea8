#!/usr/bin/env python3
"""E9, MNIST in full: pure_linear, simple_conv and LeNet for 20 epochs with a cosine schedule, LeNet with random affine
augmentation, each with several seeds; what a step waits for its batch with 0, 2 and 4 loader workers; and an epoch of
LeNet with max-pooling's backward in a loop instead of a kernel. Writes results/E9.jsonl, E9.html and E9_curves.png.
"""

import argparse
import json
import math
import pathlib
import subprocess
import tempfile

from record import ROOT, Runs, mean, page, picture, table

# Row: (options of examples/mnist, test error reported elsewhere for a course's own small framework on a GPU, in %)
ROWS = {
    "pure_linear": (["--model", "pure_linear"], "2.20"),
    "simple_conv": (["--model", "simple_conv"], "2.18"),
    "lenet": (["--model", "lenet"], "0.93"),
    "lenet, affine": (["--model", "lenet", "--augment", "affine"], "0.81 (PyTorch, 10 epochs)"),
}

# Row: (workers, milliseconds that loading took of a step elsewhere, where the update took 1.1). A few epochs of the net
# with augmentation: the row is about time.
WORKERS = {f"loader, {count} workers": (count, elsewhere) for count, elsewhere in ((0, "6.4"), (2, "4.3"), (4, "0.5"))}
WORKERS_EPOCHS = 4

# Row of benchmarks/pool_loop, and the seconds of an epoch elsewhere with the kernel and with the loop.
POOL_LOOP = "max-pool backward"
POOL_LOOP_ELSEWHERE = {"kernel": "9.3", "loop": "228"}


def options_of(row, seed, epochs):
    if row in WORKERS:
        return [*ROWS["lenet, affine"][0], "--workers", str(WORKERS[row][0]), "--epochs", str(WORKERS_EPOCHS)]
    return [*ROWS[row][0], "--epochs", str(epochs), "--seed", str(seed)]


def train(program, row, seed, arguments, more):
    """One run; its line for the file."""
    if row == POOL_LOOP:
        output = subprocess.run([arguments.pool_loop, *more], check=True, capture_output=True, text=True).stdout
        return {"experiment": "E9", "row": row, "options": more, "epochs": list(map(json.loads, output.splitlines()))}
    options = [*options_of(row, seed, arguments.epochs), *more, "--quiet"]
    with tempfile.TemporaryDirectory() as out:
        print(f"== {row}, seed {seed}: mnist {' '.join(options)}", flush=True)
        subprocess.run([program, *options, "--out", out], check=True)
        lines = [json.loads(line) for line in open(pathlib.Path(out) / "log.jsonl", encoding="utf-8")]
    return {"experiment": "E9", "row": row, "seed": seed, "options": options, "epochs": lines}


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
    return table(["workers", "load, ms a step", "update, ms a step", "load elsewhere", "update elsewhere", "code"], lines)


def pool_table(runs):
    found = [run for run in runs if run["row"] == POOL_LOOP][-1:]
    lines = [[epoch["backward"], f"{epoch['seconds']:.2f}", POOL_LOOP_ELSEWHERE[epoch["backward"]], run["code"]]
             for run in found for epoch in run["epochs"]]
    return table(["backward of max-pooling", "s per epoch", "elsewhere", "code"], lines)


def draw(rows, path):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot, ticker

    figure, (loss, test_error) = pyplot.subplots(1, 2, figsize=(11, 4.2), constrained_layout=True)
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
    test_error.yaxis.set_major_formatter(ticker.FormatStrFormatter("%g"))
    test_error.yaxis.set_minor_formatter(ticker.FormatStrFormatter("%g"))
    figure.savefig(path, dpi=120)


def render(runs, folder):
    by_row = {row: [run for run in runs if run["row"] == row] for row in ROWS}
    by_row = {row: found for row, found in by_row.items() if found}
    draw(by_row, folder / "E9_curves.png")
    summary, classes = [], []
    for row, found in by_row.items():
        last = [run["epochs"][-1] for run in found]
        summary.append([
            row, " ".join(str(run["seed"]) for run in found), len(found[0]["epochs"]),
            f"{mean(e['train_loss'] for e in last):.4f}", f"{mean(100 * (1 - e['train_accuracy']) for e in last):.2f}",
            f"{mean(e['test_loss'] for e in last):.4f}", " ".join(f"{error(e):.2f}" for e in last),
            f"{mean(error(e) for e in last):.2f}", ROWS[row][1],
            f"{mean(e['seconds'] for run in found for e in run['epochs']):.2f}",
            f"{mean(e['data_wait_seconds'] for run in found for e in run['epochs']):.2f}"])
        classes.append([row, *(f"{mean(100 * e['class_accuracy'][c] for e in last):.2f}" for c in range(10))])
    newest = ([run for found in by_row.values() for run in found] or runs)[-1]
    where = newest["machine"]
    text = page(
        "E9: MNIST in full",
        f"<p>{where['cpu']}, {where['cores']} cores, {where['compiler']}; code {newest['code']}. Means over the seeds; "
        "losses are of the last epoch, seconds of a mean epoch's training.</p>",
        table(["net", "seeds", "epochs", "train loss", "train error, %", "test loss", "test errors, %",
               "mean test error, %", "reported elsewhere, %", "s per epoch", "of them waiting for data"], summary),
        "<h2>Accuracy by class, %</h2>", table(["net", *range(10)], classes),
        "<h2>Loading and updating</h2>"
        "<p>LeNet with random affine augmentation: what a training step waits for its batch, and all else that it does, by "
        "the number of threads that prepare batches ahead.</p>", loader_table(runs),
        "<h2>A loop instead of a kernel</h2>"
        "<p>The first epoch of LeNet; the loop goes over the windows with tensor operations on the whole batch.</p>",
        pool_table(runs),
        "<h2>Curves</h2>", picture(folder / "E9_curves.png", "loss and test error by epoch"))
    (folder / "E9.html").write_text(text, encoding="utf-8")
    for line in summary:
        print(f"{line[0]:15} test error {line[6]}  mean {line[7]} %  {line[9]} s per epoch")
    print(f"wrote {folder / 'E9.html'} and {folder / 'E9_curves.png'}")


def main():
    every = [*ROWS, *WORKERS, POOL_LOOP]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="Other options are handed to the programs (--threads 2, --data DIR).")
    parser.add_argument("--rows", nargs="+", default=every, choices=every, metavar="ROW",
                        help="default: all of " + ", ".join(f"'{row}'" for row in every))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--program", default=str(ROOT / "build/cpu-release/examples/mnist"))
    parser.add_argument("--pool-loop", default=str(ROOT / "build/cpu-release/benchmarks/pool_loop"))
    parser.add_argument("--out", default=str(ROOT / "results"))
    parser.add_argument("--render", action="store_true", help="only draw what was recorded")
    arguments, more = parser.parse_known_args()
    runs = Runs("E9", arguments.out)
    if not arguments.render:
        for row in arguments.rows:
            for seed in arguments.seeds if row in ROWS else arguments.seeds[:1]:
                runs.add(train(arguments.program, row, seed, arguments, more))
    if not runs.read():
        raise SystemExit("e9: no runs yet")
    render(runs.read(), pathlib.Path(arguments.out))


if __name__ == "__main__":
    main()
