"""The composition root: one function per verb. The only file that knows everyone."""

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from rich import progress as bars
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bertsmith import choose, config, story
from bertsmith.data import files
from bertsmith.data.batch import Batch
from bertsmith.data.corpus import Corpus
from bertsmith.data.feed import Feed
from bertsmith.data.pack import Pack
from bertsmith.data.plan import Pairs
from bertsmith.data.prepare import Summary
from bertsmith.data.prepare import prepare as tokenise
from bertsmith.data.shards import Shards
from bertsmith.data.streams import Streams
from bertsmith.errors import FolderError, RecipeError, RunError
from bertsmith.insight import report
from bertsmith.insight.card import Use, card
from bertsmith.insight.report import RunStory
from bertsmith.models import folder as folders
from bertsmith.models.dialects import dialect_of
from bertsmith.models.elmo import Elmo
from bertsmith.models.family import FAMILY
from bertsmith.models.networks import NetworkConfig, network
from bertsmith.models.transformer import TransformerConfig
from bertsmith.nn.attention import lacking
from bertsmith.nn.init import initialise
from bertsmith.objectives import OBJECTIVES
from bertsmith.objectives.base import Unlabelled
from bertsmith.recipe import EXTENTS, Recipe, settle
from bertsmith.start import start
from bertsmith.tasks import TASKS
from bertsmith.text import tokenizer as pieces
from bertsmith.text.extend import extend as extended
from bertsmith.text.measure import Sample, measure
from bertsmith.text.tokenizer import Tokenizer, TokenizerConfig
from bertsmith.train import checkpoint, machine
from bertsmith.train.checkpoint import Checkpoint
from bertsmith.train.clock import seconds, spoken
from bertsmith.train.display import Display
from bertsmith.train.evaluate import evaluate
from bertsmith.train.lock import Lock
from bertsmith.train.optimizers import Optimizer
from bertsmith.train.trainer import Speed, Trainer, recurs
from bertsmith.use.fill import Filled
from bertsmith.use.load import Model, load

SAY = Console(highlight=False, soft_wrap=True)
VALID_SEED = 1  # validation is masked once and for all, whatever the run's own seed
SAMPLE = 8  # batches by which the cost of a run is judged
MAY_CHANGE = frozenset(  # what a run that goes on may have otherwise than when it was begun
    {"out", "data.folder", "data.workers"}
    | {f"train.{name}" for name in ("steps", "epochs", "budget", "device", "compile", "evaluations", "saves", "keep")}
)
DEMO_BLANKS = [
    "the old man shook his [MASK] and said nothing .",
    "she opened the [MASK] and went into the room .",
    "once upon a [MASK] there was a king who had three sons .",
    "the ship sailed across the [MASK] .",
    "he put his [MASK] on her shoulder and looked into her [MASK] .",
]


def read(path: Path, overrides: Sequence[str]) -> Recipe:
    """A recipe from its file, with the changes of the command line."""
    if "task" in config.values(path):
        raise RecipeError(path, "learns from labelled examples", f"Say: bertsmith finetune {path} DATA --out DIR")
    return config.read(path, Recipe, overrides, EXTENTS)


def pretrain(recipe: Recipe) -> dict[str, float]:
    """Train what the recipe describes, from where it stands, and leave a model folder and a report."""
    with Lock(recipe.out):
        settle(recipe, MAY_CHANGE)
        tokenizer, train, valid = _data(recipe)
        device = machine.device(recipe.train.device)
        objective = _objective(recipe, tokenizer).to(device)
        *_, guesser = objective.folders.values()
        model = Model(guesser, tokenizer, str(recipe.out))
        examples = story.before(recipe, model, valid)
        batches = _validation(recipe, objective, tokenizer, valid, device)
        recorded = recurs(objective) and device.type == "cuda"
        with Display("training") as display:
            trainer = Trainer(
                objective,
                _feed(recipe, objective, tokenizer, train),
                Optimizer(objective, recipe.optimizer, hidden=objective.matrices(), capturable=recorded),
                recipe.schedule,
                recipe.train,
                folder=recipe.out,
                measure=partial(evaluate, objective, batches, valid.bytes / valid.tokens),
                precision=machine.precision(recipe.train.precision, device),
                speed=_speed(objective, device),
                display=display,
                graphs=recorded,
            )
            if trainer.compiles and device.type == "cuda" and (lack := lacking(device)):
                display.say(f"attention by torch's own kernels, not ours: {lack}")
            figures = trainer.fit()
        told = story.tell(recipe, model, trainer, train, valid, batches, examples)
        for name, part in objective.folders.items():
            _export(recipe.out / name, part, tokenizer, told)
        report.write(recipe.out / "report.html", told)
        places = {name: str(recipe.out / name) for name in objective.folders}
        places["report"] = str(recipe.out / "report.html")
        SAY.print(_facts({**told.figures, **places}))
    return figures


