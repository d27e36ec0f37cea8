#!/usr/bin/env python3
"""Makes a C++ file of the ```cpp blocks of a page, so that the documentation is compiled and run.

    tests/docs/code_blocks.py README.md build/README.cpp

A block stands at file scope unless a comment before it, which readers do not see, says otherwise. Its first line is

    <!-- cpp: function        the block is the body of a function
    <!-- cpp: continue        the block goes on in the function of the block before
    <!-- cpp: program         the block is a whole program: nothing else on the page sees it
    <!-- cpp: file            the default
    <!-- cpp: output          the block is plain text: what the code in the comment prints ("…" stands for anything)
    <!-- cpp: excerpt FILE    the block is not compiled: its lines stand in FILE, in this order ("…" for those between)

and may say how the block is run:

    <!-- cpp: function; needs CUDA            skipped where there is none, and so for cuDNN
    <!-- cpp: function; 2 ranks               by gradus-run
    <!-- cpp: function; not run: the reason   only compiled

Further lines of the comment are code that goes before the block or, if one of them is `@block`, around that. They may
only repeat what earlier blocks of the page display, or check the block (`hidden_lines`): what is displayed compiles. The
rest of a block whose first line is `// in FILE` is that file's. Lines after `@check` are a function that uses what a block at file scope declares; a `main` is
called `main_` there. Functions, these checks and a `main` without one are run, each in a process and an empty folder of
its own (docs_test.py). Where a line ends in a shape, `Tensor y = …;  // (N, 3)`, y must have it; letters stand for any
size. All includes go to the top; <gradus/gradus.h> and `using namespace gradus` are there already. Compilers cite the
page and its line.

Of a page's ```cuda blocks, whose comments begin with <!-- cuda:, it makes build/README.cu in the same way; all need CUDA.
"""

import itertools
import pathlib
import re
import sys
from typing import NamedTuple

PLACES = ("file", "function", "continue", "program", "output", "excerpt")
PROLOGUE_LINK = "README.md#what-the-c-blocks-need"
HOW = r"|needs (CUDA|cuDNN)|\d+ ranks|not run: .+"


class PageError(Exception):
    pass


class Block(NamedTuple):
    place: str
    how: str  # how it is run
    added: list  # code that the comment adds
    line: int  # of the block's first line
    code: list


def blocks_of(text, language="cpp"):
    """All blocks of the language, cpp or cuda, and those of text that a comment gives the code for."""
    found, comment, fence, start = [], None, None, 0
    lines = iter(enumerate(text.splitlines(), 1))
    for number, line in lines:
        if fence is not None:
            if line.strip() == "```":
                place, how, added = comment or ("file", "", [])
                how = how or ("needs CUDA" if language == "cuda" else "")
                if fence[0] == ("" if place == "output" else language):
                    found.append(Block(place, how, added, start, fence[1]))
                elif comment:
                    raise PageError(f"line {start}: the comment before it is for another kind of block")
                fence, comment = None, None
            else:
                fence[1].append(line)
        elif line.lstrip().startswith(f"<!-- {language}:"):
            first, end, _ = line.lstrip().removeprefix(f"<!-- {language}:").partition("-->")
            place, _, how = map(str.strip, first.partition(";"))
            added = []
            while not end:
                number, line = next(lines, (number, None))
                if line is None:
                    raise PageError("a comment does not end")
                code, end, _ = line.partition("-->")
                added += [code.strip()] if code.strip() else []
            if place.partition(" ")[0] not in PLACES:
                raise PageError(f"line {number}: '{place}' is none of {', '.join(PLACES)}")
            if not re.fullmatch(HOW, how):
                raise PageError(f"line {number}: '{how}' is no way to run a block")
            comment = (place, how, added)
        elif match := re.match(r"\s*```(\w*)", line):
            fence, start = (match[1], []), number + 1
        elif line.strip() and comment:
            raise PageError(f"line {number}: a comment for the compiler stands before text, not before a block")
    if fence is not None:
        raise PageError("a block does not end")
    return found


def missing_of_excerpt(lines, source):
    """The first line of an excerpt that the source does not have behind those before it; None if it has all."""
    rest = iter([line.strip() for line in source.splitlines()])
    for line in map(str.strip, lines):
        if line and line != "…" and line not in rest:
            return line
    return None


