"""Translation compared with transformers, in one run: the same MarianMT weights, sources and number of new tokens.

    python bench/translate.py [MODEL] [--member transformer-base] [--batches 1 32 256] [--beams 1 5] [--new 32]
        [--out bench/results/translate.json]

MODEL is a folder that MarianMTModel opens, as `bertsmith finetune transformer-small` writes it; a member with random
weights by default. Sources are random tokens of different lengths: transformers gets them padded, in one batch, with a
mask. The end token is ignored, so that both generate as many tokens. One beam is greedy decoding. Rounds alternate
after one warm-up, and ratios are medians of the ratios within each round. The number of texts that are equal token for
token is recorded with the speed: in float32 it should be nearly all of them.
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

from bertsmith.models.encoder_decoder import EncoderDecoder
from bertsmith.models.family import member
from bertsmith.models.generation.engine import GenerationEngine, generate
from bertsmith.models.generation.search import GenerationConfig
from bertsmith.models.hf import folder as folders
from bertsmith.nn.init import initialise
from bertsmith.train import hardware

PADDING = 0  # also what the writer begins with


def written(folder: Path, name: str) -> Path:
    """A member of the family at its first weights."""
    trunk = EncoderDecoder(member(name))
    initialise(trunk, 0, trunk.config.width**-0.5)
    state = {f"trunk.{part}": weight for part, weight in trunk.state_dict().items()}
    folders.write(folder, trunk.config, state, {"decoder_start_token_id": PADDING})
    return folder


def theirs(folder: Path, device: torch.device, dtype: torch.dtype) -> Write:
    from transformers import MarianMTModel

    model = MarianMTModel.from_pretrained(folder, dtype=dtype).to(device).eval()
    for name in ("eos_token_id", "forced_eos_token_id", "bad_words_ids"):
        setattr(model.generation_config, name, None)
    model.generation_config.pad_token_id = PADDING

    @torch.inference_mode()
    def write(rows: Rows, beams: int, new: int) -> Rows:
        longest = max(map(len, rows))
        sources = torch.tensor([row + [PADDING] * (longest - len(row)) for row in rows], device=device)
        lengths = torch.tensor([len(row) for row in rows], device=device)
        mask = (torch.arange(longest, device=device) < lengths[:, None]).long()
        how: dict[str, Any] = {"num_beams": beams, "max_new_tokens": new, "min_new_tokens": new, "do_sample": False}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = model.generate(sources, attention_mask=mask, **how)
        return found[:, 1:].tolist()

    return write


def ours(folder: Path, device: torch.device, dtype: torch.dtype) -> Write:
    opened = folders.read(folder)
    trunk = EncoderDecoder(opened.config).eval()
    trunk.load_state_dict({name.removeprefix("trunk."): part for name, part in opened.state_dict.items()})
    trunk.to(device)
    decoder = GenerationEngine(trunk, dtype, decoder_start_id=PADDING)

    def write(rows: Rows, beams: int, new: int) -> Rows:
        config = GenerationConfig(max_new_tokens=new, temperature=0, num_beams=beams)
        return [best[0] for best in generate(decoder, rows, config)]

    return write


def sources(batch: int, vocabulary: int, shortest: int, longest: int) -> Rows:
    """Random tokens, in texts of all lengths between two."""
    generator = torch.Generator().manual_seed(batch)
    lengths = torch.randint(shortest, longest + 1, (batch,), generator=generator).tolist()
    return [torch.randint(1, vocabulary, (length,), generator=generator).tolist() for length in lengths]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", type=Path, help="a folder; a member with random weights by default")
    parser.add_argument("--member", default="transformer-base", help="which, without a folder")
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 32, 256])
    parser.add_argument("--beams", nargs="+", type=int, default=[1, 5])
    parser.add_argument("--new", type=int, default=32, help="tokens of each translation")
    parser.add_argument("--lengths", nargs=2, type=int, default=[8, 32], help="of sources, at least and at most")
    parser.add_argument("--precisions", nargs="+", choices=["float32", "bfloat16"], default=["float32", "bfloat16"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--out", type=Path, default=Path("bench/results/translate.json"))
    options = parser.parse_args()
    where = hardware.select_device(options.device)
    figures: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as place:
        folder = options.model or written(Path(place), options.member)
        vocabulary = folders.read(folder).config.vocabulary
        for precision in options.precisions:
            dtype = getattr(torch, precision)
            writers = {"bertsmith": ours(folder, where, dtype), "transformers": theirs(folder, where, dtype)}
            for batch in options.batches:
                rows = sources(batch, vocabulary, *options.lengths)
                for beams in options.beams:
                    how = {"precision": precision, "beams": beams, "new": options.new, "rounds": options.rounds}
                    figures.append(compared(writers, rows, device=where, **how))
    settings = {"model": str(options.model or f"random {options.member}"), "new": options.new}
    settings |= {"lengths": options.lengths}
    versions = {name: version(name) for name in ("torch", "transformers")}
    record(options.out, settings | {"figures": figures}, hardware.describe(where) | versions)


if __name__ == "__main__":
    main()
