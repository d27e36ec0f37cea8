"""What every experiment shares: how a program is run, where runs are kept, what a run says of its machine, and how a
page looks."""

import argparse
import base64
import contextlib
import html
import json
import os
import pathlib
import platform
import subprocess
import tempfile

from gpu_recorder import Gpu, GpuRecorder, NvmlError

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def _first_line(command):
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return ""


def machine():
    """CPU, cores that may be used, system, compiler, GPU and its driver where there is one."""
    cpu = ""
    try:
        for line in open("/proc/cpuinfo", encoding="utf-8"):
            if line.startswith("model name"):
                cpu = line.split(":", 1)[1].strip()
                break
    except OSError:
        pass
    gpu = driver = ""
    try:
        gpu, driver = Gpu().name(), Gpu().driver()
    except NvmlError:
        pass
    return {
        "cpu": cpu or platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "system": platform.platform(),
        "compiler": _first_line(["c++", "--version"]),
        "gpu": gpu,
        "driver": driver,
    }


def code_version():
    """$GRADUS_CODE_VERSION, where the tree is a copy without its history, or what git says."""
    return os.environ.get("GRADUS_CODE_VERSION") or _first_line(["git", "describe", "--always", "--dirty"]) or "unknown"


def program(name):
    """examples/mnist and so on, of the build folder $GRADUS_BUILD (default: build/cpu-release)."""
    return str(pathlib.Path(os.environ.get("GRADUS_BUILD") or ROOT / "build/cpu-release") / name)


class Skipped(Exception):
    """Why a row has no run."""


def _need_gpus(count):
    """That many, as far as NVML knows; where it is missing the program itself says what is."""
    for index in range(count):
        try:
            Gpu(index=index)
        except NvmlError:
            if index > 0:
                raise Skipped(f"this needs {count} GPUs, here are {index}") from None
            return


def call(command, gpus=0, seconds=600):
    """Runs a program that may take so long. What it printed, and a recording of the GPU that it uses, a list of several
    ones', or null."""
    print("==", " ".join(map(str, command)), flush=True)
    _need_gpus(gpus)
    recorders = [GpuRecorder(index=index) for index in range(gpus)]
    try:
        with contextlib.ExitStack() as stack:
            for recorder in recorders:
                stack.enter_context(recorder)
            done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        raise Skipped(f"it did not end within {seconds} s") from None
    except OSError as error:
        raise Skipped(str(error)) from None
    if done.returncode != 0:
        raise Skipped((done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1])
    recordings = [recorder.recording() for recorder in recorders]
    return done.stdout, recordings if gpus > 1 else recordings[0] if recordings else None


def launcher(start, ranks):
    """What comes before a program and behind its name, for it to run as so many ranks."""
    return {
        "alone": ([], []),
        "spawn": ([], ["--spawn", str(ranks)]),
        "gradus-run": ([program("gradus-run"), "--nproc", str(ranks)], []),
        "mpirun": (["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", str(ranks)], []),
    }[start]


def option_of(options, name, otherwise):
    """What the last of the options of that name says."""
    values = [value for option, value in zip(options, options[1:]) if option == name]
    return values[-1] if values else otherwise


def overridden(options, more):
    """The options without those that `more` has too, then `more`."""
    kept, again = [], False
    for option in options:
        if option.startswith("--"):
            again = option in more
        if not again:
            kept.append(option)
    return [*kept, *more]


def train(options, seconds=600, example="mnist", start="alone", ranks=1, command=None, more=()):
    """A run of an example (or of `command`) on one rank or several: its options, its log, and what the GPUs did."""
    before, behind = launcher(start, ranks)
    options = overridden(options, more)
    on_gpu = option_of(options, "--device", "cpu") == "cuda"
    gpus = max(ranks, int(option_of(options, "--data-parallel", 1))) if on_gpu else 0
    with tempfile.TemporaryDirectory() as out:
        whole = [*before, *(command or [program(f"examples/{example}")]), *options, *behind, "--quiet", "--out", out]
        _, recording = call(whole, gpus=gpus, seconds=seconds)
        epochs = list(map(json.loads, (pathlib.Path(out) / "log.jsonl").read_text(encoding="utf-8").splitlines()))
    return {"options": options, "start": start, "ranks": ranks, "epochs": epochs, "gpu_over_time": recording}


