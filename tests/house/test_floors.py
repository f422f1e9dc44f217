"""A floor imports only lower floors; rooms on one floor do not import each other."""

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src" / "bertsmith"
FLOORS = [
    {"config", "errors", "recipes", "terminal"},
    {"text"},
    {"nn", "data"},
    {"models"},
    {"objectives"},
    {"tasks"},
    {"train", "use", "insight"},
    {"serve"},
    {"recipe"},
    {"choose", "start", "story", "lesson"},
    {"kit"},
    {"prepare", "run", "tune", "apply", "look", "words"},
    {"suites", "maker"},
    {"measures", "entrants"},
    {"race"},
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
        for path in (SOURCE / room).glob("*.py")
        if "tokenizer" in dict.fromkeys(name for _, name in imports(path))
        or "text" in {name for _, name in imports(path)}
    ]
    assert not wrong, wrong


def test_no_file_unpickles_or_evaluates() -> None:
    """No code from a file, ever: neither pickle nor eval nor torch.load stand anywhere in the source."""
    wrong = []
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [name.name for name in node.names] + [getattr(node, "module", None) or ""]
                if {"pickle", "marshal", "shelve", "dill", "joblib", "cloudpickle", "yaml"} & {
                    name.split(".")[0] for name in names
                }:
                    wrong.append(f"{path.name}:{node.lineno}")
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                if called in {"eval", "exec", "torch.load", "compile", "__import__"}:
                    wrong.append(f"{path.name}:{node.lineno} {called}")
    assert not wrong, wrong


def test_every_final_objective_stands_in_the_table() -> None:
    from bertsmith.objectives import OBJECTIVES

    table = {entry.__name__ for entry in OBJECTIVES.values()}
    found = set()
    for path in (SOURCE / "objectives").glob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and {"Unlabelled", *table} & {ast.unparse(base) for base in node.bases}:
                found.add(node.name)
    assert found == table
