#!/usr/bin/env python3
"""The shell scripts, each run in a copy of the tree's scripts/ with small files for MNIST and stand-ins for the
tools."""

import functools
import gzip
import hashlib
import http.server
import io
import os
import pathlib
import re
import shutil
import socket
import stat
import subprocess
import sys
import tarfile
import tempfile
import threading
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILES = ["train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"]


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


class ScriptTest(unittest.TestCase):
    """Gives each test a tree with scripts/, a mirror folder and a bin/ that comes first on the PATH."""

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.root = pathlib.Path(temporary.name).resolve() / "tree"
        self.mirror = self.root.parent / "mirror"
        self.bin = self.root.parent / "bin"
        for folder in (self.root, self.mirror, self.bin):
            folder.mkdir()
        shutil.copytree(ROOT / "scripts", self.root / "scripts")
        script = self.root / "scripts/mnist_data.sh"
        text = script.read_text()
        for name in FILES:
            content = gzip.compress(name.encode())
            (self.mirror / f"{name}.gz").write_bytes(content)
            text, count = re.subn(rf"(\[{name}\]=)[0-9a-f]{{64}}\n", rf"\g<1>{hashlib.sha256(content).hexdigest()}\n",
                                  text)
            self.assertEqual(count, 1)
        script.write_text(text)

    def serve(self):
        """The URL of an HTTP server over the mirror folder."""
        handler = functools.partial(QuietHandler, directory=self.mirror)
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        return f"http://127.0.0.1:{server.server_port}"

    def nobody_listens(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return f"http://127.0.0.1:{probe.getsockname()[1]}"

    def tool(self, name, body, folder=None):
        """Puts an executable shell script on the PATH, or into a folder of the tree."""
        path = (folder or self.bin) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/bash\n{body}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def run_script(self, name, *arguments, **environment):
        everything = {**os.environ, "PATH": f"{self.bin}:{os.environ['PATH']}", "GRADUS_DATA": "", **environment}
        return subprocess.run([self.root / "scripts" / name, *arguments], env=everything, capture_output=True,
                              text=True)

    def put_mnist(self, folder, suffix=".gz"):
        folder.mkdir(parents=True)
        for name in FILES:
            (folder / (name + suffix)).write_bytes(b"")
        return folder


class MnistData(ScriptTest):
    def check_found(self, folder, *arguments, **environment):
        result = self.run_script("mnist_data.sh", *arguments, **environment)
        self.assertEqual((result.returncode, result.stdout.strip()), (0, str(folder)), result.stderr)
        return result

    def test_finds_files_where_it_says_it_looks(self):
        elsewhere = self.root.parent
        shared = self.put_mnist(elsewhere / "shared/data/mnist")
        self.check_found(shared)
        tree = self.put_mnist(self.root / "data/mnist", suffix="")
        self.check_found(tree)
        variable = self.put_mnist(elsewhere / "variable")
        self.check_found(variable, GRADUS_DATA=str(variable))
        option = self.put_mnist(elsewhere / "option/mnist")
        self.check_found(option, "--data", str(elsewhere / "option"), GRADUS_DATA=str(variable))
        torchvision = self.put_mnist(elsewhere / "torchvision/MNIST/raw", suffix="")
        for name in FILES:
            (torchvision / name).rename(torchvision / name.replace("-idx", ".idx"))
        self.check_found(torchvision, "--data", str(elsewhere / "torchvision"))
        result = self.check_found(tree, "--data", str(elsewhere / "nowhere"))
        self.assertIn("no MNIST files in", result.stderr)

    def test_an_incomplete_set_is_not_taken(self):
        folder = self.put_mnist(self.root.parent / "option")
        (folder / f"{FILES[3]}.gz").unlink()
        result = self.run_script("mnist_data.sh", "--data", str(folder), "--mirror", self.nobody_listens())
        self.assertEqual(result.returncode, 1)

    def test_downloads_from_the_mirror(self):
        result = self.check_found(self.root / "data/mnist", "--mirror", self.serve() + "/")
        self.assertIn("downloading", result.stderr)
        for name in FILES:
            self.assertEqual(
                (self.root / f"data/mnist/{name}.gz").read_bytes(), (self.mirror / f"{name}.gz").read_bytes()
            )
        self.assertEqual(os.listdir(self.root / "data"), ["mnist"])
        self.check_found(self.root / "data/mnist", "--mirror", self.nobody_listens())  # now it is there

    def check_refused(self, mirror, words):
        result = self.run_script("mnist_data.sh", "--mirror", mirror)
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertIn(words, result.stderr)
        self.assertIn("could not be downloaded", result.stderr)
        self.assertEqual(os.listdir(self.root / "data"), [])

    def test_a_damaged_file_is_refused(self):
        file = self.mirror / f"{FILES[2]}.gz"
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.write_bytes(content)
        self.check_refused(self.serve(), f"{FILES[2]}.gz is damaged or not MNIST")

    def test_a_missing_file_is_refused(self):
        (self.mirror / f"{FILES[1]}.gz").unlink()
        self.check_refused(self.serve(), "404")

    def test_no_server(self):
        self.check_refused(self.nobody_listens(), FILES[0])


class ArchiveData(ScriptTest):
    """The scripts whose data set is one archive."""

    SETS = {
        "cifar10_data.sh": ("cifar-10-batches-bin", "cifar-10-binary.tar.gz",
                            [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]),
        "stl10_data.sh": ("stl10_binary", "stl10_binary.tar.gz",
                          ["train_X.bin", "train_y.bin", "test_X.bin", "test_y.bin"]),
    }

    def setUp(self):
        super().setUp()
        for script, (folder, archive, files) in self.SETS.items():
            with tarfile.open(self.mirror / archive, "w:gz") as tar:
                for name in files + ["unlabeled_X.bin"]:
                    entry = tarfile.TarInfo(f"{folder}/{name}")
                    entry.size = len(name)
                    tar.addfile(entry, io.BytesIO(name.encode()))
            path = self.root / "scripts" / script
            digest = hashlib.md5((self.mirror / archive).read_bytes()).hexdigest()
            text, count = re.subn(r"(?m)^md5=[0-9a-f]{32}", f"md5={digest}", path.read_text())
            self.assertEqual(count, 1)
            path.write_text(text)

    def each(self):
        for script, (folder, archive, files) in self.SETS.items():
            with self.subTest(script):
                yield script, folder, archive, files

    def check_found(self, script, folder, *arguments, **environment):
        result = self.run_script(script, *arguments, **environment)
        self.assertEqual((result.returncode, result.stdout.strip()), (0, str(folder)), result.stderr)

    def test_downloads_what_is_needed_and_finds_it_again(self):
        mirror = self.serve()
        for script, folder, _, files in self.each():
            self.check_found(script, self.root / "data" / folder, "--mirror", mirror)
            self.assertEqual(sorted(os.listdir(self.root / "data" / folder)), sorted(files))
            self.check_found(script, self.root / "data" / folder, "--mirror", self.nobody_listens())
        self.assertEqual(sorted(os.listdir(self.root / "data")), ["cifar-10-batches-bin", "stl10_binary"])

    def test_finds_files_where_it_says_it_looks(self):
        for script, folder, _, files in self.each():
            below = self.root.parent / "elsewhere" / folder
            below.mkdir(parents=True)
            for name in files:
                (below / name).write_bytes(b"")
            self.check_found(script, below, "--data", str(below))
            self.check_found(script, below, "--data", str(below.parent))
            self.check_found(script, below, GRADUS_DATA=str(below.parent))

    def test_a_damaged_archive_is_refused_and_a_missing_one_explained(self):
        for script, _, archive, _ in self.each():
            (self.mirror / archive).write_bytes(b"not an archive")
            result = self.run_script(script, "--mirror", self.serve())
            self.assertEqual((result.returncode, result.stdout), (1, ""))
            self.assertIn("is damaged or not", result.stderr)
            self.assertIn(f"tar -xzf {archive} -C data", result.stderr)
            result = self.run_script(script, "--mirror", self.nobody_listens())
            self.assertEqual(result.returncode, 1)
            self.assertIn("could not be downloaded", result.stderr)
            self.assertEqual(os.listdir(self.root / "data"), [])

    def test_packed_data_is_pointed_at(self):
        self.tool("unpack.sh", "exit 1", self.root.parent / "shared/data")
        for script, _, _, _ in self.each():
            result = self.run_script(script, "--mirror", self.nobody_listens())
            self.assertEqual(result.returncode, 1)
            self.assertIn("../shared/data/unpack.sh data", result.stderr)


class Mnist(ScriptTest):
    def setUp(self):
        super().setUp()
        (self.root / "scripts/report.py").write_text("import sys; print('report', *sys.argv[1:])\n")
        (self.root / "scripts/install_dependencies.sh").write_text("#!/bin/bash\n")
        self.tool("cmake", 'echo cmake "$@" >&2')
        for preset in ("cpu-release", "cuda"):
            self.tool("mnist", f'echo "{preset}: $@"; mkdir -p runs/mnist', self.root / f"build/{preset}/examples")

    def test_trains_on_what_it_downloads(self):
        result = self.run_script("mnist.sh", "--epochs", "1", "--mirror", self.serve())
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn(f"cpu-release: --epochs 1 --data {self.root}/data/mnist --out runs/mnist", result.stdout)

    def test_without_a_server_it_says_so_and_draws_digits(self):
        result = self.run_script("mnist.sh", "--epochs=1", f"--mirror={self.nobody_listens()}")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("cpu-release: --epochs=1 --synthetic --out runs/mnist", result.stdout)
        self.assertIn("training on synthetic digits instead", result.stderr)

    def test_a_damaged_download_is_said_and_digits_are_drawn(self):
        (self.mirror / f"{FILES[0]}.gz").write_bytes(b"not MNIST")
        result = self.run_script("mnist.sh", "--mirror", self.serve())
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("damaged", result.stderr)
        self.assertIn("--synthetic", result.stdout)

    def test_cuda_chooses_the_preset_and_options_pass_through(self):
        self.tool("nvidia-smi", "echo 9.0")
        result = self.run_script("mnist.sh", "--synthetic", "--device", "cuda", "--out", "a folder")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn(f"cuda: --device cuda --synthetic --out {os.getcwd()}/a folder\n", result.stdout)
        self.assertIn("-DCMAKE_CUDA_ARCHITECTURES=90", result.stderr)

    def test_a_failed_training_fails_the_script(self):
        self.tool("mnist", "exit 3", self.root / "build/cpu-release/examples")
        self.assertEqual(self.run_script("mnist.sh", "--synthetic").returncode, 3)


class Experiment(ScriptTest):
    def setUp(self):
        super().setUp()
        (self.root / "scripts/experiments/e9.py").write_text(
            "import os, sys; print(os.environ['GRADUS_BUILD'], *sys.argv[1:])\n")
        (self.root / "scripts/install_dependencies.sh").write_text("#!/bin/bash\necho install >&2\n")
        self.tool("python3", f'[ "$1" = -c ] || {sys.executable} "$@"')  # which has matplotlib, it says
        self.tool("cmake", 'echo cmake "$@" >&2')
        self.tool("nvcc", "")

    def check(self, **environment):
        result = self.run_script("experiment.sh", "E9", "--rows", "lenet", **{"GRADUS_BUILD": "", **environment})
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout.split()[1:], ["--rows", "lenet"])
        return result.stdout.split()[0], result.stderr

    def test_builds_with_cuda_where_a_gpu_is(self):
        self.tool("nvidia-smi", "exit 9")
        build, said = self.check()
        self.assertEqual(build, f"{self.root}/build/cpu-release")
        self.assertNotIn("CUDA", said)
        self.tool("nvidia-smi", "echo 9.0")
        build, said = self.check()
        self.assertEqual(build, f"{self.root}/build/cuda")
        self.assertIn("-DCMAKE_CUDA_ARCHITECTURES=90", said)

    def test_takes_a_build_folder_that_is_there(self):
        build, said = self.check(GRADUS_BUILD="/a/build")
        self.assertEqual((build, said), ("/a/build", ""))

    def test_render_builds_nothing(self):
        result = self.run_script("experiment.sh", "E9", "--render", GRADUS_BUILD="")
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, " --render\n", "install\n"))

    def test_names_the_experiments_that_there_are(self):
        for locale in ("C", "C.UTF-8", "en_US.UTF-8"):  # where it is installed; else it is C
            result = self.run_script("experiment.sh", "E99", LC_ALL=locale)
            self.assertEqual(result.returncode, 2)
            self.assertIn("there are: E1 E10 E11 E12 E13 E14 E2 E3 E4 E5 E6 E7 E8 E9", result.stderr)


