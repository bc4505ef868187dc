"""The pages' table of contents."""

from django.urls import path, register_converter

from . import views
from .models import SESSION_KEY_PATTERN


class SessionKey:
    """A session's key; `.` and `..` are none, since no URL keeps them."""

    regex = rf"(?!\.{{1,2}}/){SESSION_KEY_PATTERN}"

    def to_python(self, value: str) -> str:
        return value

    def to_url(self, value: str) -> str:
        return value


class Ordinal:
    """A whole number that both databases hold."""

    regex = "[0-9]{1,18}"

    def to_python(self, value: str) -> int:
        return int(value)

    def to_url(self, value: int) -> str:
        return str(value)


register_converter(SessionKey, "key")
register_converter(Ordinal, "number")

urlpatterns = [
    path("", views.sessions, name="sessions"),
    path("changed/", views.sessions_changed, name="sessions-changed"),
    path("lost/", views.lost, name="lost"),
    path("sessions/<key:key>/", views.session_timeline, name="timeline"),
    path("sessions/<key:key>/more/", views.more_steps, name="more-steps"),
    path("sessions/<key:key>/summary/", views.summary, name="summary"),
    path("sessions/<key:key>/rail/", views.rail, name="rail"),
    path("sessions/<key:key>/poll/", views.poll, name="poll"),
    path("sessions/<key:key>/news/", views.news, name="news"),
    path("sessions/<key:key>/steps/<number:pk>/", views.step_page, name="step"),
    path("sessions/<key:key>/steps/<number:pk>/entries/", views.entries, name="entries"),
    path("sessions/<key:key>/steps/<number:pk>/slice/", views.step_slice, name="slice"),
    path("sessions/<key:key>/steps/<number:pk>/head/", views.step_head, name="step-head"),
    path("sessions/<key:key>/steps/<number:pk>/turn/", views.turn_head, name="turn-head"),
    path("sessions/<key:key>/entries/<number:ordinal>/", views.entry, name="entry"),
    path("sessions/<key:key>/entries/<number:ordinal>/raw/", views.entry_raw, name="entry-raw"),
    path("sessions/<key:key>/deps/", views.deps, name="deps"),
    path("sessions/<key:key>/deps/panel/", views.deps_panel, name="deps-panel"),
    path("sessions/<key:key>/log/", views.log, name="log"),
    path("sessions/<key:key>/refusals/", views.refusals, name="refusals"),
]
