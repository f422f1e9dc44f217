"""Bricks: attention, positions, layers, heads, pooling, first weights. They know no text, no data, no member.

Everything here works on one flat run of tokens. Only attention and pooling know where a sequence begins.
One alphabet of shapes serves the whole house:

    T tokens                B sequences             L M lengths           D width
    E embedding width       F feed-forward width    H heads               K head width
    V vocabulary            N chosen positions
"""
