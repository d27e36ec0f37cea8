#!/usr/bin/env python3
"""The experiments of scripts/experiments: each records and draws what stand-ins for the programs say."""

import ctypes
import importlib.util
import inspect
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import threading
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts/experiments"
sys.path.insert(0, str(SCRIPTS))

import gpu_recorder  # noqa: E402
import record  # noqa: E402

# What stands for the image examples.
EXAMPLE = """
    cuda = option("--device", "cpu") == "cuda"
    if cuda and "--no-gpu" in sys.argv:
        sys.exit("mnist: no GPU today")
    count, epochs = int(option("--images", 0)) or 60000, int(option("--epochs"))
    ranks = int(option("--spawn", os.environ.get("STARTED", 1)))
    with open(option("--out") + "/log.jsonl", "w") as file:
        for epoch in range(1, epochs + 1):
            parts = [None] * 3 if "--graph" in sys.argv else [0.4, 0.9, 0.1]
            file.write(json.dumps({
                "epoch": epoch, "train_loss": 1 / epoch, "test_loss": 2 / epoch, "train_accuracy": 0.98,
                "test_accuracy": 0.98 - int(option("--seed", 1)) / 100, "class_accuracy": [0.97] * 10, "seconds": 2.0,
                "images_per_second": count / 2, "batch_size": int(option("--batch-size", 64)), "data_wait_seconds": 0.1,
                "test_images": 10000, "forward_seconds": parts[0], "backward_seconds": parts[1],
                "optimizer_seconds": parts[2], "device_data": cuda, "peak_allocated_bytes": 1 << 20,
                "peak_reserved_bytes": 2 << 20, "ranks": ranks,
                "comm": option("--comm", "shm") if ranks > 1 else "none",
                "device": "cuda" if cuda else "cpu", "libraries": "CUDA 13.0" if cuda else ""}) + "\\n")
"""
# What stands for the programs: each knows options enough to say what the real one says.
PROGRAMS = {
    "examples/mnist": EXAMPLE,
    "examples/stl10": EXAMPLE,
    "examples/cifar10": EXAMPLE,
    "gradus-run": """
        os.environ["STARTED"] = option("--nproc")
        os.execv(sys.argv[3], sys.argv[3:])
    """,
    "benchmarks/pool_loop": """
        for backward, seconds in (("kernel", 1.5), ("loop", 12.0)):
            print(json.dumps({"backward": backward, "seconds": seconds}))
    """,
    "benchmarks/grayscale": """
        backend = option("--backends")
        print(json.dumps({"backend": backend, "seconds": 0.01, "seconds_with_copies": 0.02, "max_difference": 0.0,
                          "threads": 2, "libraries": ""}))
    """,
    "benchmarks/ladders/conv2d_cuda": """
        channels = option("--channels")
        with open(option("--json"), "a") as file:
            for rung, us in (("1 naive", 50), ("7 wgmma", 8), ("library", 8), ("cudnn fused", 16), ("openmp", 900)):
                file.write(json.dumps({"kernel": "conv2d fprop", "shape": f"16x{channels}x56 -> {channels}",
                                       "dtype": "bfloat16", "rung": rung, "us": us, "limit_us": 4,
                                       "difference": 1e-6}) + "\\n")
        if channels == "32":
            sys.exit("conv2d_cuda: 5 mma_sync is wrong")
    """,
    "benchmarks/train_step": """
        with open(option("--json"), "a") as file:
            for mode in option("--mode").split(","):
                file.write(json.dumps({"net": option("--net"), "batch": int(option("--batch")),
                                       "device": option("--device"), "machine": "a device", "libraries": "CUDA 13.0",
                                       "peak_bytes": 1 << 20,
                                       "step_ms": {"graph": 0.1, "static": 0.1, "eager": 0.3}[mode]}) + "\\n")
    """,
    "benchmarks/memory": """
        batch, optimizer = int(option("--batch")), option("--optimizer", "none")
        figures = {"net": "lenet", "batch": batch, "optimizer": optimizer, "mixed": "--mixed" in sys.argv,
                   "recomputed": "[0, 2)" if option("--recompute") == "full" else "", "parameters": 246824,
                   "buffers": 0, "gradients": 246824, "state": 246864, "inputs": 64, "activations": 309768,
                   "workspace": 0, "peak": 1000000, "at_peak parameters": 246824, "arena": 1, "lower_bound": 1,
                   "static_peak": 1, "backward_begin": 1, "step_begin": 2, "end": 3, "peak_time": 1}
        measured = {"measured_" + key: figures[key] for key in ("parameters", "gradients", "state", "activations")}
        if "--json" in sys.argv:
            with open(option("--json"), "a") as file:
                file.write(json.dumps({**figures, **measured, "measured_peak": 999999}) + "\\n")
        if "--timeline" in sys.argv:
            with open(option("--timeline"), "w") as file:
                span = {"kind": "activations", "bytes": 8, "begin": 0, "end": 2, "module": "0", "op": "relu"}
                file.write(json.dumps(figures) + "\\n" + json.dumps(span) + "\\n")
    """,
    "benchmarks/sharding": """
        ranks = int(os.environ["STARTED"])
        with open(option("--json"), "a") as file:
            file.write(json.dumps({"net": option("--net"), "parallel": option("--parallel"), "ranks": ranks,
                                   "parameters": 1000, "predicted_peak_bytes": 2000000, "measured_peak_bytes": 2020000,
                                   "predicted_sent_bytes": 1000 * (ranks - 1), "measured_sent_bytes": 1005 * (ranks - 1),
                                   "step_ms": 3.0, "losses": f"2.5 {2 + ranks / 8}"}) + "\\n")
    """,
    "benchmarks/dynamic_net": """
        print(json.dumps({"step": "loop", "mode": "eager", "rounds": "0 2 4", "step_ms": 0.2, "max_difference": 0.0}))
        if option("--device") == "cuda":
            print(json.dumps({"step": "loop", "mode": "captured", "error": "[item] waits & cannot be captured"}))
            print(json.dumps({"step": "masked", "mode": "static", "step_ms": 0.1, "max_difference": 0.0}))
    """,
}
HEAD = """#!{python}
import json, os, sys
def option(name, otherwise=None):
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else otherwise
"""


