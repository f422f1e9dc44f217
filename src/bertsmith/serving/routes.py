"""The table of routes of a front."""

from bertsmith.serving import embedding_routes, huggingface, model_routes, openapi, page, schemas, text_routes
from bertsmith.serving.exchange import HTML, Answer, Request, Route, as_json

# These need no key, since they say nothing of the models.
OPEN = (("GET", "/health"), ("GET", "/"), ("GET", "/openapi.json"))


async def describe(request: Request, _: None) -> Answer:
    return as_json(openapi.document(list(ROUTES.values()), OPEN))


ROUTES: dict[tuple[str, str], Route] = {
    (route.method, route.path): route
    for route in (
        Route("GET", "/health", model_routes.health, "Whether the server is alive; needs no key"),
        Route("GET", "/", page.show, "The page for people", answers=HTML),
        Route("GET", "/ready", model_routes.ready, "Whether the models are loaded"),
        Route(
            "GET", "/metrics", model_routes.show_metrics, "Counters, in the format of Prometheus", answers="text/plain"
        ),
        Route("GET", "/openapi.json", describe, "This description"),
        Route("GET", "/v1/models", model_routes.models, "The models, as OpenAI lists them"),
        Route("GET", "/v1/models/", model_routes.one_model, "One model"),
        Route(
            "POST",
            "/v1/embeddings",
            embedding_routes.embeddings,
            "Embeddings, as OpenAI defines them",
            schemas.EmbeddingsBody,
        ),
        Route(
            "POST",
            "/embed",
            embedding_routes.embed_texts,
            "Embeddings as lists of numbers",
            schemas.EmbedBody,
            images=True,
        ),
        Route("POST", "/similarity", embedding_routes.similarity, "Cosines of sentences", schemas.SimilarityBody),
        Route("POST", "/rerank", embedding_routes.rerank, "Texts by relevance for a query", schemas.RerankBody),
        Route(
            "POST",
            "/predict",
            text_routes.predict,
            "What a fine-tuned model predicts",
            schemas.PredictBody,
            images=True,
        ),
        Route("POST", "/tag", text_routes.tag, "A tag for each word, and entities", schemas.TagBody),
        Route("POST", "/answer", text_routes.answer, "The span that answers a question", schemas.AnswerBody),
        Route("POST", "/fill", text_routes.fill, "The likeliest words for each mask", schemas.FillBody),
        Route("POST", "/score", text_routes.score, "Log-likelihood and perplexity of a text", schemas.ScoreBody),
        Route("POST", "/generate", text_routes.generate, "Continuations of a prompt", schemas.GenerateBody),
        Route("POST", "/translate", text_routes.translate, "Translations", schemas.TranslateBody),
        Route("POST", "/tokenize", text_routes.tokenize, "The tokens of a text", schemas.TokenizeBody),
        Route(
            "POST",
            "/inspect",
            text_routes.inspect,
            "A page of what the model looks at and predicts",
            schemas.InspectBody,
            answers=HTML,
            images=True,
        ),
        Route(
            "POST", "/", huggingface.inference, "Hugging Face's inference endpoint", schemas.InferenceBody, images=True
        ),
        Route(
            "POST",
            "/pipeline/",
            huggingface.inference,
            "The same for one of its tasks",
            schemas.InferenceBody,
            images=True,
        ),
    )
}