@dataclass(frozen=True)
class Cost:
    """What a recipe takes to train."""

    parameters: int
    flops: float  # for one token, as papers count them
    tokens: float  # in an update


def cost(recipe: Recipe) -> Cost:
    """What training takes, by the first batches. A recipe that does not fit its data is refused here already."""
    tokenizer, train, _ = _data(recipe)
    objective = _objective(recipe, tokenizer)
    feed, counts = _feed(recipe, objective, tokenizer, train), Counter[str]()
    position = feed.first()
    for _ in range(SAMPLE):
        counts.update(feed(position).counts)
        position = feed.after(position)
    return Cost(
        parameters=sum(parameter.numel() for parameter in objective.parameters()),
        flops=objective.flops(counts["squares"] / counts["tokens"]),
        tokens=counts["tokens"] / SAMPLE * recipe.train.accumulate,
    )


def export(recipe: Recipe, saved: Checkpoint, place: Path) -> None:
    """The model folders of a run as it was when it was saved."""
    tokenizer, train, valid = _data(recipe)
    objective = _objective(recipe, tokenizer)
    objective.load_state_dict(saved.tensors["model"])
    told = story.so_far(recipe, saved, train, valid, tokenizer)
    for name, part in objective.folders.items():
        _export(place / name, part, tokenizer, told)


def make(
    texts: Sequence[str], out: Path, *, budget: str = "10m", seed: int = 0, lowercase: bool = True, **reading: Any
) -> dict[str, float]:
    """From text to a trained model folder: vocabulary, shards, a recipe that fits, and the run itself."""
    began, path = time.monotonic(), out / "recipe.toml"
    whole = duration(budget)
    with Lock(out):
        _prepared(texts, out, lowercase, reading)
        if path.exists():
            SAY.print(f"going on with {path}, and with the time it has left")
        else:
            settle(_chosen(out, whole, whole - (time.monotonic() - began), seed), MAY_CHANGE)
    return pretrain(read(path, []))


def _prepared(texts: Sequence[str], out: Path, lowercase: bool, reading: dict[str, Any]) -> None:
    """A vocabulary and shards of the text, made now or found to be of the same text."""
    corpus = Corpus(texts, **reading)
    size, reason = choose.vocabulary(corpus.words)
    if not (out / "tokenizer" / "tokenizer.json").exists():
        SAY.print(f"why: {reason}")
        _train_tokenizer(corpus, TokenizerConfig(vocabulary=size, lowercase=lowercase), out / "tokenizer")
    _prepare(corpus, Tokenizer.load(out / "tokenizer"), out / "data", choose.valid_share(corpus.words))


def _chosen(out: Path, whole: float, left: float, seed: int) -> Recipe:
    """The recipe that suits the prepared text, this machine, and the time that is left of the whole."""
    device = machine.device("auto")
    gpu = device.type == "cuda"
    left -= choose.reserve(whole, gpu=gpu)
    if left < whole / 4:
        fact = f"of {spoken(whole)}, reading and preparing the text left {spoken(max(left, 0))} for training"
        raise RunError(out, fact, "Give it a longer --budget; what is prepared is kept")
    flops = machine.training_flops(device)
    choice = choose.choose(out / "data", out, budget=left, flops=flops, gpu=gpu, seed=seed)
    for reason in choice.reasons:
        SAY.print(f"why: {reason}")
    return choice.recipe


def demo(out: Path, *, budget: str = "5m") -> dict[str, float]:
    """`make` on the text in the package; then some blanks are filled, and the next steps named."""
    with resources.as_file(resources.files("bertsmith.text") / "sample" / "sample.txt.xz") as sample:
        figures = make([str(sample)], out, budget=budget, layout="lines")
    fill(out / "model", DEMO_BLANKS, top=5, as_json=False)
    SAY.print(f"""What to do next
  look at the report        {out / "report.html"}
  fill blanks of your own   bertsmith fill {out / "model"} "She looked at the [MASK] and smiled."
  use your own text         bertsmith make my-texts/ --budget 10m --out runs/mine""")
    return figures


