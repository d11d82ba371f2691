"""The rules: a function each, from the nodes of a module to the places that break the rule.

They are about reading and about diagnosis: a red line should name one fact, and a reader should
not have to take a statement apart.
"""

import ast
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from tests.support.source_trees import parsed, path_of, walk

_LOOKED_AT = (
    ast.Module,
    ast.Assert,
    ast.Assign,
    ast.AsyncFor,
    ast.Call,
    ast.Dict,
    ast.Expr,
    ast.For,
    ast.IfExp,
    ast.Lambda,
    ast.NamedExpr,
    ast.Starred,
    ast.comprehension,
)

Place = ast.expr | ast.stmt
Nodes = Sequence[ast.AST]
Rule = Callable[[Nodes], Iterator[Place]]

_ITERATING = {
    "enumerate",
    "iter",
    "itertools.product",
    "list",
    "map",
    "product",
    "sorted",
    "tuple",
    "zip",
}
"""Functions whose argument is iterated; `set("abc")` is left as the way to write characters."""


def nodes_of(text: str) -> Nodes:
    """Return the nodes of a module at which the rules begin to look, with the module first."""
    return [node for node in parsed(text) if isinstance(node, _LOOKED_AT)]


def assigns_unrelated_values(nodes: Nodes) -> Iterator[Place]:
    """Find `a, b = 1, 2`, but neither swaps nor what unpacks one value."""
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple | ast.List):
            for target in node.targets:
                if _is_literal(target) and not _needs_one_statement(target, node.value):
                    yield node


def names_a_value_within_an_expression(nodes: Nodes) -> Iterator[Place]:
    """Find `:=` in arguments, lambdas, comprehensions and literals."""
    named = [node for node in nodes if isinstance(node, ast.NamedExpr)]
    parents: dict[ast.AST, ast.AST] = {}
    if named:
        parents = {child: node for node in walk(nodes[0]) for child in ast.iter_child_nodes(node)}
    yield from (node for node in named if _is_hidden(node, parents))


def has_an_expression_for_a_statement(nodes: Nodes) -> Iterator[Place]:
    """Find `f() if x else g()`, `x or f()` and comprehensions as statements."""
    for node in nodes:
        if isinstance(node, ast.Expr):
            value = node.value.value if isinstance(node.value, ast.Await) else node.value
            if isinstance(value, ast.IfExp | ast.BoolOp | ast.ListComp | ast.SetComp):
                yield node


def chooses_what_it_calls(nodes: Nodes) -> Iterator[Place]:
    """Find `(f if x else g)()`."""
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.IfExp | ast.BoolOp):
            yield node


def nests_conditional_expressions(nodes: Nodes) -> Iterator[Place]:
    """Find `a if x else b if y else c`, also with the inner one in an argument."""
    for node in nodes:
        if isinstance(node, ast.IfExp):
            parts = [inner for inner in ast.walk(node) if inner is not node]
            if any(isinstance(inner, ast.IfExp) for inner in parts):
                yield node


def iterates_over_a_string(nodes: Nodes) -> Iterator[Place]:
    """Find `for _ in "123"`, `[*"abc"]`, `zip("ab", …)` and parameters of tests as a string."""
    for node in nodes:
        iterated: list[ast.expr] = []
        if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            iterated = [node.iter]
        elif isinstance(node, ast.Starred):
            iterated = [node.value]
        elif isinstance(node, ast.Call) and path_of(node.func) in _ITERATING:
            iterated = node.args
        elif isinstance(node, ast.Call) and _name_of(node.func) == "parametrize":
            iterated = node.args[1:]
        yield from (value for value in iterated if _is_text(value))


def unpacks_a_literal_into_a_literal(nodes: Nodes) -> Iterator[Place]:
    """Find `[*("a", "b"), "c"]`, `f(*(1, 2))` and `{**{"a": 1}}`."""
    for node in nodes:
        if isinstance(node, ast.Starred) and _is_literal(node.value):
            yield node
        elif isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            yield from (value for key, value in pairs if key is None and _is_dict(value))


def unpacks_a_conditional_expression(nodes: Nodes) -> Iterator[Place]:
    """Find `[*(a if x else b)]`, `f(*(a if x else b))`, `f(**(…))` and `{**(…)}`."""
    for node in nodes:
        unpacked: list[ast.expr] = []
        if isinstance(node, ast.Starred):
            unpacked = [node.value]
        elif isinstance(node, ast.Call):
            unpacked = [each.value for each in node.keywords if each.arg is None]
        elif isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            unpacked = [value for key, value in pairs if key is None]
        yield from (value for value in unpacked if isinstance(value, ast.IfExp))


