"""The one workspace there is until someone needs a second."""

from django.db import migrations


def create(apps, schema_editor):
    apps.get_model("agent_sessions", "Workspace").objects.get_or_create(
        slug="default", defaults={"name": "default"}
    )


class Migration(migrations.Migration):
    dependencies = [("agent_sessions", "0002_append_only")]

    operations = [migrations.RunPython(create, migrations.RunPython.noop)]
