"""ELMo's features compared with static word vectors: the same tagger on both, pretrained on the same text, in one run.

    python bench/elmo.py TEXT DATA [--minutes 10] [--out bench/results/elmo-cpu.json]

TEXT, plain or compressed, is cut to a number of characters and split into words once; word2vec and ELMo are trained on
the same words, with the same vocabulary and width. DATA is CoNLL-2003's folder. The tagger is the same Bi-LSTM for all,
`bertsmith finetune --task features`, on frozen vectors; the score is the entity F1 on eng.testa after the last step, as
a mean over seeds. Rows: word2vec's vectors; ELMo's character layer, its last layer, and the scalar mix of all layers.
With --sst2, the same for text classification on SST-2.
"""

import argparse
import lzma
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from record import code, record

from bertsmith import config
from bertsmith.commands import prepare, pretrain
from bertsmith.data.corpus.corpus import Corpus
from bertsmith.data.corpus.word_ids import WordIds
from bertsmith.data.shards.shards import Shards
from bertsmith.models.hf import folder as folders
from bertsmith.models.static import StaticConfig
from bertsmith.models.word2vec import Word2Vec, Word2VecConfig
from bertsmith.objectives.word2vec_blocks import NegativeSamplingConfig
from bertsmith.recipe import EXTENTS, Recipe
from bertsmith.runs import finetuning, task_recipe
from bertsmith.text.tokenizer import Tokenizer, TokenizerConfig
from bertsmith.train import hardware
from bertsmith.train.display import Display
from bertsmith.train.word2vec import Word2VecTrainConfig, Word2VecTrainer


def cut(texts: list[str], most: int, path: Path) -> None:
    """The first `most` characters, one sentence per line and a blank line after each document."""
    taken = 0
    with path.open("w", encoding="utf-8") as file:
        for document in Corpus(texts).documents():
            taken += file.write("\n".join(document.sentences) + "\n\n")
            if taken > most:
                return


def prepared(options: argparse.Namespace) -> Path:
    """Whole words, capitals kept, and the text by their numbers."""
    place = options.folder
    if not (place / "data").is_dir():
        place.mkdir(parents=True, exist_ok=True)
        cut(options.text, options.characters, place / "text.txt")
        text = [str(place / "text.txt")]
        words = TokenizerConfig(kind="words", vocabulary=options.vocabulary, lowercase=False)
        prepare.tokenizer(text, place / "words", words, layout="lines")
        prepare.prepare(text, place / "data", place / "words", validation_share=0.02, layout="lines")
    return place / "data"


def elmo(data: Path, options: argparse.Namespace) -> tuple[Path, dict[str, Any]]:
    """An ELMo pretrained for a number of minutes."""
    values: dict[str, Any] = {
        "out": str(options.folder / "elmo"),
        "model": {
            "kind": "elmo-small",
            "filters": [32, 32, 64, 64, 64],
            "hidden": 2 * options.width,
            "width": options.width,
            "max_characters": 32,
            "dropout": 0.0,
        },
        "objective": {"kind": "bilm", "sampled_softmax": 1_024},
        "data": {"folder": str(data), "max_length": 32, "batch_tokens": options.tokens, "validation_tokens": 8_192},
        "optimizer": {"learning_rate": 4e-3, "betas": [0.9, 0.98]},
        "schedule": {"kind": "trapezoid", "warmup": 0.02, "cooldown": 0.5},
        "train": {"budget": f"{options.minutes * 60:.0f}s", "evaluations": 4, "checkpoints": 2, "compile": "never"},
    }
    recipe = config.build(config.override(values, options.change, EXTENTS), Recipe, "bench")
    model = recipe.out / "model"
    kept = options.folder / "elmo.json"
    if not model.is_dir():
        figures = pretrain.pretrain(recipe)
        pretrain.files.write_json(kept, {name: float(figure) for name, figure in figures.items()})
    return model, {**pretrain.files.read_json(kept), "recipe": config.dump(recipe)}


def numbered(shards: Shards, tokenizer: Tokenizer) -> tuple[WordIds, np.ndarray]:
    """The text that the ELMo reads, as word2vec reads one; and which of its words is which piece."""
    ids = shards.gather(np.zeros(1, np.int64), np.array([shards.tokens]))
    counts = np.bincount(ids, minlength=tokenizer.vocabulary)
    order = np.argsort(-counts, kind="stable")
    order = order[counts[order] > 0]
    numbers = np.zeros(tokenizer.vocabulary, np.int32)
    numbers[order] = np.arange(len(order), dtype=np.int32)
    words = [tokenizer.piece(int(number)) for number in order]
    bounds = np.concatenate(([0], shards.sentence_ends)).astype(np.int64)
    return WordIds(words, counts[order], numbers[ids], np.unique(bounds), len(ids)), order


