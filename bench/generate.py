"""Text generation compared with transformers, in one run: the same weights, prompts and number of new tokens.

    python bench/generate.py [MODEL] [--member gpt2] [--batches 1 8 32] [--beams 1 5] [--new 128]
        [--out bench/results/generate.json]

MODEL is a folder of a GPT-2 or a T5; a random one of a published size by default. Prompts are random tokens of one
length, since transformers pads others, and the end token is ignored, so that both generate as many tokens. One beam is
greedy decoding. Rounds alternate after one warm-up, and ratios are medians of the ratios within each round. With
--static, transformers also runs with its static cache, which its generate compiles on a GPU. With --guesses, one text
is also generated in the other mode: by ours without prompt lookup, token by token, and by transformers with prompt
lookup. The number of texts that are equal token for token is recorded with the speed: in float32 it should be all of
them.
"""

import argparse
import tempfile
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from record import record
from writing import Rows, Write, compared

from bertsmith.models.generation.engine import GenerationEngine, generate
from bertsmith.models.generation.prompt_lookup import DRAFT_TOKENS
from bertsmith.models.generation.search import GenerationConfig
from bertsmith.models.hf import folder as folders
from bertsmith.models.networks import build_network
from bertsmith.train import hardware

START = 0  # what a T5 begins to write with


def written(folder: Path, member: str) -> Path:
    """A random network of a published size."""
    from transformers import GPT2Config, GPT2LMHeadModel, T5Config, T5ForConditionalGeneration

    torch.manual_seed(0)
    base: dict[str, Any] = {"d_model": 768, "d_ff": 3072, "num_layers": 12, "num_heads": 12}
    match member:
        case "gpt2":
            model: Any = GPT2LMHeadModel(GPT2Config())
        case "t5-base":
            model = T5ForConditionalGeneration(T5Config(decoder_start_token_id=START, **base))
        case _:
            model = T5ForConditionalGeneration(T5Config(decoder_start_token_id=START))
    model.save_pretrained(folder)
    return folder


def theirs(folder: Path, device: torch.device, dtype: torch.dtype, **how: Any) -> Write:
    """transformers; `how` are arguments of its generate."""
    from transformers import GPT2LMHeadModel, T5ForConditionalGeneration

    answers = folders.read(folder).config.decoder_layers > 0
    kind: Any = T5ForConditionalGeneration if answers else GPT2LMHeadModel
    model = kind.from_pretrained(folder, dtype=dtype).to(device).eval()
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0

    @torch.inference_mode()
    def write(rows: Rows, beams: int, new: int) -> Rows:
        prompts = torch.tensor(rows, device=device)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = model.generate(
                prompts,
                attention_mask=torch.ones_like(prompts),
                max_new_tokens=new,
                do_sample=False,
                num_beams=beams,
                **how,
            )
        return found[:, 1 if answers else prompts.shape[1] :].tolist()

    return write


def ours(folder: Path, device: torch.device, dtype: torch.dtype, pack: bool = True) -> Write:
    opened = folders.read(folder)
    trunk = build_network(opened.config).eval()
    names = ((name.removeprefix("trunk."), part) for name, part in opened.state_dict.items())
    trunk.load_state_dict(dict(names))
    trunk.to(device)
    decoder = GenerationEngine(trunk, dtype, prepack_weights=pack, decoder_start_id=START)

    def write(rows: Rows, beams: int, new: int) -> Rows:
        config = GenerationConfig(max_new_tokens=new, temperature=0, num_beams=beams)
        return [best[0] for best in generate(decoder, rows, config)]

    return write


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", type=Path, help="a folder; a random network by default")
    parser.add_argument("--member", choices=["gpt2", "t5-small", "t5-base"], default="gpt2", help="which, at random")
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 8, 32])
    parser.add_argument("--beams", nargs="+", type=int, default=[1, 5])
    parser.add_argument("--new", type=int, default=128, help="tokens that each prompt goes on by")
    parser.add_argument("--prompt", type=int, default=32, help="tokens of each prompt")
    parser.add_argument("--precisions", nargs="+", choices=["float32", "bfloat16"], default=["float32", "bfloat16"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--static", action="store_true", help="transformers with its static cache, too")
    parser.add_argument("--guesses", action="store_true", help="one text without our guesses, and with theirs, too")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--out", type=Path, default=Path("bench/results/generate.json"))
    options = parser.parse_args()
    where = hardware.select_device(options.device)
    figures: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as place:
        folder = options.model or written(Path(place), options.member)
        vocabulary = folders.read(folder).config.vocabulary
        for precision in options.precisions:
            dtype = getattr(torch, precision)
            writers = {"bertsmith": ours(folder, where, dtype), "transformers": theirs(folder, where, dtype)}
            if options.static:
                writers["transformers static"] = theirs(folder, where, dtype, cache_implementation="static")
            others: dict[str, Write] = {}
            if options.guesses:
                others["bertsmith, no guesses"] = ours(folder, where, dtype, pack=False)
                others["transformers, guesses"] = theirs(folder, where, dtype, prompt_lookup_num_tokens=DRAFT_TOKENS)
            for batch in options.batches:
                generator = torch.Generator().manual_seed(batch)
                rows = torch.randint(vocabulary, (batch, options.prompt), generator=generator).tolist()
                for beams in options.beams:
                    how = {"precision": precision, "beams": beams, "new": options.new, "rounds": options.rounds}
                    several = writers if batch * beams > 1 else writers | others
                    figures.append(compared(several, rows, device=where, **how))
    settings = {"model": str(options.model or f"random {options.member}"), "new": options.new, "prompt": options.prompt}
    versions = {name: version(name) for name in ("torch", "transformers")}
    record(options.out, settings | {"figures": figures}, hardware.describe(where) | versions)


if __name__ == "__main__":
    main()
