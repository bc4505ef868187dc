"""The Django app. Its label is `agent_sessions`: django.contrib.sessions owns `sessions`."""

from django.apps import AppConfig


class SessionsConfig(AppConfig):
    name = "sessions"
    label = "agent_sessions"
    verbose_name = "Agent sessions"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from . import checks, database  # noqa: F401
