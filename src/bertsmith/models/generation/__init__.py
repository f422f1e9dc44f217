"""Generation: sampling, beam search and prompt-lookup decoding on top of any network that predicts next tokens."""
