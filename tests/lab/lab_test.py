#!/usr/bin/env python3
"""Lab pages in a browser: they show what the program computed, whatever is recorded, and say so where a file is
damaged. Needs chromium; says so where there is none.

usage: lab_test.py BUILD_DIR/tests/lab_pages
"""

import html.parser
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

LAB_PAGES = ""


def single(number):
    return struct.unpack("f", struct.pack("f", number))[0]


class Dom(html.parser.HTMLParser):
    """What a page became: the text of each element with an id, the rows of tables, the titles of their numbers."""

    VOID = {"meta", "input", "br", "img"}

    def __init__(self, text):
        super().__init__()
        self.texts, self.hidden, self.rows, self.list_rows = {}, set(), [], 0
        self.title = ""
        self.open = []  # (tag, id)
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        name = attributes.get("id")
        if "hidden" in attributes:
            self.hidden.add(name)
        self.list_rows += (attributes.get("class") or "").startswith("row")
        if name:
            self.texts.setdefault(name, "")
        if tag == "tr" and not any(kind == "tr" for kind, _ in self.open):
            self.rows.append({"text": "", "numbers": []})
        if tag == "td" and "title" in attributes:
            self.rows[-1]["numbers"].append(single(float(attributes["title"])))
        if tag not in self.VOID:
            self.open.append((tag, name))

    def handle_endtag(self, tag):
        while self.open and self.open.pop()[0] != tag:
            pass

    def handle_data(self, data):
        if any(tag in ("script", "style") for tag, _ in self.open):
            return
        self.title += data if self.open and self.open[-1][0] == "title" else ""
        for _, name in self.open:
            if name:
                self.texts[name] += data
        if any(tag == "tr" for tag, _ in self.open):
            self.rows[-1]["text"] += data + "|"

    def numbers(self, part):
        """Of the only row of an operand that has this in its text."""
        rows = [row["numbers"] for row in self.rows if part in row["text"] and row["numbers"]]
        assert len(rows) == 1, (part, [row["text"] for row in self.rows])
        return rows[0]


