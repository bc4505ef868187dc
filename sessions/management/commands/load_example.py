"""`manage.py load_example`: post the example sessions to a server that runs."""

from __future__ import annotations

import os
from argparse import ArgumentParser
from typing import Any
from urllib.parse import urljoin

from django.core.management.base import BaseCommand, CommandError

from sessions.example import load_examples
from sessions.example.client import Api, ApiError, http_transport
from sessions.example.load import MAIN_KEY


class Command(BaseCommand):
    help = (
        "Post the example sessions through the HTTP API of a running server. The last line is "
        "the address of the main one. Run again, it adds only what is missing."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--url", default="http://127.0.0.1:8000", help="the server's address")
        parser.add_argument("--token", help="with the scopes ingest and read; else $NOUSWEB_TOKEN")
        parser.add_argument("--key", default=MAIN_KEY, help="key of the main session")
        parser.add_argument(
            "--pause", type=float, default=0.0, metavar="SECONDS",
            help="wait after each post, to watch a page follow the session",
        )  # fmt: skip

    def handle(self, *args: Any, **options: Any) -> None:
        token = options["token"] or os.environ.get("NOUSWEB_TOKEN")
        if not token:
            raise CommandError("A token is needed: --token, or the variable NOUSWEB_TOKEN.")
        try:
            api = Api(http_transport(options["url"]), token, pause=options["pause"])
            path = load_examples(api, options["key"], self.stdout.write)
        except ValueError as error:
            raise CommandError(str(error)) from None
        except ApiError as error:
            raise CommandError(f"The server refused a request: {error}") from None
        except OSError as error:
            raise CommandError(f"{options['url']} can't be reached: {error}") from None
        self.stdout.write(urljoin(options["url"], path))
