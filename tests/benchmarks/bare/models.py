"""One table."""

from typing import ClassVar

from django.db import models


class Row(models.Model):
    """What was posted, as text."""

    session = models.CharField(max_length=200)
    body = models.TextField()
    received_at = models.DateTimeField(auto_now_add=True)

    objects: "ClassVar[models.Manager[Row]]" = models.Manager()

    def __str__(self) -> str:
        return self.session
