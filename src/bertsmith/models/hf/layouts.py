"""The layouts of all model types of transformers, and the one in which a network is written."""

from bertsmith.errors import RecipeError
from bertsmith.models.hf import native
from bertsmith.models.hf.bert_likes import Albert, Bert, Camembert, DistilBert, Electra, MPNet, Roberta, XLMRoberta
from bertsmith.models.hf.encoder_decoders import T5, Marian
from bertsmith.models.hf.gpt import GPT2, OpenAIGPT
from bertsmith.models.hf.layout import HFLayout
from bertsmith.models.hf.modernbert import ModernBert
from bertsmith.models.networks import NetworkConfig
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.nn.activations import Activation


class Native(HFLayout):
    """Networks that transformers has no class for: their folders have our own names of settings and weights."""

    model_type = native.MODEL_TYPE
    defaults = TransformerConfig()
    architectures = {"trunk": native.MODEL_TYPE}
    special_tokens = T5.special_tokens


NATIVE = Native()
LAYOUTS: dict[str, HFLayout] = {
    layout.model_type: layout
    for layout in (
        *(Bert(), Roberta(), XLMRoberta(), Camembert(), DistilBert(), MPNet()),
        *(Albert(), Electra(), ModernBert(), OpenAIGPT(), GPT2(), T5(), Marian()),
    )
}


def model_type(config: TransformerConfig) -> str:
    """The model type of a network, by the one setting that sets it apart; the other settings must be the type's."""
    if config.alias:
        return config.alias
    if config.decoder_layers:
        return "marian" if config.positions == "sinusoidal" else "t5"
    if config.causal:
        return "gpt2" if config.norm_position == "pre" else "openai-gpt"
    if config.positions == "rotary":
        return "modernbert"
    if config.positions == "learned_relative":
        return "mpnet"
    if config.share_layers:
        return "albert"
    if config.pooler != "tanh":
        return "electra" if config.pooler == "gelu" else "distilbert"
    return "roberta" if config.position_offset else "bert"


def mlm_activation(config: TransformerConfig) -> Activation:
    """The activation of a network's masked LM head, as transformers has it."""
    return LAYOUTS[model_type(config)].mlm_activation or config.activation


def layout_of(config: NetworkConfig) -> HFLayout:
    """The layout of a network. One with a setting that no config.json can say is refused."""
    if not isinstance(config, TransformerConfig):
        return NATIVE
    layout = LAYOUTS[model_type(config)]
    if not layout.lost_settings(config):
        return layout
    nearest = min(LAYOUTS.values(), key=lambda other: len(other.lost_settings(config)))
    lost = nearest.lost_settings(config)
    ours, theirs = (", ".join(f"{name} = {values[name]}" for name in lost) for values in (vars(config), lost))
    fact = f"no class of transformers is a network with {ours}; the nearest, {nearest.model_type}, has {theirs}"
    raise RecipeError("model", fact, "See bertsmith list for members")