def tokenizer(texts: Sequence[str], out: Path, settings: TokenizerConfig, **reading: Any) -> None:
    """Train a vocabulary and say how well it fits."""
    _train_tokenizer(Corpus(texts, **reading), settings, out)


def extend(texts: Sequence[str], out: Path, base: Path, more: int, **reading: Any) -> None:
    """A vocabulary with more pieces for a text, and how well it fits before and after."""
    before = Tokenizer.load(base)
    with SAY.status("learning new pieces"):
        sample = Sample(Corpus(texts, **reading).lines())
        for _ in sample:
            pass  # it keeps what it lets through
        after = extended(before, sample.kept, more)
        after.save(out)
        measures = {"before": measure(before, sample.kept), "after": measure(after, sample.kept)}
    for name, found in measures.items():
        SAY.print(f"[bold]{name}[/]\n{escape(str(found))}")
    new = [after.piece(number) for number in range(before.vocabulary, after.vocabulary)]
    SAY.print(f"new              {escape('  '.join(new[:24]))}{' ...' if len(new) > 24 else ''}")
    if len(new) < more:
        SAY.print(f"{len(new):,} pieces are new, not {more:,}: the text repeats no more that the vocabulary lacks")


def prepare(
    texts: Sequence[str], out: Path, tokenizer: Path, *, valid: float = 0.01, workers: int | None = None, **reading: Any
) -> Summary:
    """Tokenise a text once, into shards."""
    return _prepare(Corpus(texts, **reading), Tokenizer.load(tokenizer), out, valid, workers)


def check(recipe: Recipe) -> None:
    """What a recipe would cost: parameters, memory and time."""
    shape, data = recipe.model.settings, recipe.data
    device = machine.device(recipe.train.device)
    with torch.device("meta"):
        objective = _built(recipe, shape)
    count = sum(parameter.numel() for parameter in objective.parameters())
    speed = machine.training_flops(device) / objective.flops(data.length)
    prepared = Shards(data.folder / "train") if (data.folder / "train").is_dir() else None
    networks = [part.trunk.config for part in objective.folders.values()]
    memory = choose.memory(networks, count, data.tokens, objective.guesses)
    facts = {
        "model": f"{recipe.model.kind}: {shape.layers} layers of width {shape.width}",
        "parameters": f"{count:,} in training, {shape.count:,} in the published count",
        "an update": f"{data.tokens * recipe.train.accumulate:,} tokens in {recipe.train.accumulate} micro-batches",
        "memory": f"about {memory / 2**30:.1f} GiB",
        "speed": f"about {speed:,.0f} tokens/s on {machine.describe(device)['device']}",
        "time": choose.duration(recipe, speed, prepared),
    }
    SAY.print(_facts(facts))


def listing() -> None:
    """The members of the family, the objectives, the tasks, and the recipes in this folder."""
    table = Table("member", "layers", "width", "heads", "feed-forward", "parameters", box=None)
    for name, shape in FAMILY.items():
        layers = f"{shape.layers} + {shape.decoder}" if shape.decoder else shape.layers
        inner = (shape.heads, shape.feed_forward) if isinstance(shape, TransformerConfig) else ("", "")
        row = (layers, shape.width, *inner, f"{shape.count / 1e6:,.1f} M")
        table.add_row(name, *map(str, row))
    SAY.print(table)
    SAY.print()
    for name, objective in OBJECTIVES.items():
        SAY.print(f"objective {name}: {(objective.__doc__ or '').splitlines()[0]}")
    for name, task in TASKS.items():
        SAY.print(f"task {name}: {(task.__doc__ or '').splitlines()[0]}")
    for path in sorted(Path("recipes").rglob("*.toml")):
        SAY.print(f"recipe {path}")


def fill(model: Path, texts: Sequence[str] | None, *, top: int, as_json: bool) -> None:
    """Fill the blanks of the texts, or of every line of standard input."""
    opened = load(model)
    for text in sys.stdin if texts is None else texts:
        if text.strip():
            filled = opened.fill(text.strip(), top)
            if as_json:
                print(json.dumps(filled.plain(), ensure_ascii=False), flush=True)
            else:
                _show(filled)