class Lab(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not shutil.which("chromium"):
            raise unittest.SkipTest("for want of chromium")
        cls.temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.temporary.cleanup)
        cls.folder = pathlib.Path(cls.temporary.name)
        subprocess.run([LAB_PAGES, cls.folder], check=True)

    def look(self, page, place=""):
        """The document that a browser makes of a page, when its script has run."""
        command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={self.folder}/browser",
                   "--virtual-time-budget=5000", "--dump-dom", f"file://{self.folder}/{page}{place}"]
        done = subprocess.run(command, capture_output=True, timeout=300, check=True)
        return Dom(done.stdout.decode())

    def assert_works(self, dom):
        self.assertIn("message", dom.hidden, dom.texts["message"])
        self.assertNotIn("lab", dom.hidden)

    def changed(self, change, page="step.html"):
        """A copy of a page with another text."""
        (self.folder / "changed.html").write_text(change((self.folder / page).read_text()))
        return "changed.html"

    def expected(self):
        lines = [line.split("\t") for line in (self.folder / "expected.txt").read_text().splitlines()]
        return {name: [single(float(number)) for number in numbers.split()] for name, numbers in lines}

    def test_a_step_shows_what_the_program_computed(self):
        expected = self.expected()
        first = self.look("step.html", "#1")
        self.assert_works(first)
        self.assertIn("call 1 of ", first.texts["place"])
        self.assertIn("forward pass", first.texts["place"])
        self.assertIn("linear of 0", first.texts["detail"])
        self.assertIn("openmp", first.texts["detail"])
        self.assertEqual(first.numbers("|x|"), expected["x"])
        self.assertEqual(first.numbers("|0.weight|"), expected["0.weight"])
        self.assertEqual(first.numbers("|0.bias|"), expected["0.bias"])
        self.assertEqual(self.look("step.html", "#3").numbers("writes|"), expected["logits"])
        self.assertIn(expected["loss"], [row["numbers"] for row in self.look("step.html", "#4").rows])
        last = self.look("step.html", "#last")
        self.assert_works(last)
        count = int(last.texts["place"].split()[3].strip(":"))
        self.assertIn(f"call {count} of {count}: update", last.texts["place"])
        self.assertIn("optimizer_step", last.texts["detail"])
        for name in ("0.weight", "0.bias", "2.weight", "2.bias"):
            self.assertEqual(last.numbers(f"|gradient of {name}|"), expected[f"gradient of {name}"])

    def test_saved_arrays_come_and_go(self):
        dom = self.look("step.html", "#3")
        saved = [row["text"] for row in dom.rows if row["text"].startswith(("linear of", "relu", "cross"))]
        self.assertEqual(len(saved), 4, saved)  # inputs, the second weight, the ReLU's result
        self.assertRegex(dom.texts["detail"], "Saved for the backward pass: 4")
        self.assertRegex(self.look("step.html", "#last").texts["detail"], "Saved for the backward pass: 0")

    def test_buttons_and_keys_go_through_the_recording(self):
        script = """<script>addEventListener('load', () => {
            const press = (key) => document.body.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true}));
            const places = [];
            const note = () => places.push(location.hash);
            byId('next').click(), note(), press('ArrowRight'), note(), press('ArrowLeft'), note();
            byId('last').click(), byId('next').click(), byId('back').click(), press('Home'), note();
            while (byId('place').textContent.match(/^call (\\d+) of (?!\\1:)/)) byId('next').click();
            byId('slider').value = 4, byId('slider').oninput({target: byId('slider')}), note();
            document.querySelector('#net rect').onclick(), note();
            document.title = places.join(' ');
          });</script></body>""".replace("\\\\", "\\")
        dom = self.look(self.changed(lambda page: page.replace("</body>", script)))
        self.assert_works(dom)
        self.assertEqual(dom.title, "#2 #3 #2 #1 #4 #1")

    def test_an_empty_recording_says_so(self):
        for page in ("empty.html", "silence.html"):
            dom = self.look(page)
            self.assert_works(dom)
            self.assertIn("nothing was recorded", dom.texts["charts"])

    def test_messages_show_what_was_sent(self):
        first = self.look("ring.html", "#1")
        self.assert_works(first)
        self.assertRegex(first.texts["place"], "^event 1 of 48: send #1")
        self.assertRegex(first.texts["detail"], r"^rank \d sends to \d")
        last = self.look("ring.html", "#last")
        self.assert_works(last)
        self.assertRegex(last.texts["place"], "^event 48 of 48: send #6")
        self.assertIn("and 0 messages under way", last.texts["detail"])
        ranks = [row["numbers"] for row in last.rows if re.match(r"\d\|24 B\|24 B\|", row["text"])]
        self.assertEqual(ranks, [[1111]] * 4)

    def test_a_rank_that_dies_is_seen_and_so_is_what_the_others_make_of_it(self):
        dom = self.look("death.html", "#last")
        self.assert_works(dom)
        self.assertIn("failed: rank 2 crashes, as scripted", dom.texts["ranks"])
        self.assertEqual(dom.texts["ranks"].count("failed: "), 4)
        self.assertRegex(dom.texts["place"], r"^event (\d+) of \1: rank [013] fails")

    def test_of_100_000_calls_those_in_sight_are_in_the_document(self):
        self.assertLess((self.folder / "huge.html").stat().st_size, 20e6)
        dom = self.look("huge.html", "#last")
        self.assert_works(dom)
        self.assertIn("call 100000 of 100000", dom.texts["place"])
        self.assertIn("op99999", dom.texts["list"])
        self.assertTrue(0 < dom.list_rows < 100, dom.list_rows)

    def test_a_page_has_an_end(self):
        self.assertLess((self.folder / "too_large.html").stat().st_size, 30e6)
        dom = self.look("too_large.html", "#last")
        self.assert_works(dom)
        self.assertRegex(dom.texts["charts"], r"note: \d+ calls more did not fit")

    def test_names_are_text_and_nothing_else(self):
        dom = self.look("hostile.html", "#2")
        self.assert_works(dom)
        self.assertNotEqual(dom.title, "owned")
        for place in ("detail", "list", "charts", "net"):
            self.assertIn("document.title", dom.texts[place], place)

    def test_a_damaged_file_says_so(self):
        def cut(share):
            def change(page):
                begin = page.index('id="data">') + 10
                return page[: begin + int(share * (len(page) - begin))]
            return change

        changes = [cut(0), cut(0.3), cut(0.9)]
        for old, new in (('"kind":"step"', '"kind":"leap"'), ('"calls":[', '"cal":['), ('"texts":[', '"texts":[0,'),
                         ('"blocks":[[', '"blocks":[[-1,'), ('"saved":[[', '"saved":[[1e99,'),
                         ('"ticks":[', '"ticks":[9e9,'),
                         ('id="data">{', 'id="data">[{'), ('id="data">', 'id="data">null//'),
                         ('id="data"', 'id="nothing"')):
            changes.append(lambda page, old=old, new=new: page.replace(old, new))
        changes = [(change, "step.html") for change in changes]
        changes += [(lambda page: page.replace('"events":[[', '"events":[[7'), "ring.html"), (cut(0.5), "ring.html")]
        for number, (change, page) in enumerate(changes):
            name = self.changed(change, page)
            self.assertNotEqual((self.folder / name).read_text(), (self.folder / page).read_text(), number)
            dom = self.look(name)
            self.assertIn("lab", dom.hidden, number)
            self.assertNotIn("message", dom.hidden, number)
            self.assertRegex(dom.texts["message"], "cannot be read .* write the page again", number)


if __name__ == "__main__":
    LAB_PAGES = sys.argv.pop(1)
    unittest.main(verbosity=2)  # which names the skipped ones
