"""Under `/api/` every error is a problem document, whoever raised it."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from . import problems

GetResponse = Callable[[HttpRequest], HttpResponseBase]


class ProblemMiddleware:
    """Outermost: turns what Django or ninja would say in HTML or plain text (a wrong method,
    an unknown address, a bad host, an error of ours) into a problem document."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self.get_response(request)
        if response.status_code < 400 or not request.path_info.startswith("/api/"):
            return response
        if response.get("Content-Type", "").startswith(problems.CONTENT_TYPE):
            return response
        made: HttpResponse = problems.response(problems.of_status(response.status_code))
        for name in ("Allow", "Retry-After", "WWW-Authenticate"):
            if name in response:
                made[name] = response[name]
        return made
