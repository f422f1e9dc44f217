"""A translation task that is learnt in seconds: letters to be copied, or reversed."""

from pathlib import Path

import numpy as np

LETTERS, MOST = list("abcde"), 4


def letters(folder: Path, train: int = 3_000, dev: int = 100) -> Path:
    """Two pairs of files, train.src and train.tgt, dev.src and dev.tgt."""
    folder.mkdir(parents=True, exist_ok=True)
    for seed, (name, count) in enumerate((("train", train), ("dev", dev))):
        dice = np.random.default_rng(seed)
        rows = [dice.choice(LETTERS, size).tolist() for size in dice.integers(1, MOST + 1, count)]
        turned = dice.integers(0, 2, count).tolist()
        read = [" ".join(("back" if back else "same", *row)) for back, row in zip(turned, rows, strict=True)]
        said = [" ".join(row[::-1] if back else row) for back, row in zip(turned, rows, strict=True)]
        (folder / f"{name}.src").write_text("\n".join(read) + "\n", encoding="utf-8")
        (folder / f"{name}.tgt").write_text("\n".join(said) + "\n", encoding="utf-8")
    return folder
