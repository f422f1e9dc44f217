"""A floor imports only lower floors; rooms on one floor do not import each other."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "bertsmith"
FLOORS = [
    {"config", "errors", "files", "random_bits", "recipes", "terminal"},
    {"text", "metrics"},
    {"nn", "data"},
    {"models"},
    {"objectives"},
    {"tasks"},
    {"insight"},
    {"train", "inference"},
    {"serving"},
    {"recipe"},
    {"runs"},
    {"commands"},
    {"cli"},
    {"__main__", "__init__"},
]
LEVEL = {room: level for level, rooms in enumerate(FLOORS) for room in rooms}


def imports(path: Path) -> Iterator[tuple[str, str]]:
    """Pairs of (room that imports, room imported) of one file."""
    room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module] if node.module != "bertsmith" else [f"bertsmith.{name.name}" for name in node.names]
        elif isinstance(node, ast.Import):
            names = [name.name for name in node.names]
        for name in names:
            if name.startswith("bertsmith."):
                yield room, name.split(".")[1]


def test_every_room_has_a_floor() -> None:
    rooms = {path.relative_to(SOURCE).parts[0].removesuffix(".py") for path in SOURCE.rglob("*.py")}
    assert rooms <= set(LEVEL), f"no floor for {rooms - set(LEVEL)}"


@pytest.mark.slow("parses every file")
def test_imports_only_go_downwards() -> None:
    wrong = [
        f"{path.relative_to(SOURCE)} imports {imported}"
        for path in SOURCE.rglob("*.py")
        for room, imported in imports(path)
        if room != imported and LEVEL[room] <= LEVEL[imported] and not (LEVEL[room] == LEVEL[imported] == 0)
    ]
    assert not wrong, wrong


def test_networks_never_see_a_tokenizer() -> None:
    wrong = [
        path.name
        for room in ("nn", "models")
        for path in (SOURCE / room).rglob("*.py")
        if "tokenizer" in dict.fromkeys(name for _, name in imports(path))
        or "text" in {name for _, name in imports(path)}
    ]
    assert not wrong, wrong


MODULES = {"pickle", "_pickle", "marshal", "shelve", "dill", "joblib", "cloudpickle", "yaml", "imp"}
CALLS = {"eval", "exec", "compile", "__import__", "torch.load", "runpy.run_path", "runpy.run_module"}
# An argument, and its only value: what numpy, torch and transformers would run code for with another.
ARGUMENTS = {"allow_pickle": "False", "weights_only": "True", "trust_remote_code": "False"}


def runs_code(text: str) -> Iterator[str]:
    """Whatever in a source file would run code out of a file that it reads."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = getattr(node, "module", None) or ""
            names = [module, *(name.name for name in node.names)]
            if MODULES & {name.split(".")[0] for name in names}:
                yield f"{node.lineno} imports {names}"
            if module in ("torch", "numpy") and {"load", "lib"} & {name.name for name in node.names}:
                yield f"{node.lineno} imports {module}.load"
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called in CALLS:
                yield f"{node.lineno} {called}"
            if called in ("np.load", "numpy.load") and "allow_pickle" not in {word.arg for word in node.keywords}:
                yield f"{node.lineno} {called} without allow_pickle=False"
            for word in node.keywords:
                if word.arg in ARGUMENTS and ast.unparse(word.value) != ARGUMENTS[word.arg]:
                    yield f"{node.lineno} {called}({word.arg}={ast.unparse(word.value)})"


@pytest.mark.slow("parses every file")
def test_no_file_unpickles_or_evaluates() -> None:
    """No code from a file, ever: neither pickle nor eval nor torch.load stand anywhere in the source."""
    wrong = [
        f"{path.name}:{found}" for path in SOURCE.rglob("*.py") for found in runs_code(path.read_text(encoding="utf-8"))
    ]
    assert not wrong, wrong


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "from pickle import loads",
        "import joblib.memory",
        "eval(text)",
        "torch.load(path)",
        "torch.load(path, weights_only=True)",
        "from torch import load",
        "np.load(path)",
        "np.load(path, None, True)",
        "np.load(path, allow_pickle=True)",
        "np.load(path, allow_pickle=not safe)",
        "numpy.load(path, mmap_mode='r')",
        "np.lib.format.read_array(file, allow_pickle=True)",
        "AutoModel.from_pretrained(folder, trust_remote_code=True)",
    ],
)
def test_a_line_that_runs_code_from_a_file_is_seen(line: str) -> None:
    assert list(runs_code(line))


def test_an_array_may_be_read_where_nothing_is_unpickled() -> None:
    assert not list(runs_code("np.load(path, mmap_mode='r', allow_pickle=False)\nnp.fromfile(path, '<i8')"))


def test_every_final_objective_stands_in_the_table() -> None:
    from bertsmith.objectives import OBJECTIVES

    table, abstract = {entry.__name__ for entry in OBJECTIVES.values()}, {"Pretraining", "LanguageModel"}
    found = set()
    for path in (SOURCE / "objectives").glob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and (abstract | table) & {ast.unparse(base) for base in node.bases}:
                found.add(node.name)
    assert found - abstract == table
