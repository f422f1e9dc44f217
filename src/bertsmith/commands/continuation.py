"""`make --from`: continue a model on text within a time budget, and measure it before and after."""

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from importlib import resources
from pathlib import Path

from markupsafe import Markup

from bertsmith import files, terminal
from bertsmith.commands import prepare
from bertsmith.data.corpus.corpus import Corpus
from bertsmith.data.shards.shards import Shards
from bertsmith.errors import FolderError, RecipeError
from bertsmith.inference.model import Model
from bertsmith.insight import before_after as section
from bertsmith.insight.overview import Overview
from bertsmith.insight.report import RunSummary
from bertsmith.models.hf.folder import model_folder
from bertsmith.runs import autoconfig, before_after, continuation, new_head, summary
from bertsmith.runs.before_after import BeforeAfter, Change
from bertsmith.runs.continuation import Continuation
from bertsmith.runs.summary import Choices
from bertsmith.text.fertility import Sample
from bertsmith.text.tokenizer import Tokenizer, TokenizerConfig
from bertsmith.train import hardware
from bertsmith.train.clock import format_duration

CONSOLE = terminal.console()
SETTINGS, START = "continuation.json", "start"  # files of the run: what is continued; the model with a new head
READ_SHARE = 0.1  # of the budget, at most, for reading the text that the vocabulary is chosen by
PREPARE_SHARE = 0.25  # of the budget, at most, for tokenising
HEAD_SHARE = 0.2  # of the budget, for fitting a new head to the frozen network
MEASURE_SHARE = 0.015  # of the budget, for one measurement on one text
PASSAGES = 20, 400  # at least and at most, of a measurement
PACE_CHARACTERS = 100_000  # from which the pace of tokenising is measured
HELD_OUT_WORDS = 5_000  # that should be held out of a small text
MAX_HELD_OUT = 0.2  # share of the text
GENERAL_SENTENCES = 4_000  # of general text, spread over it