class Nvml:
    """A GPU that has more to do from look to look."""

    def __init__(self, missing=(), count=1):
        self.looks, self.missing, self.count = 0, missing, count

    def __getattr__(self, function):
        return lambda *arguments: 3 if function in self.missing else self.answer(function, *arguments)

    def answer(self, function, *arguments):
        if function == "nvmlDeviceGetMemoryInfo":
            self.looks += 1
            arguments[1]._obj.used = self.looks << 20
        elif function == "nvmlDeviceGetUtilizationRates":
            arguments[1]._obj.gpu = min(100, self.looks)
        elif function == "nvmlDeviceGetHandleByIndex_v2":
            return 0 if arguments[0].value < self.count else 2
        elif function == "nvmlDeviceGetName":
            ctypes.memmove(arguments[1], b"A GPU\0", 6)
        return 0


# What Python runs at its start in an experiment: NVML of a machine with so many GPUs, whatever this one has.
SITE = f'''
import ctypes, os
{inspect.getsource(Nvml)}
class Loader(ctypes.CDLL):
    def __new__(cls, name=None, *arguments, **options):
        if name != "libnvidia-ml.so.1":
            return super().__new__(cls)
        count = int(os.environ["GRADUS_TEST_GPUS"])
        if count == 0:
            raise OSError("no library")
        return Nvml(count=count)
ctypes.CDLL = Loader
'''


def setUpModule():
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)


