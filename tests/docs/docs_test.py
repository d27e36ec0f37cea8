#!/usr/bin/env python3
"""The pages link to what exists, their blocks run, and code_blocks.py makes of them what it says.

    tests/docs/docs_test.py [BUILD]         BUILD: the folder of a build, whose programs in tests/docs run the blocks
"""

import itertools
import os
import pathlib
import re
import secrets
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import textwrap
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "scripts"))

import figures
from code_blocks import (PageError, blocks_of, cpp_of, displays_prologue, hidden_lines, is_piece, missing_of_excerpt,
                         runnable_blocks, with_shape_check)

BUILD = pathlib.Path(sys.argv.pop()).resolve() if pathlib.Path(sys.argv[-1]).is_dir() else None
CODE_PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FOLDERS = ["backends/cuda", "backends/openmp", "benchmarks", "benchmarks/experiments", "examples"]
PAGES = CODE_PAGES + [ROOT / folder / "README.md" for folder in FOLDERS]
PAGES += sorted((ROOT / "examples/exercises").glob("*/README.md"))
SKIPPED = 77  # kSkipped of blocks.h
PROGRAMS = {"cpp": "docs_code", "cuda": "docs_cuda"}  # that run the blocks of a language


def heading_id(heading):
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower()).strip().replace(" ", "-")


