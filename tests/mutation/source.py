"""C++ sources as tokens and statements: as much of the language as it takes to exchange one expression or statement.

A file is read once into tokens (names, numbers, strings, operators; no comments and no preprocessor lines). Function
bodies and the bodies of lambdas are divided into statements. What is not understood is left out, so the rules in
rules.py only see code in which an exchange is likely to compile.
"""

import bisect
import collections
import dataclasses
import re

TOKEN = re.compile(r"""
    (?P<comment>//[^\n]*|/\*.*?\*/)
  | (?P<preprocessor>^[ \t]*\#(?:\\\n|[^\n])*)
  | (?P<string>(?:u8|[uUL])?R"(?P<end>[^()\\\s]{0,16})\(.*?\)(?P=end)"|(?:u8|[uUL])?"(?:\\.|[^"\\\n])*")
  | (?P<number>\.?\d(?:[eEpP][+-]|'?[\w.])*)
  | (?P<character>'(?:\\.|[^'\\\n])+')
  | (?P<name>[A-Za-z_]\w*)
  | (?P<operator>->\*|<=>|<<=|>>=|\.\.\.|::|->|\+\+|--|&&|\|\||[-+*/%&|^=!<>]=|<<|[-+*/%&|^~!<>=?:;,.(){}\[\]@\\])
  | (?P<space>\s+)""", re.X | re.S | re.M)

Token = collections.namedtuple("Token", "kind text begin end")
CLOSING = {"(": ")", "[": "]", "{": "}"}
ASSIGNMENTS = ("=", "+=", "-=", "*=", "/=", "%=", "|=", "&=", "^=", "<<=", ">>=")
# Statements with these  first words declare something, are evaluated by the compiler, or only say what went wrong.
LEFT_OUT = frozenset("using typedef static_assert constexpr consteval constinit struct class union enum template goto "
                     "extern friend asm throw switch namespace public private protected static alignas".split())
NOT_TYPES = frozenset("return co_return delete new else case sizeof not goto throw".split())


@dataclasses.dataclass(frozen=True)
class Statement:
    """Tokens [first, last) of a source that may be exchanged, and how.

    kind: "statement" (with its semicolon), "value" (an initialiser), "condition", or "step" of a for loop.
    role: the word that it belongs to: if, while, for, return, or "" for an expression or a declaration.
    inner: ranges of tokens inside it that are statements of their own (bodies of lambdas).
    """
    kind: str
    role: str
    first: int
    last: int
    inner: tuple = ()