def without_data_folder(options):
    """Where the data lie says nothing of a run, and something of whose machine it was."""
    before = [None, *options]
    return [option for option, previous in zip(options, before) if "--data" not in (option, previous)]


def packed(run):
    """A run with what is the same in all its epochs once, in "each_epoch"."""
    first, *others = run.get("epochs") or [{}]
    same = {key: value for key, value in first.items() if others and all(epoch.get(key) == value for epoch in others)}
    if not same:
        return run
    epochs = [{key: value for key, value in epoch.items() if key not in same} for epoch in run["epochs"]]
    return {**run, "each_epoch": same, "epochs": epochs}


def unpacked(run):
    same = run.pop("each_epoch", {})
    return {**run, "epochs": [{**same, **epoch} for epoch in run["epochs"]]} if same else run


class Runs:
    """The runs of an experiment: benchmarks/experiments/NAME.jsonl, a line each."""

    def __init__(self, name, folder):
        self.folder = pathlib.Path(folder)
        self.path = self.folder / f"{name}.jsonl"

    def add(self, run):
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.path, "a", encoding="utf-8") as file:
            run = {"code": code_version(), "machine": machine(), **run}
            if "options" in run:
                run["options"] = without_data_folder(run["options"])
            file.write(json.dumps(packed(run)) + "\n")

    def record(self, row, make):
        """Adds the run that make() returns, or why there is none."""
        try:
            run = make()
        except Skipped as reason:
            print(f"skipped {row}: {reason}", flush=True)
            run = {"skipped": str(reason)}
        self.add({"experiment": self.path.stem, "row": row, **run})

    def runs(self):
        return [run for run in self.read() if "skipped" not in run]

    def skipped(self, rows):
        """The rows that have no run at all, and why, as a table; nothing where each has one."""
        have = {run["row"] for run in self.runs()}
        why = {run["row"]: run["skipped"] for run in self.read() if "skipped" in run}
        lines = [[row, why.get(row, "was not asked for")] for row in rows if row not in have]
        return "<h2>Rows without a run</h2>" + table(["row", "why"], lines) if lines else ""

    def read(self):
        if not self.path.exists():
            return []
        with open(self.path, encoding="utf-8") as file:
            return [unpacked(json.loads(line)) for line in file if line.strip()]


def arguments_of(doc, rows, add=None):
    """The command line that experiments share, and what is left of it for the programs."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="Other options are handed to the programs (--threads 2, --data DIR).")
    parser.add_argument("--rows", nargs="+", default=list(rows), choices=list(rows), metavar="ROW",
                        help="default: all of " + ", ".join(f"'{row}'" for row in rows))
    parser.add_argument("--out", default=str(ROOT / "benchmarks/experiments"), help="folder for the runs and the page")
    parser.add_argument("--render", action="store_true", help="only draw what was recorded")
    parser.add_argument("--record", action="store_true", help="only record, for a machine without matplotlib")
    if add:
        add(parser)
    return parser.parse_known_args()


def pyplot():
    """matplotlib's, for files alone."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plot

    return plot


def where(run):
    """The machine of a run, in a cell."""
    on = run["machine"]
    device = run.get("device") or (run["epochs"][0].get("device") if run.get("epochs") else "")
    return on["gpu"] if (device or "").startswith("cuda") else f"{on['cpu']}, {on['cores']} cores"


def mean(numbers):
    numbers = list(numbers)
    return sum(numbers) / len(numbers)


def table(head, rows):
    """An HTML table of texts."""

    def line(cells, tag):
        return "<tr>" + "".join(f"<{tag}>{html.escape(str(cell))}</{tag}>" for cell in cells) + "</tr>"

    return "<table>" + line(head, "th") + "\n".join(line(row, "td") for row in rows) + "</table>"


def picture(path, text):
    """An <img> that carries its file."""
    data = base64.b64encode(pathlib.Path(path).read_bytes()).decode()
    return f'<p><img alt="{html.escape(text)}" src="data:image/png;base64,{data}"></p>'


def page(title, *parts):
    """A page that needs no other file."""
    body = "\n".join(parts)
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>
<style>
body {{ font-family: sans-serif; margin: 2em; max-width: 70em; }}
table {{ border-collapse: collapse; font-size: 0.85em; }}
td, th {{ border: 1px solid #ccc; padding: 0.3em 0.6em; text-align: right; }}
img {{ max-width: 100%; }}
</style></head><body>
<h1>{html.escape(title)}</h1>
{body}
</body></html>
"""