class OlderCards(ScriptTest):
    """test.sh and configure.sh for cards that are older than the machine's GPU."""

    def setUp(self):
        super().setUp()
        for script in ("install_dependencies.sh", "onnx_venv.sh", "test_summary.py"):
            (self.root / "scripts" / script).write_text("#!/bin/bash\n")
        for tool in ("cmake", "ctest"):
            self.tool(tool, f'echo {tool} "$@" "limit=${{GRADUS_CUDA_MAX_CAPABILITY:-}}"')
        self.tool("nvidia-smi", "echo 9.0")

    def said(self, *arguments):
        result = self.run_script("test.sh", *arguments, GRADUS_CUDA_MAX_CAPABILITY="")
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def test_the_code_of_such_a_card_is_compiled_and_its_capability_is_the_limit(self):
        for preset, code in (("cuda-75", 75), ("cuda-80", 80), ("cuda-86", 80), ("cuda-89", 80)):
            said = self.said(preset, "-R", "cuda")
            self.assertIn(f"cmake --preset cuda-{code} -DGRADUS_CUDA_COMPILE_PTX_FOR=90 ", said)
            self.assertIn(f"cmake --build --preset cuda-{code} ", said)
            self.assertIn(f"ctest --preset cuda-{code} -R cuda limit={preset[-2:]}\n", said)

    def test_the_card_itself_has_no_limit(self):
        said = self.said("cuda")
        self.assertIn("cmake --preset cuda -DCMAKE_CUDA_ARCHITECTURES=90 ", said)
        self.assertIn("ctest --preset cuda limit=\n", said)


