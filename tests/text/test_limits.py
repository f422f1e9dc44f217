"""A small tokenizer file cannot cost much: rules that make texts far longer are refused before they are applied."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from pace import pace, work
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors

from bertsmith.errors import FolderError
from bertsmith.text.limits import MAX_GROWTH
from bertsmith.text.tokenizer import Tokenizer, TokenizerConfig, train

Replace = normalizers.Replace


def made(folder: Path, **parts: Any) -> Path:
    inner = tokenizers.Tokenizer(models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))
    for name, part in parts.items():
        setattr(inner, name, part)
    folder.mkdir(exist_ok=True)
    inner.save(str(folder / "tokenizer.json"))
    return folder


def refused(folder: Path) -> str:
    with pytest.raises(FolderError) as caught:
        Tokenizer.load(folder)
    line = str(caught.value).replace(str(folder), "F")
    assert "\n" not in line
    assert len(line) < 500
    return line


ALLOWED = f"Take rules out of it: at most {MAX_GROWTH} times as long is opened."
CHAINS = {
    "nine rules, each a thousandfold": [Replace("a", "a" * 1000)] * 9,
    "an empty pattern": [Replace(Regex(""), "aaa")] * 9,
    "a pattern that matches between characters": [Replace(Regex("(?=a)"), "aaa")] * 9,
    "by way of Unicode's forms": [Replace("a", "ﷺ" * 5), normalizers.NFKD(), Replace("ل", "a" * 9)] * 3,
    "two characters for three": [Replace("ab", "abab")] * 9,
    "a long beginning": [normalizers.Prepend("a" * 500)],
}


@pytest.mark.slow
@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)
def test_rules_that_grow_are_refused_at_once(chain: list[Any], tmp_path: Path) -> None:
    folder = made(tmp_path, normalizer=normalizers.Sequence(chain))
    assert work(lambda: refused(folder)) < 8 * pace()
    line = refused(folder)
    assert line.startswith("F/tokenizer.json: its normalizer can make a text ")
    assert line.endswith(f" times as long. {ALLOWED}")


def test_growth_is_found_in_every_part(tmp_path: Path) -> None:
    twice = decoders.Sequence([decoders.Replace("a", "aa")] * 30)
    assert refused(made(tmp_path / "decoder", decoder=twice)) == (
        f"F/tokenizer.json: its decoder can make a text more than a billion times as long. {ALLOWED}"
    )
    bytes_of_bytes = pre_tokenizers.Sequence([pre_tokenizers.ByteLevel()] * 20)
    assert "can make a text" in refused(made(tmp_path / "bytes", pre_tokenizer=bytes_of_bytes))
    frame = processors.TemplateProcessing(single="a " * 100 + "$A", pair="$A $B", special_tokens=[("a", 0)])
    assert refused(made(tmp_path / "frame", post_processor=frame)) == (
        "F/tokenizer.json: it puts 100 special tokens around a text. At most 64 are opened."
    )
    many = normalizers.Sequence([normalizers.Lowercase()] * 300)
    assert refused(made(tmp_path / "many", normalizer=many)) == (
        "F/tokenizer.json: its normalizer has 300 rules. At most 200 are opened."
    )
    large = normalizers.Replace("a", "".join(map(chr, range(0x4E00, 0x4E00 + 20_900))))
    assert "mention" in refused(made(tmp_path / "large", normalizer=large)) or "can make" in refused(tmp_path / "large")


def test_rules_of_published_tokenizers_are_opened(tmp_path: Path) -> None:
    albert = [
        *(Replace("``", '"'), Replace("''", '"'), normalizers.NFKD(), normalizers.StripAccents()),
        *(normalizers.Lowercase(), Replace(Regex(" {2,}"), " ")),
    ]
    llama = [normalizers.Prepend("▁"), Replace(" ", "▁")]
    clip = [normalizers.NFC(), Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]
    spelt = [
        Replace(sign, words) for sign, words in {"…": "...", "½": "1/2", "№": "No.", "™": "(tm)", "€": "EUR"}.items()
    ]
    for number, chain in enumerate((albert, llama, clip, spelt, [normalizers.BertNormalizer()])):
        folder = made(tmp_path / str(number), normalizer=normalizers.Sequence(chain))
        assert Tokenizer.load(folder).vocabulary == 2


def test_a_refused_tokenizer_takes_no_memory(tmp_path: Path) -> None:
    """Nine chained rules in 13 kB took 3 GB: now less than 100 MB beyond what the program itself takes."""
    folder = made(tmp_path, normalizer=normalizers.Sequence([Replace("a", "a" * 1000)] * 9))
    assert (folder / "tokenizer.json").stat().st_size < 20_000
    script = (
        "import resource, sys\n"
        "from bertsmith.errors import FolderError\n"
        "from bertsmith.text.tokenizer import Tokenizer\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try:\n    Tokenizer.load(sys.argv[1]).encode(['a' * 1000])\n"
        "except FolderError as error:\n    pass\n"
        "else:\n    raise SystemExit(1)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    told = subprocess.run([sys.executable, "-c", script, str(folder)], capture_output=True, text=True, timeout=120)
    assert told.returncode == 0, told.stderr
    assert int(told.stdout) < 100 << 10


# --------------------------------------------------------------------------------------------------------- links


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train(["ka lo mi"] * 20, TokenizerConfig(vocabulary=100, min_frequency=1))


@pytest.mark.parametrize(
    "name", ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt", "added_tokens.json"]
)
def test_a_link_cannot_lead_out_of_its_folder(name: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "model"
    tokenizer.save(folder)
    secret = tmp_path / "secret"
    secret.write_bytes((folder / name).read_bytes() if (folder / name).exists() else b"{}")
    if name in ("vocab.txt", "added_tokens.json"):
        (folder / "tokenizer.json").unlink()
        (folder / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n")
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(secret)
    assert refused(folder) == f"F: the file '{name}' leads out of the folder. Put it inside."
    (folder / name).unlink()
    (folder / name).symlink_to(tmp_path / "nowhere" / "at all")
    assert refused(folder) == f"F: the file '{name}' leads out of the folder. Put it inside."


def test_links_of_the_hubs_cache_are_followed(tokenizer: Tokenizer, tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "models--x/blobs", tmp_path / "models--x/snapshots/abc"
    tokenizer.save(blobs)
    snapshot.mkdir(parents=True)
    for path in blobs.iterdir():
        (snapshot / path.name).symlink_to(f"../../blobs/{path.name}")
    assert Tokenizer.load(snapshot).fingerprint == tokenizer.fingerprint


def test_what_is_not_a_plain_file_or_is_too_large_is_refused(tokenizer: Tokenizer, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    tokenizer.save(folder)
    (folder / "tokenizer_config.json").unlink()
    os.mkfifo(folder / "tokenizer_config.json")
    assert refused(folder) == "F/tokenizer_config.json: is not a plain file."
    (folder / "tokenizer_config.json").unlink()
    for name, size in {"tokenizer_config.json": 1 << 30, "tokenizer.json": 1 << 40}.items():
        with (folder / name).open("wb") as file:
            file.truncate(size)
        assert refused(folder) == f"F/{name}: is larger than {16 if 'config' in name else 256} MiB."
        (folder / name).unlink()


def test_settings_that_make_no_sense_are_refused_in_one_line(tokenizer: Tokenizer, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    tokenizer.save(folder)
    for said in ("[" * 100_000, "\0", '{"pad_token": ' + "9" * 5000 + "}", "[]"):
        (folder / "tokenizer_config.json").write_text(said)
        refused(folder)