class ContinuedRun:
    """A run of `make --from` in its folder. Everything that is made is kept there, so that the same command resumes."""

    def __init__(self, start: Path, out: Path, budget: float, general_text: str | None = None) -> None:
        self.start, self.out, self.budget, self._general_text = start, out, budget, general_text
        self.figures: dict[str, float] = {}  # before and after

    @cached_property
    def model(self) -> Model:
        """The model that is continued."""
        return continuation.open_model(self.start)

    @property
    def name(self) -> str:
        """The name of that model: its folder's, or its run's."""
        folder = self.start.absolute()
        return folder.parent.name if folder.name == "model" else folder.name

    @cached_property
    def general(self) -> list[str]:
        """Sentences of general text: of the given file, or the sample of the package if the model knows English."""
        if self._general_text is not None:
            return before_after.spread(list(Corpus([self._general_text]).lines()), GENERAL_SENTENCES)
        with resources.as_file(resources.files("bertsmith.text") / "sample" / "sample.txt.xz") as sample:
            found = before_after.spread(list(Corpus([str(sample)], layout="lines").lines()), GENERAL_SENTENCES)
        return found if continuation.speaks(self.model.tokenizer, found) else []

    def prepare(self, corpus: Corpus, requested: TokenizerConfig) -> Choices:
        """Vocabulary, shards, a head where there is none, and the first measurement, unless they exist."""
        for option, value in (("--lowercase", requested.lowercase), ("--strip-accents", requested.strip_accents)):
            if value is not None:
                raise RecipeError(option, "with --from, the tokenizer is the model's", "Leave the option out")
        corpus.buffer_stdin()  # the text is read several times
        choices = summary.load_choices(self.out)
        if (self.out / "tokenizer" / "tokenizer.json").exists() and choices.tokenizer:
            tokenizer = Tokenizer.load(self.out / "tokenizer")
        else:
            tokenizer, choices = self._choose_vocabulary(corpus)
            summary.save_choices(self.out, choices)
        corpus.max_characters = choices.max_characters
        share = max(autoconfig.validation_share(corpus.estimated_words), HELD_OUT_WORDS / corpus.estimated_words)
        prepare.prepare_shards(corpus, tokenizer, self.out / "data", min(share, MAX_HELD_OUT))
        if before_after.load(self.out) is None:
            self._measure_before(tokenizer)
        return choices

    def settle(self) -> None:
        """Note what is continued; refuse a folder in which another model was, or none."""
        path, start = self.out / SETTINGS, str(model_folder(self.start).resolve())
        if path.exists():
            if (before := files.read_json(path).get("start")) != start:
                fact = f"its run was begun with --from {before}"
                raise RecipeError(self.out, fact, "Give the same model to resume it, or choose another folder")
            return
        if (self.out / "tokenizer").exists() or (self.out / "recipe.toml").exists():
            raise RecipeError(self.out, "its run was begun without --from", "Choose another folder")
        assert self.model  # refused before anything is written
        with files.explain_os_errors(self.out):
            self.out.mkdir(parents=True, exist_ok=True)
        files.write_json(path, {"start": start})

    def _choose_vocabulary(self, corpus: Corpus) -> tuple[Tokenizer, Choices]:
        """The model's tokenizer, extended if the text needs it, and the characters that there is time to tokenise."""
        with CONSOLE.status("measuring the vocabulary on the text"):
            sample = Sample(prepare.read_for(READ_SHARE * self.budget, corpus.lines()))
            for _ in sample:
                pass  # the sample keeps the lines that pass through it
            words = corpus.estimated_words
            tokenizer, reasons = continuation.choose_vocabulary(
                self.model.tokenizer, sample.kept, self.general, words, Path(self.model.path)
            )
            tokenizer.save(self.out / "tokenizer")
            began, some = time.monotonic(), before_after.first_characters(sample.kept, PACE_CHARACTERS)
            tokenizer.encode(some)
            pace = (time.monotonic() - began) / max(sum(map(len, some)), 1)
        prepare.print_notes(corpus)
        affordable = int(PREPARE_SHARE * self.budget / pace)
        characters = sample.characters / max(corpus.progress, 1e-9)  # of the whole text, by estimate
        if affordable < characters:
            reasons.append(
                f"the first {affordable / characters:.0%} of the text: in {format_duration(self.budget)} "
                "there is no time to read all of it. A longer --budget, with another --out, reads more"
            )
        for reason in reasons:
            CONSOLE.print(f"why: {reason}")
        return tokenizer, Choices(reasons, [], affordable if affordable < characters else None)

    def _measure_before(self, tokenizer: Tokenizer) -> None:
        """Measure the model; one without a masked LM head gets one first, fitted to the frozen network."""
        train, valid = Shards(self.out / "data" / "train"), Shards(self.out / "data" / "valid")
        config, device = self.model.objective.trunk.config, self.model.device
        speed = 3 * hardware.training_flops(device) / config.flops(before_after.PASSAGE_TOKENS, 0.15)
        least, most = PASSAGES
        count = int(min(max(MEASURE_SHARE * self.budget * speed / before_after.PASSAGE_TOKENS, least), most))
        probe = before_after.make_probe(train, valid, tokenizer, self.general, self.model, count)
        if not self.model.has_lm_head:
            with CONSOLE.status("fitting a masked LM head to the frozen network"):
                steps = new_head.fit_head(self.model, _mixed(probe.sentences, self.general), HEAD_SHARE * self.budget)
            new_head.write_folder(self.model, self.out / START)
            fitted = f"a new one was fitted to the frozen network in {steps:,} steps"
            CONSOLE.print(f"{self.name} has no masked LM head: {fitted}")
        began = time.monotonic()
        before = before_after.measure(self.model, probe)
        before_after.save(self.out, probe, before, time.monotonic() - began)

    def choose_recipe(self, left: float, flops: float, *, gpu: bool, seed: int) -> Continuation:
        """The recipe, its reasons, and the budget after which the text is worn out."""
        start = self.out / START if (self.out / START).exists() else self.start
        choice = continuation.choose_recipe(
            self.model, start, self.out / "data", self.out, budget=left, flops=flops, gpu=gpu, seed=seed
        )
        if choice.max_seconds is not None:
            settings = files.read_json(self.out / SETTINGS)
            files.write_json(self.out / SETTINGS, {**settings, "max_budget": self.budget - left + choice.max_seconds})
        del self.model  # its memory is needed for training
        return choice

    @property
    def is_capped(self) -> bool:
        """Whether the run got less than was asked for, since its text would be seen too often."""
        return "max_budget" in files.read_json(self.out / SETTINGS)

    def max_budget(self) -> float:
        """The budget of the run, less than was asked for if its text would be seen too often."""
        limit = files.read_json(self.out / SETTINGS).get("max_budget")
        return min(self.budget, float(limit)) if isinstance(limit, int | float) else self.budget

    def measure_seconds(self) -> float:
        """The seconds that the second measurement will take: more than the first, if the machine is busy."""
        found = before_after.load(self.out)
        return 0.0 if found is None else 1.3 * found[2]

    def finish(self, run: RunSummary, model: Model) -> RunSummary:
        """The summary of the run with figures, neighbours and verdict from before and after."""
        found = before_after.load(self.out)
        if found is None:
            raise FolderError(self.out / before_after.BEFORE, "is damaged", "Remove it, and run the command again")
        probe, before, _ = found
        both = BeforeAfter(self.name, before, before_after.measure(model, probe), _frequency_gain(run))
        self.figures = both.figures
        figures = {"bits per byte on your text": _shown(both.domain)}
        if both.general is not None:
            figures["bits per byte on general text"] = _shown(both.general)
        words = Shards(self.out / "data" / "train").words
        return replace(
            run,
            title=f"{self.name} continued on {words:,} words",
            verdict=both.verdict,
            overview=None if run.overview is None else _continued_overview(run.overview, both),
            # The validation's own bits per byte are of single masked tokens, and would only confuse here.
            figures=figures | {name: value for name, value in run.figures.items() if name != "bits per byte"},
            visualisations=[(section.HEADING, self._section(both), section.LEAD), *run.visualisations],
        )

    def _section(self, both: BeforeAfter) -> Markup:
        changes = {"bits per byte on your text": both.domain, "bits per byte on general text": both.general}
        rows = [(name, f"{one.before:.3f}", f"{one.after:.3f}") for name, one in changes.items() if one is not None]
        old = both.before.neighbours
        neighbours = [(word, old[word], new) for word, new in both.after.neighbours.items() if word in old]
        texts = zip(both.before.generations, both.after.generations, strict=True)
        rows += [(f"text {number}", *texts) for number, texts in enumerate(texts, 1)]
        notes = [] if both.before.generations else [section.MASKED_NOTE]
        if (self.out / START).exists():
            notes.append(section.HEAD_NOTE)
        return section.html(rows, neighbours, notes)