class Recorder(unittest.TestCase):
    def test_samples_while_the_block_runs(self):
        nvml = Nvml()
        with gpu_recorder.GpuRecorder(every=0.001, library=nvml) as recorder:
            while nvml.looks < 5:
                threading.Event().wait(0.001)
        recording = recorder.recording()
        self.assertGreaterEqual(len(recording["seconds"]), 5)
        self.assertLessEqual(len(recording["seconds"]), gpu_recorder.POINTS)
        self.assertEqual(recording["seconds"], sorted(recording["seconds"]))
        self.assertEqual(recording["memory_bytes"][-1], nvml.looks << 20)
        self.assertEqual(recording["most_memory_bytes"], nvml.looks << 20)
        self.assertEqual(gpu_recorder.Gpu(nvml).name(), "A GPU")

    def test_says_why_there_is_nothing(self):
        for function in ("nvmlInit_v2", "nvmlDeviceGetUtilizationRates"):
            with gpu_recorder.GpuRecorder(library=Nvml([function])) as recorder:
                pass
            self.assertIn(function, recorder.recording()["none"])

    def test_one_of_several_gpus(self):
        self.assertEqual(gpu_recorder.Gpu(Nvml(count=2), index=1).name(), "A GPU")
        with self.assertRaises(gpu_recorder.NvmlError):
            gpu_recorder.Gpu(Nvml(count=2), index=2)
        with unittest.mock.patch.dict(os.environ, CUDA_VISIBLE_DEVICES="1"):
            gpu_recorder.Gpu(Nvml(count=2))
            with self.assertRaisesRegex(gpu_recorder.NvmlError, "CUDA_VISIBLE_DEVICES has no GPU 1"):
                gpu_recorder.Gpu(Nvml(count=2), index=1)

    def test_a_program_that_needs_more_gpus_is_skipped(self):
        with unittest.mock.patch("ctypes.CDLL", return_value=Nvml()):
            self.assertEqual(record.call(["echo", "done"]), ("done\n", None))
            self.assertEqual(record.call(["echo"], gpus=1)[1]["most_memory_bytes"] % (1 << 20), 0)
            with self.assertRaisesRegex(record.Skipped, "this needs 2 GPUs, here are 1"):
                record.call(["echo"], gpus=2)
        with unittest.mock.patch("ctypes.CDLL", return_value=Nvml(count=2)):
            self.assertEqual([set(one) for one in record.call(["echo"], gpus=2)[1]],
                             [{"most_memory_bytes", "mean_utilisation", "seconds", "memory_bytes", "utilisation"}] * 2)
        with unittest.mock.patch("ctypes.CDLL", side_effect=OSError("no library")):
            self.assertIn("no library", record.call(["echo"], gpus=2)[1][1]["none"])

    def test_figures_of_recordings(self):
        recording = gpu_recorder.summary([(0, 5, 0), (1, 6, 40), (2, 9, 0), (3, 9, 80), (4, 7, 0)])
        self.assertEqual(recording, {"most_memory_bytes": 9, "mean_utilisation": 40, "seconds": [0, 1, 2, 3, 4],
                                     "memory_bytes": [5, 6, 9, 9, 7], "utilisation": [0, 40, 0, 80, 0]})
        self.assertEqual(gpu_recorder.summary([(0, 5, 0)])["mean_utilisation"], 0)
        none = {"none": "no driver"}
        self.assertEqual(gpu_recorder.by_gpu({"a": recording, "b": [recording, none, recording], "c": none, "d": None}),
                         {"a": recording, "b, GPU 0": recording, "b, GPU 2": recording})

    def test_a_long_recording_is_thinned(self):
        thin = gpu_recorder.thinned([(float(i), i, i % 2) for i in range(1000)])
        self.assertEqual(len(thin), gpu_recorder.POINTS)
        self.assertEqual(thin[1], (50.0, 99, 1 / 2))
        self.assertEqual(gpu_recorder.summary([(i, i, 3 * (i == 500)) for i in range(1000)])["mean_utilisation"], 3)


