"""Bricks: attention, positions, layers, heads, pooling, recurrence, LoRA, dropout, first weights; and layers packed for
a CPU. They know no text, no data, no member.

Everything here works on one flat run of tokens. Only attention, pooling and recurrence know where a sequence begins.
One alphabet of shapes serves the whole house:

    T tokens                B sequences             L M lengths           D width
    E embedding width       F feed-forward width    H heads               K head width
    V vocabulary            N chosen positions
"""
