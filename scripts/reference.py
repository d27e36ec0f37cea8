#!/usr/bin/env python3
"""The reference of the public headers, made by doxygen: see scripts/reference.sh.

    reference.py headers FOLDER   writes what doxygen reads to FOLDER/headers and reference.md
    reference.py check FOLDER     fails for what doxygen warned of, and for more entries without a comment than
                                  docs/undocumented.txt allows
"""
import collections
import pathlib
import re
import sys

FOLDERS = ["autograd", "compat", "core", "data", "distributed", "graph", "inspect", "layers", "onnx", "optim",
           "training"]
# Not for users: how kernels, process groups and graphs are made.
INTERNAL = re.compile(r"^(core/(composites/|formulas/(?!optimizer_rules)|backend_interceptor|kernel_args|kernel_choice|"
                      r"array/strided_loop)|graph/|onnx/(?!export\.)|optim/optimizer_state|compat/libtorch|"
                      r"inspect/explain/explain_parts|"
                      r"distributed/(comm/(local|mpi|nccl|shm|tcp)|elastic|launcher)/)")
BUDGET = "docs/undocumented.txt"
OVERVIEW = "docs/reference.md"
NAMESPACES = {
    "gradus": "Tensors, operators, gradients, devices, errors.",
    "gradus::amp": "Half types where they are safe: mixed precision.",
    "gradus::autograd": "Gradients without a graph at hand: grad, operators of your own, checkpointing.",
    "gradus::cuda": "GPUs: streams, events, memory.",
    "gradus::cudnn": "Switches of cuDNN.",
    "gradus::data": "Samples on their way to a net.",
    "gradus::data::datasets": "Where samples come from, and lazy pipelines of them.",
    "gradus::data::samplers": "In which order samples are taken.",
    "gradus::data::transforms": "What is done to a sample.",
    "gradus::dist": "Several processes that train together.",
    "gradus::indexing": "Slices, ellipses and new axes for Tensor::index.",
    "gradus::io": "Files: safetensors, NumPy, atomic writing.",
    "gradus::nn": "Layers and what holds them together.",
    "gradus::nn::functional": "Layers without parameters as functions with options, as in torch::nn::functional.",
    "gradus::nn::init": "How parameters begin.",
    "gradus::nn::parallel": "One process, several GPUs.",
    "gradus::nn::utils": "Clipping of gradients, parameters as one vector.",
    "gradus::ops": "Operators on arrays, beneath the differentiable ones.",
    "gradus::optim": "Optimizers and schedules.",
    "gradus::training": "What runs need: checkpoints, metrics, profiles, captured steps.",
    "torch": "The names of LibTorch that gradus has under another one.",
}


def escaped(text):
    """Without what a comment does not mean: <name>, #include, a backslash. @ref, @see and @copydoc are meant."""
    text = text.replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"[#\\%]|@(?!ref|see|copydoc)", r"\\\g<0>", text)


def with_code(lines):
    """Lines of a comment that stand further in are code or a formula; what stands between backquotes is as it is."""
    for line in lines:
        found = re.match(r"( *///)(?![/<])( *)(.*)", line)
        if found and len(found[2]) > 2:
            line = f"{found[1]} <br><tt>{'&nbsp;' * (len(found[2]) - 3)}{escaped(found[3])}</tt>"
        elif found and found[3] != "@file":
            parts = re.split(r"(`[^`]*`)", found[3])
            parts[::2] = map(escaped, parts[::2])
            line = found[1] + found[2] + "".join(parts)
        yield line


def with_groups(lines):
    """A comment is that of all overloads of a function that follow it line by line."""
    name_of = lambda line: (re.match(r"(?:template <.*> )?[^(={]*?([\w~]+)\(", line.strip()) or [None, None])[1]
    for number in range(1, len(lines)):
        indent = re.match(r" *", lines[number])[0]
        if not re.match(r" *///(?!<)", lines[number - 1]) or not (name := name_of(lines[number])):
            continue
        last = end = number
        for end in range(number + 1, len(lines)):
            line = lines[end]
            inside = line.startswith(indent + " ") or line.strip() == "}"
            if not inside and (not line.startswith(indent) or name_of(line) != name):
                break
            last = last if inside else end
        if last == number:
            continue
        begin = number - 1
        while re.match(r" *///(?!<)", lines[begin - 1]):
            begin -= 1
        lines[begin] = "/** @{ */ " + lines[begin]
        lines[end - 1] += " /** @} */"
    return lines


