"""Texts go on as the network says, token for token, with a cache as without one."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
import torch.nn.functional as F
from nn.causal import NETWORKS, prompts, trunk_of
from torch import Tensor
from typer.testing import CliRunner

from bertsmith import load
from bertsmith.cli import app
from bertsmith.data.batch import Tokens
from bertsmith.errors import FolderError, RecipeError, TextError
from bertsmith.inference import generate as module
from bertsmith.inference.model import Model
from bertsmith.models.family import FAMILY
from bertsmith.models.generation import engine as decoders
from bertsmith.models.generation.engine import GenerationEngine, generate
from bertsmith.models.generation.search import GenerationConfig, Step
from bertsmith.models.hf import folder as folders
from bertsmith.models.transformer import Transformer
from bertsmith.nn import kv_cache
from bertsmith.objectives.causal import CausalLM
from bertsmith.text.tokenizer import Tokenizer, TokenizerConfig, train

pytestmark = pytest.mark.slow("generates with and without a cache, for every member")

SEARCHES = {
    "greedy": GenerationConfig(max_new_tokens=10, temperature=0),
    "drawn": GenerationConfig(max_new_tokens=10, temperature=1.2, top_k=0, top_p=0.9, seed=3),
    "samples": GenerationConfig(max_new_tokens=10, samples=3),
    "beams": GenerationConfig(max_new_tokens=10, num_beams=4, samples=2),
    "long beams": GenerationConfig(max_new_tokens=10, num_beams=3, length_penalty=2.0, min_new_tokens=5),
}
STOPS = [3, 11, 42]


class Anew(GenerationEngine):
    """The twin without a cache: at every token it reads everything again."""

    def prefill(self, rows: Sequence[Sequence[int]], config: GenerationConfig) -> tuple[Tensor, Step]:
        ways = config.num_beams
        texts = [[list(row)] * ways for row in rows for _ in range(config.rows_per_prompt)]

        def scores() -> Tensor:
            tokens = Tokens.from_rows([text for several in texts for text in several])
            hidden = self.trunk(tokens)[tokens.bounds[1:].long() - 1]
            return F.linear(hidden, self.trunk.embedding.weight).unflatten(0, (len(texts), ways))

        def step(ids: Tensor, came: Tensor | None) -> Tensor:
            olds = torch.zeros_like(ids) if came is None else came
            for several, ways_of_it, news in zip(texts, olds.tolist(), ids.tolist(), strict=True):
                grown = [[*several[old], new] for old, new in zip(ways_of_it, news, strict=True)]
                several[:] = [text if len(text) <= self.config.max_length else text[:-1] for text in grown]
            return scores()

        return scores()[:, 0], step


@pytest.mark.exhaustive(suite=8)
@pytest.mark.parametrize("config", SEARCHES.values(), ids=SEARCHES)
@pytest.mark.parametrize("network", ["gpt2", "gpt", "rotary", "local"])
def test_a_cache_changes_no_token(network: str, config: GenerationConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_cache, "PRUNE_EVERY", 4)
    trunk, rows = trunk_of(NETWORKS[network]), prompts([7, 3, 35])  # the last is at the model's end before the others
    anew = generate(Anew(trunk, prepack_weights=False), rows, config, STOPS)
    assert generate(GenerationEngine(trunk), rows, config, STOPS) == anew
    assert generate(GenerationEngine(trunk, prepack_weights=False), rows, config, STOPS) == anew
    assert len({token for texts in anew for text in texts for token in text}) > 2  # they say something
    assert [len(texts) for texts in anew] == [config.samples] * 3
    assert all(len(text) <= min(10, 40 - len(row)) for row, texts in zip(rows, anew, strict=True) for text in texts)


@pytest.mark.parametrize("config", SEARCHES.values(), ids=SEARCHES)
def test_neighbours_do_not_change_a_text(config: GenerationConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    decoder, rows = GenerationEngine(trunk_of()), prompts([7, 3, 12, 1])
    together = generate(decoder, rows, config, STOPS)
    assert [generate(decoder, [row], config, STOPS)[0] for row in rows] == together
    assert generate(decoder, rows[::-1], config, STOPS) == together[::-1]
    monkeypatch.setitem(decoders.CACHE_BYTES, "cpu", 1)  # every prompt in a part of its own
    assert generate(decoder, rows, config, STOPS) == together


def test_samples_differ_and_come_again_with_their_seed() -> None:
    decoder, rows = GenerationEngine(trunk_of()), prompts([7, 3])
    config = GenerationConfig(max_new_tokens=12, temperature=1.0, samples=5)
    found = generate(decoder, rows, config)
    assert all(len({tuple(text) for text in texts}) == 5 for texts in found)
    assert generate(decoder, rows, config) == found
    assert generate(decoder, rows, replace(config, samples=2)) == [texts[:2] for texts in found]
    assert generate(decoder, rows, replace(config, seed=1)) != found


def test_what_must_never_be_written_is_not() -> None:
    trunk, rows = trunk_of(), prompts([7, 3])
    free = generate(GenerationEngine(trunk), rows, SEARCHES["greedy"])
    taken = sorted({token for [text] in free for token in text})
    bound = generate(GenerationEngine(trunk, forbidden_ids=taken), rows, SEARCHES["greedy"])
    assert not {token for [text] in bound for token in text} & set(taken)


def test_half_precision_stays_near() -> None:
    trunk, rows = trunk_of(), prompts([7, 3])
    with torch.inference_mode():
        full, first = GenerationEngine(trunk).prefill(rows, GenerationConfig(max_new_tokens=4))
        half, second = GenerationEngine(trunk, torch.bfloat16).prefill(rows, GenerationConfig(max_new_tokens=4))
        ids = torch.tensor([[5], [6]])
        pairs = [(full, half), (first(ids, None)[:, 0], second(ids, None)[:, 0])]
    for one, other in pairs:
        assert F.cosine_similarity(one, other.float()).min() > 0.999


@pytest.mark.parametrize("beams", [1, 5])
@pytest.mark.parametrize("penalty", [0.0, 1.0, 2.0])
def test_transformers_writes_the_same(beams: int, penalty: float, tmp_path: Path) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(4)
    shape = GPT2Config(vocab_size=60, n_embd=32, n_layer=3, n_head=4, n_positions=64, bos_token_id=0, eos_token_id=0)
    theirs = GPT2LMHeadModel(shape).eval()
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            parameter.normal_(float("ln_" in name and name.endswith("weight")), 0.4)
    theirs.save_pretrained(tmp_path)
    opened = folders.read(tmp_path)
    trunk = Transformer(opened.config).eval()
    trunk.load_state_dict({name.removeprefix("trunk."): part for name, part in opened.state_dict.items()})
    rows = torch.randint(60, (12, 7))
    stops = [0, 2]
    searched = {"early_stopping": "never", "length_penalty": penalty} if beams > 1 else {}
    with torch.inference_mode():
        found = theirs.generate(
            rows,
            attention_mask=torch.ones_like(rows),
            max_new_tokens=40,
            min_new_tokens=2,
            do_sample=False,
            num_beams=beams,
            eos_token_id=stops,
            pad_token_id=0,
            **searched,
        )
    ends = [next((place for place, token in enumerate(row) if token in stops), 40) for row in found[:, 7:].tolist()]
    expected = [row[:end] for row, end in zip(found[:, 7:].tolist(), ends, strict=True)]
    own = {"length_penalty": penalty} if beams > 1 else {}
    config = GenerationConfig(max_new_tokens=40, min_new_tokens=2, temperature=0, num_beams=beams, **own)
    assert [texts[0] for texts in generate(GenerationEngine(trunk), rows.tolist(), config, stops)] == expected
    assert len({len(text) for text in expected}) > 1  # some stop


# ----------------------------------------------------------------------------------------------- texts

LINES = ["the cat sees the dog in the garden .", "the old river likes the green garden .", "a queen hears a king ."]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small GPT that has learnt to say a few lines by heart."""
    torch.manual_seed(0)
    tokenizer = train(LINES * 3, TokenizerConfig(kind="bpe", vocabulary=300, min_frequency=1, lowercase=False))
    config = replace(
        FAMILY["gpt2"], vocabulary=tokenizer.vocabulary, width=32, layers=2, heads=2, feed_forward=64, max_length=24
    )
    objective = CausalLM(Transformer(replace(config, dropout=0.0, attention_dropout=0.0)), CausalLM.Config())
    rows = [[tokenizer.start_id, *row, tokenizer.stop_id] for row in tokenizer.encode(LINES)]
    tokens = Tokens.from_rows([row[:-1] for row in rows])
    targets = torch.tensor([token for row in rows for token in row[1:]])
    optimizer = torch.optim.Adam(objective.parameters(), 0.01)
    for _ in range(60):
        optimizer.zero_grad()
        F.cross_entropy(objective.logits(objective.trunk(tokens)), targets).backward()
        optimizer.step()
    place = tmp_path_factory.mktemp("gpt")
    folders.write(place, objective.trunk.config, objective.state_dict(), {})
    tokenizer.save(place, max_length=24)
    return place


