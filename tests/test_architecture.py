"""The rules of docs/architecture.md that neither import-linter nor ruff checks."""

import ast
import re
import tomllib
from collections import Counter
from graphlib import TopologicalSorter

from tests.support.source_trees import READS_SOURCES, ROOT, modules, sources

WIDEST = 15  # Modules of a folder

pytestmark = READS_SOURCES


def imports(nodes: list[ast.AST]) -> set[str]:
    """Full names of everything that is imported, `from a import b` as both a and a.b."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def test_tests_of_the_control_plane_need_no_code_of_the_agent() -> None:
    """Its fake agent speaks the protocol by the generated code alone."""
    folders = [f"tests/{folder}controlplane" for folder in ("", "support/", "unit/")]
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    assert len(paths) > 100
    agents = re.compile(r"^\s*(?:from|import) agent\b", re.MULTILINE)
    found = [path.name for path in paths if agents.search(path.read_text("utf-8"))]
    assert found == []


def test_modules_do_not_import_in_circles() -> None:
    graph = {name: imports(nodes) & set(modules()) for name, nodes in modules().items()}
    assert list(TopologicalSorter(graph).static_order())  # raises CycleError


def test_no_two_folders_import_each_other() -> None:
    folder = {name: name.removesuffix(".__init__").rpartition(".")[0] for name in modules()}
    pairs = {
        (folder[name], folder[one])
        for name, nodes in modules().items()
        for one in imports(nodes) & set(modules())
        if folder[name] != folder[one]
    }
    assert {pair for pair in pairs if pair[::-1] in pairs} == set()


def test_folders_keep_their_width() -> None:
    names = [name for name in modules() if not name.endswith("__init__")]
    width = Counter(name.rpartition(".")[0] for name in names)
    assert {name for name, count in width.items() if count > WIDEST} == set()
    assert all(width[program] <= 4 for program in ("agent", "controlplane"))
    assert width["tiltyard"] <= 5


def test_no_module_hides_an_import() -> None:
    for name, nodes in modules().items():
        names = {node.id for node in nodes if isinstance(node, ast.Name)}
        hidden = {"importlib.import_module", "typing.TYPE_CHECKING"} & imports(nodes)
        if name == "tiltyard.records":  # it has another decorator for the type checker
            hidden.discard("typing.TYPE_CHECKING")
        assert not hidden | ({"__import__"} & names), name


def test_the_page_shows_the_layers_that_are_checked() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    picture = page.split("## Where things are")[1].split("```")[1]
    for contract in project["tool"]["importlinter"]["contracts"]:
        for container in contract.get("containers", ()):
            if "." in container:  # a folder within a layer: in one line of the picture
                chain = " ▸ ".join(line.replace(" | ", ", ") for line in contract["layers"])
                assert chain in picture, container
                continue
            layers = [each for line in contract["layers"] for each in line.split(" | ")]
            column = re.search(rf"^.*\b{container}/", picture, re.MULTILINE)
            assert column
            begin = column.group().index(f"{container}/")
            words = [line[begin:].split("  ")[0] for line in picture.splitlines()]
            shown = [each for line in words for each in re.findall(r"\w+", line)]
            assert shown[1 : len(layers)] == layers[1:], container


def test_the_environment_is_read_by_the_settings_alone() -> None:
    readers = {
        name
        for name, nodes in modules().items()
        for node in nodes
        if isinstance(node, ast.Attribute) and node.attr in {"environ", "getenv"}
    }
    settings = {"agent.settings.model", "controlplane.settings.model"}
    assert readers <= settings | {"tiltyard.runtime.systemd"}


def test_pages_that_modules_name_exist() -> None:
    pages = {path.name for path in [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")]}
    for name, text in sources().items():
        assert set(re.findall(r"[\w-]+\.md\b", text)) <= pages, name
        # measurements of a page that is not in the repository
        assert not re.findall(r"\(M\d+\b", text), name


def test_no_task_is_left_without_a_name() -> None:
    for name, nodes in modules().items():
        for node in nodes:
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("create_task"):
                assert any(word.arg == "name" for word in node.keywords), name