def _facts(facts: Mapping[str, str]) -> Table:
    """Names and values, one below the other."""
    table = Table(show_header=False, box=None)
    for name, value in facts.items():
        table.add_row(f"[bold]{name}[/]", escape(value))
    return table


def _show(filled: Filled) -> None:
    SAY.print(f"\n[bold]{escape(filled.text)}[/]")
    for blank in filled.blanks:
        for guess in blank:
            bar = "█" * round(24 * guess.probability)
            SAY.print(f"  {guess.probability:6.1%}  {escape(guess.word):16s} [cyan]{bar}[/]")
        SAY.print()


def duration(written: str) -> float:
    """The seconds of a --budget."""
    try:
        return seconds(written)
    except ValueError as error:
        raise RecipeError("--budget", str(error)) from None


def _train_tokenizer(corpus: Corpus, settings: TokenizerConfig, out: Path) -> None:
    with SAY.status("training the vocabulary"):
        sample = Sample(corpus.lines())
        trained = pieces.train(sample, settings)
        trained.save(out)
        measures = measure(trained, sample.kept)
    SAY.print(escape(str(measures)))


def _prepare(
    corpus: Corpus, tokenizer: Tokenizer, out: Path, valid: float = 0.01, workers: int | None = None
) -> Summary:
    with _bar("preparing") as show:
        summary = tokenise(corpus, tokenizer, out, valid=valid, workers=workers, progress=show)
    for line in _lines(summary):
        SAY.print(line)
    return summary


def _lines(summary: Summary) -> Iterator[str]:
    """A summary as a person reads it."""
    yield "already prepared" if summary.already else f"prepared in {spoken(summary.seconds)}"
    for name, split in (("training", summary.train), ("validation", summary.valid)):
        counts = ", ".join(f"{split[part]:,} {part}" for part in ("documents", "sentences", "words", "tokens"))
        yield f"  {name}: {counts}"
    left_out = {
        "duplicate documents": summary.duplicates,
        "empty documents": summary.empty,
        "empty sentences": summary.dropped,
    }
    told = [f"{count:,} {name}" for name, count in (left_out | summary.text).items() if count]
    if told:
        yield "  replaced or left out: " + ", ".join(told)


@contextmanager
def _bar(title: str) -> Iterator[Callable[[float, int], None]]:
    """A bar with the time left on a terminal, a line at every tenth elsewhere."""
    if SAY.is_terminal:
        columns = ("{task.description}", bars.BarColumn(), bars.TaskProgressColumn(), bars.TimeRemainingColumn())
        with bars.Progress(*columns, console=SAY) as bar:
            task = bar.add_task(title, total=1.0)
            yield lambda share, tokens: bar.update(task, completed=share, description=f"{title}, {tokens:,} tokens")
        return
    shown = 0

    def line(share: float, tokens: int) -> None:
        nonlocal shown
        if int(share * 10) > shown:
            shown = int(share * 10)
            SAY.print(f"{title} {share:.0%}, {tokens:,} tokens")

    yield line


def _data(recipe: Recipe) -> tuple[Tokenizer, Shards, Shards]:
    """The tokenizer, the training text and the validation text of a prepared folder."""
    folder = recipe.data.folder
    if not folder.is_dir():
        raise FolderError(
            folder, "there is no such folder", "Make it with: bertsmith prepare TEXT --out " + str(folder)
        )
    tokenizer = Tokenizer.load(folder / "tokenizer")
    train, valid = Shards(folder / "train"), Shards(folder / "valid")
    return tokenizer, train, valid


def _objective(recipe: Recipe, tokenizer: Tokenizer) -> Unlabelled:
    """The network with its heads, at its first weights: the same seed gives the same ones."""
    shape = replace(recipe.model.settings, vocabulary=tokenizer.vocabulary)
    if shape.offset and tokenizer.padding != shape.offset - 1:
        fact = f"{recipe.model.kind} counts places from behind a padding piece of number {shape.offset - 1}"
        remedy = "Train the tokenizer with --kind bpe, and prepare the text again"
        raise RecipeError("model.kind", f"{fact}, and here it has number {tokenizer.padding}", remedy)
    objective = _built(recipe, shape)
    initialise(objective, recipe.train.seed)
    if recipe.start is not None and checkpoint.newest(recipe.out / "checkpoints") is None:
        for line in start(objective, recipe.start, tokenizer):
            SAY.print(line, markup=False)
    objective.meet(tokenizer)
    return objective


