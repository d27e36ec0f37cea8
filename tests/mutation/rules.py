"""The mistakes that are planted: each rule finds places for one kind of mistake and says what is written there.

A rule is a generator `rule(source, statement, i)` that is called for each token i of a statement (see source.py) and
yields (first, last, text): tokens [first, last) are replaced by the text. Its docstring is its line in the README.
"""

import dataclasses
import hashlib
import re

RULES = {}
# Calls without which the result is the same: hints, reservations and output.
ONLY_HINTS = re.compile(r"reserve|shrink_to_fit|prefetch|printf|flush|fputs|assert|notify_\w+|yield|record_stream")
# Code that could do harm on this machine, or that no bug can be planted in by an exchange of text.
NEVER = re.compile(r"\b(?:kill|killpg|remove_all|unlink|system|exec[vl]\w*|fork|shm_unlink|setrlimit|_exit)\(")
SYMMETRIC = re.compile(r"(?:f?min|f?max|swap|hypot|equal|is_same|same_\w+|\w*broadcast\w*|add|mul|gcd|lcm)$")
SWAPPED_NAMES = [pair.split() for pair in (
    "mean var", "mean variance", "running_mean running_var", "beta1 beta2", "rows columns", "rows cols", "height width",
    "first second", "front back", "begin end", "h w", "m n", "m k", "exp_avg exp_avg_sq", "dx dy", "weight bias",
    "forward backward", "train eval", "lower upper", "left right", "input output", "rank world_size", "in out",
    "padding dilation", "stride dilation", "low high", "next previous", "push_back push_front", "row column", "a b")]
FUNCTIONS = frozenset("sqrt exp log abs fabs log1p exp1m tanh floor ceil round square rsqrt llround lround".split())


@dataclasses.dataclass(frozen=True)
class Mutation:
    """One mistake: characters [begin, end) of a file, inside a statement, are replaced by `text`."""
    path: str
    rule: str
    line: int
    statement: object
    begin: int
    end: int
    text: str
    identity: str  # path|rule|hash of the line's text|which of several alike in the file

    def original(self, source):
        return source.text[self.begin:self.end]


def rule(function):
    RULES[function.__name__.rstrip("_")] = function
    return function


def is_operand_end(token):
    return token.kind in ("name", "number", "string", "character") and token.text not in (
        "return", "case", "co_return") or token.text in (")", "]", "}")


def is_binary(source, i, *operators):
    return source.tokens[i].text in operators and source.is_spaced(i) and i > 0 and is_operand_end(source.tokens[i - 1])


def operand_end(source, i):
    """The token after the operand that begins at token i: signs, a name, number or bracket, and calls on it."""
    tokens = source.tokens
    while tokens[i].text in ("-", "+", "!", "~", "*", "&", "++", "--"):
        i += 1
    if tokens[i].text in ("static_cast", "template") or (tokens[i].kind == "name" and tokens[i + 1].text == "<"
                                                         and not source.is_spaced(i + 1)):
        depth, i = 0, i + 1
        while True:
            depth += {"<": 1, ">": -1}.get(tokens[i].text, 0)
            i += 1
            if depth == 0 or tokens[i].text in (";", "{"):
                break
    else:
        i = source.skip(i)
    while i < len(tokens):
        if tokens[i].text in ("(", "[", "{"):
            i = source.skip(i)
        elif tokens[i].text in (".", "->", "::"):
            i += 2
        else:
            return i
    return i


def arguments(source, opening):
    """The ranges of tokens of the arguments in a bracket; none if there is a template argument list among them."""
    last = source.partner[opening]
    if any(source.tokens[i].text == "<" and not source.is_spaced(i) for i in range(opening, last)):
        return []
    return source.split(opening + 1, last, ",") if last > opening + 1 else []


def has_string(source, statement):
    return any(source.tokens[i].kind == "string" or source.tokens[i].text in ("to_string", "string", "path")
               for i in range(statement.first, statement.last))


@rule
def sign(source, statement, i):
    """`a + b` becomes `a - b` and the reverse; `-a` becomes `a`."""
    if is_binary(source, i, "+", "-") and not has_string(source, statement):
        yield i, i + 1, "-" if source.tokens[i].text == "+" else "+"
    elif source.tokens[i].text == "-" and i > 0 and not is_operand_end(source.tokens[i - 1]):
        if source.tokens[i + 1].text not in ("1", ">"):
            yield i, i + 1, ""


