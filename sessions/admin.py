"""The admin: everything to be read, nothing to be changed, no list counted to its end.

Changes go through ingest, tokens and audit, which check and record them; a form here would go
past all three, so superusers get none either.
"""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import admin
from django.core.paginator import Paginator
from django.db import models
from django.http import HttpRequest
from django.urls import reverse
from django.utils.functional import cached_property
from django.utils.html import format_html
from django.utils.safestring import SafeString

from .models import (
    AuditRecord,
    Checkpoint,
    Claim,
    Epoch,
    Event,
    Refusal,
    Session,
    Step,
    Token,
    Turn,
    Update,
    Workspace,
)
from .shown import readable

_CUT = 5000


MOST_COUNTED = 10_000


class BoundedPaginator(Paginator):  # type: ignore[type-arg]
    """Counts no further than 10,000 rows: counting millions takes seconds, and nobody pages
    that far. Older rows are reached by filters and by a session's key."""

    @cached_property
    def count(self) -> int:
        rows: Any = self.object_list
        return int(rows.order_by()[:MOST_COUNTED].count())


class ReadOnlyAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Lists the newest rows first, by primary key; shows, changes nothing."""

    paginator = BoundedPaginator
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER  # each facet counts the table
    ordering = ("-pk",)
    list_per_page = 100
    actions = None
    long_fields: tuple[str, ...] = ()
    """Left out of the list's query."""

    def get_queryset(self, request: HttpRequest) -> Any:
        rows = super().get_queryset(request)
        match = request.resolver_match
        is_list = match is not None and (match.url_name or "").endswith("changelist")
        return rows.defer(*self.long_fields) if is_list and self.long_fields else rows

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return [
            f"cut_{field.name}" if isinstance(field, models.TextField) else field.name
            for field in self.model._meta.concrete_fields
            if not isinstance(field, models.BinaryField)
        ]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return self.get_fields(request, obj)

    def __getattr__(self, name: str) -> Any:
        """`cut_<field>`: a long text, cut, so that a page stays a page."""
        if not name.startswith("cut_"):
            raise AttributeError(name)
        field = name.removeprefix("cut_")

        def cut(row: models.Model) -> str:
            text = readable(getattr(row, field) or "")
            return text if len(text) <= _CUT else f"{text[:_CUT]} … ({len(text):,} characters)"

        cut.short_description = field.replace("_", " ")  # type: ignore[attr-defined]
        return cut


admin.site.site_header = admin.site.site_title = "nousweb · admin"
admin.site.index_title = "Rows, to be read"


def _link(address: str, text: str) -> SafeString:
    return format_html('<a href="{}">{}</a>', address, text)


@admin.register(Session)
class SessionAdmin(ReadOnlyAdmin):
    list_display = (
        "key", "page", "agent_name", "status", "version", "events", "dropped", "refused",
        "invalid", "errors", "last_activity_at",
    )  # fmt: skip
    list_filter = ("status",)
    search_fields = ("key__startswith",)
    search_help_text = "The beginning of a key."
    list_select_related = ("workspace",)

    @admin.display(description="page")
    def page(self, session: Session) -> SafeString:
        return _link(session.get_absolute_url(), "timeline")


class InSessionAdmin(ReadOnlyAdmin):
    """Rows of a session, found by the session's key."""

    list_select_related: ClassVar[Any] = ("session",)
    search_fields = ("session__key__exact",)
    search_help_text = "A session's key, whole."

    @admin.display(description="entry")
    def entry(self, row: Any) -> SafeString:
        address = reverse("entry", args=[row.session.key, row.ordinal])
        return _link(address, f"{row.session.key} #{row.ordinal}")


class DispositionFilter(admin.SimpleListFilter):
    """By what became of an event; `lost` is all but logged."""

    title = "disposition"
    parameter_name = "disposition"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(name, name) for name in ("lost", "dropped", "refused", "invalid", "logged")]

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        value = self.value()
        if value == "lost":
            return queryset.lost()
        if value == "logged":
            return queryset.filter(disposition=value)
        if value:  # said twice: the partial index of lost events needs to see its condition
            return queryset.lost().filter(disposition=value)
        return queryset


@admin.register(Event)
class EventAdmin(InSessionAdmin):
    long_fields = ("data", "answer")
    list_display = (
        "id", "entry", "seq", "type", "disposition", "reason", "turn_number", "step_number",
        "received_at",
    )  # fmt: skip
    list_filter = (DispositionFilter,)


@admin.register(Update)
class UpdateAdmin(InSessionAdmin):
    long_fields = ("operations", "answer", "log_events")
    list_display = (
        "id", "entry", "version", "path", "tool_name", "turn_number", "step_number", "received_at",
    )  # fmt: skip


@admin.register(Refusal)
class RefusalAdmin(ReadOnlyAdmin):
    long_fields = ("body", "problem")
    list_display = ("id", "session_key", "token", "at")
    list_select_related = ("token",)
    search_fields = ("session_key__exact",)
    search_help_text = "A session's key, whole."


@admin.register(Turn)
class TurnAdmin(InSessionAdmin):
    list_display = ("id", "session", "epoch", "number", "reason", "events", "dropped", "errors")


@admin.register(Step)
class StepAdmin(InSessionAdmin):
    list_display = ("id", "session", "turn", "number", "outcome", "events", "dropped", "errors")
    list_select_related: ClassVar[Any] = ("session", "turn")


@admin.register(Epoch)
class EpochAdmin(InSessionAdmin):
    list_display = ("id", "session", "number", "to_seq", "deps_version", "by_event", "at")


@admin.register(Checkpoint)
class CheckpointAdmin(InSessionAdmin):
    long_fields = ("deps",)
    list_display = ("id", "session", "version", "epoch")


@admin.register(Claim)
class ClaimAdmin(InSessionAdmin):
    list_display = ("id", "session", "key", "at")


@admin.register(Token)
class TokenAdmin(ReadOnlyAdmin):
    list_display = (
        "label", "prefix", "can_ingest", "can_read", "created_at", "last_used_at", "revoked_at",
    )  # fmt: skip


@admin.register(AuditRecord)
class AuditRecordAdmin(ReadOnlyAdmin):
    list_display = ("id", "at", "actor", "action", "target")


@admin.register(Workspace)
class WorkspaceAdmin(ReadOnlyAdmin):
    list_display = ("slug", "name")
