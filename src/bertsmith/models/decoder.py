"""The decoder: a network made ready for writing, one token at a time, with all that came before in a cache."""

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from bertsmith.data.batch import Tokens
from bertsmith.models.carried import Carried
from bertsmith.models.encoder_decoder import EncoderDecoder
from bertsmith.models.guesses import write_ahead
from bertsmith.models.networks import Network, Translator
from bertsmith.models.recurrent import Recurrent
from bertsmith.models.search import SearchConfig, Step, beam, draws, write
from bertsmith.models.transformer import Transformer
from bertsmith.nn.cache import Cache
from bertsmith.nn.heads import ALIGNED
from bertsmith.nn.packed import PackedLinear, fuses, packed
from bertsmith.nn.recording import record
from bertsmith.nn.remembered import Remembered

ROOM = {"cpu": 2 << 30, "cuda": 16 << 30}  # bytes of keys and values that are kept at once
PRUNE = 32  # tokens after which beams on a CPU give back the slots of branches that were given up


class Decoder:
    """A trunk whose table of words also tells what comes next, its weights as the device reads them fastest.

    It goes on with what it is given; or, of two networks, the second writes about what the first has read, beginning
    with the token `start`. `never` are tokens that must not be written: padding and its like.
    """

    def __init__(
        self,
        trunk: Network,
        dtype: torch.dtype = torch.float32,
        *,
        pack: bool = True,
        never: Sequence[int] = (),
        start: int = 0,
    ) -> None:
        self.config, self.dtype, self.device = trunk.config, dtype, trunk.embedding.weight.device
        self.start = start
        self.laid = pack and self.device.type == "cpu" and fuses(dtype)
        self.never = torch.tensor(never, dtype=torch.long, device=self.device)
        self.trunk: Any  # each kind of network with a cache of its own kind
        table, self.dimmed = _told(trunk)
        table, bias = table.detach().to(dtype), trunk.bias if isinstance(trunk, Recurrent) else None
        spare = -len(table) % ALIGNED if self.device.type == "cuda" else 0  # which has faster products for some sizes
        table = F.pad(table, (0, 0, 0, spare)) if spare else table
        words = nn.Linear(table.shape[1], table.shape[0], bias=bias is not None, device="meta")
        words.weight = nn.Parameter(table, requires_grad=False)
        if bias is not None:
            words.bias = nn.Parameter(F.pad(bias.detach().to(dtype), (0, spare)), requires_grad=False)
        self.words: nn.Module | PackedLinear = words
        if self.device.type == "cpu" and isinstance(trunk, Transformer | EncoderDecoder):
            self.trunk, self.words = whole_packed(trunk, dtype, lay=pack), PackedLinear(words, dtype, lay=pack)
        elif trunk.training or dtype != trunk.embedding.weight.dtype:
            self.trunk = copy.deepcopy(trunk).to(dtype).eval()
        else:
            self.trunk = trunk

    def begin(
        self, rows: Sequence[Sequence[int]], most: int, ways: int = 1, samples: int = 1
    ) -> tuple[Float[Tensor, "_ V"], Step]:
        """Read texts; at most so many tokens come behind them, in ways or as samples: first scores, and the step."""
        tokens, trunk = Tokens.of(rows).to(self.device), self.trunk
        room = (1 if self.answers else tokens.longest) + ways * most
        recorded = self.device.type == "cuda"
        cache = trunk.cache(len(rows), room + -room % ALIGNED if recorded else room, ways, self.dtype)
        if isinstance(trunk, Translator):
            hidden = trunk.begin(tokens, cache, Tokens.of([[self.start]] * len(rows)).to(self.device))
        else:
            hidden = trunk.begin(tokens, cache)
        scores = self.scores(hidden)
        if samples > 1:
            cache.spread(samples)
            scores = scores.repeat_interleave(samples, 0)
        writing = Writing(self, cache)
        if not recorded:
            return scores, writing
        cache.fixed = True
        return scores, Recorded(writing, (len(scores), ways), self.device)

    @property
    def answers(self) -> bool:
        """Whether what is written is a text of its own, and does not go on with the one that was read."""
        return self.config.decoder > 0

    def left(self, row: Sequence[int]) -> int:
        """How many tokens can be written at most."""
        return self.config.length - (1 if self.answers else len(row))

    def scores(self, hidden: Float[Tensor, "N D"]) -> Float[Tensor, "N V"]:
        """How well each token would come next."""
        hidden = hidden.to(self.dtype)
        scores: Tensor = self.words(hidden if self.dimmed == 1 else hidden * self.dimmed)[:, : self.config.vocabulary]
        return scores.index_fill_(1, self.never, -torch.inf) if len(self.never) else scores


def _told(trunk: Network) -> tuple[Float[Tensor, "V D"], float]:
    """The table that tells words, and what vectors are multiplied by before their products with it are scores."""
    if isinstance(trunk, Recurrent):
        return trunk.told[0], 1.0
    if not isinstance(trunk, Translator):
        return trunk.embedding.weight, 1.0
    return (trunk.embedding.weight, trunk.dimmed) if trunk.words is None else (trunk.words.weight, 1.0)