class Lockstep(ScriptTest):
    def setUp(self):
        super().setUp()
        (self.root / "scripts/install_dependencies.sh").write_text("#!/bin/bash\n")
        self.tool("cmake", 'echo cmake "$@" >&2')
        self.tool("nvidia-smi", "exit 9")
        for preset in ("cpu-release", "cuda"):
            self.tool("lockstep", f'echo {preset} "$PWD" "$@"; exit 1', self.root / f"build/{preset}/benchmarks")

    def test_builds_what_the_backends_need_and_passes_the_outcome_on(self):
        for preset, backends in (("cpu-release", ["--a", "naive"]), ("cuda", ["--b", "cuda"]), ("cuda", ["--a=cudnn"])):
            result = self.run_script("lockstep.sh", "--net", "lenet", *backends)
            self.assertEqual((result.returncode, result.stdout.split()),
                             (1, [preset, os.getcwd(), "--net", "lenet", *backends]))
            self.assertIn(f"cmake --build --preset {preset} --target lockstep", result.stderr)


class InstallDependencies(ScriptTest):
    def setUp(self):
        super().setUp()
        self.log = self.root.parent / "log"
        self.tool("dpkg-query", '[ "${@: -1}" = python3-matplotlib ] || echo installed')
        # Like a fresh machine's: install works once the lists are there.
        self.tool("apt-get", f'echo apt-get "$@" >> {self.log}; [ "$1" != install ] || grep -q update {self.log}')
        self.tool("sudo", "exit 1")
        self.tool("id", "echo 1000")
        for name in ("g++", "cmake", "ninja"):
            self.tool(name, "")

    def test_prints_the_command_where_it_may_not_install(self):
        result = self.run_script("install_dependencies.sh", "report")
        self.assertEqual(result.returncode, 1)
        self.assertIn("sudo apt-get update && sudo apt-get install -y python3-matplotlib\n", result.stderr)
        self.assertFalse(self.log.exists())

    def test_installs_only_what_is_missing_and_updates_the_lists_if_it_must(self):
        self.tool("id", "echo 0")
        result = self.run_script("install_dependencies.sh", "report")
        self.assertEqual(result.returncode, 0, result.stderr)
        install = "apt-get install -y -q --no-install-recommends python3-matplotlib"
        self.assertEqual(self.log.read_text().splitlines(), [install, "apt-get update -q", install])

    def test_does_nothing_when_nothing_is_missing(self):
        self.tool("dpkg-query", "echo installed")
        result = self.run_script("install_dependencies.sh", "build", "test")
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "", ""))

    def test_headers_count_wherever_compiler_and_cmake_look(self):
        script = self.root / "scripts/install_dependencies.sh"
        script.write_text(script.read_text().replace('"/usr:/usr/local:', '"'))  # a system without any
        self.tool("dpkg-query", "exit 1")
        missing = {"zlib1g-dev", "libssl-dev", "libcli11-dev", "nlohmann-json3-dev", "libstb-dev", "catch2"}
        for header, package in (("zlib.h", "zlib1g-dev"), ("openssl/evp.h", "libssl-dev"),
                                ("CLI/CLI.hpp", "libcli11-dev"),
                                ("nlohmann/json.hpp", "nlohmann-json3-dev"), ("stb/stb_image.h", "libstb-dev"),
                                ("catch2/catch_all.hpp", "catch2")):
            path = self.root.parent / "prefix/include" / header
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
            missing.remove(package)
            for variables in ({"CMAKE_PREFIX_PATH": f"/nowhere:{self.root.parent}/prefix", "CPATH": ""},
                              {"CPATH": f"/nowhere:{self.root.parent}/prefix/include", "CMAKE_PREFIX_PATH": ""}):
                result = self.run_script("install_dependencies.sh", "build", "test", **variables)
                asked = set(result.stderr.split("install -y ")[-1].split()) if result.returncode else set()
                self.assertEqual(asked, missing)

    def test_an_unknown_group_is_an_error(self):
        result = self.run_script("install_dependencies.sh", "everything")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("no group 'everything'", result.stderr)