def runnable_blocks(blocks):
    """The number of every block that makes a function `block_NUMBER`, which is run."""
    for number, block in enumerate(blocks):
        main = any(line.startswith("int main()") for line in block.code)
        if main or block.place in ("function", "output") or "@check" in block.added:
            yield number


def hidden_lines(blocks):
    """Pairs of a block and a line that it needs, but that neither it nor an earlier block displays."""
    displayed = set()
    for block in blocks:
        taken = itertools.takewhile(lambda line: line != "@check", block.added)
        if block.place in ("file", "function", "continue", "program") and not is_piece(block):
            for line in taken:
                if line not in displayed and line not in ("@block", "{", "}") and not line.startswith("GRADUS_CHECK"):
                    yield block, line
        displayed.update(map(str.strip, block.code))


def is_piece(block):
    """Whether it displays a piece of a file, and says so."""
    return bool(block.code) and re.fullmatch(r"\s*// in \S+", block.code[0]) is not None


def displays_prologue(text):
    """Whether a page displays the two lines that every block takes, or links to them."""
    return PROLOGUE_LINK in text or any(
        {"#include <gradus/gradus.h>", "using namespace gradus;"} <= set(block.code) for block in blocks_of(text))


def with_shape_check(line):
    """`Tensor y = f(x);  // (2, N)` also checks the shape of y."""
    match = re.match(r"(\s*(?:\w+ )*(\w+) = .*;)(\s*// \((\w+(?:, \w+)*),?\).*)", line)
    return f'{match[1]} docs::check_shape({match[2]}, "{match[4]}");{match[3]}' if match else line


def cpp_of(page, text, language="cpp"):
    """The page as one file of the language."""
    includes, body, in_function = ["#include <gradus/gradus.h>", '#include "blocks.h"'], [], False
    blocks = blocks_of(text, language)
    runnable = set(runnable_blocks(blocks))
    registered = []
    for number, (place, how, added, line, block) in enumerate(blocks):
        if place.startswith("excerpt"):
            continue
        name, need = f"block_{number}", []
        if how.startswith("needs "):
            need = [f"docs::need({how.split()[1].lower()}::is_available());"]
        code = [with_shape_check(code) for code in block]
        if place == "continue" and not in_function:
            raise PageError(f"line {line}: there is no function to continue")
        if in_function and place != "continue":
            body.append("}")
        in_function = place in ("function", "continue", "output")
        if place in ("function", "output"):
            body += [f"void {name}() {{", *need]
        if place == "program":
            body.append(f"namespace program_{number} {{")
        after_check = added.index("@check") if "@check" in added else len(added)
        added, check = added[:after_check], added[after_check + 1 :]
        cut = added.index("@block") if "@block" in added else len(added)
        placed = [] if place == "output" else [f'#line {line} "{page}"'] + code
        for code in added[:cut] + placed + added[cut + 1 :]:
            if code.startswith("#include"):
                includes.append(code)
                code = ""  # lines keep their numbers
            body.append(re.sub(r"^int main\(\)", "void main_()", code))
        if place in ("file", "program") and number in runnable:
            body += [f"void {name}() {{", *need, *(check or ["main_();"]), "}"]
        if place == "program":
            body.append("}")
        if number in runnable:
            scope = f"program_{number}::" if place == "program" else ""
            registered.append(f'const docs::Block run_{number}("{page}:{line}", {scope}{name});')
    if in_function:
        body.append("}")
    own = f"namespace page_{re.sub(r'[^A-Za-z0-9]', '_', str(page))}"  # a unity build compiles several pages together
    return "\n".join([*includes, "using namespace gradus;", f"{own} {{ namespace {{", *body, *registered, "}}", ""])


def main(source, target):
    page = pathlib.Path(source)
    try:
        text = cpp_of(page, page.read_text(), "cuda" if target.endswith(".cu") else "cpp")
    except PageError as error:
        sys.exit(f"{page}: {error}")
    pathlib.Path(target).write_text(text)


if __name__ == "__main__":
    main(*sys.argv[1:])
