"""Recurrent networks: cells, LSTM stacks, bidirectional reading, decoders with attention, character CNNs."""