@rule
def factor(source, statement, i):
    """A factor is lost: `a * b` becomes `a`."""
    if is_binary(source, i, "*"):
        yield i, operand_end(source, i + 1), ""


@rule
def average(source, statement, i):
    """A division is lost: `a / n` becomes `a`; `a % b` becomes `a / b`."""
    if is_binary(source, i, "/") and not has_string(source, statement):
        yield i, operand_end(source, i + 1), ""
    elif is_binary(source, i, "%"):
        yield i, i + 1, "/"


@rule
def reciprocal(source, statement, i):
    """`a * b` becomes `a / b`."""
    if is_binary(source, i, "*") and source.tokens[i + 1].text != "2":
        yield i, i + 1, "/"


@rule
def term(source, statement, i):
    """An added term such as eps is lost: `a + eps` becomes `a`; `1 - a` becomes `a`."""
    if is_binary(source, i, "+") and re.search(r"eps|decay|offset|bias|start|begin", source.tokens[i + 1].text):
        yield i, operand_end(source, i + 1), ""
    elif is_binary(source, i, "-") and source.tokens[i - 1].text in ("1", "1.0", "1.0f"):
        yield i - 1, i + 1, ""


@rule
def boundary(source, statement, i):
    """`<` becomes `<=`, `>=` becomes `>`, and so on."""
    if is_binary(source, i, "<", "<=", ">", ">="):
        yield i, i + 1, {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}[source.tokens[i].text]


@rule
def equality(source, statement, i):
    """`==` becomes `!=` and the reverse."""
    if is_binary(source, i, "==", "!="):
        yield i, i + 1, "!=" if source.tokens[i].text == "==" else "=="


@rule
def logic(source, statement, i):
    """`&&` becomes `||` and the reverse; `!a` becomes `a`."""
    if is_binary(source, i, "&&", "||"):
        yield i, i + 1, "||" if source.tokens[i].text == "&&" else "&&"
    elif source.tokens[i].text == "!":
        yield i, i + 1, ""


@rule
def condition(source, statement, i):
    """One side of `a && b` or `a || b` is lost."""
    if is_binary(source, i, "&&", "||"):
        last = operand_end(source, i + 1)
        if last < statement.last and source.tokens[last].text in ("&&", "||", ")", ",", ";", "?"):
            yield i, last, ""


@rule
def guard(source, statement, i):
    """An early `return`, `continue` or `throw` is lost: `if (a) return b;` never returns."""
    if statement.role == "if" and statement.kind == "condition" and i == statement.first:
        after = source.partner[i - 1] + 1 if source.tokens[i - 1].text == "(" else None
        if after and source.tokens[after].text in ("return", "continue", "throw", "break"):
            yield statement.first, statement.last, "false"


@rule
def check(source, statement, i):
    """The check of an argument is lost: no `GRADUS_CHECK(...)`, no call of `check_...(...)`."""
    if i == statement.first and statement.kind == "statement" and statement.role == "":
        call = source.range_text(statement.first, statement.last)
        if re.match(r"GRADUS_CHECK\(|(?:\w+::)*check_\w+\(", call):
            yield statement.first, statement.last, ";"


@rule
def dropped(source, statement, i):
    """A statement is lost: a call for its effect, `++n`, or an assignment to a member."""
    if i != statement.first or statement.kind != "statement" or statement.role:
        return
    text = source.range_text(statement.first, statement.last)
    if re.match(r"GRADUS_|(?:\w+::)*check_|delete|break|continue", text) or ONLY_HINTS.search(text):
        return
    yield statement.first, statement.last, ";"


@rule
def accumulation(source, statement, i):
    """A sum keeps its last part alone, or subtracts: `a += b` becomes `a = b` or `a -= b`."""
    text = source.tokens[i].text
    if statement.kind == "statement" and text in ("+=", "-=", "*=", "|="):
        yield i, i + 1, "="
        if text in ("+=", "-=") and not has_string(source, statement):
            yield i, i + 1, "-=" if text == "+=" else "+="