def _built(recipe: Recipe, shape: NetworkConfig) -> Unlabelled:
    """The network with its heads. One that could not be saved is refused before it is trained."""
    dialect_of(shape)
    objective = OBJECTIVES[recipe.objective.kind](network(shape), recipe.objective.settings)
    for part in objective.folders.values():
        dialect_of(part.trunk.config)
    return objective


def _feed(recipe: Recipe, objective: Unlabelled, tokenizer: Tokenizer, train: Shards) -> Feed:
    source = _streams if objective.streams else _pack
    text = source(recipe, tokenizer, train, objective.pairs, recipe.train.seed)
    return Feed(text, objective.collator(tokenizer), train.fingerprint, recipe.data.workers)


def _validation(
    recipe: Recipe, objective: Unlabelled, tokenizer: Tokenizer, valid: Shards, device: torch.device
) -> list[Batch]:
    """The validation text once through, its masks fixed once and for all."""
    # Where no document has two sentences there is no pair, and one document alone has no other to pair with.
    alone = valid.sentences == valid.documents or (objective.pairs == "next" and valid.documents == 1)
    pairs: Pairs = "none" if alone else objective.pairs
    source = _streams if objective.streams else _pack
    text = source(recipe, tokenizer, valid, pairs, VALID_SEED, once=True)
    collate = objective.collator(tokenizer)
    most = max(1, recipe.data.valid // text.tokens)
    return [collate(text(position)).to(device) for position in range(min(most, text.batches()))]


def _pack(recipe: Recipe, tokenizer: Tokenizer, shards: Shards, pairs: Pairs, seed: int, once: bool = False) -> Pack:
    return Pack(
        shards,
        length=recipe.data.length,
        tokens=recipe.data.tokens,
        pairs=pairs,
        seed=seed,
        start=tokenizer.roles.get("start", tokenizer.padding),  # T5 has none, and takes off what it is given
        stop=tokenizer.stop,
        padding=tokenizer.padding,
        across=recipe.data.across,
        once=once,
    )


def _streams(
    recipe: Recipe, tokenizer: Tokenizer, shards: Shards, pairs: Pairs, seed: int, once: bool = False
) -> Streams:
    start = tokenizer.roles.get("start", tokenizer.stop)
    return Streams(
        shards,
        length=recipe.data.length,
        tokens=recipe.data.tokens,
        seed=seed,
        # One piece where it both ends a text and begins one; a person's prompt begins as texts did here.
        frame=(tokenizer.stop,) if start == tokenizer.stop else (tokenizer.stop, start),
        padding=tokenizer.padding,
        fresh=recipe.objective.settings.fresh,
        once=once,
    )


def _speed(objective: Unlabelled, device: torch.device) -> Speed:
    peak = machine.peak(device, torch.bfloat16) if device.type == "cuda" else None
    return Speed(peak, objective.flops)


def _export(place: Path, objective: Unlabelled, tokenizer: Tokenizer, told: RunStory) -> None:
    """A model folder: weights, settings, tokenizer and card."""
    shape = objective.trunk.config
    dialect = dialect_of(shape)
    kept = {"trunk", *dialect.pretrained}  # of a next-sentence head, say, ModernBERT knows nothing
    state = {name: one for name, one in objective.state_dict().items() if name.partition(".")[0] in kept}
    with folders.writing(place) as folder:
        extra: dict[str, Any] = dict(tokenizer.numbers(dialect.specials))
        if objective.pairs not in ("none", dialect.pairs):
            extra["pairs"] = objective.pairs  # our own word: what transformers' two classes mean here
        folders.write(folder, shape, state, extra)
        tokenizer.save(folder, length=shape.length, segments=shape.segments > 1)
        fills = any(name.startswith("head.") for name in state)
        use: Use = "goes_on" if shape.causal else "writes" if shape.decoder else "fills" if fills else "is_tuned"
        use = "is_read" if isinstance(objective.trunk, Elmo) else "reads_on" if objective.streams else use
        files.write(folder / "README.md", card(told, use=use).encode())
