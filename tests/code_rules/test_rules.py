"""The rules hold in all modules, and each finds what it is there for."""

import functools
from pathlib import Path

import pytest

from tests.code_rules import rules
from tests.code_rules.long_modules import LONG_MODULES

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("agent", "controlplane", "tiltyard", "protos", "tests", "docs")
GENERATED = ("_pb2", "_pb2_grpc")

USUAL_LINES = 300
MAX_LINES = 500

BROKEN = [
    (rules.assigns_unrelated_values, "a, b = 1, 2"),
    (rules.assigns_unrelated_values, "self.a, b = f(), g()"),
    (rules.assigns_unrelated_values, "[a, b] = [x, y]"),
    (rules.names_a_value_within_an_expression, "f(a := 1)"),
    (rules.names_a_value_within_an_expression, "f(key=(a := 1))"),
    (rules.names_a_value_within_an_expression, "f(1 + g(a := 1))"),
    (rules.names_a_value_within_an_expression, "lambda x: (y := x) + y"),
    (rules.names_a_value_within_an_expression, "[y for x in z if (y := f(x))]"),
    (rules.names_a_value_within_an_expression, "[a := 1]"),
    (rules.has_an_expression_for_a_statement, "f() if x else g()"),
    (rules.has_an_expression_for_a_statement, "x or f()"),
    (rules.has_an_expression_for_a_statement, "async def h(): await (f() if x else g())"),
    (rules.has_an_expression_for_a_statement, "[f(x) for x in y]"),
    (rules.chooses_what_it_calls, "(f if x else g)()"),
    (rules.chooses_what_it_calls, "y = (f or g)(1)"),
    (rules.nests_conditional_expressions, "a if x else b if y else c"),
    (rules.nests_conditional_expressions, "a if x else f(b if y else c)"),
    (rules.nests_conditional_expressions, "a if (b if y else c) else d"),
    (rules.iterates_over_a_string, "for _ in '123': pass"),
    (rules.iterates_over_a_string, "[x for x in 'abc'[:n]]"),
    (rules.iterates_over_a_string, "[*'abc']"),
    (rules.iterates_over_a_string, "zip('ab', x)"),
    (rules.iterates_over_a_string, "itertools.product('ab', x)"),
    (rules.iterates_over_a_string, "pytest.mark.parametrize('x', 'abc')"),
    (rules.unpacks_a_literal_into_a_literal, "[*(1, 2), 3]"),
    (rules.unpacks_a_literal_into_a_literal, "f(*[1, 2])"),
    (rules.unpacks_a_literal_into_a_literal, "{**{'a': 1}}"),
    (rules.unpacks_a_conditional_expression, "[a, *([b] if x else [])]"),
    (rules.unpacks_a_conditional_expression, "f(a, *(b if x else c))"),
    (rules.unpacks_a_conditional_expression, "f(**({} if x else a))"),
    (rules.unpacks_a_conditional_expression, "{**(a if x else b)}"),
    (rules.asserts_several_facts, "assert (a, b) == (1, 2)"),
    (rules.asserts_several_facts, "assert [a, b] == [1, 2]"),
    (rules.asserts_several_facts, "assert (a, b) != (1, 2)"),
    (rules.asserts_several_facts, "assert x or (a, b) == (1, 2)"),
    (rules.asserts_several_facts, "assert (a, b) in {(1, 2), (3, 4)}"),
    (rules.asserts_a_chain, "assert a == b == c"),
    (rules.asserts_a_chain, "assert a == b != c"),
    (rules.asserts_a_chain, "assert a == b <= c"),
    (rules.writes_several_rows_on_a_line, "parametrize('a, b', [(1, 2), (3, 4)])"),
    (rules.writes_several_rows_on_a_line, "parametrize('a', [f(1), f(2)])"),
    (rules.calls_a_special_method_in_a_lambda, "lambda: x.__setitem__(1, 2)"),
]