@rule
def min_max(source, statement, i):
    """`min` becomes `max` and the reverse."""
    text = source.tokens[i].text
    if text in ("min", "max", "minimum", "maximum", "fmin", "fmax") and source.tokens[i + 1].text == "(":
        if source.tokens[i + 2].text != ")":
            yield i, i + 1, text.replace("min", "MAX").replace("max", "min").replace("MAX", "max")


@rule
def boolean(source, statement, i):
    """`true` becomes `false` and the reverse."""
    if source.tokens[i].text in ("true", "false"):
        yield i, i + 1, "false" if source.tokens[i].text == "true" else "true"


@rule
def off_by_one(source, statement, i):
    """`0` becomes `1`, and `1` and `2` become one less and one more, outside of subscripts."""
    if source.tokens[i].text in ("0", "1", "2") and source.tokens[i - 1].text not in ("[", "<"):
        number = int(source.tokens[i].text)
        if source.tokens[i - 1].text == "-" and not is_operand_end(source.tokens[i - 2]):
            return
        if number:
            yield i, i + 1, str(number - 1)
        yield i, i + 1, str(number + 1)


@rule
def index(source, statement, i):
    """Another element: `[0]` becomes `[1]`, `size(1)` becomes `size(0)`, and so on."""
    if source.tokens[i].text in ("0", "1", "2", "3") and source.tokens[i + 1].text in ("]", ")"):
        if source.tokens[i - 1].text == "[" or (source.tokens[i - 1].text == "(" and source.tokens[i - 2].text in (
                "size", "stride", "input", "needs_grad", "dim")):
            yield i, i + 1, {"0": "1", "1": "0", "2": "1", "3": "2"}[source.tokens[i].text]


@rule
def loop(source, statement, i):
    """A loop begins one late, ends one early, or does not run at all (the tail of a vector loop)."""
    if statement.role != "for" or i != statement.first:
        return
    if statement.kind == "value":
        yield statement.first, statement.last, f"({source.range_text(statement.first, statement.last)}) + 1"
    elif statement.kind == "condition":
        if source.tokens[statement.first - 2].text == "(":
            yield statement.first, statement.last, "false"
        for k in range(statement.first, statement.last):
            if is_binary(source, k, "<", "<="):
                last = statement.last
                yield k + 1, last, f"({source.range_text(k + 1, last)}) - 1"
                break


@rule
def arms(source, statement, i):
    """`a ? b : c` becomes `a ? c : b`."""
    if source.tokens[i].text != "?":
        return
    depth, colon, end = 0, None, i + 1
    while end < statement.last and source.tokens[end].text not in (",", ";", ")", "]", "}"):
        text = source.tokens[end].text
        if text == "?":
            depth += 1
        elif text == ":" and colon is None and depth == 0:
            colon = end
        elif text == ":":
            depth -= 1
        end = source.skip(end)
    if colon is not None and end > colon + 1:
        yield i + 1, end, f" {source.range_text(colon + 1, end)} : {source.range_text(i + 1, colon)}"


def declared_type(source, name, before):
    """The type in the last declaration `type name` before a position, as far as one regular expression tells."""
    found = None
    declaration = rf"([A-Za-z_][\w:]*(?:<[^<>;]*>)?[&*]?) {name}\b(?=[,;)={{ ]|$)"
    for found in re.finditer(declaration, source.text[max(0, before - 5000):before]):
        pass
    return found[1] if found and found[1] not in ("return", "auto", "const", "case") else None


@rule
def swapped_arguments(source, statement, i):
    """Two neighbouring arguments of one type are exchanged in a call."""
    if source.tokens[i].text != "(" or source.tokens[i - 1].kind != "name":
        return
    called = source.tokens[i - 1].text
    if SYMMETRIC.match(called) or called.startswith("GRADUS_") or called in ("if", "for", "while", "switch"):
        return
    ranges = arguments(source, i)
    for (first, middle), (start, last) in zip(ranges, ranges[1:]):
        one, other = source.range_text(first, middle), source.range_text(start, last)
        if one == other:
            continue
        if re.fullmatch(r"[A-Za-z_]\w*", one) and re.fullmatch(r"[A-Za-z_]\w*", other):
            types = {declared_type(source, name, source.tokens[i].begin) for name in (one, other)}
            alike = len(types) == 1 and None not in types
        else:
            alike = re.fullmatch(r"(\w+)\.\w+,\1\.\w+", f"{one},{other}") is not None
        if alike:
            yield first, last, f"{other}, {one}"


