"""Model folders in Hugging Face's format: configs and state dicts, read and written; and their manifests of hashes."""
