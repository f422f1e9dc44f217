"""No code from a file, ever: files that would run something when unpickled, imported or evaluated are read by
everything that reads files, and nothing runs."""

import io
import json
import pickle
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tiny import prepared, recipe

from bertsmith import config
from bertsmith.commands import pretrain
from bertsmith.data.corpus.corpus import Corpus
from bertsmith.data.shards.shards import Shards
from bertsmith.errors import BertsmithError
from bertsmith.inference.load import load
from bertsmith.recipe import Recipe
from bertsmith.text.tokenizer import Tokenizer
from bertsmith.train import checkpoint


class Bomb:
    """Unpickled, it writes a file."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return exec, (f"open({str(self.mark)!r}, 'w').close()",)


def _zipped(mark: Path) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(Bomb(mark)))
        archive.writestr("../../escaped.py", f"open({str(mark)!r}, 'w')")
    return stream.getvalue()


def _tarred(mark: Path) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        entry = tarfile.TarInfo("../../escaped.pkl")
        data = pickle.dumps(Bomb(mark))
        entry.size = len(data)
        archive.addfile(entry, io.BytesIO(data))
    return stream.getvalue()


def _torch(mark: Path) -> bytes:
    stream = io.BytesIO()
    torch.save(Bomb(mark), stream)
    return stream.getvalue()


def _python(mark: Path) -> bytes:
    return f"open({str(mark)!r}, 'w').close()".encode()


def _config(mark: Path) -> bytes:
    words = {"auto_map": {"AutoModel": "code.Model", "AutoTokenizer": ["code.T", None]}, "trust_remote_code": True}
    return json.dumps({**words, "model_type": "bert", "architectures": ["code.Model"]}).encode()


PAYLOADS: dict[str, Callable[[Path], bytes]] = {
    "pickle": lambda mark: pickle.dumps(Bomb(mark)),
    "old pickle": lambda mark: pickle.dumps(Bomb(mark), protocol=0),
    "torch file": _torch,
    "zip": _zipped,
    "tar": _tarred,
    "python": _python,
    "config": _config,
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("payloads")
    pretrain.pretrain(recipe(prepared(folder), folder / "run", "train.steps=2"))
    (folder / "run/model/MANIFEST.json").unlink()  # else its hashes would refuse a file before anything reads it
    pieces = folder / "pieces"  # as they were first published
    pieces.mkdir()
    (pieces / "spiece.model").touch()
    (pieces / "byte_pairs").mkdir()
    for name in ("vocab.json", "merges.txt"):
        (pieces / "byte_pairs" / name).write_text("{}")
    (pieces / "words").mkdir()
    (pieces / "words/vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n")
    for name in ("added_tokens.json", "special_tokens_map.json"):
        (pieces / "words" / name).write_text("{}")
    return folder


# What is replaced, and what then reads it.
READERS: dict[str, Callable[[Path], object]] = {
    "run/model/config.json": lambda folder: load(folder / "run/model"),
    "run/model/model.safetensors": lambda folder: load(folder / "run/model"),
    "run/model/tokenizer.json": lambda folder: load(folder / "run/model"),
    "run/model/tokenizer_config.json": lambda folder: Tokenizer.load(folder / "run/model"),
    "pieces/spiece.model": lambda folder: Tokenizer.load(folder / "pieces"),
    "pieces/byte_pairs/*": lambda folder: Tokenizer.load(folder / "pieces/byte_pairs"),
    "pieces/words/*": lambda folder: Tokenizer.load(folder / "pieces/words"),
    "run/checkpoints/*/model.safetensors": lambda folder: checkpoint.load_newest(folder / "run/checkpoints"),
    "run/checkpoints/*/state.json": lambda folder: checkpoint.load_newest(folder / "run/checkpoints"),
    "run/checkpoints/*/MANIFEST.json": lambda folder: checkpoint.load_newest(folder / "run/checkpoints"),
    "run/recipe.toml": lambda folder: config.read(folder / "run/recipe.toml", Recipe),
    "data/train/index.json": lambda folder: Shards(folder / "data/train").verify(),
    "data/train/000000.tokens": lambda folder: Shards(folder / "data/train").verify(),
    "text.txt": lambda folder: list(Corpus([str(folder / "text.txt")]).documents()),
}


@pytest.mark.parametrize("target", READERS)
@pytest.mark.parametrize("payload", PAYLOADS)
def test_nothing_in_a_file_is_run(finished: Path, tmp_path: Path, target: str, payload: str) -> None:
    import shutil

    folder, mark = tmp_path / "copy", tmp_path / "it-ran"
    shutil.copytree(finished, folder)
    for path in folder.glob(target):
        path.write_bytes(PAYLOADS[payload](mark))
        (path.parent / "code.py").write_bytes(_python(mark))
        (path.parent / "pytorch_model.bin").write_bytes(_torch(mark))
    refused = ""  # refused is as good as read, if it is told in one line
    try:
        READERS[target](folder)
    except BertsmithError as error:
        refused = str(error)
    assert "\n" not in refused
    assert not mark.exists()
    assert not (tmp_path.parent / "escaped.py").exists()


def test_the_payloads_do_run_where_files_are_trusted(tmp_path: Path) -> None:
    """Else the tests above would prove nothing."""
    for name, make in PAYLOADS.items():
        mark = tmp_path / name
        if name in ("pickle", "old pickle"):
            pickle.loads(make(mark))  # noqa: S301
            assert mark.exists()
        if name == "torch file":
            torch.load(io.BytesIO(make(mark)), weights_only=False)
            assert mark.exists()


def test_a_recipe_cannot_name_code(tmp_path: Path) -> None:
    path = Path(__file__).resolve().parents[2] / "src" / "bertsmith" / "recipes" / "bert-base.toml"
    for kind in ("os:system", "bertsmith.objectives.masked:MaskedLM", "__import__('os').system('true')"):
        with pytest.raises(BertsmithError, match="unknown kind"):
            config.read(path, Recipe, [f"objective.kind={kind}"])
