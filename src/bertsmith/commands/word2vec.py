"""`word2vec`: train word vectors; `similar` and `analogy`: query and evaluate them."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bertsmith import terminal
from bertsmith.config import build
from bertsmith.data.corpus.corpus import Corpus
from bertsmith.data.corpus.word_ids import encode_words
from bertsmith.errors import TextError
from bertsmith.inference.word_vectors import KeyedVectors, Method, Neighbour, read_analogies, read_word_pairs
from bertsmith.models import word2vec, word_vectors
from bertsmith.models.word2vec import Word2Vec, Word2VecConfig
from bertsmith.models.word_vectors import WordVectors
from bertsmith.objectives.word2vec_blocks import NegativeSamplingConfig
from bertsmith.recipe import settle
from bertsmith.train import hardware
from bertsmith.train.clock import format_duration
from bertsmith.train.display import Display
from bertsmith.train.lock import Lock
from bertsmith.train.word2vec import Word2VecTrainConfig, Word2VecTrainer

CONSOLE = terminal.console()
MAY_CHANGE = frozenset(
    {"out", "train.epochs", "train.budget", "train.device", "train.checkpoints", "train.keep_checkpoints"}
)


@dataclass(frozen=True, kw_only=True)
class Word2VecRecipe:
    """The recipe of a word2vec run."""

    out: Path
    min_count: int = 5  # rarer words have no vector
    lowercase: bool = True
    model: Word2VecConfig = field(default_factory=Word2VecConfig)
    sampling: NegativeSamplingConfig = field(default_factory=NegativeSamplingConfig)
    train: Word2VecTrainConfig = field(default_factory=Word2VecTrainConfig)


def build_recipe(out: Path, **values: Any) -> Word2VecRecipe:
    """The recipe of the options on the command line; a wrong value is reported in one line."""
    return build({"out": str(out), **values}, Word2VecRecipe, "word2vec")


def train_vectors(
    texts: Sequence[str], recipe: Word2VecRecipe, *, as_text: bool = False, **reading: Any
) -> dict[str, float]:
    """Train word2vec on a text, or resume the training, and write a model folder."""
    with Lock(recipe.out):
        settle(recipe, MAY_CHANGE)
        corpus = Corpus(texts, **reading)
        with CONSOLE.status("counting words"):
            sentences = (sentence for document in corpus.documents() for sentence in document.sentences)
            text = encode_words(sentences, min_count=recipe.min_count, lowercase=recipe.lowercase)
        for line in corpus.new_notes():
            CONSOLE.print(f"text: {line}")
        CONSOLE.print(
            f"{text.total_words:,} words, {len(text.words):,} of which occur {recipe.min_count} times or more"
        )
        device = hardware.select_device(recipe.train.device)
        model = Word2Vec.initialise(recipe.model, len(text.words), recipe.train.seed, device)
        with Display("word2vec") as display:
            trainer = Word2VecTrainer(model, text, recipe.sampling, recipe.train, folder=recipe.out, display=display)
            figures = trainer.fit()
        word2vec.write(recipe.out / "model", model, text.words, text.counts)
        if as_text:
            vectors = WordVectors(text.words, model.inputs.cpu().numpy())
            word_vectors.write(recipe.out / "vectors.txt", vectors, "text")
        count = terminal.count_of(len(text.words), "vector")
        CONSOLE.print(f"{count} in {recipe.out / 'model'}, {format_duration(figures['seconds'])}")
    return figures


def similar(model: Path, words: Sequence[str], *, pairs_file: Path | None, top_k: int, as_json: bool) -> None:
    """The most similar words of each word; and the correlation with a file of human similarity ratings."""
    _check_given(words, pairs_file, "bertsmith similar --pairs")
    vectors = KeyedVectors(word2vec.load_vectors(model))
    for word in words:
        _show({"word": word}, vectors.most_similar(word, top_k), as_json)
    if pairs_file is not None:
        correlation = vectors.evaluate_pairs(read_word_pairs(pairs_file))
        line = f"correlation {correlation.correlation:.3f} over {correlation.found:,} of {correlation.pairs:,} pairs"
        _print_result({"file": str(pairs_file), **asdict(correlation)}, line, as_json)


def analogy(
    model: Path, words: Sequence[str], *, questions_file: Path | None, method: Method, top_k: int, as_json: bool
) -> None:
    """Solve word - minus + plus (king - man + woman = queen); and the accuracy on a file of analogies."""
    if words and len(words) != 3:
        raise TextError("words", f"an analogy has 3 words, not {len(words)}", "For example: king man woman")
    _check_given(words, questions_file, "bertsmith analogy --questions")
    vectors = KeyedVectors(word2vec.load_vectors(model))
    if words:
        word, minus, plus = words
        neighbours = vectors.analogy(word, minus, plus, top_k, method)
        _show({"word": word, "minus": minus, "plus": plus}, neighbours, as_json)
    if questions_file is not None:
        answered = vectors.evaluate_analogies(read_analogies(questions_file), method)
        lines = [f"{share:6.1%}  {group}" for group, share in answered.groups.items()]
        whole = f"of {answered.found:,} of {answered.questions:,} questions, those with all words in the vocabulary"
        lines.append(f"{answered.accuracy:6.1%}  {whole}")
        _print_result({"file": str(questions_file), **answered.to_dict()}, "\n".join(lines), as_json)


def _check_given(words: Sequence[str], file: Path | None, command: str) -> None:
    if not words and file is None:
        raise TextError("words", "none are given", f"Give some, or a file: {command} FILE")


def _show(query: dict[str, str], neighbours: list[Neighbour], as_json: bool) -> None:
    if not as_json:
        CONSOLE.print(f"\n{' '.join(query.values())}", style="bold")
    lines = "\n".join(f"  {one.score:.3f}  {one.word}" for one in neighbours)
    _print_result({**query, "found": [asdict(one) for one in neighbours]}, lines, as_json)


def _print_result(record: dict[str, Any], line: str, as_json: bool) -> None:
    if as_json:
        print(terminal.json_line(record), flush=True)
    else:
        CONSOLE.print(line)