@pytest.fixture(scope="module")
def model(folder: Path) -> Model:
    return load(folder)


@pytest.mark.parametrize("how", [{"temperature": 0}, {"num_beams": 3}, {"top_k": 1}])
def test_a_model_says_what_it_has_learnt(model: Model, how: dict[str, Any]) -> None:
    beginnings = ["the cat sees", "the old", "a queen hears a"]
    assert model.generate(beginnings, **how) == LINES
    assert model.generate([LINES[0]], **how) == [LINES[0]]  # and that it is over


def test_texts_begin_with_their_prompt_and_come_in_order(model: Model) -> None:
    given = ["the cat", "", "Ünknown wörds", "a queen hears a king . the"]
    found = model.generate(given, max_new_tokens=5, samples=2, temperature=3.0, top_p=1.0, top_k=0)
    assert len(found) == 8
    assert all(text.startswith(given[number // 2]) for number, text in enumerate(found))
    assert found == model.generate(given, max_new_tokens=5, samples=2, temperature=3.0, top_p=1.0, top_k=0)
    assert not any(piece in "".join(found) for piece in ("<s>", "</s>", "<pad>", "<mask>"))


def test_writing_stops_at_a_piece_that_is_asked_for(model: Model) -> None:
    [text] = model.generate(["the cat"], temperature=0, stop=["Ġin"])
    assert text == "the cat sees the dog"
    with pytest.raises(TextError) as caught:
        model.generate(["the cat"], stop=["in the"])
    assert str(caught.value) == "'in the': is no token of the vocabulary. Stop at a single token."


def test_of_a_prompt_that_is_too_long_the_end_is_read(model: Model, capsys: Any, folder: Path) -> None:
    prompt = LINES[1] * 4 + " the cat sees"
    with pytest.warns(UserWarning, match=r"prompt 2: \d+ of its tokens were not read"):
        found = model.generate(["a", prompt], temperature=0, max_new_tokens=10)
    assert found[1].startswith(prompt)
    assert len(found[1]) > len(prompt)
    done = CliRunner().invoke(app, ["generate", str(folder), prompt, "--temperature", "0", "--max-new-tokens", "10"])
    assert "of its tokens exceed the maximum length of the model. They were left out." in done.stderr


@pytest.mark.parametrize(("size", "most", "kept"), [(23, 5, 23), (24, 5, 19), (50, 5, 19), (50, 40, 12)])
def test_an_end_leaves_space_for_what_is_to_come(size: int, most: int, kept: int) -> None:
    row = list(range(size))
    assert module._truncate_left(row, 24, most) == row[-kept:]


def test_writing_ends_where_the_model_does(model: Model, folder: Path) -> None:
    one = model.generate("the cat sees the", full=True, max_new_tokens=100, min_new_tokens=100, temperature=0)
    assert len(model.tokenizer.encode(one.texts)[0]) + 1 <= 24
    assert one.truncated_tokens == 0
    room = 24 - 1 - len(model.tokenizer.encode(["the cat sees the"])[0])
    assert one.missing_tokens == one.to_dict()["missing_tokens"] == 100 - room
    assert model.generate("the cat sees", full=True, max_new_tokens=100, temperature=0).missing_tokens == 0  # it stops
    long = ["generate", str(folder), "the cat sees the", "--min-new-tokens", "100", "--max-new-tokens", "100"]
    done = CliRunner().invoke(app, [*long, "--temperature", "0"])
    fact = "the text ends at the maximum length of the model, which has no place for"
    assert f"'the cat sees the': {fact} {100 - room} new tokens." in done.stderr


def test_a_stop_may_be_one_text_and_a_precision_is_one_that_there_is(model: Model) -> None:
    assert model.generate("the cat", temperature=0, stop="Ġin") == "the cat sees the dog"
    with pytest.raises(TextError) as caught:
        model.generate("the cat", stop="ab")
    assert str(caught.value) == "'ab': is no token of the vocabulary. Stop at a single token."
    with pytest.raises(RecipeError) as refused:
        model._engine("float32x", set())
    assert str(refused.value) == "precision: is 'float32x'. Did you mean 'float32'?"


def test_a_model_that_cannot_write_says_so(tmp_path: Path) -> None:
    from tasks.small import CASES, tokenizer

    model = Model(CASES["class"].task(), tokenizer(), "runs/mine")
    with pytest.raises(FolderError) as caught:
        model.generate(["the cat"])
    fact = "runs/mine: was not trained to predict the next token. "
    assert str(caught.value) == fact + "Only causal and text-to-text models generate, such as GPT and T5."


def test_one_prompt_gives_one_text_and_a_list_gives_a_list(model: Model) -> None:
    how = {"max_new_tokens": 4, "seed": 3}  # the field's word for `most`
    assert model.generate("the cat", **how) == model.generate(["the cat"], **how)[0]
    assert len(model.generate("the cat", samples=2, **how)) == 2
    assert [model.generate("the cat", full=True, **how)] == model.generate(["the cat"], full=True, **how)


def test_a_vocabulary_without_a_start_needs_a_word_to_begin_with(model: Model) -> None:
    bare = Tokenizer(tokenizers.Tokenizer(tokenizers.models.BPE({"<unk>": 0, "a": 1}, [], unk_token="<unk>")))
    with pytest.raises(TextError) as caught:
        module.generate_texts(GenerationEngine(model.trunk), bare, ["a", ""], GenerationConfig())
    assert str(caught.value) == "prompt 2: is empty. Begin with a word."


def test_the_command_goes_on_with_prompts_and_lines(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ["generate", str(folder), "--temperature", "0", "--json"]
    done = CliRunner().invoke(app, [*asked, "the old", "the cat sees"])
    assert [json.loads(line)["texts"] for line in done.stdout.splitlines()] == [[LINES[1]], [LINES[0]]]
    piped = CliRunner().invoke(app, asked, input="the cat sees\n\na queen\n")
    assert [json.loads(line) for line in piped.stdout.splitlines()] == [
        {"prompt": "the cat sees", "texts": [LINES[0]], "truncated_tokens": 0},
        {"prompt": "a queen", "texts": [LINES[2]], "truncated_tokens": 0},
    ]
    shown = CliRunner().invoke(app, ["generate", str(folder), "a queen", "--num-beams", "2", "--samples", "2"])
    assert LINES[2] in shown.stdout


@pytest.mark.gpu
@pytest.mark.parametrize("config", SEARCHES.values(), ids=SEARCHES)
def test_recorded_steps_write_what_a_processor_writes(config: GenerationConfig) -> None:
    trunk, rows = trunk_of(), prompts([7, 3, 12, 1])
    here = generate(GenerationEngine(trunk), rows, config, STOPS)
    assert generate(GenerationEngine(trunk.cuda()), rows, config, STOPS) == here
