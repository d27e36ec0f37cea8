#!/usr/bin/env python3
"""The library is within its budget, and budget.py counts what it says."""

import contextlib
import io
import pathlib
import tempfile
import unittest
from unittest import mock

import budget

# (text of a file, lines of code, statements)
COUNTED = [
    ("", 0, 0),
    ("\n  \n// a comment\n/* one\n of two lines */\n", 0, 0),
    ("int x;  // a comment\n", 1, 1),
    ("/* before */ int x; /* after; */\n", 1, 1),
    ("// goes on \\\n   int not_code;\nint x;\n", 1, 1),
    ('const char* url = "http://host;";\n', 1, 1),
    ("const char c = '\"'; // \"\nint x;\n", 2, 2),
    ("int million = 1'000'000;  // not a string'\nint x;\n", 2, 2),
    ('const char* page = R"(\n// not a comment\n\n;)";\n', 3, 1),
    ('const char* page = R"html(a)" // not a comment\n)html";\n', 2, 1),
    ("for (int i = 0; i < n; ++i) sum += i;\n", 1, 2),
    ("if (a) return b;\nreturn c;\n", 2, 3),
    ("call([&] { f(); g(); });\n", 1, 3),
    ("#if A\nwhile (a) {\n#else\nwhile (b) {\n#endif\n}\n", 6, 2),
]

ROOMS = [
    ("core/ops/matmul.cpp", "core"),
    ("gradus.h", "core"),
    ("backends/naive/register.cpp", "naive"),
    ("backends/cuda/gemm/gemm.cu", "cuda"),
    ("backends/cudnn/conv.cpp", "cudnn"),
    ("graph/passes/passes.h", "graph"),
    ("onnx/model.h", "onnx"),
    ("graph/lockstep.h", "graph"),
    ("training/metrics.h", "training"),
    ("inspect/profiler.h", "inspect"),
    ("onnx/exporter.h", "onnx"),
    ("torch.h", "compat"),
    ("packaging/tool.cpp", None),
]

LIMITS = "# a table\n" + "".join(f"{name} | {goal} | {ceiling}\n" for name, goal, ceiling in [
    ("lines of code: heart", 1, 2), ("lines of code: speed", 1, 2), ("lines of code: scale and tools", 0, 0),
    ("files in the library", 2, 9), ("files in the largest folder", 22, 40), ("folders of more than 22 files", 0, 0),
    ("mean length of a line", "-", 6), ("statements on 100 lines", "-", 100)])


class Budget(unittest.TestCase):
    def test_the_library_is_within_its_budget(self):
        lines, wrong = budget.report(budget.ROOT)
        print("\n".join(lines))
        self.assertEqual(wrong, [])

    def test_goals_are_kept_in_the_table(self):
        for name, (goal, ceiling) in budget.read_table(budget.TABLE.read_text()).items():
            with self.subTest(measure=name):
                self.assertTrue(goal is None or goal <= ceiling, "a ceiling below its goal: make it the goal")


class Counting(unittest.TestCase):
    def test_lines_and_statements(self):
        for text, lines, statements in COUNTED:
            with self.subTest(text=text):
                size = budget.size_of(text)
                self.assertEqual((size.lines, size.statements), (lines, statements))

    def test_the_length_is_that_of_lines_with_words(self):
        size = budget.size_of("#include <a.h>\nnamespace n {\nvoid f()\n{\n    ab;  // a comment\n}\n}  // n\n")
        self.assertEqual((size.lines, size.characters, size.measured_lines), (7, 8 + 3, 2))

    def test_the_text_of_strings_has_no_length(self):
        self.assertEqual(budget.size_of('f("a long message");\n').characters, len('f("");'))

    def test_density_is_that_of_lines_with_statements(self):
        self.assertEqual(budget.size_of("void f() {\n  a(b,\n    c); d();\n  e();\n}\n").density(), 150)

    def test_the_longest_prefix_decides(self):
        for path, room in ROOMS:
            with self.subTest(path=path):
                self.assertEqual(budget.room_of(path), room)

    def test_every_room_is_of_one_kind(self):
        self.assertEqual(sorted(sum(budget.KINDS.values(), [])), sorted(set(budget.ROOMS.values())))


class Limits(unittest.TestCase):
    """What is reported for a small tree of files."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name, "tree")
        self.table = pathlib.Path(folder.name, "budget.txt")
        self.table.write_text(LIMITS)
        self.put("core/a.h", "int a;\n")
        self.put("graph/b.cpp", "int b;\n")

    def put(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def wrong(self):
        return budget.report(self.root, self.table)[1]

    def test_a_small_tree_is_within_its_limits(self):
        self.put("tests/a_test.cpp", "int not_counted;\n" * 9)
        self.put("build/cpu-release/generated.cpp", "int not_counted;\n" * 9)
        self.put(".cache/x.h", "int not_counted;\n")
        self.assertEqual(self.wrong(), [])

    def test_a_value_above_its_ceiling_is_wrong(self):
        self.put("core/c.h", "int c;\nint d;\n")
        self.assertEqual(self.wrong(), ["lines of code: heart: 3 is above the ceiling of 2"])

    def test_lines_are_not_saved_by_denser_ones(self):
        self.put("core/a.h", "int a; int c;\n")
        self.assertEqual(self.wrong(), ["mean length of a line: 9.5 is above the ceiling of 6",
                                        "statements on 100 lines: 150 is above the ceiling of 100"])

    def test_folders_of_many_files_are_counted(self):
        for number in range(23):
            self.put(f"optim/{number}.h", "")
        self.assertEqual(self.wrong(), ["files in the library: 25 is above the ceiling of 9",
                                        "folders of more than 22 files: 1 is above the ceiling of 0"])

    def test_a_file_outside_of_the_rooms_is_wrong(self):
        self.put("packaging/tool.cpp", "int t;\n")
        self.assertEqual(self.wrong(), ["packaging/tool.cpp: no room of ROOMS in budget.py has this file"])

    def test_a_measure_without_a_limit_is_wrong(self):
        self.table.write_text(LIMITS.replace("files in the library", "files"))
        self.assertEqual(self.wrong(), [f"budget.txt and budget.py do not both have the measure '{name}'"
                                        for name in ("files", "files in the library")])

    def test_recording_lowers_ceilings_and_raises_none(self):
        self.put("core/c.h", "int c;\nint d;\n")
        with mock.patch("budget.TABLE", self.table), contextlib.redirect_stdout(io.StringIO()), \
                mock.patch("sys.argv", ["budget.py", "--record", str(self.root)]):
            budget.main()
        text = self.table.read_text()
        limits = budget.read_table(text)
        self.assertTrue(text.startswith("# a table\n"))
        self.assertEqual(limits["lines of code: heart"], (1, 2))  # 3 lines
        self.assertEqual(limits["lines of code: speed"], (1, 1))
        self.assertEqual(limits["files in the library"], (2, 3))
        self.assertEqual(limits["files in the largest folder"], (22, 22))  # 2 files


if __name__ == "__main__":
    unittest.main()
