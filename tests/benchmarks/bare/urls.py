"""One endpoint: it validates an update's outer form, and inserts a row."""

from typing import Any, Literal

from django.http import HttpRequest
from django.urls import path
from ninja import NinjaAPI, Schema

from .models import Row

api = NinjaAPI(docs_url=None, openapi_url=None)


class ToolCall(Schema):
    id: str
    name: str


class Update(Schema):
    operations: list[Any]
    id: str | None = None
    path: Literal["context", "run_context", "runner"] = "context"
    tool_call: ToolCall | None = None
    occurred_at: str | None = None


@api.post("/sessions/{key}/updates", response={201: dict[str, int]})
def post_update(request: HttpRequest, key: str, update: Update) -> tuple[int, dict[str, int]]:
    """One row for one request, kept as received."""
    row = Row.objects.create(session=key, body=request.body.decode())
    return 201, {"id": row.pk}


urlpatterns = [path("api/v1/", api.urls)]