class Pictures(unittest.TestCase):
    @unittest.skipUnless(BUILD and (BUILD / "tests/docs/pictures").exists(), "not run: an x86-64 build draws them")
    def test_pictures_are_what_is_drawn_now(self):
        pictures = ROOT / "docs/pictures"
        done = subprocess.run([BUILD / "tests/docs/pictures", pictures, "--check"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


class Pages(unittest.TestCase):
    def test_links_lead_somewhere(self):
        for page in PAGES:
            text = re.sub(r"```.*?```|<!--.*?-->", "", page.read_text(), flags=re.S)
            for target in re.findall(r"\]\(([^)\s]+)\)", text):
                if re.match(r"[a-z]+:", target):
                    continue
                file, _, anchor = target.partition("#")
                path = (page.parent / file).resolve() if file else page
                with self.subTest(page=str(page.relative_to(ROOT)), target=target):
                    self.assertTrue(path.exists())
                    if anchor:
                        self.assertIn(anchor, map(heading_id, re.findall(r"^#+ (.*)", path.read_text(), flags=re.M)))

    def test_every_page_is_listed(self):
        for index, pages in (("docs/README.md", "docs/*.md"), ("docs/guide/README.md", "docs/guide/*.md"),
                             ("docs/decisions/README.md", "docs/decisions/*.md")):
            listed = (ROOT / index).read_text()
            for page in ROOT.glob(pages):
                if page != ROOT / index:
                    self.assertIn(f"({page.relative_to((ROOT / index).parent)})", listed)


class Version(unittest.TestCase):
    def test_files_name_the_version_of_the_headers(self):
        macros = dict(re.findall(r"#define GRADUS_VERSION_(\w+) (\d+)", next(ROOT.glob("core/**/version.h")).read_text()))
        minor = f"{macros['MAJOR']}.{macros['MINOR']}"
        version = f"{minor}.{macros['PATCH']}"
        for file, line in (("CHANGELOG.md", rf"## {version}(, .*)?"), ("CITATION.cff", f"version: {version}")):
            with self.subTest(file=file):
                found = re.search(r"^(## \d|version: ).*", (ROOT / file).read_text(), re.M)
                self.assertRegex(found[0], f"^{line}$")
        self.assertIn(f"find_package(gradus {minor})", (ROOT / "docs/guide/install.md").read_text())


class Blocks(unittest.TestCase):
    """The C++ and CUDA blocks do what the pages say."""

    def run_block(self, name, block, program):
        command = [BUILD / "tests/docs" / program, name]
        if ranks := re.fullmatch(r"(\d+) ranks", block.how):
            command = [BUILD / "gradus-run", "--nproc", ranks[1], *command]
        with tempfile.TemporaryDirectory() as folder:
            result = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)
        if result.returncode == SKIPPED:
            self.skipTest({"needs CUDA": "for want of 1 CUDA device", "needs cuDNN": "for want of cuDNN"}[block.how])
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        if block.place == "output":
            expected = re.escape("\n".join(block.code)).replace("…", ".*")
            self.assertRegex(result.stdout.strip(), re.compile(f"^{expected}$"))

    def test_excerpts_are_in_their_files(self):
        for page in CODE_PAGES:
            for block in blocks_of(page.read_text()):
                if block.place.startswith("excerpt"):
                    source = ROOT / block.place.split()[1]
                    with self.subTest(block=f"{page}:{block.line}", source=str(source)):
                        self.assertIsNone(missing_of_excerpt(block.code, source.read_text()))

    def test_what_blocks_need_is_displayed(self):
        for page in CODE_PAGES:
            text = page.read_text()
            blocks = blocks_of(text)
            with self.subTest(page=str(page.relative_to(ROOT))):
                self.assertEqual([(block.line, line) for block, line in hidden_lines(blocks)], [])
                if any(block.place in ("file", "function") and not is_piece(block) for block in blocks):
                    self.assertTrue(displays_prologue(text))

    def test_declarations_are_used(self):
        """What a block declares that is not run by itself is used by one that is."""
        for page, language in itertools.product(CODE_PAGES, PROGRAMS):
            blocks = blocks_of(page.read_text(), language)
            runnable = set(runnable_blocks(blocks))
            used = "\n".join(line for number in runnable for line in (*blocks[number].added, *blocks[number].code))
            for number, block in enumerate(blocks):
                if block.place in ("file", "program") and number not in runnable:
                    declared = r"^(?:struct (\w+?)(?:Impl)?\b|\w[\w:<>& ]* (\w+)\(.*\{)"
                    for name in map("".join, re.findall(declared, "\n".join(block.code), flags=re.M)):
                        with self.subTest(block=f"{page}:{block.line}"):
                            self.assertRegex(used, rf"\b{name}\b")

    @unittest.skipUnless(BUILD, "no build folder was given")
    def test_run(self):
        ran, cache = 0, (BUILD / "CMakeCache.txt").read_text()
        for page, (language, program) in itertools.product(CODE_PAGES, PROGRAMS.items()):
            blocks = blocks_of(page.read_text(), language)
            for number in runnable_blocks(blocks):
                block = blocks[number]
                name = f"{page}:{block.line}"
                with self.subTest(block=name):
                    if block.how.startswith("not run"):
                        self.skipTest(block.how)
                    if language == "cuda" and "GRADUS_WITH_CUDA:INTERNAL=ON" not in cache:
                        self.skipTest("for want of 1 CUDA device")
                    self.run_block(name, block, program)
                    ran += 1
        print(f"{ran} blocks did what their pages say")


@unittest.skipUnless(BUILD, "no build folder was given")
class Clusters(unittest.TestCase):
    """The files to copy of clusters.md start its program, here where all machines are this one and Slurm is a fake."""

    PAGE = ROOT / "docs/guide/clusters.md"

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        line = next(block.line for block in blocks_of(self.PAGE.read_text()) if block.place == "program")
        self.tool("build/my_program", f"exec {BUILD}/tests/docs/docs_code {self.PAGE}:{line}")
        self.environment = os.environ | {
            "PATH": f"{self.folder}:{BUILD}:{os.environ['PATH']}", "HOME": str(self.folder),
            "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

    def tool(self, name, text):
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o700)

    def token(self, name):
        (self.folder / name).write_text(secrets.token_hex(32))
        (self.folder / name).chmod(0o600)

    def block(self, heading, language):
        """The first block of that language behind that heading."""
        text = self.PAGE.read_text().split(f"## {heading}\n")[1].split(f"```{language}\n")[1]
        return re.sub(r"\bnode[01]\b", "localhost", text.split("```")[0])

    def expect(self, backend, local_ranks, *commands):
        """All commands at the same time end well, and ranks with these numbers on their machines say the right sum."""
        processes = [subprocess.Popen(command, cwd=self.folder, env=self.environment | variables, text=True,
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                     for command, variables in commands]
        results = [(*process.communicate(timeout=60), process.returncode) for process in processes]
        self.assertEqual([code for _, _, code in results], [0] * len(commands), results)
        size = len(local_ranks)
        found = re.findall(r"^(?:\[\d\] )?(rank .*)$", "".join(output for output, _, _ in results), flags=re.M)
        self.assertEqual(sorted(found), [
            f"rank {rank} of {size}, local rank {local}, {backend}: the sum is {size * (size + 1) // 2}"
            for rank, local in enumerate(local_ranks)])

    def test_mpirun(self):
        if "GRADUS_WITH_MPI:INTERNAL=ON" not in (BUILD / "CMakeCache.txt").read_text() or not shutil.which("mpirun"):
            self.skipTest("for want of MPI")
        self.expect("mpi", [0, 1, 2, 3], (["sh", "-c", self.block("mpirun", "sh")], {}))

    def test_slurm(self):
        job = next(number for number in range(10000) if is_free(20000 + number))
        self.tool("scontrol", "echo 127.0.0.1; echo node1")
        self.tool("srun", """while [ "${1#--}" != "$1" ]; do shift; done
            for rank in 0 1 2 3; do
              SLURM_PROCID=$rank SLURM_NTASKS=4 SLURM_LOCALID=$((rank % 2)) SLURM_NODEID=$((rank / 2)) \\
              SLURM_NTASKS_PER_NODE=2 SLURM_STEP_TASKS_PER_NODE='2(x2)' "$@" &
            done
            wait""")
        self.expect("shm", [0, 1, 0, 1], (["bash", "-c", self.block("Slurm", "bash")], {
            "SLURM_JOB_ID": str(job), "SLURM_JOB_NODELIST": "node[0-1]", "SLURM_CPUS_PER_TASK": "1"}))
        self.assertEqual(list(self.folder.glob(".gradus*")), [])

    def test_kubernetes(self):
        self.token("secret")
        script = textwrap.dedent(re.search(r"- \|\n((?: {18}.*\n)+)", self.block("Kubernetes", "yaml"))[1])
        port = next(port for port in range(23456, 33456) if is_free(port))
        self.expect("shm", [0, 1, 2, 3], *(
            (["sh", "-c", script.replace("/secret/token", "secret").replace("/tmp/token", f"token{rank}")],
             {"RANK": str(rank), "WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
              "GRADUS_TOKEN_FILE": f"token{rank}"}) for rank in range(4)))

    def test_gradus_run(self):
        self.token("job.token")
        port = next(port for port in range(29500, 39500) if is_free(port))
        script = self.block("Machines without any of these", "sh").replace("localhost:29500", f"127.0.0.1:{port}")
        self.expect("shm", [0, 1, 0, 1], *((["sh", "-c", script, "job.sh", str(node)], {}) for node in range(2)))


def is_free(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


class Commands(unittest.TestCase):
    """Shell blocks name programs, options, presets and variables that there are."""

    # Where programs read options, beside the file or folder of their name.
    READERS = {
        "scripts/mnist.sh": ["examples/mnist", "examples/common"],
        "scripts/experiment.sh": ["scripts/experiments"],
        "benchmarks/": ["benchmarks/common"],
        "examples/": ["examples/common"],
    }

    def sources(self, program):
        """The text of all files that may read the program's options."""
        program = re.sub(r"^build/[^/]+/", "", program)
        program = {"gradus-run": "distributed/launcher", "gradus-info": "core/io/gradus_info"}.get(program, program)
        own = [path for path in (ROOT / program, ROOT / f"{program}.cpp") if path.exists()]
        self.assertTrue(own, f"there is no {program}")
        own += [ROOT / place for key, places in self.READERS.items() if program.startswith(key) for place in places]
        files = [file for path in own for file in ([path] if path.is_file() else path.rglob("*"))]
        return "".join(file.read_text() for file in files if file.suffix in (".cpp", ".h", ".py", ".sh"))

    def check(self, command):
        words = [word for word in shlex.split(command, comments=True) if not re.match(r"[A-Z_]+=", word)]
        if words and words[0] in ("cmake", "ctest"):
            known = "".join((ROOT / file).read_text() for file in ("CMakePresets.json", "cmake/options.cmake"))
            for name in re.findall(r"--preset (\S+)|-D(\w+)", command):
                self.assertRegex(known, rf"\b{''.join(name)}\b")
        elif words and words[0] == "gradus-run" and (started := [word for word in words if word.startswith("build/")]):
            self.check(shlex.join(words[: words.index(started[0])]))
            self.check(shlex.join(words[words.index(started[0]) :]))
        elif words and ("/" in words[0] or words[0] in ("python3", "gradus-run")):
            sources = self.sources(words[words[0] == "python3"])
            for option in words:
                if option.startswith("--"):
                    self.assertRegex(sources, rf"{option}\b")

    def list_tests(self, pattern):
        """From outside of the build: ctest -N would empty the log of the ctest that runs this test."""
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "CTestTestfile.cmake").write_text(f'subdirs("{pathlib.Path(BUILD).resolve()}")\n')
            return subprocess.run(["ctest", "-N", "-R", pattern], cwd=folder, capture_output=True, text=True).stdout

    def test_ctest_finds_tests(self):
        """Also in the text; scripts/exercise.sh builds without tests, so that its pages must ask for them."""
        for page in PAGES:
            text = page.read_text().replace("\\\n", "")
            for command in re.findall(r"\bctest (?:--|-)[^`\n&|]*", text):
                with self.subTest(page=str(page.relative_to(ROOT)), command=command):
                    if "exercises" in page.parts:
                        self.assertIn("-DGRADUS_BUILD_TESTS=ON", text)
                    words = shlex.split(command, comments=True)
                    if BUILD and "-R" in words:
                        pattern = words[words.index("-R") + 1]
                        self.assertRegex(self.list_tests(pattern), r"Total Tests: [1-9]")

    def test_programs_and_options_exist(self):
        for page in PAGES:
            for block in re.findall(r"^```sh\n(.*?)^```", page.read_text(), flags=re.S | re.M):
                for command in re.split(r" && | \| |\n", block.replace("\\\n", "")):
                    with self.subTest(page=str(page.relative_to(ROOT)), command=command):
                        self.check(command.partition("build/my_program")[0])  # the reader's own


class Figures(unittest.TestCase):
    """scripts/figures.py finds what a page says that its file of results does not."""

    COMMENT = "<!-- figures: results/ddp_two_cores.json\n"
    PAGE = f"text\n\n{COMMENT}| {{net}} {{batch}} | {{ranks_ms:.1f}} |\n-->\n| | ms |\n|---|---|\n"
    ROWS = "| lenet 1024 | 23.6 |\n| conv10_c32 128 | 256.9 |\n| stl10_net 128 | 461.3 |\n| stl10_net 32 | 132.5 |\n"

    def test_all_pages(self):
        done = subprocess.run([sys.executable, ROOT / "scripts/figures.py", "--check"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_rows_are_made(self):
        self.assertEqual(figures.filled(self.PAGE + self.ROWS), (self.PAGE + self.ROWS, [], [4, 0, 0]))
        altered = self.ROWS.replace("23.6", "23.5"), self.ROWS.replace("lenet", "LeNet"), self.ROWS + "| a | 1 |\n"
        for wrong in ("", *altered):
            text, problems, _ = figures.filled(self.PAGE + wrong)
            self.assertEqual(text, self.PAGE + self.ROWS)
            self.assertTrue(problems)

    def test_a_selection(self):
        page = self.PAGE.replace("results", "some results")
        self.assertEqual(figures.filled(page + "| stl10_net 32 | 9 |\n")[0], page + "| stl10_net 32 | 132.5 |\n")
        self.assertIn("no such row", "".join(figures.filled(page + "| resnet18 32 | 132.5 |\n")[1]))

    def test_phrases(self):
        page = self.COMMENT + "{records[0].ranks_ms:.1f} ms\n-->\nLeNet: 23.6\nms, all 24 ms."
        self.assertEqual(figures.filled(page), (page, [], [1, 0, 1]))
        self.assertEqual(len(figures.filled(page.replace("23.6", "23.7"))[1]), 1)

    def test_figures_without_a_file_are_counted(self):
        table = "| | ms |\n|---|---|\n| LeNet | 23.6 |\n"
        for page, counts in (("It takes 3 ms,\nof them 5 % for 2 layers.\n", [0, 0, 2]), (table, [0, 1, 0]),
                             ("<!-- figures: not measured -->\n" + table, [0, 0, 0]), ("```\n3 ms\n```\n", [0, 0, 0]),
                             (table.replace("23.6", "fast"), [0, 0, 0])):
            self.assertEqual(figures.filled(page), (page, [], counts))

    def test_every_altered_table_is_found(self):
        for page in PAGES:
            text = page.read_text()
            table = r"<!-- figures: (?!not measured)(?:(?!-->).)*-->(?:\n\|[^\n]*)*\n(\|[^\n]*)"  # its last row
            for row in re.findall(table, text, flags=re.S):
                altered = re.sub(r"\d(?=\D*$)", lambda digit: str((int(digit[0]) + 1) % 10), row)
                with self.subTest(page=str(page.relative_to(ROOT)), row=row):
                    self.assertTrue(figures.filled(text.replace(row, altered))[1])


class CodeBlocks(unittest.TestCase):
    def test_places(self):
        page = "\n".join(
            ["```cpp", "#include <vector>", "struct A {};", "```", "<!-- cpp: function -->", "```cpp", "A a;", "```"]
            + ["more", "<!-- cpp: continue", "int k = 0;", "-->", "", "```cpp", "use(a, k);", "```"]
            + ["```sh", "ls", "```"]
            + ["<!-- cpp: file", "struct B {", "@block", "};", "@check", "B().member;", "-->"]
            + ["```cpp", "int member;", "```"]
            + ["<!-- cpp: program -->", "```cpp", "int main() {}", "```"]
            + ["<!-- cpp: output; needs CUDA", "print(3);", "-->", "```", "3", "```"]
        )
        self.assertEqual(
            cpp_of("page.md", page).splitlines(),
            ["#include <gradus/gradus.h>", '#include "blocks.h"', "#include <vector>"]
            + ["using namespace gradus;", "namespace page_page_md { namespace {"]
            + ['#line 2 "page.md"', "", "struct A {};"]
            + ["void block_1() {", '#line 7 "page.md"', "A a;"]
            + ["int k = 0;", '#line 15 "page.md"', "use(a, k);", "}"]
            + ["struct B {", '#line 28 "page.md"', "int member;", "};", "void block_3() {", "B().member;", "}"]
            + ["namespace program_4 {", '#line 32 "page.md"', "void main_() {}"]
            + ["void block_4() {", "main_();", "}", "}"]
            + ["void block_5() {", "docs::need(cuda::is_available());", "print(3);", "}"]
            + [f'const docs::Block run_{n}("page.md:{line}", {name});'
               for n, line, name in ((1, 7, "block_1"), (3, 28, "block_3"), (4, 32, "program_4::block_4"),
                                     (5, 38, "block_5"))]
            + ["}}"],
        )

    def test_shapes_are_checked(self):
        for line, checked in (
            ("Tensor y = f(x);  // (N, 3)", 'Tensor y = f(x); docs::check_shape(y, "N, 3");  // (N, 3)'),
            ("const auto y = f(x);  // (2), too", 'const auto y = f(x); docs::check_shape(y, "2");  // (2), too'),
            ("f(x);  // (2, 3)", "f(x);  // (2, 3)"),
            ("Tensor y = f(x);  // learn (2)", "Tensor y = f(x);  // learn (2)"),
        ):
            self.assertEqual(with_shape_check(line), checked)

    def test_mistakes_are_errors(self):
        for page, words in (
            ("<!-- cpp: class -->\n```cpp\n```", "'class' is none of"),
            ("<!-- cpp: function; some time -->\n```cpp\n```", "'some time' is no way to run"),
            ("<!-- cpp: output -->\n```cpp\n```", "another kind of block"),
            ("<!-- cpp: function -->\ntext", "before text"),
            ("<!-- cpp: function\n", "does not end"),
            ("```cpp\nint x;", "does not end"),
            ("<!-- cpp: continue -->\n```cpp\nx;\n```", "no function to continue"),
        ):
            with self.subTest(page=page), self.assertRaisesRegex(PageError, words):
                cpp_of("page.md", page)

    def test_hidden_lines(self):
        first = "```cpp\nint seen;\n```\n"
        for comment, block, hidden in (("seen", "use(x);", ["seen"]), ("int seen;", "use(seen);", []),
                                       ("@block\nGRADUS_CHECK(x, Error);", "use(x);", []), ("@check\nf();", "int f();", []),
                                       ("#include <a>", "// in a/b.h\nuse(x);", []), ("for (;;)\n@block", "f();", ["for (;;)"])):
            blocks = blocks_of(f"{first}<!-- cpp: function\n{comment}\n-->\n```cpp\n{block}\n```\n")
            self.assertEqual([line for _, line in hidden_lines(blocks)], hidden)

    def test_excerpts(self):
        source = "int f() {\n  a();\n  b();\n  c();\n}\n"
        for excerpt, missing in (("int f() {\na();\n…\nc();\n}", None), ("a();\nc();", None), ("c();\na();", "a();"), ("d();", "d();")):
            self.assertEqual(missing_of_excerpt(excerpt.splitlines(), source), missing)

    def test_other_languages_are_left_alone(self):
        self.assertEqual(blocks_of("```sh\nls\n```\n```\ntext\n```"), [])
        self.assertEqual(blocks_of("<!-- cuda: output\nf();\n-->\n```\n1\n```\n```cuda\nint i;\n```"), [])

    def test_cuda(self):
        page = "```cuda\nint i;\n```\n<!-- cuda: program -->\n```cuda\nint main() {}\n```\n```cpp\nint j;\n```"
        code = cpp_of("page.md", page, "cuda")
        self.assertIn("int i;", code)
        self.assertIn("docs::need(cuda::is_available());\nmain_();", code)
        self.assertNotIn("int j;", code)


if __name__ == "__main__":
    unittest.main(verbosity=2)  # lists what is skipped, and why
