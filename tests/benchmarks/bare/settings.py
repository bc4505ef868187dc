"""Only what a bare endpoint needs. The database is set up exactly as nousweb's is."""

from nousweb.settings import DATABASES as DATABASES
from nousweb.settings import LIMITS as LIMITS
from nousweb.settings import SECRET_KEY as SECRET_KEY

DEBUG = False
ALLOWED_HOSTS = ["127.0.0.1"]
INSTALLED_APPS = ["ninja", "tests.benchmarks.bare"]
MIDDLEWARE: list[str] = []
ROOT_URLCONF = "tests.benchmarks.bare.urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
DATA_UPLOAD_MAX_MEMORY_SIZE = LIMITS["body_bytes"]
