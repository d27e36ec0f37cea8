#!/usr/bin/env python3
"""Draws the curves of training runs.

usage: scripts/report.py [RUN ...] [--out DIR]

A RUN is a folder with a log.jsonl (default: runs/mnist), or such a file. Writes curves.png and report.html to DIR
(default: the folder of the first run): the picture, the best epoch of each run, the settings that differ between runs,
and from test.json which class is taken for which, with the worst mistakes. Needs matplotlib.
"""

import argparse
import base64
import html
import json
import os
import pathlib
import sys

KEYS = ("epoch", "train_loss", "test_loss", "train_accuracy", "test_accuracy")


def read_run(name):
    """The epochs of a run: a list of dictionaries with at least KEYS."""
    path = pathlib.Path(name)
    if path.is_dir():
        path = path / "log.jsonl"
    epochs = []
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                epoch = json.loads(line)
                epochs.append({**epoch, **{key: float(epoch[key]) for key in KEYS}})
            except (ValueError, TypeError, KeyError) as error:
                raise SystemExit(f"report: {path}:{number} is no line of a training log: {error!r}")
    if not epochs:
        raise SystemExit(f"report: {path} has no epochs yet")
    return path.parent, epochs


def draw(runs, path):
    """Loss and accuracy over the epochs; training dashed, test solid, one colour a run."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(10, 4), constrained_layout=True)
    for number, (folder, epochs) in enumerate(runs):
        x = [epoch["epoch"] for epoch in epochs]
        for axis, what, scale in ((axes[0], "loss", 1), (axes[1], "accuracy", 100)):
            for part, style in (("train", "--"), ("test", "-")):
                y = [scale * epoch[f"{part}_{what}"] for epoch in epochs]
                label = part if len(runs) == 1 else f"{folder.name} {part}"
                axis.plot(x, y, style, marker="o", markersize=3, color=f"C{number % 10}", label=label)
    axes[0].set_ylabel("loss")
    axes[1].set_ylabel("accuracy, %")
    for axis in axes:
        axis.set_xlabel("epoch")
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.grid(alpha=0.3)
        axis.legend()
    figure.savefig(path, dpi=120)


def best(epochs):
    """The epoch of the least loss on the test set."""
    return min(epochs, key=lambda epoch: epoch["test_loss"])


def table(head, rows):
    """Rows of cells; a cell that is a pair has a colour behind it."""
    def cell(value):
        value, style = value if isinstance(value, tuple) else (value, "")
        return f"<td{style}>{html.escape(value if isinstance(value, str) else f'{value:.4g}')}</td>"

    lines = ["".join(f"<th>{html.escape(name)}</th>" for name in head), *("".join(map(cell, row)) for row in rows)]
    return "<table>" + "\n".join(f"<tr>{line}</tr>" for line in lines) + "</table>"


def results(runs):
    """What each run came to: its best epoch, its last, and what it took."""
    head = ["run", "epochs", "best epoch", "test loss", "test accuracy, %", "last test accuracy, %", "train loss",
            "seconds", "images/s", "MiB at most"]
    rows = []
    for folder, epochs in runs:
        least, last = best(epochs), epochs[-1]
        rows.append([str(folder), last["epoch"], least["epoch"], least["test_loss"], 100 * least["test_accuracy"],
                     100 * last["test_accuracy"], last["train_loss"], last.get("total_seconds", 0),
                     last.get("images_per_second", 0), last.get("peak_allocated_bytes", 0) / 2**20])
    return table(head, rows)


def differences(runs):
    """The settings that are not the same in all runs; what was measured is no setting."""
    lasts = [epochs[-1] for _, epochs in runs]
    measured = ("loss", "accuracy", "error", "seconds", "per_second", "bytes", "epoch", "lr", "images")
    keys = [key for key in lasts[0] if not key.endswith(measured) and
            any(last.get(key) != lasts[0][key] for last in lasts)]
    if not keys:
        return ""
    rows = [[str(folder), *(str(last.get(key, "")) for key in keys)] for (folder, _), last in zip(runs, lasts)]
    return "<h2>Settings that differ</h2>\n" + table(["run", *keys], rows)


def mistakes(folder):
    """What the net of a run takes for what, and the mistakes that cost it most."""
    path = folder / "test.json"
    if not path.exists():
        return ""
    test = json.loads(path.read_text(encoding="utf-8"))
    most = max(max(row[:at] + row[at + 1:], default=0) for at, row in enumerate(test["confusion"]))
    rows = []
    for at, (name, counts) in enumerate(zip(test["classes"], test["confusion"])):
        shades = ["#cfc" if to == at else f"rgba(220, 60, 60, {0.6 * count / max(1, most):.2f})"
                  for to, count in enumerate(counts)]
        rows.append([name, *((str(count), f" style='background:{shade}'") for count, shade in zip(counts, shades))])
    parts = [f"<h2>{html.escape(str(folder))}: which class is taken for which</h2>",
             "<p>A row is a class of the test set, a column what the net says.</p>",
             table(["", *test["classes"]], rows)]
    picture = folder / "mistakes.png"
    if test["mistakes"] and picture.exists():
        image = base64.b64encode(picture.read_bytes()).decode()
        told = "; ".join(f"{one['label']} for {one['predicted']}" for one in test["mistakes"])
        parts += ["<h3>The worst mistakes</h3>", f"<p>Taken for what they are not: {html.escape(told)}.</p>",
                  f"<p><img class='pixels' alt='images that were classified wrong' src='data:image/png;base64,{image}'>"]
    return "\n".join(parts)


def describe(runs, picture):
    """A page that needs no other file."""
    image = base64.b64encode(picture.read_bytes()).decode()
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>gradus: training runs</title>
<style>
body {{ font-family: sans-serif; margin: 2em; }}
table {{ border-collapse: collapse; font-size: 0.8em; }}
td, th {{ border: 1px solid #ccc; padding: 0.3em 0.6em; text-align: right; }}
img {{ max-width: 100%; }}
.pixels {{ image-rendering: pixelated; width: 100%; }}
</style></head><body>
<h1>Training runs</h1>
<p><img alt="loss and accuracy by epoch" src="data:image/png;base64,{image}"></p>
{results(runs)}
{differences(runs)}
{"".join(mistakes(folder) for folder, _ in runs)}
</body></html>
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", default=["runs/mnist"], metavar="RUN")
    parser.add_argument("--out", help="folder for curves.png and report.html")
    arguments = parser.parse_args()
    try:
        runs = [read_run(name) for name in arguments.runs]
        out = pathlib.Path(arguments.out or runs[0][0])
        os.makedirs(out, exist_ok=True)
        draw(runs, out / "curves.png")
        (out / "report.html").write_text(describe(runs, out / "curves.png"), encoding="utf-8")
    except ImportError as error:
        raise SystemExit(f"report: the plot needs matplotlib ({error}); install python3-matplotlib with apt or "
                         "matplotlib with pip")
    except OSError as error:
        raise SystemExit(f"report: {error}")
    print(f"wrote {out / 'curves.png'} and {out / 'report.html'}")


if __name__ == "__main__":
    main()
