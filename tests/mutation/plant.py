"""Plants mutants: rewrites sources so that each mutant is behind a switch, and builds test programs of them.

Nothing in the source tree or in the build tree changes. The units that hold mutants are compiled once more from
rewritten copies, at -O1; the other objects are those of the build tree.
"""

import collections
import concurrent.futures
import hashlib
import json
import math
import os
import pathlib
import re
import shlex
import subprocess
import threading

import rules
import source as source_module

INCLUDE = "#include <gradus/tests/mutation/switch.h>\n#line 1\n"
MAX_UNITS = 8  # headers that more units include are left out: each unit is compiled again


def flat(source, first, last, mutation=None):
    """The tokens [first, last) on one line, with a mutation's text in the place of its characters."""
    parts, previous, written = [], None, False
    for token in source.tokens[first:last]:
        if mutation and mutation.begin <= token.begin < mutation.end:
            text = "" if written else mutation.text
            written = True
        else:
            text = token.text
        parts.append(" " if previous is not None and previous != token.begin else "")
        parts.append(text)
        previous = token.end
    return "".join(parts)


def planted(source, mutation, number):
    """The text of the mutation's statement with the mutant of that number behind a switch."""
    statement = mutation.statement
    original = source.range_text(statement.first, statement.last)
    mutated = flat(source, statement.first, statement.last, mutation)
    if statement.kind == "statement":
        return f"{{ if (gradus_mutant({number})) {{ {mutated} }} else {{ {original} }} }}"
    cast = {"condition": "bool", "step": "void"}.get(statement.kind)
    cast = f"static_cast<{cast}>" if cast else ""
    return f"(gradus_mutant({number}) ? {cast}({mutated}) : {cast}({original}))"


def archive_of(unit):
    """The archive that holds an object: core/libgradus_core.a for core/CMakeFiles/gradus_core.dir/..."""
    folder, _, rest = unit.partition("/CMakeFiles/")
    return f"{folder}/lib{rest.partition('.dir/')[0]}.a"


def rewrite(source, numbered):
    """The text of a source with mutants {number: mutation}, whose statements do not overlap."""
    text = source.text
    for number, mutation in sorted(numbered.items(), key=lambda entry: -entry[1].begin):
        begin = source.tokens[mutation.statement.first].begin
        end = source.tokens[mutation.statement.last - 1].end
        text = text[:begin] + planted(source, mutation, number) + text[end:]
    return INCLUDE + text


class Build:
    """A build tree whose objects are used: which units there are, what they include, how programs are linked."""

    def __init__(self, root, folder):
        self.root, self.folder = root, folder
        cache = (folder / "CMakeCache.txt").read_text()
        launcher = re.search(r"^CMAKE_CXX_COMPILER_LAUNCHER:\w+=(\S+)", cache, re.M)
        self.launcher = [launcher[1]] if launcher else []  # a compiler cache, which a second run of a seed hits
        self.units = {}  # object -> (source file, command)
        for entry in json.loads((folder / "compile_commands.json").read_text()):
            target = re.search(r" -o (\S+)", entry["command"])[1]
            self.units[target] = (entry["file"], entry["command"])
        self.includers = collections.defaultdict(set)  # file relative to root -> objects
        for target, files in self._dependencies():
            for file in files:
                self.includers[file].add(target)

    def _dependencies(self):
        listing = subprocess.run(["ninja", "-C", self.folder, "-t", "deps"], capture_output=True, text=True, check=True)
        link = self.folder / "include/gradus"
        target, files = None, []
        for line in listing.stdout.splitlines():
            if line and not line.startswith(" "):
                if target:
                    yield target, files
                target, files = line.split(":")[0], []
            elif line.strip():
                path = pathlib.Path(os.path.normpath(self.folder / line.strip()))
                for base in (link, self.root):
                    if path.is_relative_to(base):
                        files.append(str(path.relative_to(base)))
                        break
        if target:
            yield target, files

    def units_of(self, file):
        """The library's units that hold a file; none if a test includes it, or too many do."""
        found = self.includers.get(file, set()) & self.units.keys()
        if len(found) > MAX_UNITS or any(not self.is_of_room(unit) for unit in found):
            return frozenset()
        return frozenset(found)

    @staticmethod
    def is_of_room(unit):
        """Whether the object is one of a room's library, not of a program or a test."""
        return "/CMakeFiles/gradus_" in unit and not unit.startswith(("tests/", "examples/", "benchmarks/"))

    def command_of(self, target):
        """The shell command that links or archives a target."""
        listing = subprocess.run(["ninja", "-C", self.folder, "-t", "commands", "-s", target], capture_output=True,
                                 text=True, check=True)
        return listing.stdout.strip().splitlines()[-1]


