"""Serve the Django project of DJANGO_SETTINGS_MODULE: `… serve PORT WORKERS THREADS`."""

import sys

from nousweb.server import serve

if __name__ == "__main__":
    port, workers, threads = map(int, sys.argv[1:])
    serve("127.0.0.1", port, workers=workers, threads=threads)
