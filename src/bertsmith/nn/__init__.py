"""Building blocks of networks: attention, positions, layers, heads, pooling, recurrence, LoRA, dropout, initialisation,
and prepacked layers for a CPU. They know no text, no data, no member of the family.

Everything here works on a flat sequence of tokens. Only attention, pooling and recurrence know where a sequence begins.
The letters of shapes, here and in all other packages:

    T tokens                B sequences             L M lengths           D width
    E embedding width       F feed-forward width    H heads               K head width
    V vocabulary            N selected positions
"""