class Plantation:
    """Chosen mutants {number: mutation} and the folder in which the sources and programs with them are made."""

    def __init__(self, build, folder, mutants, jobs):
        self.build, self.folder, self.jobs = build, folder, jobs
        self.mutants = dict(mutants)
        self.uncompilable = {}
        self.sources = {path: source_module.Source(path, (build.root / path).read_text())
                        for path in {mutation.path for mutation in self.mutants.values()}}
        self.objects = {}  # of the build tree -> of this folder
        self.lock = threading.Lock()

    def compile(self):
        """Compiles all units that hold mutants. Mutants that do not compile move to `uncompilable`."""
        for path in self.sources:
            self._write(path)
        units = sorted({unit for path in self.sources for unit in self.build.units_of(path)})
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            for unit, made in zip(units, pool.map(self._compile_unit, units)):
                self.objects[unit] = made

    def link(self, programs):
        """Links test programs with the mutants and returns {name: path}."""
        archives = {archive: self._archive(archive) for archive in {archive_of(unit) for unit in self.objects}}
        trace = self.folder / "trace.o"
        unit = next(unit for unit in self.build.units if unit.endswith("/catch_main.cpp.o"))
        file, command = self.build.units[unit]
        words = self._with_include(shlex.split(command))
        words[words.index("-o") + 1] = str(trace)
        words[words.index(file)] = str(self.build.root / "tests/mutation/trace.cpp")
        self._run(words)
        made = {}
        for program in programs:
            made[program] = self.folder / program
            command = self.build.command_of(f"tests/{program}")
            for archive, with_mutants in archives.items():
                command = command.replace(f" {archive} ", f" {with_mutants} ")
            command = command.replace(f" -o tests/{program} ", f" -o {made[program]} {trace} ")
            subprocess.run(command, shell=True, cwd=self.build.folder, check=True)
        return made

    def _copy_of(self, path):
        return self.folder / "include/gradus" / path

    def _write(self, path):
        numbered = {number: mutation for number, mutation in self.mutants.items() if mutation.path == path}
        copy = self._copy_of(path)
        copy.parent.mkdir(parents=True, exist_ok=True)
        new = copy.with_name(copy.name + ".new")  # another compiler may be reading the old one
        new.write_text(rewrite(self.sources[path], numbered))
        new.rename(copy)

    def _with_include(self, words):
        first = next(k for k, word in enumerate(words) if word.startswith("-"))
        words = [word for word in words if not word.startswith("-Werror")]
        return words[:first] + [f"-I{self.folder / 'include'}"] + words[first:]

    def _compile_unit(self, unit):
        file, command = self.build.units[unit]
        made = self.folder / "objects" / unit.replace("/", "-")
        made.parent.mkdir(exist_ok=True)
        words = self._with_include(shlex.split(command))
        words[words.index("-o") + 1] = str(made)
        if "-MF" in words:
            words[words.index("-MF") + 1] = f"{made}.d"
        held = [path for path in self.sources if unit in self.build.units_of(path)]
        if "/Unity/" in file:
            text = pathlib.Path(file).read_text()
            for path in held:
                text = text.replace(f'"{self.build.root / path}"', f'"{self._copy_of(path)}"')
            copy = self.folder / "objects" / (unit.replace("/", "-") + ".cxx")
            copy.write_text(text)
        else:
            relative = os.path.relpath(file, self.build.root)
            copy = self._copy_of(relative) if relative in held else file
        words[words.index(file)] = str(copy)
        while True:
            with self.lock:
                compiled = self._mutants_in(held)
            result = subprocess.run(self.build.launcher + words + ["-O1", "-w"], cwd=self.build.folder,
                                    capture_output=True, text=True)
            if result.returncode == 0:
                return made
            with self.lock:
                # Another unit with the same header may have dropped the mutant that these messages are about.
                if compiled == self._mutants_in(held):
                    self._drop(result.stderr, held)

    def _mutants_in(self, paths):
        return {number for number, mutation in self.mutants.items() if mutation.path in paths}

    def _drop(self, messages, held):
        """Takes out the mutants on whose lines there are errors, or else notes, or else all of the files."""
        lines = re.findall(r"^(\S+?):(\d+)(?::\d+)?:? *(error|.*required from|.*note)?", messages, re.M)
        for wanted in ("error", ""):
            wrong = set()
            for number in self._mutants_in(held):
                mutation = self.mutants[number]
                source, copy = self.sources[mutation.path], str(self._copy_of(mutation.path))
                span = range(source.line(source.tokens[mutation.statement.first].begin),
                             source.line(source.tokens[mutation.statement.last - 1].end) + 1)
                if any(file == copy and int(line) in span and (kind == "error" or not wanted)
                       for file, line, kind in lines):
                    wrong.add(number)
            if wrong:
                break
        wrong = wrong or self._mutants_in(held)
        if not wrong:
            raise RuntimeError(f"without mutants this does not compile:\n{messages[-4000:]}")
        for number in wrong:
            self.uncompilable[number] = self.mutants.pop(number)
        for path in held:
            self._write(path)

    def _archive(self, archive):
        """Makes the archive of a room with the mutants and returns its path."""
        made = self.folder / pathlib.Path(archive).name
        made.unlink(missing_ok=True)
        words = shlex.split(self.build.command_of(archive))
        objects = [str(self.objects.get(word, self.build.folder / word)) for word in words if word.endswith(".o")]
        self._run(["ar", "qcT", str(made), *objects])
        return made

    def _run(self, words):
        subprocess.run(words, cwd=self.build.folder, check=True)