@rule
def swapped_names(source, statement, i):
    """One thing is taken for its twin: mean and variance, beta1 and beta2, rows and columns, begin and end, h and w."""
    token = source.tokens[i]
    if token.kind != "name" or source.tokens[i + 1].text == "::":
        return
    for pair in SWAPPED_NAMES:
        for one, other in (pair, pair[::-1]):
            twin = other + token.text[len(one):]
            if token.text.rstrip("_") == one and twin in source.names:
                if len(one) > 1 or source.tokens[i - 1].text == ".":
                    yield i, i + 1, twin


@rule
def function(source, statement, i):
    """A function of one argument is lost: `sqrt(a)` becomes `(a)`."""
    if source.tokens[i].text in FUNCTIONS and source.tokens[i + 1].text == "(" and len(arguments(source, i + 1)) == 1:
        start = i - 2 if source.tokens[i - 1].text == "::" else i
        if source.tokens[i - 1].text not in (".", "->"):
            yield start, i + 1, ""


@rule
def detached(source, statement, i):
    """A gradient loses its history: `dy` becomes `dy.detach()`, so that second derivatives are wrong."""
    token = source.tokens[i]
    if source.path.startswith("autograd/ops") and source.tokens[i + 1].text in ("*", "/", ",", ")", ".", ";"):
        if re.fullmatch(r"d[a-zA-Z]|g|grad\w*|dz|dY", token.text) and source.tokens[i - 1].text not in (".", "->"):
            if source.tokens[i + 1].text != "." or source.tokens[i + 2].text in ("sum", "matmul", "reshape"):
                yield i, i + 1, f"{token.text}.detach()"


@rule
def broadcast(source, statement, i):
    """A sum over broadcast or reduced dimensions is lost: `sum_to(a, shape)` and `a.sum(...)` become `a`."""
    if source.tokens[i].text == "." and source.tokens[i + 1].text == "sum" and source.tokens[i + 2].text == "(":
        yield i, source.partner[i + 2] + 1, ""
    if re.fullmatch(r"sum_to\w*|reduce_to\w*|expand_to|broadcast_to", source.tokens[i].text):
        ranges = arguments(source, i + 1) if source.tokens[i + 1].text == "(" else []
        start = i - 2 if source.tokens[i - 1].text == "::" else i
        if len(ranges) > 1 and source.tokens[i - 1].text not in (".", "->"):
            yield start, source.partner[i + 1] + 1, source.range_text(*ranges[0])


@rule
def jump(source, statement, i):
    """`continue` becomes `break` and the reverse."""
    if i == statement.first and source.tokens[i].text in ("continue", "break") and statement.kind == "statement":
        yield i, i + 1, "break" if source.tokens[i].text == "continue" else "continue"


def tokens_of(source, statement):
    """The tokens that belong to the statement itself; of a check only its condition, for messages are no results."""
    first, last = statement.first, statement.last
    if source.tokens[first].text.startswith("GRADUS_") and source.tokens[first + 1].text == "(":
        last = source.split(first + 2, source.partner[first + 1], ",")[0][1]
    i = first
    for start, end in statement.inner + ((last, last),):
        yield from range(i, min(start, last))
        i = end


def mutations(source):
    """All mistakes that can be planted in a source, in the order of its text."""
    found, seen = [], {}
    for statement in source.statements:
        text = source.range_text(statement.first, statement.last)
        if NEVER.search(text) or text.count("\n") > 12:
            continue
        for i in tokens_of(source, statement):
            for name, function_ in RULES.items():
                for first, last, replacement in function_(source, statement, i):
                    begin, end = source.tokens[first].begin, source.tokens[last - 1].end
                    found.append((begin, end, name, replacement, statement))
    result = []
    for begin, end, name, replacement, statement in sorted(found, key=lambda entry: entry[:4]):
        line = source.line(begin)
        digest = hashlib.sha1(re.sub(r"\s+", " ", source.line_text(line)).encode()).hexdigest()[:8]
        key = f"{source.path}|{name}|{digest}"
        seen[key] = seen.get(key, -1) + 1
        result.append(Mutation(source.path, name, line, statement, begin, end, replacement, f"{key}|{seen[key]}"))
    return result
