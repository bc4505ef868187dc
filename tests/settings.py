"""The project's settings, with a data folder of the tests' own and the chosen database.

`NOUSWEB_TEST_DATABASE` is `sqlite` (the default) or `postgresql`; for the latter a throwaway
server is started here, unless `NOUSWEB_TEST_POSTGRES` has the URL of one.
"""

import atexit
import contextlib
import os
import shutil
import tempfile

_resources = contextlib.ExitStack()
atexit.register(_resources.close)

TEST_DATABASE = os.environ.get("NOUSWEB_TEST_DATABASE", "sqlite")
_folder = tempfile.mkdtemp(prefix="nousweb-tests-")
_resources.callback(shutil.rmtree, _folder, ignore_errors=True)
for _name in [name for name in os.environ if name.startswith("NOUSWEB_")]:
    if not _name.startswith("NOUSWEB_TEST_"):
        del os.environ[_name]
os.environ["NOUSWEB_DATA"] = _folder

if TEST_DATABASE == "postgresql":
    from tests.postgres import server

    os.environ["DATABASE_URL"] = os.environ.get("NOUSWEB_TEST_POSTGRES") or (
        _resources.enter_context(server())
    )
elif TEST_DATABASE == "sqlite":
    os.environ.pop("DATABASE_URL", None)
else:
    raise RuntimeError("NOUSWEB_TEST_DATABASE must be sqlite or postgresql")

from nousweb.settings import *  # noqa: E402, F403
from nousweb.settings import DATA_DIR, DATABASES  # noqa: E402

ALLOWED_HOSTS = ["localhost", "127.0.0.1", "testserver"]
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # quick; no secret here
if TEST_DATABASE == "sqlite":
    # In a file: threads of one test must meet the same locks as in production.
    DATABASES["default"]["TEST"] = {"NAME": str(DATA_DIR / "tests.sqlite3")}
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}
