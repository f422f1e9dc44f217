"""The paths that are counted: those of the table of routes, which other processes should not have to import."""

PATHS = [
    "/health",
    "/ready",
    "/metrics",
    "/openapi.json",
    "/v1/models",
    "/v1/models/",
    "/v1/embeddings",
    "/embed",
    "/similarity",
    "/rerank",
    "/predict",
    "/tag",
    "/answer",
    "/fill",
    "/score",
    "/generate",
    "/translate",
    "/tokenize",
    "/",
    "/pipeline/",
]