def static(data: Path, options: argparse.Namespace) -> tuple[Path, dict[str, Any]]:
    """Word2vec's vectors of the same words, as a folder that features are read from."""
    tokenizer, place = Tokenizer.load(data / "tokenizer"), options.folder / "static"
    kept, began = options.folder / "static.json", time.perf_counter()
    settings = Word2VecConfig(kind="skip-gram", width=options.width)
    if not place.is_dir():
        text, order = numbered(Shards(data / "train"), tokenizer)
        model = Word2Vec.initialise(settings, len(text.words), 0, hardware.select_device(options.device))
        how = Word2VecTrainConfig(epochs=options.epochs, checkpoints=0)
        with Display("word2vec") as display:
            trainer = Word2VecTrainer(
                model, text, NegativeSamplingConfig(), how, folder=options.folder / "vectors", display=display
            )
            trainer.fit()
        table = torch.zeros(tokenizer.vocabulary, options.width)
        table[torch.from_numpy(order)] = model.inputs.cpu()
        with folders.atomic_folder(place) as folder:
            shape = StaticConfig(vocabulary=tokenizer.vocabulary, width=options.width)
            folders.write(folder, shape, {"trunk.embedding.weight": table})
            tokenizer.save(folder)
        took = round(time.perf_counter() - began, 1)
        pretrain.files.write_json(kept, {"epochs": options.epochs, "loss": trainer.loss, "seconds": took})
    return place, pretrain.files.read_json(kept)


def shortened(source: Path, sentences: int, place: Path) -> Path:
    """The first sentences of a CoNLL file."""
    text = lzma.decompress(source.read_bytes()).decode() if source.suffix == ".xz" else source.read_text("utf-8")
    parts = text.split("\n\n")
    place.write_text("\n\n".join(parts[:sentences] if sentences else parts) + "\n", encoding="utf-8")
    return place


def tagged(model: Path, layers: str, data: Path, name: str, options: argparse.Namespace) -> dict[str, Any]:
    """How well the tagger does on these vectors."""
    task, place = options.task, options.folder / options.task / name  # for either data the same vectors
    own = [
        f"task.layers={layers}",
        f"task.hidden={options.hidden}",
        "task.lstm_layers=1",
        "train.checkpoints=0",
        "keep=last",
    ]
    own += [
        f"train.epochs={options.tag_epochs}",
        "train.evaluations=1",
        "data.batch_size=16",
        "optimizer.learning_rate=2e-3",
    ]
    recipe = task_recipe.build_recipe(model, data, place, dev=None, task=task, seeds=options.seeds, overrides=own)
    result = finetuning.finetune(recipe)
    headline = result["summary"][result["headline"]]
    found = [run_["metrics"][result["headline"]] for run_ in result["runs"]]
    return {"measure": result["headline"], "mean": headline["mean"], "seeds": found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", nargs="+")
    parser.add_argument("data", type=Path, help="a folder with eng.train and eng.testa, or SST-2's with --sst2")
    parser.add_argument("--folder", type=Path, default=Path("runs/bench-elmo"), help="what is there is not made again")
    parser.add_argument("--characters", type=int, default=12_000_000)
    parser.add_argument("--vocabulary", type=int, default=16_384)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--tokens", type=int, default=1_024, help="words in a batch of the ELMo")
    parser.add_argument("--change", nargs="*", default=[], help="of the ELMo's recipe, as in model.hidden=512")
    parser.add_argument("--epochs", type=float, default=5.0, help="of word2vec")
    parser.add_argument("--hidden", type=int, default=64, help="of the tagger, in either direction")
    parser.add_argument("--sentences", type=int, default=4_000, help="for the tagger to learn from; 0: all")
    parser.add_argument("--tag-epochs", type=float, default=4.0)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--sst2", action="store_true")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--note", default="", help="what a reader should know of how it was measured")
    parser.add_argument("--out", type=Path, default=Path("bench/results/elmo-cpu.json"))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    options.task = "classify_features" if options.sst2 else "features"
    data = prepared(options)
    vectors, how = static(data, options)
    model, figures = elmo(data, options)
    labelled = options.data
    if not options.sst2:
        labelled = options.folder / "conll"
        labelled.mkdir(exist_ok=True)
        for name, most in (("train", options.sentences), ("testa", 0)):
            shortened(next(options.data.glob(f"eng.{name}*")), most, labelled / f"eng.{name}")
    rows = {
        "word2vec": (vectors, "embeddings"),
        "elmo, letters alone": (model, "embeddings"),
        "elmo, last layer": (model, "last"),
        "elmo, mix": (model, "mix"),
    }
    results = {}
    for name, (place, layers) in rows.items():
        results[name] = tagged(place, layers, labelled, name.replace(", ", "-").replace(" ", "-"), options)
        print(f"{name:22s} {results[name]['measure']} {100 * results[name]['mean']:.1f}", flush=True)
    kept = ["vocabulary", "width", "minutes", "hidden", "sentences", "tag_epochs", "threads", "note"]
    if (options.folder / "text.txt").exists():  # else data that were there already may be of any length
        kept.insert(0, "characters")
    settings = {name: getattr(options, name) for name in kept}
    shards = Shards(data / "train")
    figures_of_all = {"words": shards.words, "tokens": shards.tokens, "code": code(), "word2vec": how, "elmo": figures}
    record(
        options.out,
        settings | figures_of_all | {"rows": results},
        hardware.describe(hardware.select_device(options.device)),
    )


if __name__ == "__main__":
    main()
