"""networkx's graph classes without its algorithms. In processes of their own, because an import happens once."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY

BEGIN = "import sys\nfrom gecli.ir.networkx_core import CLASS_MODULE, load_networkx_core\n"
CORE = BEGIN + "assert load_networkx_core()\nimport networkx\nheld = networkx.MultiDiGraph\n"


def printed(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True
    ).stdout


def test_a_graph_needs_no_algorithms() -> None:
    code = """
from gecli.ir.graph import Graph
from gecli.ir.op_desc import OpDesc, Port
from gecli.ir.dtype import DataType
from gecli.ir.tensor_desc import TensorDesc
graph = Graph("g")
first = graph.add(OpDesc("a", "Data", output_descs=[TensorDesc(DataType.FLOAT, (1,))]))
second = graph.create("Relu", "b")
graph.connect(Port(first, 0), second, 0)
graph.rename(second, "c")
print(list(graph.networkx.edges(keys=True)), "networkx.algorithms" in sys.modules)
"""
    assert printed(CORE + code) == "[('a', 'c', ('d', 0, 0))] False\n"


@pytest.mark.parametrize(
    "use",
    [
        "print(len(list(networkx.topological_sort(networkx.DiGraph([(1, 2)])))))",
        "from networkx import descendants; print(len(descendants(held([(1, 2), (2, 3)]), 1)))",
        "from networkx import *; print(len(path_graph(2)))",
        "print(2 if networkx.config.backend_priority is not None else 0)",
        "import networkx.algorithms.shortest_paths.generic as g; print(2 if g.has_path(held([(1, 2)]), 1, 2) else 0)",
        "from networkx.generators import path_graph; print(len(path_graph(2)))",
        "print(2 if networkx.__path__ and hasattr(networkx, 'pagerank') else 0)",
    ],
)
def test_the_rest_comes_when_a_name_of_it_is_used(use: str) -> None:
    assert printed(CORE + use + "\nassert networkx.MultiDiGraph is held") == "2\n"


@pytest.mark.parametrize(
    "before",
    [
        "import networkx",
        "import gecli.ir.networkx_core as core; core.CLASS_MODULE = 'networkx.classes.elsewhere'",
        "import gecli.ir.networkx_core as core; core._SHARED_NAMES = ('_dispatch',)",
        "import importlib.metadata as m; m.entry_points = lambda group: "
        "[m.EntryPoint('other', 'builtins:dict', group)]",
    ],
    ids=["loaded before", "other modules", "other names", "a backend"],
)
def test_without_the_shortcut_networkx_is_imported_as_ever(before: str) -> None:
    code = (
        "print(load_networkx_core())\nimport networkx\nprint(networkx.MultiDiGraph.__name__, networkx.dag_longest_path)"
    )
    first, second = printed(f"{BEGIN}{before}\n{code}").splitlines()
    assert first == "False"
    assert second.startswith("MultiDiGraph <function dag_longest_path")


def test_no_thread_sees_half_a_package() -> None:
    code = """
from threading import Barrier, Thread
sys.setswitchinterval(1e-6)
barrier, found = Barrier(8), []
def use(name):
    barrier.wait()
    found.append(hasattr(networkx, name))
names = ["pagerank", "write_graphml", "path_graph", "dag_longest_path"] * 2
threads = [Thread(target=use, args=(name,)) for name in names]
for each in threads: each.start()
for each in threads: each.join()
print(found == [True] * 8, type(networkx).__name__)
"""
    assert printed(CORE + code) == "True module\n"


def test_a_name_that_the_package_lacks_is_an_attribute_error() -> None:
    use = "print(hasattr(networkx, 'no_such_name'), hasattr(networkx, 'pagerank'), type(networkx).__name__)"
    assert printed(f"{CORE}{use}") == "False True module\n"
