"""Packing: sequences cut from shards and laid into flat batches of a fixed number of tokens, by position alone.

Six sentences in two documents, a letter for each token; sequences of at most 12 tokens, batches of 16, no pairs:

    documents  AAAABBBBBCCC               DDDDDDEEFFFFFFF
    plan       [AAAABBBBB]  [CCC]         [DDDDDDEE]  [FFFFFFF]     a sequence takes the sentences that fit
    order      [FFFFFFF]  [AAAABBBBB]  [DDDDDDEE]  [CCC]            shuffled in every epoch
    batches    [FFFFFFF][AAA]..  [ABBBBB][DDDD]..  [DDEE][CCC].....

`[` and `]` are [CLS] and [SEP], dots are filler. The 35 tokens take three batches, which get about as many each, so the
sequence that does not fit into a batch any more is cut in two. Each half is a sequence with special tokens of its own.
A real section has hundreds of batches, and 0.1 to 0.4 % of it is filler.

With pairs nothing is cut, since a pair would lose its second text. One of a batch's last sequences is swapped with a
later one instead, so that the lengths add up.
"""
