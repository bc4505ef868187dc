"""Updates and events can't be changed or deleted behind the application's back.

Triggers refuse it in both databases. The one way through is `sessions.database.erasing`:
on SQLite a function that only our connections have, on PostgreSQL a setting local to the
transaction. SQLite's `INSERT OR REPLACE` deletes without firing delete triggers, so inserts
over an existing row are refused as well; PostgreSQL's TRUNCATE has a trigger of its own.
"""

from django.db import migrations

TABLES = ["agent_sessions_update", "agent_sessions_event"]

SQLITE = """
CREATE TRIGGER {table}_no_update BEFORE UPDATE ON {table}
WHEN nousweb_erasing() = 0
BEGIN SELECT RAISE(ABORT, '{table} is append-only: rows are never changed'); END;
CREATE TRIGGER {table}_no_delete BEFORE DELETE ON {table}
WHEN nousweb_erasing() = 0
BEGIN SELECT RAISE(ABORT, '{table} is append-only: rows are never deleted'); END;
CREATE TRIGGER {table}_no_replace BEFORE INSERT ON {table}
WHEN EXISTS (SELECT 1 FROM {table} WHERE id = NEW.id)
  OR EXISTS (SELECT 1 FROM {table} WHERE session_id = NEW.session_id AND ordinal = NEW.ordinal)
BEGIN SELECT RAISE(ABORT, '{table} is append-only: rows are never replaced'); END;
"""

SQLITE_DROP = """
DROP TRIGGER {table}_no_update;
DROP TRIGGER {table}_no_delete;
DROP TRIGGER {table}_no_replace;
"""

POSTGRES_FUNCTION = """
CREATE FUNCTION agent_sessions_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF current_setting('nousweb.erasing', true) = 'on' THEN
    IF TG_OP = 'DELETE' THEN RETURN OLD; END IF;
    RETURN NEW;
  END IF;
  RAISE EXCEPTION '% is append-only: rows are never changed or deleted', TG_TABLE_NAME
    USING ERRCODE = 'integrity_constraint_violation';
END $$;
"""

POSTGRES = """
CREATE TRIGGER {table}_append_only BEFORE UPDATE OR DELETE ON {table}
FOR EACH ROW EXECUTE FUNCTION agent_sessions_append_only();
CREATE TRIGGER {table}_no_truncate BEFORE TRUNCATE ON {table}
FOR EACH STATEMENT EXECUTE FUNCTION agent_sessions_append_only();
"""

POSTGRES_DROP = """
DROP TRIGGER {table}_append_only ON {table};
DROP TRIGGER {table}_no_truncate ON {table};
"""


def create(apps, schema_editor):
    with schema_editor.connection.cursor() as cursor:
        if schema_editor.connection.vendor == "postgresql":
            cursor.execute(POSTGRES_FUNCTION)
        for table in TABLES:
            _run(cursor, schema_editor, SQLITE, POSTGRES, table)


def drop(apps, schema_editor):
    with schema_editor.connection.cursor() as cursor:
        for table in TABLES:
            _run(cursor, schema_editor, SQLITE_DROP, POSTGRES_DROP, table)
        if schema_editor.connection.vendor == "postgresql":
            cursor.execute("DROP FUNCTION agent_sessions_append_only()")


def _run(cursor, schema_editor, sqlite, postgres, table):
    if schema_editor.connection.vendor == "postgresql":
        cursor.execute(postgres.format(table=table))
        return
    for statement in sqlite.format(table=table).split(";\n"):
        if not statement.strip():
            continue
        # a trigger holds one statement of its own, which ends before END
        cursor.execute(statement)


class Migration(migrations.Migration):
    dependencies = [("agent_sessions", "0001_sessions_updates_and_events")]

    operations = [migrations.RunPython(create, drop)]
