"""What ninja can't see of bodies that we read ourselves, for the OpenAPI document."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from .schemas import EventIn, UpdateIn


def _schema(model: type[BaseModel]) -> dict[str, Any]:
    """The model's JSON Schema, whole in itself."""
    schema = model.model_json_schema()
    definitions = schema.pop("$defs", {})
    return _inline(schema, definitions)  # type: ignore[no-any-return]


def _inline(node: Any, definitions: dict[str, Any]) -> Any:
    if isinstance(node, list):
        return [_inline(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    reference = node.get("$ref")
    if isinstance(reference, str):
        return _inline(definitions[reference.rsplit("/", 1)[-1]], definitions)
    return {name: _inline(item, definitions) for name, item in node.items()}


_KEY_HEADER = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "schema": {"type": "string", "maxLength": 200},
    "description": "Sent again with the same body, the request gets its first answer again.",
}


def body_extra(model: type[BaseModel], what: str, *, array: bool = True) -> dict[str, Any]:
    """`openapi_extra` of a route whose body is a `model`, or an array of them."""
    one = _schema(model)
    schema = {"oneOf": [one, {"type": "array", "items": one}]} if array else one
    content: dict[str, Any] = {"schema": schema}
    if examples := one.get("examples"):
        content["example"] = examples[0]
    return {
        "requestBody": {
            "required": True,
            "description": what,
            "content": {"application/json": content},
        },
        "parameters": [_KEY_HEADER],
    }


def batch_extra() -> dict[str, Any]:
    """`openapi_extra` of the batch over many sessions."""
    session = {"session": {"type": "string", "description": "The session's key."}}
    items = []
    for model in (UpdateIn, EventIn):
        one = _schema(model)
        items.append(
            {
                **one,
                "properties": {**session, **one["properties"]},
                "required": ["session", *one.get("required", [])],
                "examples": [{"session": "run-1", **example} for example in one["examples"]],
            }
        )
    example = [{"session": "run-1", **item["examples"][0]} for item in items]
    schema = {"type": "array", "items": {"oneOf": items}}
    return {
        "requestBody": {
            "required": True,
            "description": "items of many sessions",
            "content": {
                "application/json": {"schema": schema, "example": example},
                "application/x-ndjson": {"schema": {"type": "string"}},
            },
        },
        "parameters": [_KEY_HEADER],
    }