def is_eligible(mutation, source):
    """Returns true if the statement can be duplicated: no preprocessor lines in it."""
    return "\n#" not in source.range_text(mutation.statement.first, mutation.statement.last)


def candidates(build, files):
    """All mutants of those files whose units can be built again, as [(source, mutation)]."""
    found = []
    for file in files:
        text = (build.root / file).read_text()
        if not rules.NEVER.search(text) and build.units_of(file):
            source = source_module.Source(file, text)
            found += [mutation for mutation in rules.mutations(source) if is_eligible(mutation, source)]
    return found


def draw(mutations, count, seed):
    """`count` mutants (or as many as there are) whose statements do not overlap; rare rules count for more.

    Each mutant has a random key of its own, made of the seed and its identity, so that changes elsewhere leave most of
    a draw as it was. A rule with n places has the weight sqrt(n): the key of each is u^(1/w), w = n^-1/2, and the largest win.
    """
    places = collections.Counter(mutation.rule for mutation in mutations)

    def key(mutation):
        digest = hashlib.sha1(f"{seed} {mutation.identity} {mutation.text}".encode()).digest()
        uniform = (int.from_bytes(digest[:6], "big") + 1) / (1 << 48)
        return math.log(uniform) * places[mutation.rule] ** 0.5

    chosen, taken = [], collections.defaultdict(list)
    for mutation in sorted(mutations, key=key, reverse=True):
        first, last = mutation.statement.first, mutation.statement.last
        if all(last <= other.first or other.last <= first for other in taken[mutation.path]):
            taken[mutation.path].append(mutation.statement)
            chosen.append(mutation)
        if len(chosen) == count:
            break
    return chosen