def for_doxygen(path):
    text = path.read_text(encoding="utf-8")
    # The comment that opens a header is the file's.
    head, pragma, body = text.partition("#pragma once\n")
    if pragma:
        text = re.sub(r"^//(?!/)", "///", head, flags=re.M) + "/// @file\n" + body
        # It is also that of the type by which the header is called, tensor.h: Tensor.
        stem = path.stem.replace("_", "")
        first = re.split(r"^//$", head, flags=re.M)[0]
        first = " ".join(line.removeprefix("//").strip() for line in first.splitlines())
        text = re.sub(rf"^(?<!/ )((?:class|struct) (\w+)\b(?!.*;$))", lambda found: (
            f"/** {escaped(first)} */ {found[1]}" if found[2].lower() == stem and
            not re.search(r"(///.*|template <.*>)\n$", text[:text.index(found[0])]) else found[1]), text, flags=re.M)
    # Options and holders are what a user sees, not what their macros become.
    text = re.sub(r"\bGRADUS_ARG(?:_OF\(\w+, |\()(.+), (\w+)\)", r"\1 \2", text)
    layer = r"struct \1Impl : detail::\2<\1Impl, \3> {};\nGRADUS_MODULE(\1);"
    text = re.sub(r"^GRADUS_LAYER\((\w+),\s*(\w+),\s*([^;]*)\);", layer, text, flags=re.M)
    holder = r"/** Holds a \1Impl. */ using \1 = ModuleHolder<\1Impl>"
    text = re.sub(r"^GRADUS_MODULE\((\w+)\)", holder, text, flags=re.M)
    text = re.sub(r"^ *GRADUS_FIELDS\(.*\)\n", "", text, flags=re.M)
    text = re.sub(r"^( *[^\s/].*[;,}])(  +)//(?= )", r"\1\2///<", text, flags=re.M)  # a remark behind a declaration
    return "\n".join(with_groups(list(with_code(text.split("\n")))))


def write_headers(folder):
    headers = [pathlib.Path("gradus.h")]
    headers += [path for name in FOLDERS for path in sorted(pathlib.Path(name).rglob("*.h"))]
    for path in headers:
        if not INTERNAL.match(str(path)):
            target = folder / "headers" / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(for_doxygen(path), encoding="utf-8")
    namespaces = "".join(f"/** @namespace {name}\n{text} */\n" for name, text in NAMESPACES.items())
    (folder / "headers" / "namespaces.h").write_text(namespaces, encoding="utf-8")
    overview = pathlib.Path(OVERVIEW).read_text(encoding="utf-8")
    # Links to other pages of docs/ lead nowhere in the reference; names become links into it.
    overview = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", overview)
    overview = re.sub(r"`([A-Za-z]\w*(?:::\w+)*)`", r'@ref gradus::\1 "\1"', overview)
    (folder / "reference.md").write_text(overview, encoding="utf-8")


def needs_comment(entry):
    """Types and functions, but for those of which another comment speaks: options by that of what they are for,
    constructors (also inherited ones), operators, forward(), reset() and how options print by the type's, overrides by
    the base's."""
    if entry.startswith("Compound"):
        return not re.search(r"Options is not documented", entry)
    found = re.match(r"Member (.*) \(function\) of (?:\w+) (.*) is not documented", entry)
    if not found:
        return False
    name, owner = found[1].split("(")[0], re.sub(r"<.*", "", found[2]).split("::")[-1].strip()
    own = rf"~?{owner}$|[A-Z]\w*$|forward$|reset$|operator\b"
    return not re.match(own, name) and "LayerPrinter" not in found[1] and "override" not in found[1]


def check(folder):
    broken, missing = [], collections.defaultdict(dict)
    warnings = [(folder / name).read_text(encoding="utf-8") for name in ("warnings.txt", "undocumented.txt")]
    for line in sorted(set("".join(warnings).splitlines())):
        place, _, message = line.removeprefix(str(folder.resolve()) + "/headers/").partition(": warning: ")
        if "is not documented" not in message:
            broken.append(line)
        elif needs_comment(message):
            missing[place.split("/")[0].split(":")[0]].setdefault(place, message)  # a template's members come often
    allowed = dict(line.split() for line in open(BUDGET, encoding="utf-8"))
    over = 0
    for module, entries in sorted(missing.items()):
        limit = int(allowed.get(module, 0))
        print(f"{module}: {len(entries)} entries without a comment, {limit} allowed" +
              ("; lower the number in " + BUDGET if len(entries) < limit else ""))
        if len(entries) > limit:
            over += 1
            print("\n".join(f"  {place}: {message}" for place, message in sorted(entries.items())))
    print("\n".join(broken))
    sys.exit(1 if broken or over else 0)


if __name__ == "__main__":
    {"headers": write_headers, "check": check}[sys.argv[1]](pathlib.Path(sys.argv[2]))