ALLOWED = [
    (rules.assigns_unrelated_values, "a, b = b, a"),
    (rules.assigns_unrelated_values, "a, b = b, a + b"),
    (rules.assigns_unrelated_values, "self.a, self.b = self.b, self.a"),
    (rules.assigns_unrelated_values, "a, b = f()"),
    (rules.assigns_unrelated_values, "(a, b), c = f(), 1, 2"),
    (rules.assigns_unrelated_values, "a = 1, 2"),
    (rules.names_a_value_within_an_expression, "if a := f(): pass"),
    (rules.names_a_value_within_an_expression, "while (a := f(x)) is not None: pass"),
    (rules.names_a_value_within_an_expression, "if x and not (a := f(x)).b: pass"),
    (rules.has_an_expression_for_a_statement, "f(a if x else b)"),
    (rules.has_an_expression_for_a_statement, "y = x or f()"),
    (rules.chooses_what_it_calls, "(f if x else g).h()"),
    (rules.chooses_what_it_calls, "f(g or h)"),
    (rules.nests_conditional_expressions, "[a if x else b, c if y else d]"),
    (rules.iterates_over_a_string, "'a' in 'abc'"),
    (rules.iterates_over_a_string, "set('0123456789')"),
    (rules.iterates_over_a_string, "parametrize('x', ['a', 'b'])"),
    (rules.iterates_over_a_string, "' '.join(x)"),
    (rules.iterates_over_a_string, "engine.list('agent')"),
    (rules.unpacks_a_literal_into_a_literal, "[*a, *(x for x in y)]"),
    (rules.unpacks_a_literal_into_a_literal, "{**a, 'b': 1}"),
    (rules.unpacks_a_conditional_expression, "[*a, b if x else c]"),
    (rules.unpacks_a_conditional_expression, "f(*a, b=c if x else d)"),
    (rules.asserts_several_facts, "assert (a, b) == c"),
    (rules.asserts_several_facts, "assert [x.a for x in y] == [1, 2]"),
    (rules.asserts_several_facts, "assert {'a': x, 'b': y} == {'a': 1, 'b': 2}"),
    (rules.asserts_several_facts, "assert [a] == [b]"),
    (rules.asserts_a_chain, "assert 0 < a <= 9"),
    (rules.asserts_a_chain, "assert (a == b) is c"),
    (rules.writes_several_rows_on_a_line, "parametrize('a', [1, 2, -3, A.B])"),
    (rules.writes_several_rows_on_a_line, "parametrize('a, b', [\n(1, 2),\n(3, 4),\n])"),
    (rules.calls_a_special_method_in_a_lambda, "lambda: type(x).__name__ == 'a'"),
]


@functools.cache
def texts() -> dict[str, str]:
    return {
        str(path.relative_to(ROOT)): path.read_text("utf-8")
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        if not path.stem.endswith(GENERATED)
    }


def test_no_module_breaks_a_rule() -> None:
    """Walk each module once for all rules: there are nearly a million nodes."""
    found = []
    for name, text in texts().items():
        nodes = rules.nodes_of(text)
        for rule in rules.RULES:
            found += [f"{name}:{place.lineno} {rule.__name__}" for place in rule(nodes)]
    assert found == []


@pytest.mark.parametrize(("rule", "text"), BROKEN)
def test_rule_finds(rule: rules.Rule, text: str) -> None:
    assert len(list(rule(rules.nodes_of(text)))) == 1


@pytest.mark.parametrize(("rule", "text"), ALLOWED)
def test_rule_leaves(rule: rules.Rule, text: str) -> None:
    assert list(rule(rules.nodes_of(text))) == []


def test_every_rule_has_examples() -> None:
    assert {rule for rule, _ in BROKEN} == set(rules.RULES)
    assert {rule for rule, _ in ALLOWED} == set(rules.RULES)


def test_modules_keep_their_size() -> None:
    lines = {name: text.count("\n") for name, text in texts().items()}
    assert {name for name, count in lines.items() if count > MAX_LINES} == set()
    assert {name for name, count in lines.items() if count > USUAL_LINES} == LONG_MODULES
