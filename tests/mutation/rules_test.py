#!/usr/bin/env python3
"""The rules of tests/mutation: what each writes, and that texts which look like code are left alone."""

import collections
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import plant  # noqa: E402
import rules  # noqa: E402
import source as source_module  # noqa: E402


def mutated(body, rule, path="core/x.cpp", head="int f(int a, int b, int n) "):
    """All texts that a rule makes of a function's body."""
    text = f"{head}{{ {body} }}\n"
    source = source_module.Source(path, text)
    start, end = len(head) + 2, len(text) - 3
    return [(text[:m.begin] + m.text + text[m.end:])[start:end + len(m.text) - (m.end - m.begin)].strip()
            for m in rules.mutations(source) if m.rule == rule]


class RulesTest(unittest.TestCase):
    def test_each_rule(self):
        for rule, body, expected in (
                ("sign", "return a + b;", ["return a - b;"]),
                ("sign", "x = -a;", ["x = a;"]),
                ("factor", "return 2 * f(a).b * n;", ["return 2  * n;", "return 2 * f(a).b ;"]),
                ("reciprocal", "return a * b;", ["return a / b;"]),
                ("average", "x = a / static_cast<double>(n) + 1;", ["x = a  + 1;"]),
                ("average", "return a % b;", ["return a / b;"]),
                ("term", "x = sqrt(a + eps);", ["x = sqrt(a );"]),
                ("term", "x = (1 - beta) * a;", ["x = ( beta) * a;"]),
                ("boundary", "if (a < b) f();", ["if (a <= b) f();"]),
                ("equality", "return a == b;", ["return a != b;"]),
                ("logic", "return a && b;", ["return a || b;"]),
                ("condition", "return a && b.c();", ["return a ;"]),
                ("guard", "if (a == b) return 0;", ["if (false) return 0;"]),
                ("check", 'GRADUS_CHECK(a > b, ShapeError, "a ", a);', [";"]),
                ("dropped", "x.zero_();", [";"]),
                ("accumulation", "x += a;", ["x -= a;", "x = a;"]),
                ("min_max", "return std::min(a, b);", ["return std::max(a, b);"]),
                ("boolean", "const bool found = f(true);", ["const bool found = f(false);"]),
                ("off_by_one", "return a + 1;", ["return a + 0;", "return a + 2;"]),
                ("index", "return x.size(0) + y[1];", ["return x.size(1) + y[1];", "return x.size(0) + y[0];"]),
                ("loop", "for (int i = 0; i < n; ++i) f(i);",
                 ["for (int i = (0) + 1; i < n; ++i) f(i);", "for (int i = 0; i < (n) - 1; ++i) f(i);"]),
                ("loop", "for (; i < n; ++i) f(i);", ["for (; false; ++i) f(i);", "for (; i < (n) - 1; ++i) f(i);"]),
                ("arms", "return a ? b : n;", ["return a ?  n : b;"]),
                ("swapped_arguments", "return g(a, b);", ["return g(b, a);"]),
                ("swapped_names", "x = mean; y = var;", ["x = var; y = var;", "x = mean; y = mean;"]),
                ("function", "return std::sqrt(a);", ["return (a);"]),
                ("broadcast", "return sum_to(x, shape);", ["return x;"]),
                ("broadcast", "return a.sum({0, 1}) * b;", ["return a * b;"]),
                ("jump", "for (;;) { if (a) continue; }", ["for (;;) { if (a) break; }"])):
            with self.subTest(rule=rule, body=body):
                self.assertEqual(mutated(body, rule), expected)
        self.assertEqual(mutated("return dy * x();", "detached", path="autograd/ops/x.cpp"),
                         ["return dy.detach() * x();"])

    def test_every_rule_has_places_in_the_library_and_a_description(self):
        root, found = pathlib.Path(__file__).resolve().parents[2], collections.Counter()
        for room in ("autograd/ops", "optim"):
            for path in sorted((root / room).glob("*.cpp")):
                source = source_module.Source(str(path.relative_to(root)), path.read_text())
                found.update(mutation.rule for mutation in rules.mutations(source))
        self.assertEqual({name for name in rules.RULES if not found[name] or not rules.RULES[name].__doc__}, set())

    def test_the_readme_has_the_rules(self):
        text = pathlib.Path(__file__).with_name("README.md").read_text().replace("\\|", "|")
        for name, function in rules.RULES.items():
            self.assertIn(f"| {name} | {' '.join(function.__doc__.split())} |", text)

    def test_what_is_no_code_is_left_alone(self):
        for text in ("// a + b\n", '/* x < y */ const char* s = "a + b";', "#define F(a, b) a + b\n",
                     "template <int n = 1 + 2> struct S;", "enum class E { a = 1 + 2 };",
                     "constexpr int f(int a) { return a + 1; }"):
            with self.subTest(text=text):
                self.assertEqual(rules.mutations(source_module.Source("core/x.cpp", text)), [])
        for body in ("constexpr int m = n + 1;", "if constexpr (n < 2) {}", 'throw Error("a" + b);',
                     "static_assert(n + 1 > 2);", 'GRADUS_CHECK(ok, Error, "of ", a + b);', "std::vector<int> v;",
                     'auto s = "a" + b + "c";'):
            with self.subTest(body=body):
                for rule in ("sign", "boundary"):
                    self.assertEqual(mutated(body, rule), [])

    def test_the_body_of_a_lambda_is_a_statement_of_its_own(self):
        text = "void f() { each(n, [&](int i) { x[i] += a + b; }); }"
        source = source_module.Source("core/x.cpp", text)
        (sign,) = [mutation for mutation in rules.mutations(source) if mutation.rule == "sign"]
        self.assertEqual(source.range_text(sign.statement.first, sign.statement.last), "x[i] += a + b;")

    def test_planting(self):
        text = "void f() {\n  x = a + b;\n  int y = a < b;\n  if (a < b) g();\n  for (; a < b; ++a) {}\n}\n"
        source = source_module.Source("core/x.cpp", text)
        found = [m for m in rules.mutations(source) if m.rule in ("sign", "boundary")]
        self.assertEqual(
            plant.rewrite(source, dict(enumerate(found, 1))),
            plant.INCLUDE + "void f() {\n"
            "  { if (gradus_mutant(1)) { x = a - b; } else { x = a + b; } }\n"
            "  int y = (gradus_mutant(2) ? (a <= b) : (a < b));\n"
            "  if ((gradus_mutant(3) ? static_cast<bool>(a <= b) : static_cast<bool>(a < b))) g();\n"
            "  for (; (gradus_mutant(4) ? static_cast<bool>(a <= b) : static_cast<bool>(a < b)); ++a) {}\n}\n")

    def test_identities_survive_changes_elsewhere(self):
        def identities(text):
            return [m.identity for m in rules.mutations(source_module.Source("core/x.cpp", text))]
        code = "void f() {\n  x = a + b;\n  x = a + b;\n}\n"
        self.assertEqual(identities(code), identities("// more\nvoid g() {}\n" + code))
        self.assertEqual(len(set(identities(code))), len(identities(code)))

    def test_the_same_seed_draws_the_same_mutants_and_their_statements_do_not_overlap(self):
        text = "void f() {\n" + "".join(f"  x{i} = a + b * {i};\n" for i in range(50)) + "}\n"
        found = rules.mutations(source_module.Source("core/x.cpp", text))
        drawn = plant.draw(found, 20, "seed")
        self.assertEqual(drawn, plant.draw(found, 20, "seed"))
        self.assertEqual(len({mutation.statement.first for mutation in drawn}), 20)
        self.assertGreater(len({mutation.rule for mutation in drawn}), 3)


if __name__ == "__main__":
    unittest.main()
