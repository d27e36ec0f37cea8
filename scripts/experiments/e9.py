#!/usr/bin/env python3
"""E9, MNIST in full: pure_linear, simple_conv and LeNet for 20 epochs with a cosine schedule, LeNet with random affine
augmentation, each with several seeds. Writes results/E9.jsonl, E9.html and E9_curves.png.
"""

import argparse
import json
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


def train(program, row, seed, arguments, more):
    """One run; its line for the file."""
    options = [*ROWS[row][0], "--epochs", str(arguments.epochs), "--seed", str(seed), *more]
    with tempfile.TemporaryDirectory() as out:
        print(f"== {row}, seed {seed}: mnist {' '.join(options)}", flush=True)
        subprocess.run([program, *options, "--out", out], check=True)
        lines = [json.loads(line) for line in open(pathlib.Path(out) / "log.jsonl", encoding="utf-8")]
    return {"experiment": "E9", "row": row, "seed": seed, "options": options, "epochs": lines}


def error(epoch):
    return 100 * (1 - epoch["test_accuracy"])


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
    where = runs[-1]["machine"]
    text = page(
        "E9: MNIST in full",
        f"<p>{where['cpu']}, {where['cores']} cores, {where['compiler']}; code {runs[-1]['code']}. Means over the seeds; "
        "losses are of the last epoch, seconds of a mean epoch's training.</p>",
        table(["net", "seeds", "epochs", "train loss", "train error, %", "test loss", "test errors, %",
               "mean test error, %", "reported elsewhere, %", "s per epoch", "of them waiting for data"], summary),
        "<h2>Accuracy by class, %</h2>", table(["net", *range(10)], classes),
        "<h2>Curves</h2>", picture(folder / "E9_curves.png", "loss and test error by epoch"))
    (folder / "E9.html").write_text(text, encoding="utf-8")
    for line in summary:
        print(f"{line[0]:15} test error {line[6]}  mean {line[7]} %  {line[9]} s per epoch")
    print(f"wrote {folder / 'E9.html'} and {folder / 'E9_curves.png'}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="Other options are handed to examples/mnist (--threads 2, --data DIR, ...).")
    parser.add_argument("--rows", nargs="+", default=list(ROWS), choices=list(ROWS), metavar="ROW",
                        help="default: all of " + ", ".join(f"'{row}'" for row in ROWS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--program", default=str(ROOT / "build/cpu-release/examples/mnist"))
    parser.add_argument("--out", default=str(ROOT / "results"))
    parser.add_argument("--render", action="store_true", help="only draw what was recorded")
    arguments, more = parser.parse_known_args()
    runs = Runs("E9", arguments.out)
    if not arguments.render:
        for row in arguments.rows:
            for seed in arguments.seeds:
                runs.add(train(arguments.program, row, seed, arguments, [*more, "--quiet"]))
    if not runs.read():
        raise SystemExit("e9: no runs yet")
    render(runs.read(), pathlib.Path(arguments.out))


if __name__ == "__main__":
    main()
