"""All networks: the one that a configuration describes, and the products that it costs a token."""

from typing import Any, Literal

from torch import nn

from bertsmith.models.convnet import ConvNet, Stage
from bertsmith.models.elmo import Elmo, ElmoConfig
from bertsmith.models.encoder_decoder import EncoderDecoder
from bertsmith.models.recurrent import Recurrent, RecurrentConfig
from bertsmith.models.seq2seq import Seq2Seq, Seq2SeqConfig
from bertsmith.models.static import Static, StaticConfig
from bertsmith.models.transformer import Transformer
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.models.vision_transformer import VisionTransformer

NetworkConfig = TransformerConfig | RecurrentConfig | Seq2SeqConfig | ElmoConfig | StaticConfig
Network = Transformer | EncoderDecoder | Recurrent | Seq2Seq | Elmo | Static
EncoderDecoderNetwork = EncoderDecoder | Seq2Seq
ImageNetwork = VisionTransformer | ConvNet

# What a configuration declares as its `architecture`: an encoder such as BERT, a causal decoder such as GPT, both with
# cross-attention such as T5, or one of the networks that transformers has no class for, by its name in our folders.
Architecture = Literal["encoder", "decoder", "encoder_decoder", "recurrent", "seq2seq", "elmo", "static"]
NETWORKS: dict[Architecture, type[Any]] = {
    "encoder": Transformer,
    "decoder": Transformer,
    "encoder_decoder": EncoderDecoder,
    "recurrent": Recurrent,
    "seq2seq": Seq2Seq,
    "elmo": Elmo,
    "static": Static,
}
NATIVE: dict[str, type[Any]] = {  # configurations of our own folders
    "recurrent": RecurrentConfig,
    "seq2seq": Seq2SeqConfig,
    "elmo": ElmoConfig,
    "static": StaticConfig,
}


def build_network(config: NetworkConfig) -> Network:
    """The network that a configuration describes."""
    built: Network = NETWORKS[config.architecture](config)
    return built


def token_products(network: Network | ImageNetwork) -> float:
    """Products of a token with the weights of a network; those of the output layer and of attention are apart."""
    match network:
        case Transformer():  # a shared layer is applied again and again
            passes = network.config.layers // network.config.distinct
            return matrix_weights(network.embedding_projection, *[network.layers] * passes)
        case VisionTransformer():
            return matrix_weights(network.embedding.projection, network.layers)
        case EncoderDecoder():  # every token is counted as one of the encoder's
            return token_products(network.encoder)
        case Recurrent():
            return matrix_weights(network.stack)
        case Elmo():  # a filter moves over all characters of a word; a CPU does so once for each distinct word
            filters = [network.char_cnn.filters] * (network.config.max_characters - 1)
            return matrix_weights(network.char_cnn, network.lstms, *filters)
        case Seq2Seq():  # half of all tokens are taken to be source tokens, half target tokens
            attention = [] if network.attention is None else [network.attention]
            return matrix_weights(network.encoder, network.decoder, network.attentional, *attention) / 2
        case Static():  # a lookup has none
            return 0
        case ConvNet():  # of an image of 32 x 32 pixels: its sides are halved by each stage
            sides: list[tuple[nn.Module, int]] = [(network.stem, 32**2)]
            for number, stage in enumerate(network.stages):
                assert isinstance(stage, Stage)
                sides += [(stage.widen, (32 >> number) ** 2), (stage.blocks, (16 >> number) ** 2)]
            return sum(matrix_weights(part) * positions for part, positions in sides)


def matrix_weights(*modules: nn.Module) -> int:
    """The weights in the matrices of modules: how many products a token has with them. Embeddings are looked up."""
    return sum(
        weight.numel()
        for module in modules
        for part in module.modules()
        if not isinstance(part, nn.Embedding)
        for weight in part.parameters(recurse=False)
        if weight.ndim > 1
    )
