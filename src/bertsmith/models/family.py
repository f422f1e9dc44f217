"""The family: every member as the difference from its parent. Read top to bottom, a history of the field."""

from dataclasses import replace

from bertsmith.errors import RecipeError, suggest
from bertsmith.models.elmo import ElmoConfig
from bertsmith.models.networks import NetworkConfig
from bertsmith.models.recurrent import RecurrentConfig
from bertsmith.models.seq2seq import Seq2SeqConfig
from bertsmith.models.transformer_config import TransformerConfig

# Mikolov et al. 2010, "Recurrent neural network based language model": one hidden state for all earlier words. It soon
# forgets: gradients vanish over many time steps (Bengio et al. 1994).
RNN_SMALL = RecurrentConfig(cell="rnn", width=200, layers=1)
# Sundermeyer et al. 2012, "LSTM Neural Networks for Language Modeling": a cell state with gates (Hochreiter and
# Schmidhuber 1997) remembers over many steps.
LSTM_SMALL = replace(RNN_SMALL, cell="lstm", layers=2)
# Cho et al. 2014, "Learning Phrase Representations": fewer gates, and no cell state.
GRU_SMALL = replace(LSTM_SMALL, cell="gru")
# Zaremba et al. 2014, "Recurrent Neural Network Regularization": larger ones pay with dropout between layers, and none
# between time steps. Departs from the paper: one dropout mask serves all time steps of a sequence.
LSTM_MEDIUM = replace(LSTM_SMALL, width=650, input_dropout=0.5, layer_dropout=0.5, dropout=0.5)
LSTM_LARGE = replace(LSTM_MEDIUM, width=1500, input_dropout=0.65, layer_dropout=0.65, dropout=0.65)

# Sutskever et al. 2014, "Sequence to Sequence Learning with Neural Networks": an LSTM encoder turns the reversed source
# into one vector, and an LSTM decoder generates the target from it.
SEQ2SEQ_LARGE = Seq2SeqConfig(
    vocabulary=80_000,
    width=1000,
    hidden=1000,
    layers=4,
    decoder_layers=4,
    direction="right_to_left",
    attention="none",
    tie_embeddings=False,
    dropout=0.0,
)
# Luong et al. 2015, "Effective Approaches to Attention-based Neural Machine Translation": the decoder attends to every
# source word, as first in Bahdanau et al. 2015, so that a long text need not fit into one vector.
LSTM_ATTENTION_LARGE = replace(SEQ2SEQ_LARGE, vocabulary=50_000, attention="bilinear", dropout=0.2)
# Both for tens of thousands of sentences, with a bidirectional encoder.
LSTM_ATTENTION = Seq2SeqConfig()
SEQ2SEQ = replace(LSTM_ATTENTION, attention="none")

# Vaswani et al. 2017, "Attention Is All You Need": encoder and decoder of attention alone, without recurrence.
TRANSFORMER = TransformerConfig(
    vocabulary=37_000,
    width=512,
    layers=6,
    decoder_layers=6,
    heads=8,
    feed_forward=2048,
    positions="sinusoidal",
    segments=0,
    activation="relu",
    embedding_norm=False,
    norm_eps=1e-5,
)
# For tens of thousands of sentences, to which the base model overfits. The tiny one is of Wu et al. 2021, "Good for
# Misconceived Reasons", for image captions.
TRANSFORMER_SMALL = replace(
    TRANSFORMER, vocabulary=8_192, width=256, layers=3, decoder_layers=3, heads=4, feed_forward=1024
)
TRANSFORMER_TINY = replace(TRANSFORMER_SMALL, width=128, layers=4, decoder_layers=4, feed_forward=256)

# Radford et al. 2018, "Improving Language Understanding by Generative Pre-Training": a decoder alone, which
# predicts every token from those before it.
GPT = TransformerConfig(
    vocabulary=40_478, causal=True, segments=0, activation="gelu_tanh", embedding_norm=False, norm_eps=1e-5
)

# Merity et al. 2017, "Regularizing and Optimizing LSTM Language Models": weight tying (Press and Wolf 2016) and dropout
# everywhere: of words, of hidden vectors, and of the recurrent weights (DropConnect).
AWD_LSTM = RecurrentConfig(
    vocabulary=33_278,
    width=400,
    hidden=1150,
    layers=3,
    tie_embeddings=True,
    embedding_dropout=0.1,
    input_dropout=0.65,
    weight_dropout=0.5,
    layer_dropout=0.2,
    dropout=0.4,
)

# Peters et al. 2018, "Deep contextualized word representations": a character CNN and an LSTM stack in each direction;
# every layer gives features for other models. The small and the medium one were published with it.
ELMO = ElmoConfig()
ELMO_SMALL = replace(ELMO, hidden=1024, width=256, highway_layers=1)
ELMO_MEDIUM = replace(ELMO_SMALL, hidden=2048, width=512)

