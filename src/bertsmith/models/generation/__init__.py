"""Text generation: greedy decoding, sampling, beam search and prompt-lookup decoding, for any language model."""