CTEST_LOG = """Start testing: Nov 22 12:00 UTC
----------------------------------------------------------
1/4 Testing: test_core
1/4 Test: test_core
Output:
----------------------------------------------------------
skipped for want of {want}: a case
cases: 40 passed, {failed} failed, 1 skipped (--order rand --rng-seed 7 repeats the order)
<end of output>
Test time =   0.50 sec
----------------------------------------------------------
{end}.

2/4 Testing: scripts
Output:
test_pages (__main__.Report) ... skipped 'for want of STL-10'
Ran 4 tests in 0.1s

OK (skipped=1)
<end of output>
Test Passed.

3/4 Testing: find_package
<end of output>
Test Passed.

4/4 Testing: soak
Killed
<end of output>
{last}.
"""


class Timeline(unittest.TestCase):
    def test_one_step_of_a_trace(self):
        sys.path.insert(0, str(ROOT / "scripts"))
        from timeline import bars_of

        def event(name, thread, begin, duration, pass_="forward", cat="kernel"):
            times = {"ts": begin, "dur": duration}
            return {"ph": "X", "name": name, "tid": thread, **times, "cat": cat, "args": {"pass": pass_}}

        def step(begin):
            return [event("conv2d", 1, begin, 3000), event("linear", 1, begin + 3000, 2000, "backward"),
                    event("linear", 1, begin + 3000, 2100, "backward", "operator"),
                    event("all_reduce", 2, begin + 5000, 500, cat="operator"),
                    event("relu", 2, begin + 5000, 500, cat="operator"),
                    event("conv2d", 1, begin + 5000, 1000, "backward"), event("sgd_step", 1, begin + 6000, 10),
                    event("sgd_step", 1, begin + 6010, 90)]

        trace = [{"ph": "M", "name": "thread_name"}, *step(0), *step(10000), *step(30000)]
        bars, length = bars_of(trace)
        self.assertAlmostEqual(length, 20)
        expected = [("computing", 13.9, 3, "forward"), ("computing", 16.9, 2, "backward"),
                    ("communicating", 18.9, 0.5, "all_reduce"), ("computing", 18.9, 1, "backward"),
                    ("computing", 19.9, 0.01, "optimizer"), ("computing", 19.91, 0.09, "optimizer")]
        self.assertEqual([(row, kind) for row, _, _, kind in bars], [(row, kind) for row, _, _, kind in expected])
        for (_, begin, duration, _), (_, right_begin, right_duration, _) in zip(bars, expected):
            self.assertAlmostEqual(begin, right_begin)
            self.assertAlmostEqual(duration, right_duration)
        self.assertAlmostEqual(bars_of(trace, 2)[1], 10)