# Devlin et al. 2018, "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding".
BERT = TransformerConfig()

# The same paper: three times the size, and better even on tasks with few examples.
BERT_LARGE = replace(BERT, width=1024, layers=24, heads=16, feed_forward=4096)

# Turc et al. 2019, "Well-Read Students Learn Better": small models are worth pretraining, too.
BERT_MEDIUM = replace(BERT, width=512, layers=8, heads=8, feed_forward=2048)
BERT_SMALL = replace(BERT_MEDIUM, layers=4)
BERT_MINI = replace(BERT_SMALL, width=256, heads=4, feed_forward=1024)
BERT_TINY = replace(BERT_MINI, width=128, layers=2, heads=2, feed_forward=512)

# Radford et al. 2019, "Language Models are Unsupervised Multitask Learners": GPT with pre-norm, byte-level BPE, twice
# the length. The larger ones do tasks that they were not trained for (zero-shot).
GPT2 = replace(GPT, vocabulary=50_257, max_length=1024, norm_position="pre")
GPT2_MEDIUM = replace(GPT2, width=1024, layers=24, heads=16, feed_forward=4096)
GPT2_LARGE = replace(GPT2, width=1280, layers=36, heads=20, feed_forward=5120)
GPT2_XL = replace(GPT2, width=1600, layers=48, heads=25, feed_forward=6400)

# Liu et al. 2019, "RoBERTa: A Robustly Optimized BERT Pretraining Approach": the same network, trained longer on more
# text, with dynamic masking, no next-sentence prediction, and byte-level BPE. Position ids begin after the padding id.
ROBERTA = replace(BERT, vocabulary=50_265, position_offset=2, segments=1, norm_eps=1e-5)
# Conneau et al. 2019, "Unsupervised Cross-lingual Representation Learning at Scale": the same for a hundred languages;
# Martin et al. 2019, "CamemBERT: a Tasty French Language Model": and for one.
XLM_ROBERTA = replace(ROBERTA, vocabulary=250_002, alias="xlm-roberta")
CAMEMBERT = replace(ROBERTA, vocabulary=32_005, alias="camembert")
ROBERTA_LARGE = replace(ROBERTA, width=1024, layers=24, heads=16, feed_forward=4096)

# Sanh et al. 2019, "DistilBERT, a distilled version of BERT": every second layer, no segments and no pooler; distilled
# from BERT.
DISTILBERT = replace(BERT, layers=6, segments=0, pooler="relu")

# Song et al. 2020, "MPNet: Masked and Permuted Pre-training for Language Understanding": RoBERTa's positions, and a
# relative position bias as well.
MPNET = replace(ROBERTA, vocabulary=30_527, positions="learned_relative", segments=0)

# Raffel et al. 2019, "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer": back to the
# encoder-decoder of 2017, every task as text; positions only as a relative bias.
T5 = replace(
    BERT,
    vocabulary=32_128,
    decoder_layers=12,
    positions="relative",
    scale_scores=False,
    segments=0,
    activation="relu",
    norm_position="pre",
    embedding_norm=False,
    norm="rms",
    biases=False,
    norm_eps=1e-6,
)
T5_SMALL = replace(T5, width=512, layers=6, decoder_layers=6, heads=8, feed_forward=2048)
T5_LARGE = replace(T5, width=1024, layers=24, decoder_layers=24, heads=16, feed_forward=4096)
# Its version 1.1, of the year after: GeGLU, an untied output layer, no dropout in pretraining.
T5_V1_1 = replace(
    T5, feed_forward=2048, activation="gelu_tanh", gated=True, tie_embeddings=False, dropout=0.0, attention_dropout=0.0
)
T5_V1_1_SMALL = replace(T5_V1_1, width=512, layers=8, decoder_layers=8, heads=6, head_width=64, feed_forward=1024)
T5_V1_1_LARGE = replace(T5_V1_1, width=1024, layers=24, decoder_layers=24, heads=16, feed_forward=2816)

# Lan et al. 2019, "ALBERT: A Lite BERT for Self-supervised Learning of Language Representations": cross-layer parameter
# sharing and a factorised embedding, so that a wide network has few parameters; sentence-order prediction.
ALBERT = replace(
    BERT,
    vocabulary=30_000,
    embedding_width=128,
    share_layers=True,
    activation="gelu_tanh",
    dropout=0.0,
    attention_dropout=0.0,
)
ALBERT_LARGE = replace(ALBERT, width=1024, layers=24, heads=16, feed_forward=4096)
ALBERT_XLARGE = replace(ALBERT_LARGE, width=2048, feed_forward=8192)
ALBERT_XXLARGE = replace(ALBERT, width=4096, heads=64, feed_forward=16_384)

