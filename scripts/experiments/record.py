"""What every experiment shares: where runs are kept, what a run says of its machine, and how a page looks."""

import base64
import html
import json
import os
import pathlib
import platform
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def _first_line(command):
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return ""


def machine():
    """CPU, cores that may be used, system, compiler, GPU where there is one."""
    cpu = ""
    try:
        for line in open("/proc/cpuinfo", encoding="utf-8"):
            if line.startswith("model name"):
                cpu = line.split(":", 1)[1].strip()
                break
    except OSError:
        pass
    return {
        "cpu": cpu or platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "system": platform.platform(),
        "compiler": _first_line(["c++", "--version"]),
        "gpu": _first_line(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]),
    }


def code_version():
    return _first_line(["git", "describe", "--always", "--dirty"]) or "unknown"


class Runs:
    """The runs of an experiment: results/NAME.jsonl, a line each."""

    def __init__(self, name, folder):
        self.folder = pathlib.Path(folder)
        self.path = self.folder / f"{name}.jsonl"

    def add(self, run):
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"code": code_version(), "machine": machine(), **run}) + "\n")

    def read(self):
        if not self.path.exists():
            return []
        with open(self.path, encoding="utf-8") as file:
            return [json.loads(line) for line in file if line.strip()]


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
