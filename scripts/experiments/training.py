"""What experiments share that train a net in several ways, each with several seeds: command line, table, curves."""

import pathlib
from typing import NamedTuple

from gpu_recorder import by_gpu
from record import Runs, arguments_of, mean, pyplot, table, train, where


class Row(NamedTuple):
    """One way to train: options of the example, and how it is started."""

    options: list
    ranks: int = 1
    start: str = "alone"  # see record.launcher
    epochs: int = 10
    command: list | None = None  # instead of the example


def run(name, doc, example, rows, render, seconds=1200):
    """The program of an experiment: trains {name: Row} by every seed, and renders what there is."""

    def add_options(parser):
        parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
        parser.add_argument("--epochs", type=int, help="default: those of the row")

    arguments, more = arguments_of(doc, rows, add_options)

    def measure(row, seed):
        options = [*row.options, "--epochs", str(arguments.epochs or row.epochs), "--seed", str(seed)]
        return {"seed": seed, **train(options, seconds, example, row.start, row.ranks, row.command, more)}

    results = Runs(name, pathlib.Path(arguments.out))
    if not arguments.render:
        for seed in arguments.seeds:  # a recording that is cut short has all rows of the first seeds
            for row in arguments.rows:
                results.record(row, lambda: measure(rows[row], seed))
    if not arguments.record:
        render(results)


def by_row(results, rows):
    """{row: its runs}, of each seed the newest, of rows that have any."""
    found = {row: {} for row in rows}
    for one in results.runs():
        if one["row"] in found:
            found[one["row"]][one["seed"]] = one
    return {row: [runs[seed] for seed in sorted(runs)] for row, runs in found.items() if runs}


def seconds_of(one):
    """Of the training, without tests."""
    return sum(epoch["seconds"] for epoch in one["epochs"])


def step_ms(one):
    """Milliseconds a step, without the first of several epochs, in which libraries are loaded and plans are made."""
    epochs = one["epochs"][1:] or one["epochs"]
    images = sum(epoch["seconds"] * epoch["images_per_second"] for epoch in epochs)
    return 1000 * sum(epoch["seconds"] for epoch in epochs) * epochs[0]["batch_size"] / images


def accuracy_of(one):
    """Percent of the test images after the last epoch."""
    return 100 * one["epochs"][-1]["test_accuracy"]


def reserved_of(one):
    """MiB that the allocator had taken: the most of all ranks."""
    return max(epoch["peak_reserved_bytes"] for epoch in one["epochs"]) / 2**20


def recordings_of(one):
    return list(by_gpu({"": one.get("gpu_over_time")}).values())


def several(numbers, form):
    """The numbers of a few runs or GPUs in a cell."""
    return " ".join(form.format(number) for number in numbers)


def spread(numbers, form="{:.1f}"):
    """Mean, and least and most where there are several."""
    numbers = list(numbers)
    middle = form.format(mean(numbers))
    return f"{middle} ({form.format(min(numbers))} to {form.format(max(numbers))})" if len(numbers) > 1 else middle


HEAD = ["row", "on", "ranks", "gradients by", "images a step", "epochs", "seeds", "test accuracy, %", "best epoch's, %",
        "train accuracy, %", "test loss", "s of training", "ms a step", "MiB of tensors", "MiB reserved",
        "MiB in use, each GPU", "utilisation of each GPU, %", "code"]
ABOUT_TABLE = (
    "<p>Accuracies are of the last epoch, with the least and the most of the seeds; every test image counts once, "
    "however many ranks there are. Seconds are of all epochs' training, without tests; a step's milliseconds leave out "
    "the first epoch. MiB of tensors, and what the allocator had reserved for them, are the most of any rank; in use "
    "is what NVML counts, with the libraries' and the driver's own. Utilisation is the share of time in which a kernel "
    "ran.</p>")


def line_of(row, runs):
    last, newest = [one["epochs"][-1] for one in runs], runs[-1]
    first = newest["epochs"][0]
    gpus = recordings_of(newest)
    return [
        row, where(newest), first.get("ranks", 1), first.get("comm", "none"), first["batch_size"],
        " ".join(dict.fromkeys(str(len(one["epochs"])) for one in runs)), several((one["seed"] for one in runs), "{}"),
        spread(map(accuracy_of, runs), "{:.2f}"),
        spread((100 * max(epoch["test_accuracy"] for epoch in one["epochs"]) for one in runs), "{:.2f}"),
        f"{100 * mean(epoch['train_accuracy'] for epoch in last):.2f}",
        f"{mean(epoch['test_loss'] for epoch in last):.4f}",
        spread(map(seconds_of, runs), "{:.2f}"), f"{mean(map(step_ms, runs)):.3f}",
        f"{max(epoch['peak_allocated_bytes'] for epoch in newest['epochs']) / 2**20:.0f}", f"{reserved_of(newest):.0f}",
        several((one["most_memory_bytes"] / 2**20 for one in gpus), "{:.0f}"),
        several((one["mean_utilisation"] for one in gpus), "{:.0f}"),
        newest["code"]]


def rows_table(found):
    """Of {row: runs}."""
    return table(HEAD, [line_of(row, runs) for row, runs in found.items()])


def libraries_of(found):
    """What computed, for the page's head."""
    newest = [runs[-1] for runs in found.values()]
    compilers = {one["machine"]["compiler"] for one in newest}
    return "; ".join(sorted((compilers | {one["epochs"][0].get("libraries", "") for one in newest}) - {""}))


def draw_curve(axis, runs, key, style, color, label, scale=1.0):
    """The mean of the seeds, in the band from the least to the most."""
    count = min(len(one["epochs"]) for one in runs)
    values = [[scale * one["epochs"][e][key] for one in runs] for e in range(count)]
    epochs = range(1, count + 1)
    axis.plot(epochs, list(map(mean, values)), style, color=color, label=label, linewidth=1.2)
    axis.fill_between(epochs, list(map(min, values)), list(map(max, values)), color=color, alpha=0.15, linewidth=0)


def draw_curves(panels, path, columns=2):
    """For each {title: {row: runs}} loss and accuracy by epoch: of the training images dashed, of the test's solid."""
    rows = -(-len(panels) // columns)
    figure, axes = pyplot().subplots(rows, 2 * columns, figsize=(7.5 * columns, 3.4 * rows), constrained_layout=True,
                                     squeeze=False)
    pairs = [axes[row][2 * column : 2 * column + 2] for row in range(rows) for column in range(columns)]
    for (loss, accuracy), (title, found) in zip(pairs, panels.items()):
        for number, (row, runs) in enumerate(found.items()):
            for part, style in (("train", "--"), ("test", "-")):
                label = row if part == "test" else None
                draw_curve(loss, runs, f"{part}_loss", style, f"C{number}", label)
                draw_curve(accuracy, runs, f"{part}_accuracy", style, f"C{number}", label, scale=100)
        loss.set_title(f"{title}: loss", fontsize="small")
        accuracy.set_title(f"{title}: accuracy, %", fontsize="small")
        for axis in (loss, accuracy):
            axis.set_xlabel("epoch")
            axis.xaxis.get_major_locator().set_params(integer=True)
            axis.grid(alpha=0.3)
        accuracy.legend(fontsize="x-small")
    for pair in pairs[len(panels) :]:
        for axis in pair:
            axis.set_axis_off()
    figure.savefig(path, dpi=65)