# Clark et al. 2020, "ELECTRA: Pre-training Text Encoders as Discriminators Rather Than Generators": BERT's network
# detects the tokens that a smaller generator replaced. Every task trains its own pooler.
ELECTRA = replace(BERT, pooler="gelu")
ELECTRA_LARGE = replace(ELECTRA, width=1024, layers=24, heads=16, feed_forward=4096)
ELECTRA_SMALL = replace(ELECTRA, width=256, embedding_width=128, heads=4, feed_forward=1024)

# Warner et al. 2024, "Smarter, Better, Faster, Longer" (ModernBERT): rotary positions (Su et al. 2021), GeGLU (Shazeer
# 2020), pre-norm (Xiong et al. 2020), and sliding-window attention in two of three layers.
MODERN_BERT = replace(
    BERT,
    vocabulary=50_368,
    layers=22,
    feed_forward=1152,
    max_length=8192,
    positions="rotary",
    rotary_base=160_000.0,
    window=64,
    segments=0,
    norm_position="pre",
    gated=True,
    biases=False,
    norm_eps=1e-5,
    dropout=0.0,
    attention_dropout=0.0,
)
MODERN_BERT_LARGE = replace(MODERN_BERT, width=1024, layers=28, heads=16, feed_forward=2624)

# Ours, for pretraining of minutes: ModernBERT's design at BERT's sizes, without a sliding window. A feed-forward
# network of 8/3 of the width, to a multiple of 64, makes up for GeGLU's third matrix.
SMITH = replace(
    MODERN_BERT, vocabulary=30_522, layers=12, feed_forward=2048, max_length=512, rotary_base=10_000.0, window=0
)
SMITH_LARGE = replace(SMITH, width=1024, layers=24, heads=16, feed_forward=2752)
SMITH_MEDIUM = replace(SMITH, width=512, heads=8, feed_forward=1344)  # as deep as base: BERT's medium has 8 layers
SMITH_SMALL = replace(SMITH_MEDIUM, layers=4)
SMITH_MINI = replace(SMITH_SMALL, width=256, heads=4, feed_forward=704)
SMITH_TINY = replace(SMITH_MINI, width=128, layers=2, heads=2, feed_forward=320)

FAMILY: dict[str, NetworkConfig] = {
    "rnn-small": RNN_SMALL,
    "lstm-small": LSTM_SMALL,
    "gru-small": GRU_SMALL,
    "lstm-medium": LSTM_MEDIUM,
    "lstm-large": LSTM_LARGE,
    "seq2seq": SEQ2SEQ,
    "seq2seq-large": SEQ2SEQ_LARGE,
    "lstm-attention": LSTM_ATTENTION,
    "lstm-attention-large": LSTM_ATTENTION_LARGE,
    "transformer-base": TRANSFORMER,
    "transformer-small": TRANSFORMER_SMALL,
    "transformer-tiny": TRANSFORMER_TINY,
    "awd-lstm": AWD_LSTM,
    "gpt": GPT,
    "elmo": ELMO,
    "elmo-medium": ELMO_MEDIUM,
    "elmo-small": ELMO_SMALL,
    "bert-base": BERT,
    "bert-large": BERT_LARGE,
    "bert-medium": BERT_MEDIUM,
    "bert-small": BERT_SMALL,
    "bert-mini": BERT_MINI,
    "bert-tiny": BERT_TINY,
    "gpt2": GPT2,
    "gpt2-medium": GPT2_MEDIUM,
    "gpt2-large": GPT2_LARGE,
    "gpt2-xl": GPT2_XL,
    "roberta-base": ROBERTA,
    "roberta-large": ROBERTA_LARGE,
    "xlm-roberta-base": XLM_ROBERTA,
    "camembert-base": CAMEMBERT,
    "distilbert-base": DISTILBERT,
    "mpnet-base": MPNET,
    "t5-small": T5_SMALL,
    "t5-base": T5,
    "t5-large": T5_LARGE,
    "t5-v1.1-small": T5_V1_1_SMALL,
    "t5-v1.1-base": T5_V1_1,
    "t5-v1.1-large": T5_V1_1_LARGE,
    "albert-base": ALBERT,
    "albert-large": ALBERT_LARGE,
    "albert-xlarge": ALBERT_XLARGE,
    "albert-xxlarge": ALBERT_XXLARGE,
    "electra-small": ELECTRA_SMALL,
    "electra-base": ELECTRA,
    "electra-large": ELECTRA_LARGE,
    "modernbert-base": MODERN_BERT,
    "modernbert-large": MODERN_BERT_LARGE,
    "smith-base": SMITH,
    "smith-large": SMITH_LARGE,
    "smith-medium": SMITH_MEDIUM,
    "smith-small": SMITH_SMALL,
    "smith-mini": SMITH_MINI,
    "smith-tiny": SMITH_TINY,
}


def member(name: str) -> NetworkConfig:
    """The network configuration of a member by its name."""
    if name not in FAMILY:
        raise RecipeError("model.kind", f"unknown member '{name}'", suggest(name, FAMILY))
    return FAMILY[name]
