#!/usr/bin/env python3
"""Makes a C++ file of the ```cpp blocks of a page, so that the compiler reads the documentation too.

    tests/docs/code_blocks.py README.md build/README.cpp

A block stands at file scope unless a comment before it, which readers do not see, says otherwise. Its first line is

    <!-- cpp: function        the block is the body of a function of its own
    <!-- cpp: continue        the block goes on in the function of the block before
    <!-- cpp: program         the block is a whole program: nothing else on the page sees it
    <!-- cpp: file            the default

Further lines of the comment are code that the block takes for granted; they go before it or, if one of them is `@block`,
around that. All includes go to the top; <gradus/gradus.h> and `using namespace gradus` are there already. Compilers cite the
page and its line.
"""

import pathlib
import re
import sys

PLACES = ("file", "function", "continue", "program")


class PageError(Exception):
    pass


def blocks_of(text):
    """(place, code that the comment adds, line of the block's first line, block) of every ```cpp block."""
    found, comment, fence, start = [], None, None, 0
    lines = iter(enumerate(text.splitlines(), 1))
    for number, line in lines:
        if fence is not None:
            if line.strip() == "```":
                if fence[0] == "cpp":
                    place, added = comment or ("file", [])
                    found.append((place, added, start, fence[1]))
                fence, comment = None, None
            else:
                fence[1].append(line)
        elif line.startswith("<!-- cpp:"):
            place, end, _ = line.removeprefix("<!-- cpp:").partition("-->")
            added = []
            while not end:
                number, line = next(lines, (number, None))
                if line is None:
                    raise PageError("a comment does not end")
                code, end, _ = line.partition("-->")
                added += [code] if code.strip() else []
            if place.strip() not in PLACES:
                raise PageError(f"line {number}: '{place.strip()}' is none of {', '.join(PLACES)}")
            comment = (place.strip(), added)
        elif match := re.match(r"\s*```(\w*)", line):
            fence, start = (match[1], []), number + 1
        elif line.strip() and comment:
            raise PageError(f"line {number}: a comment for the compiler stands before text, not before a block")
    if fence is not None:
        raise PageError("a block does not end")
    return found


def cpp_of(page, text):
    """The page as one C++ file."""
    includes, body, in_function = ["#include <gradus/gradus.h>"], [], False
    for number, (place, added, line, block) in enumerate(blocks_of(text)):
        if place == "continue" and not in_function:
            raise PageError(f"line {line}: there is no function to continue")
        if in_function and place != "continue":
            body.append("}")
        in_function = place in ("function", "continue")
        if place == "function":
            body.append(f"[[maybe_unused]] static void block_{number}() {{")
        if place == "program":
            body.append(f"namespace block_{number} {{")
        cut = added.index("@block") if "@block" in added else len(added)
        placed = [f'#line {line} "{page}"'] + block
        for code in added[:cut] + placed + added[cut + 1 :]:
            if code.startswith("#include"):
                includes.append(code)
                code = ""  # lines keep their numbers
            body.append(code)
        if place == "program":
            body.append("}")
    if in_function:
        body.append("}")
    return "\n".join([*includes, "using namespace gradus;", *body, ""])


def main(source, target):
    page = pathlib.Path(source)
    try:
        text = cpp_of(page, page.read_text())
    except PageError as error:
        sys.exit(f"{page}: {error}")
    pathlib.Path(target).write_text(text)


if __name__ == "__main__":
    main(*sys.argv[1:])