class Experiments(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        for name, body in PROGRAMS.items():
            path = self.folder / "build" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(HEAD.format(python=sys.executable) + textwrap.dedent(body))
            path.chmod(0o755)
        (self.folder / "site").mkdir()
        (self.folder / "site/sitecustomize.py").write_text(SITE)

    def run_experiment(self, name, *options, gpus=0):
        done = subprocess.run([sys.executable, SCRIPTS / f"{name}.py", "--out", self.folder / "results", *options],
                              capture_output=True, text=True, timeout=60,
                              env={**os.environ, "GRADUS_BUILD": str(self.folder / "build"),
                                   "GRADUS_CODE_VERSION": "v1", "GRADUS_TEST_GPUS": str(gpus),
                                   "PYTHONPATH": str(self.folder / "site")})
        self.assertEqual(done.returncode, 0, done.stderr)
        return record.Runs(name.upper(), self.folder / "results").read()

    ROWS = {
        "e1": ["1 channels", "32 channels"],
        "e2": ["openmp, conv2_c1", "cudnn, conv2_c1", "naive, conv10_c32"],
        "e3": ["naive", "cuda"],
        "e4": ["plain", "resnet", "--seeds", "1", "3", "--epochs", "2"],
        "e5": ["one CPU process", "two CPU processes, spawn", "two GPUs, gradus-run",
               "--seeds", "1", "2", "--epochs", "2"],
        "e6": ["one GPU, 32", "two GPUs, 32", "--seeds", "1"],
        "e7": ["tcp, 32", "one GPU, 128", "CPU, shm, 32", "--seeds", "1"],
        "e8": ["one GPU", "batch norm alone", "dropout 0.5", "--seeds", "1", "2"],
        "e9": ["lenet", "lenet, cudnn", "loader, 2 workers", "DDP, 8 processes, CPU", "max-pool backward",
               "--seeds", "1", "--epochs", "2"],
        "e10": ["sgd, float32, none", "sgd, float32, selective"],
        "e11": ["eager, lenet", "captured, lenet", "static, lenet, cuda", "eager, lenet, CPU", "static, lenet, CPU",
                "dynamic net", "dynamic net, cuda"],
        "e12": ["mlp, none, 1", "mlp, ddp, 2", "transformer, zero3, 4"],
    }

    def test_a_run_is_a_line(self):
        for name, rows in self.ROWS.items():
            runs = self.run_experiment(name, "--record", "--rows", *rows, "--data", "/home/somebody/data")
            last = (self.folder / f"results/{name.upper()}.jsonl").read_text().splitlines()[-1]
            self.assertLessEqual(last.count('"device"'), 2)  # not once an epoch
            names = rows[: next((place for place, row in enumerate(rows) if row.startswith("--")), None)]
            seeds = rows[rows.index("--seeds") + 1 :] if "--seeds" in rows else ["1"]
            seeds = list(itertools.takewhile(str.isdigit, seeds))
            self.assertEqual([run["row"] for run in runs], names * len(seeds))
            for run in runs:
                self.assertEqual((run["code"], run["experiment"]), ("v1", name.upper()))
                self.assertEqual({"cpu", "cores", "system", "compiler", "gpu", "driver"}, set(run["machine"]))
                self.assertNotIn("skipped", run)
                self.assertNotIn("somebody", json.dumps(run))  # where the data lay is nobody's business
        spawned = record.Runs("E5", self.folder / "results").read()[1]
        self.assertEqual((spawned["ranks"], spawned["epochs"][0]["ranks"]), (2, 2))
        figures = [run["figures"] for run in record.Runs("E1", self.folder / "results").read()]
        self.assertEqual(figures[0]["fprop bfloat16 16x1x56 -> 1"]["rungs"]["7 wgmma"], [8, 1e-6])
        graphs = record.Runs("E11", self.folder / "results").read()
        self.assertEqual([len(run["rounds_ms"]) for run in graphs[:-2]], [3] * 5)
        only = self.run_experiment("e11", "--record", "--places", "CPU", "--rows", *self.ROWS["e11"])[7:]
        self.assertEqual([run["row"] for run in only], ["eager, lenet, CPU", "static, lenet, CPU", "dynamic net"])
        if not importlib.util.find_spec("torch"):
            run = self.run_experiment("e11", "--record", "--rows", "PyTorch eager, lenet")[-1]
            self.assertEqual(run["skipped"], "No module named 'torch'")
        first = record.Runs("E2", self.folder / "results").read()[0]
        self.assertEqual(len(first["epochs"]), 5)
        self.assertEqual(first["options"][:4], ["--model", "conv2_c1", "--batch-size", "128"])

    def test_rows_that_need_more_gpus_than_there_are_are_skipped(self):
        for gpus, skipped in ((1, "this needs 2 GPUs, here are 1"), (2, None)):
            runs = self.run_experiment("e6", "--record", "--rows", *self.ROWS["e6"], gpus=gpus)[-2:]
            self.assertEqual([run.get("skipped") for run in runs], [None, skipped])

    @unittest.skipUnless(importlib.util.find_spec("matplotlib"), "for want of matplotlib")
    def test_a_page_has_tables_pictures_and_what_was_skipped(self):
        words = {"e1": ["<td>2.00</td>", "7 wgmma 8 (1e-06)", "Left out: conv2d_cuda: 5 mma_sync is wrong"],
                 "e2": ["97.00", "128"], "e3": ["10.000", "20.000", "205"], "e9": ["3.00", "12.00", "186", "26"],
                 "e4": ["96.00 (95.00 to 97.00)", "50.6"], "e5": ["two GPUs, gradus-run", "96.50 (96.00 to 97.00)"],
                 "e6": ["179", "63.9"], "e7": ["87.3"], "e8": ["+0.00 (+0.00 to +0.00)"],
                 "e10": ["8 of 10 lines agree", "<td>309,768</td><td>309,768</td><td>309,768</td><td>yes</td>",
                         "<td>1,000,000</td><td>999,999</td><td>NO</td>"],
                 "e11": ["3.00", "[item] waits &amp; cannot be captured"],
                 "e12": ["<td>+1.00 %</td>", "<td>+0.50 %</td>", "<td>1.2e-01</td>", "<td>2.500000</td><td></td>",
                         "3 rows: memory within 1.00 % of the prediction, bytes sent within 0.50 %"]}
        for name, rows in self.ROWS.items():
            self.run_experiment(name, "--rows", *rows)
            page = (self.folder / f"results/{name.upper()}.html").read_text()
            for word in [*words[name], "data:image/png;base64,", "Rows without a run", "was not asked for"]:
                self.assertIn(word, page)
            self.assertNotIn("http", page)
        self.run_experiment("e9", "--rows", "pure_linear, cuda", "--seeds", "1", "--no-gpu")
        self.assertIn("<td>pure_linear, cuda</td><td>mnist: no GPU today</td>",
                      (self.folder / "results/E9.html").read_text())

    @unittest.skipUnless(importlib.util.find_spec("matplotlib"), "for want of matplotlib")
    def test_jobs_are_lost_as_their_workers_die(self):
        # Of 8 jobs worker 0 dies in those with bit 0 set, worker 1 with bit 1, the spare with bit 2.
        launcher = self.folder / "build/gradus-run"
        launcher.write_text(HEAD.format(python=sys.executable) + textwrap.dedent("""
            job = int(option("--job"))
            for worker in range(3):
                print(f"[0] worker {worker} {'dies' if job >> worker & 1 else 'lives'}")
            sys.exit(0 if (job & 3) == 0 or "--spares" in sys.argv and job & 3 != 3 and job < 4 else 137)
        """))
        rows = ["2 workers, no spare", "2 workers, a spare that fails too"]
        runs = self.run_experiment("e13", "--rows", *rows, "--jobs", "8", "--simulated", "20000")
        self.assertEqual([run["lost"] for run in runs], [6, 4])
        for run, formula in zip(runs, (0.52, 0.08 + 0.44 * 0.4)):  # 0.2 and 0.4 that they die, 0.4 the spare
            self.assertAlmostEqual(run["formula"], formula)
            self.assertAlmostEqual(run["simulated_lost"] / 20000, formula, delta=0.015)
        self.assertIn("4 of 8 = 0.500 (0.163 to 0.837)", (self.folder / "results/E13.html").read_text())
        launcher.write_text(HEAD.format(python=sys.executable) + "print('[1] worker 1 dies')")
        run = self.run_experiment("e13", "--rows", rows[0], "--jobs", "1", "--simulated", "1")[-1]
        self.assertIn("job 0 of seed 13 ended with code 0 though of its workers [1] were to die", run["skipped"])


if __name__ == "__main__":
    unittest.main(verbosity=2)  # which names the skipped ones