class Source:
    """The tokens of one file (`tokens`), each bracket's other half (`partner`), and the statements (`statements`)."""

    def __init__(self, path, text):
        self.path, self.text, self.tokens = path, text, []
        self.line_starts = [0] + [match.end() for match in re.finditer("\n", text)]
        position = 0
        while position < len(text):
            match = TOKEN.match(text, position)
            position = match.end() if match else position + 1
            if match and match.lastgroup not in ("space", "comment", "preprocessor"):
                kind = "string" if match.lastgroup == "end" else match.lastgroup
                self.tokens.append(Token(kind, match.group(), match.start(), match.end()))
        self.names = frozenset(token.text for token in self.tokens if token.kind == "name")
        self.partner, self.statements = self._match_brackets(), []
        self._read_declarations(0, len(self.tokens))

    def line(self, offset):
        """The number of the line, from 1, that holds the character at `offset`."""
        return bisect.bisect_right(self.line_starts, offset)

    def line_text(self, number):
        return self.text[self.line_starts[number - 1]:].split("\n", 1)[0].strip()

    def range_text(self, first, last):
        """The text of tokens [first, last)."""
        return self.text[self.tokens[first].begin:self.tokens[last - 1].end]

    def is_spaced(self, i):
        """Returns true if blanks surround token i: clang-format writes binary operators so, not template brackets."""
        token = self.tokens[i]
        return self.text[token.begin - 1].isspace() and self.text[token.end:token.end + 1].isspace()

    def skip(self, i):
        """The token after token i, or after its closing bracket if token i opens one."""
        return (self.partner[i] if self.tokens[i].text in CLOSING else i) + 1

    def split(self, first, last, separator):
        """The ranges between separators of [first, last) that are outside of brackets."""
        parts, start, i = [], first, first
        while i < last:
            if self.tokens[i].text == separator:
                parts.append((start, i))
                start = i + 1
            i = self.skip(i)
        return parts + [(start, last)]

    def _match_brackets(self):
        partner, opened = {}, []
        for i, token in enumerate(self.tokens):
            if token.text in CLOSING:
                opened.append(i)
            elif token.text in CLOSING.values() and token.kind == "operator":
                while opened:  # a branch of #if may leave one open
                    start = opened.pop()
                    if CLOSING[self.tokens[start].text] == token.text:
                        partner[start], partner[i] = i, start
                        break
        for start in opened:
            partner[start] = len(self.tokens) - 1
        for i, token in enumerate(self.tokens):
            if token.text in CLOSING:
                partner.setdefault(i, len(self.tokens) - 1)
        return partner

    def _read_declarations(self, first, last):
        """Finds the function bodies in a file, namespace or class."""
        start, i = first, first
        while i < last:
            text = self.tokens[i].text
            if text == "{":
                if self._opens_code(i, start):
                    self._read_block(i)
                elif self._is_scope(start, i):
                    self._read_declarations(i + 1, self.partner[i])
                else:  # an initialiser; the declaration goes on
                    i = self.skip(i)
                    continue
            i = self.skip(i)
            if text in (";", "{"):
                start = i

    def _is_scope(self, start, brace):
        words = [token.text for token in self.tokens[start:brace]]
        return any(word in ("namespace", "class", "struct", "union") for word in words) or words == ["extern", '"C"']

    def _opens_code(self, brace, start):
        """Returns true if the brace opens a function's body: after parameters, and not to be run by the compiler."""
        words = [token.text for token in self.tokens[start:brace]]
        if not words or "constexpr" in words or "consteval" in words or ")" not in words:
            return False
        if words[-1] in (")", "const", "override", "final", "noexcept", "mutable"):
            return True
        return "->" in words or ("operator" not in words and words[-1] == "}" and ":" in words)

    def _read_block(self, brace):
        i = brace + 1
        while i < self.partner[brace]:
            i = self._read_statement(i, self.partner[brace])

    def _read_statement(self, i, last):
        """Reads the statement that begins at token i and returns the token after it."""
        word = self.tokens[i].text
        if word == "{":
            self._read_block(i)
            return self.skip(i)
        if word in ("else", "do", "try"):
            return self._read_statement(i + 1, last)
        if word in ("if", "while", "for", "switch", "catch"):
            constant = self.tokens[i + 1].text == "constexpr"
            header = i + 2 if constant else i + 1
            if self.tokens[header].text == "(" and not constant and word in ("if", "while", "for"):
                self._read_header(word, header)
            return self._read_statement(self.skip(header), last) if self.skip(header) < last else last
        if word in ("case", "default") or (self.tokens[i].kind == "name" and self.tokens[i + 1].text == ":"):
            while i < last and self.tokens[i].text != ":":
                i = self.skip(i)
            return i + 1
        end = i
        while end < last and self.tokens[end].text != ";":
            end = self.skip(end)
        if end < last:
            self._add_simple(i, end)
        return end + 1

    def _read_header(self, word, bracket):
        parts = self.split(bracket + 1, self.partner[bracket], ";")
        if word == "for" and len(parts) == 3:
            (first, last), condition, step = parts
            if last > first and self._is_declaration(first, last):
                self._add_values("for", first, last)
            self._add("condition", "for", *condition)
            self._add("step", "for", *step)
        elif word != "for":
            if not self._is_declaration(*parts[-1]):
                self._add("condition", word, *parts[-1])

    def _add_simple(self, first, semicolon):
        words = [token.text for token in self.tokens[first:first + 2]]
        if first == semicolon or words[0] in ("struct", "class", "union"):
            self._read_declarations(first, semicolon)
            return
        if words[0] in LEFT_OUT or "constexpr" in words:
            self._inner(first, semicolon)
        elif words[0] != "return" and self._is_declaration(first, semicolon):
            self._add_values("", first, semicolon)
        else:
            self._add("statement", "return" if words[0] == "return" else "", first, semicolon + 1)

    def _add_values(self, role, first, last):
        """Adds the initialisers of `T a = x, b = y`. A comma between template arguments makes it unclear: left out."""
        self._inner(first, last)
        for start, end in self.split(first, last, ","):
            for i in range(start, end):
                if self.tokens[i].text == "=":
                    if i + 1 < end and self.tokens[i + 1].text not in ("{", "["):
                        self._add("value", role, i + 1, end, read=False)
                    break

    def _is_declaration(self, first, last):
        """Returns true for `type name`: two names, or a name and *, & or > before another name."""
        i = first
        while i + 1 < last and self.tokens[i].text not in ASSIGNMENTS + ("(",):
            token, following = self.tokens[i], self.tokens[i + 1]
            if i == first and token.text in ("auto", "const"):
                return True
            if following.kind == "name" and token.text not in NOT_TYPES and (
                    token.kind == "name" or (
                        i > first and token.text in ("*", "&", "&&", ">") and not self.is_spaced(i))):
                return True
            i = self.skip(i)
        return False

    def _add(self, kind, role, first, last, read=True):
        if last > first:
            inner = self._inner(first, last, read)
            self.statements.append(Statement(kind, role, first, last, inner))

    def _inner(self, first, last, read=True):
        """The bodies of lambdas in [first, last), whose statements are read on their own."""
        found, i = [], first
        while i < last:
            if self.tokens[i].text == "{" and self._opens_lambda(i, first):
                found.append((i, self.partner[i] + 1))
                if read:
                    self._read_block(i)
                i = self.partner[i]
            i += 1
        return tuple(found)

    def _opens_lambda(self, brace, first):
        i = brace - 1
        while i > first and (self.tokens[i].kind == "name" or self.tokens[i].text in ("::", "*", "&", "->", ">", "<")):
            i -= 1
        if i <= first:
            return False
        if self.tokens[i].text == ")":
            before = self.partner.get(i, first) - 1
            return before >= first and self.tokens[before].text in ("]", ">")
        opening = self.partner.get(i, first)
        before = self.tokens[opening - 1]
        return self.tokens[i].text == "]" and (opening == first or before.kind == "operator" or before.text == "return")
