"""The server that most people write: sentence-transformers behind FastAPI. A peer of `bertsmith serve`.

    python bench/serve_peer.py MODEL PORT [DEVICE] [DTYPE]

It answers POST /v1/embeddings with texts in OpenAI's form, a request at a time in FastAPI's threads.
"""

import sys

import torch
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from sentence_transformers import SentenceTransformer


class Body(BaseModel):
    """The body of a request."""

    input: str | list[str]
    model: str = ""


def application(folder: str, device: str, dtype: str) -> FastAPI:
    """The application."""
    model = SentenceTransformer(folder, device=device, model_kwargs={"dtype": getattr(torch, dtype)})
    app = FastAPI()

    @app.post("/v1/embeddings")
    def embeddings(body: Body) -> dict:
        texts = [body.input] if isinstance(body.input, str) else body.input
        vectors = model.encode(texts, show_progress_bar=False, convert_to_tensor=True).float().cpu().tolist()
        data = [{"object": "embedding", "index": n, "embedding": vector} for n, vector in enumerate(vectors)]
        return {"object": "list", "data": data, "model": body.model}

    @app.get("/health")
    def health() -> dict:
        return {"status": "ok"}

    return app


if __name__ == "__main__":
    place, port, device, dtype = [*sys.argv[1:], "cpu", "float32"][:4]
    uvicorn.run(application(place, device, dtype), host="127.0.0.1", port=int(port), log_level="error")