def whole_packed(trunk: Transformer | EncoderDecoder, dtype: torch.dtype, *, lay: bool) -> Transformer | EncoderDecoder:
    """A copy with packed layers; of two networks both."""
    if isinstance(trunk, Transformer):
        return packed(trunk, dtype, lay=lay)
    light = copy.copy(trunk)
    halves = {name: packed(getattr(trunk, name), dtype, lay=lay) for name in ("encoder", "decoder")}
    light._modules = {**trunk._modules, **halves}
    return light


@torch.inference_mode()
def continued(
    decoder: Decoder, rows: Sequence[Sequence[int]], config: SearchConfig, stops: Sequence[int] = ()
) -> list[list[list[int]]]:
    """For each prompt the tokens that are written, as often as there are to be samples."""
    found: list[list[list[int]]] = [[] for _ in rows]
    ends = torch.tensor(stops, dtype=torch.long, device=decoder.device)
    searched = config.beams > 1
    ways, samples = (config.beams, 1) if searched else (1, config.samples)
    for part in _parts(rows, decoder, config):
        some = [rows[number] for number in part]
        left = [decoder.left(row) for row in some]
        scores, step = decoder.begin(some, min(config.most, max(left)), ways, samples)
        limits = torch.tensor(left, device=decoder.device).repeat_interleave(samples)
        if searched:
            texts = [[text for text, _ in best] for best in beam(scores, step, config, limits, ends)]
        elif isinstance(step, Writing) and step.guesses and len(limits) == 1 and config.temperature == 0:
            texts = [[write_ahead(scores, step, step.take_back, config, some[0], left[0], ends)]]
        else:
            drawn = config.temperature > 0  # chance is worth its time only if it is asked
            chance = draws(some, config) if drawn else torch.zeros(len(limits), config.most)
            flat = write(scores, step, config, chance.to(decoder.device), limits, ends)
            texts = [flat[first : first + samples] for first in range(0, len(flat), samples)]
        for number, several in zip(part, texts, strict=True):
            found[number] = several
    return found


def _parts(rows: Sequence[Sequence[int]], decoder: Decoder, config: SearchConfig) -> Iterator[list[int]]:
    """Prompts of nearly one length, as many as there is room for: their numbers."""
    network: Any = decoder.config
    layers = network.decoder or network.layers
    size = 2 * layers * network.inner * decoder.dtype.itemsize  # of a token
    copies = 1 if config.beams > 1 else config.samples
    part: list[int] = []
    for number in sorted(range(len(rows)), key=lambda number: len(rows[number])):
        tokens = copies * (len(rows[number]) + config.beams * config.most)
        if part and (len(part) + 1) * tokens * size > ROOM[decoder.device.type]:
            yield part
            part = []
        part.append(number)
    if part:
        yield part


class Writing:
    """One more token on every way of every sequence: a step of a search."""

    def __init__(self, decoder: Decoder, cache: Cache | Carried | Remembered) -> None:
        self.decoder, self.cache = decoder, cache
        self._steps = 0

    @property
    def guesses(self) -> bool:
        """Whether several tokens at once take hardly longer than one, and give the same; half precision rounds more."""
        return isinstance(self.cache, Cache) and self.decoder.laid and self.decoder.dtype == torch.float32

    def take_back(self, count: int) -> None:
        assert isinstance(self.cache, Cache)
        self.cache.take_back(count)

    def __call__(self, ids: Int[Tensor, "B W"], came: Int[Tensor, "B W"] | None) -> Float[Tensor, "B W V"]:
        hidden = self.decoder.trunk.step(ids, self.cache, came)
        self._steps += 1
        if self.cache.ways > 1 and not self.cache.fixed and self._steps % PRUNE == 0:
            self.cache.prune()
        return self.decoder.scores(hidden.flatten(0, 1)).view(*ids.shape, -1)


class Recorded:
    """A step that a GPU has recorded, since a token keeps it busy for less time than it takes to tell it what to do.

    The first step simply runs, so that every library sets itself up; the second is recorded and from then on replayed.
    What it gives is written over by the next.
    """

    def __init__(self, step: Step, shape: tuple[int, int], device: torch.device) -> None:
        self._step = step
        self._ids, self._came = (torch.zeros(shape, dtype=torch.long, device=device) for _ in range(2))
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._graph: Any = None
        self._scores: Tensor | None = None

    def __call__(self, ids: Int[Tensor, "B W"], came: Int[Tensor, "B W"] | None) -> Float[Tensor, "B W V"]:
        if self._scores is None:
            self._stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._stream):
                self._scores = self._step(ids, came)
            torch.cuda.current_stream().wait_stream(self._stream)
            return self._scores
        if self._graph is None:
            self._graph = torch.cuda.CUDAGraph()
            with record(self._graph, stream=self._stream):
                self._scores = self._step(self._ids, None if came is None else self._came)
        self._ids.copy_(ids)
        if came is not None:
            self._came.copy_(came)
        self._graph.replay()
        assert self._scores is not None
        return self._scores