def continued_run(
    start: str | Path | None, out: Path, budget: float, general_text: str | Path | None = None
) -> ContinuedRun | None:
    """The run that continues a model; None without one. A folder that was begun with one is refused without it."""
    if start is not None:
        return ContinuedRun(Path(start), out, budget, None if general_text is None else str(general_text))
    if general_text is not None:
        raise RecipeError("--general-text", "is for a model that is continued", "Name one with --from")
    if (out / SETTINGS).exists():
        before = files.read_json(out / SETTINGS).get("start")
        raise RecipeError(out, f"its run was begun with --from {before}", "Give the option again to resume it")
    return None


def _continued_overview(overview: Overview, both: BeforeAfter) -> Overview:
    """The overview of a continued model, which has no next commands where the one before is better."""
    return replace(overview, good_for=[both.good_for], commands=overview.commands if both.usable else [])


def _frequency_gain(run: RunSummary) -> float:
    """The nats that the model gains over word frequency, in the last validation."""
    losses = [record for record in run.records if record.get("kind") == "validation"][-1]
    loss = losses.get("masked_loss", losses.get("next_token_loss", losses["loss"]))
    return math.inf if run.baseline is None else run.baseline - float(loss)


def _mixed(first: Sequence[str], second: Sequence[str]) -> list[str]:
    """Two lists of texts in one, in turn, so that any part of it has both."""
    pairs = zip(first, second, strict=False)
    both = [text for pair in pairs for text in pair]
    return [*both, *first[len(second) :], *second[len(first) :]]


def _shown(change: Change) -> str:
    return f"{change.before:.3f} before, {change.after:.3f} after (standard error {change.error:.3f})"