class TestSummary(ScriptTest):
    def summary(self, want="NCCL", failed=0, end="Test Passed", last="Test Passed", cuda="OFF"):
        build = self.root / "build"
        (build / "Testing/Temporary").mkdir(parents=True, exist_ok=True)
        (build / "CMakeCache.txt").write_text(
            f"\nGRADUS_WITH_CUDA:INTERNAL={cuda}\nGRADUS_WITH_NCCL:INTERNAL=ON\n"
        )
        log = CTEST_LOG.format(want=want, failed=failed, end=end, last=last)
        (build / "Testing/Temporary/LastTest.log").write_text(log)
        script = [sys.executable, self.root / "scripts/test_summary.py", build]
        environment = {**os.environ, "PATH": f"{self.bin}:/bin", "GRADUS_DATA": ""}
        done = subprocess.run(script, cwd=self.root, env=environment, capture_output=True, text=True)
        self.assertEqual(done.stderr, "")
        return done.returncode, done.stdout.splitlines()

    def test_counts_cases_of_both_kinds_and_tests_without_cases(self):
        status, lines = self.summary()
        self.assertEqual(lines, ["skipped for want of NCCL: 1", "skipped for want of STL-10: 1",
                                 "45 passed, 0 failed, 2 skipped"])
        self.assertEqual(status, 0)

    def test_what_failed_or_broke_off_is_a_failure(self):
        status, lines = self.summary(failed=2, end="Test Failed", last="Test Failed")
        self.assertEqual((status, lines[-1]), (1, "44 passed, 3 failed, 2 skipped"))
        status, lines = self.summary(end="Test Failed")  # it ended badly behind its last case
        self.assertEqual((status, lines[-1]), (1, "45 passed, 1 failed, 2 skipped"))

    def test_nothing_is_skipped_for_want_of_what_is_there(self):
        self.tool("nvidia-smi", "echo 'GPU 0: some'")
        self.assertEqual(self.summary(cuda="OFF")[0], 0)
        status, lines = self.summary(cuda="ON")
        self.assertEqual((status, lines[0]), (1, "skipped for want of NCCL: 1  <- but it is there"))
        self.assertEqual(self.summary(want="2 CUDA devices", cuda="ON")[0], 0)
        self.assertEqual(self.summary(want="1 CUDA device", cuda="ON")[0], 1)
        self.assertEqual(self.summary(want="a machine without CUDA devices", cuda="ON")[0], 0)
        self.assertEqual(self.summary(want="a machine without CUDA devices", cuda="OFF")[0], 1)

    def test_no_reason_but_the_known_ones(self):
        status, lines = self.summary(want="time")
        self.assertEqual((status, lines[0]),
                         (1, "skipped for want of time: 1  <- not a reason that scripts/test_summary.py knows"))


if __name__ == "__main__":
    unittest.main()
