"""Query strings: parsed into forms, and rebuilt with a part replaced."""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import QueryDict

from .core.events import LOST
from .models import SessionStatus

_MOST = 2**62


class SessionFilters(forms.Form):
    """The filters of the sessions list."""

    agent = forms.CharField(required=False, max_length=200)
    status = forms.ChoiceField(required=False, choices=[("", "any status"), *SessionStatus.choices])
    lost = forms.BooleanField(required=False, label="with lost events")
    q = forms.CharField(required=False, max_length=200, label="Key starts with")


class TimelineQuery(forms.Form):
    """Where in a timeline, and what of it."""

    lost = forms.BooleanField(required=False)
    after = forms.IntegerField(required=False, min_value=0, max_value=_MOST)
    before = forms.IntegerField(required=False, min_value=0, max_value=_MOST)
    at = forms.CharField(required=False, max_length=20)
    upto = forms.IntegerField(required=False, min_value=0, max_value=_MOST)
    epoch = forms.IntegerField(required=False, min_value=0, max_value=_MOST)
    last = forms.IntegerField(required=False, min_value=0, max_value=_MOST)
    turn = forms.IntegerField(required=False, min_value=0, max_value=_MOST)
    seen = forms.CharField(required=False, max_length=64)


class LostFilters(forms.Form):
    """The filters of the lost events."""

    disposition = forms.ChoiceField(
        required=False,
        choices=[("", "all of them"), *((value.value, value.value) for value in LOST)],
    )
    before = forms.IntegerField(required=False, min_value=0, max_value=_MOST)


def read_query(form_class: type[forms.Form], query: QueryDict) -> dict[str, Any]:
    """The cleaned values of a query string; a part that makes no sense is as if left out."""
    form = form_class(query)
    form.is_valid()
    return {name: form.cleaned_data.get(name) for name in form.fields}


def with_query(query: QueryDict, **changes: object) -> str:
    """The query string with parts replaced, or removed where the value is None or False."""
    changed = query.copy()
    for name, value in changes.items():
        changed.pop(name, None)
        if value is not None and value is not False:
            changed[name] = "1" if value is True else str(value)
    text = changed.urlencode()
    return f"?{text}" if text else "?"
