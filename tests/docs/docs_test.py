#!/usr/bin/env python3
"""The pages link to what exists, and code_blocks.py makes of them what it says."""

import pathlib
import re
import unittest

from code_blocks import PageError, blocks_of, cpp_of

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "examples" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def heading_id(heading):
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower()).strip().replace(" ", "-")


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

    def test_every_page_of_the_guide_is_listed(self):
        guide = ROOT / "docs" / "guide"
        listed = (guide / "README.md").read_text()
        for page in guide.glob("*.md"):
            if page.name != "README.md":
                self.assertIn(f"({page.name})", listed)


class CodeBlocks(unittest.TestCase):
    def test_places(self):
        page = "\n".join(
            ["```cpp", "#include <vector>", "struct A {};", "```", "<!-- cpp: function -->", "```cpp", "A a;", "```"]
            + ["more", "<!-- cpp: continue", "int k = 0;", "-->", "", "```cpp", "use(a, k);", "```", "```sh", "ls", "```"]
            + ["<!-- cpp: file", "struct B {", "@block", "};", "-->", "```cpp", "int member;", "```"]
            + ["<!-- cpp: program -->", "```cpp", "int main() {}", "```"]
        )
        self.assertEqual(
            cpp_of("page.md", page).splitlines(),
            ["#include <gradus/gradus.h>", "#include <vector>", "using namespace gradus;"]
            + ['#line 2 "page.md"', "", "struct A {};"]
            + ["[[maybe_unused]] static void block_1() {", '#line 7 "page.md"', "A a;"]
            + ["int k = 0;", '#line 15 "page.md"', "use(a, k);", "}"]
            + ["struct B {", '#line 26 "page.md"', "int member;", "};"]
            + ["namespace block_4 {", '#line 30 "page.md"', "int main() {}", "}"],
        )

    def test_mistakes_are_errors(self):
        for page, words in (
            ("<!-- cpp: class -->\n```cpp\n```", "'class' is none of"),
            ("<!-- cpp: function -->\ntext", "before text"),
            ("<!-- cpp: function\n", "does not end"),
            ("```cpp\nint x;", "does not end"),
            ("<!-- cpp: continue -->\n```cpp\nx;\n```", "no function to continue"),
        ):
            with self.subTest(page=page), self.assertRaisesRegex(PageError, words):
                cpp_of("page.md", page)

    def test_other_languages_are_left_alone(self):
        self.assertEqual(blocks_of("```sh\nls\n```\n```\ntext\n```"), [])


if __name__ == "__main__":
    unittest.main()