def asserts_several_facts(nodes: Nodes) -> Iterator[Place]:
    """Find `assert (a, b) == (1, 2)`, also of lists and inside a larger condition."""
    for node in nodes:
        if isinstance(node, ast.Assert):
            for compared in ast.walk(node.test):
                if isinstance(compared, ast.Compare) and _compares_literals(compared):
                    yield node


def asserts_a_chain(nodes: Nodes) -> Iterator[Place]:
    """Find `assert a == b != c` and `assert a == b == c`, but not bounds as in `0 < a <= 9`."""
    bounds = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
    for node in nodes:
        if isinstance(node, ast.Assert):
            for compared in ast.walk(node.test):
                operators = compared.ops if isinstance(compared, ast.Compare) else []
                is_chain = len(operators) > 1
                if is_chain and not all(isinstance(each, bounds) for each in operators):
                    yield node


def writes_several_rows_on_a_line(nodes: Nodes) -> Iterator[Place]:
    """Find rows of `parametrize` that do not begin a line."""
    for node in nodes:
        if isinstance(node, ast.Call) and _name_of(node.func) == "parametrize":
            for rows in node.args[1:]:
                for before, row in pairwise(_elements_of(rows)):
                    if row.lineno == before.end_lineno and not _is_scalar(row):
                        yield row


def calls_a_special_method_in_a_lambda(nodes: Nodes) -> Iterator[Place]:
    """Find `lambda: found.__setitem__(key, value)`, which is a statement."""
    for node in nodes:
        if isinstance(node, ast.Lambda):
            for called in ast.walk(node.body):
                if isinstance(called, ast.Call) and _name_of(called.func).startswith("__"):
                    yield node


RULES: tuple[Rule, ...] = (
    assigns_unrelated_values,
    names_a_value_within_an_expression,
    has_an_expression_for_a_statement,
    chooses_what_it_calls,
    nests_conditional_expressions,
    iterates_over_a_string,
    unpacks_a_literal_into_a_literal,
    unpacks_a_conditional_expression,
    asserts_several_facts,
    asserts_a_chain,
    writes_several_rows_on_a_line,
    calls_a_special_method_in_a_lambda,
)


def _needs_one_statement(target: ast.expr, value: ast.Tuple | ast.List) -> bool:
    """Return whether separate statements would do something else, as in `a, b = b, a`."""
    assert isinstance(target, ast.Tuple | ast.List)
    if len(target.elts) != len(value.elts):
        return True
    assigned: set[str] = set()
    for name, source in zip(target.elts, value.elts, strict=True):
        parts = ast.walk(source)
        if any(isinstance(part, ast.expr) and ast.unparse(part) in assigned for part in parts):
            return True
        assigned.add(ast.unparse(name))
    return False


def _is_hidden(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> bool:
    hiding = (
        ast.keyword,
        ast.Lambda,
        ast.comprehension,
        ast.ListComp,
        ast.SetComp,
        ast.DictComp,
        ast.GeneratorExp,
        ast.Tuple,
        ast.List,
        ast.Set,
        ast.Dict,
        ast.JoinedStr,
        ast.Subscript,
    )
    while not isinstance(node, ast.stmt):
        parent = parents[node]
        if isinstance(parent, hiding) or (isinstance(parent, ast.Call) and node in parent.args):
            return True
        node = parent
    return False


def _compares_literals(node: ast.Compare) -> bool:
    pairs = pairwise([node.left, *node.comparators])
    return any(len(_elements_of(left)) > 1 and _is_literal(right) for left, right in pairs)


def _is_literal(node: ast.AST) -> bool:
    return isinstance(node, ast.Tuple | ast.List | ast.Set)


def _elements_of(node: ast.AST) -> list[ast.expr]:
    return node.elts if isinstance(node, ast.Tuple | ast.List | ast.Set) else []


def _is_dict(node: ast.AST) -> bool:
    return isinstance(node, ast.Dict)


def _is_scalar(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant | ast.Name | ast.Attribute | ast.UnaryOp)


def _is_text(node: ast.AST) -> bool:
    """Return whether the node is a string, or a part of one as in `"abc"[:2]`."""
    if isinstance(node, ast.Subscript):
        return _is_text(node.value)
    return isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)


def _name_of(node: ast.AST) -> str:
    """Return the last name of `a`, `a.b` or `a.b.c`, "" for other expressions."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
