"""Hugging Face folders: configs and state dicts of transformers and sentence-transformers, read and written."""
