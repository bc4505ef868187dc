"""The rows: constraints, indexes that name the query they serve, and querysets with names.

Updates and events are append-only: triggers in both databases refuse to change or delete
them (migration `0002`). Only `sessions.ingest` writes them.

What a runner sent is kept as text, byte for byte, in `TextField`s: a JSON column type would
reorder keys, refuse lone surrogates and turn -0.0 into 0.0.
"""

from __future__ import annotations

from django.conf import settings
from django.core.validators import RegexValidator
from django.db import models
from django.db.models import F, Q
from django.urls import reverse

from .core.events import LOST, Disposition, Reason
from .core.reducer import Path

SESSION_KEY_PATTERN = r"[A-Za-z0-9._:-]{1,200}"
NAME_LENGTH = settings.LIMITS["name_characters"]


class Workspace(models.Model):
    """Owns sessions and tokens. One, called *default*, until someone needs a second."""

    slug = models.SlugField(unique=True)
    name = models.CharField(max_length=NAME_LENGTH)

    def __str__(self) -> str:
        return self.name


class Counters(models.Model):
    """What was counted, on a session, a turn and a step alike. Never decreases: abandoned
    rows stay counted here, and `Session.abandoned` says how many of them there are."""

    updates = models.PositiveBigIntegerField(default=0)
    events = models.PositiveBigIntegerField(default=0, help_text="All, the lost ones included.")
    logged = models.PositiveBigIntegerField(default=0)
    dropped = models.PositiveBigIntegerField(default=0)
    refused = models.PositiveBigIntegerField(default=0)
    invalid = models.PositiveBigIntegerField(default=0)
    tool_calls = models.PositiveBigIntegerField(default=0)
    errors = models.PositiveBigIntegerField(default=0)

    class Meta:
        abstract = True

    @property
    def lost(self) -> int:
        """Events that reached us and no log: dropped, refused or invalid."""
        return self.dropped + self.refused + self.invalid

    @property
    def entries(self) -> int:
        """Rows in the timeline: updates and events."""
        return self.updates + self.events


COUNTER_FIELDS = tuple(field.name for field in Counters._meta.local_fields)


class SessionStatus(models.TextChoices):
    RUNNING = "running", "running"
    IDLE = "idle", "idle"
    ENDED = "ended", "ended"
    INTERRUPTED = "interrupted", "interrupted"


class SessionQuerySet(models.QuerySet["Session"]):
    def by_activity(self) -> SessionQuerySet:
        """Newest activity first; the id breaks ties, so that a keyset page can go on."""
        return self.order_by("-last_activity_at", "-id")


class Session(Counters):
    """One agent session. The row is locked while anything is written to the session; the
    version, the ordinals and the place in the log are counted here."""

    workspace = models.ForeignKey(Workspace, models.PROTECT, db_index=False)
    key = models.CharField(
        max_length=200, validators=[RegexValidator(rf"\A{SESSION_KEY_PATTERN}\Z")]
    )
    agent_name = models.CharField(max_length=NAME_LENGTH, blank=True)
    labels = models.TextField(default="{}", help_text="A JSON object of texts.")
    usage = models.TextField(default="{}", help_text="Token counters, a JSON object.")
    status = models.CharField(
        max_length=12, choices=SessionStatus.choices, default=SessionStatus.IDLE
    )
    parent = models.ForeignKey("self", models.PROTECT, null=True, related_name="forks")
    seed_length = models.PositiveBigIntegerField(null=True)
    started_at = models.DateTimeField()
    last_activity_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)

    version = models.PositiveBigIntegerField(default=0, help_text="Number of updates.")
    next_seq = models.PositiveBigIntegerField(default=0)
    next_ordinal = models.PositiveBigIntegerField(default=1)
    epoch = models.PositiveIntegerField(default=0)
    steps = models.PositiveBigIntegerField(default=0)
    abandoned = models.PositiveBigIntegerField(default=0)
    refusals = models.PositiveBigIntegerField(default=0, help_text="Updates refused whole.")
    total_tokens = models.PositiveBigIntegerField(default=0)
    head_digest = models.BinaryField(max_length=32, default=b"")

    # The place in the log. A stack kept as a linked list: a turn knows the turn it was opened
    # in, a step the step, so that opening and closing cost the same however deep it is.
    turns = models.PositiveBigIntegerField(default=0, help_text="turn_starts in the live log.")
    open_turn = models.ForeignKey("Turn", models.PROTECT, null=True, related_name="+")
    open_step = models.ForeignKey("Step", models.PROTECT, null=True, related_name="+")
    lead_turn = models.ForeignKey(
        "Turn", models.PROTECT, null=True, related_name="+",
        help_text="The next turn, when rows of its lead-in are here already.",
    )  # fmt: skip
    last_turn_reason = models.CharField(max_length=NAME_LENGTH, blank=True)

    # When to write the next checkpoint.
    checkpoint_bytes = models.PositiveBigIntegerField(default=0)
    bytes_since_checkpoint = models.PositiveBigIntegerField(default=0)

    objects = SessionQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["workspace", "key"], name="session_key_unique"),
        ]
        indexes = [
            # the list of sessions, and its keyset pages
            models.Index(
                F("workspace"), F("last_activity_at").desc(), F("id").desc(),
                name="session_list",
            ),
            # the list of one agent's sessions
            models.Index(
                F("workspace"), F("agent_name"), F("last_activity_at").desc(), F("id").desc(),
                name="session_list_agent",
            ),
            # the list of sessions in one status
            models.Index(
                F("workspace"), F("status"), F("last_activity_at").desc(), F("id").desc(),
                name="session_list_status",
            ),
            # the list of sessions with lost events
            models.Index(
                F("workspace"), F("last_activity_at").desc(), F("id").desc(),
                condition=Q(dropped__gt=0) | Q(refused__gt=0) | Q(invalid__gt=0),
                name="session_list_lost",
            ),
        ]  # fmt: skip

    def __str__(self) -> str:
        return self.key

    def get_absolute_url(self) -> str:
        return reverse("timeline", args=[self.key])


class Turn(Counters):
    """One turn of the agent loop, in one epoch. Opened by `turn_start`, or before it by the
    first row of its lead-in (then `started_ordinal` is null).

    `number` counts the `turn_start`s of the log; what the runner calls it is in
    `runner_number`. After a rewind into an open turn the new epoch goes on in a turn of its
    own (`continues`) with the same number.
    """

    session = models.ForeignKey(Session, models.PROTECT, db_index=False)
    epoch = models.PositiveIntegerField()
    number = models.PositiveBigIntegerField()
    runner_number = models.TextField(null=True, help_text="As JSON, when it is another one.")
    outer = models.ForeignKey("self", models.PROTECT, null=True, related_name="+", db_index=False)
    continues = models.ForeignKey(
        "self", models.PROTECT, null=True, related_name="+", db_index=False
    )
    steps = models.PositiveBigIntegerField(default=0, help_text="Number of the newest step.")
    first_ordinal = models.PositiveBigIntegerField()
    last_ordinal = models.PositiveBigIntegerField()
    started_ordinal = models.PositiveBigIntegerField(null=True)
    ended_ordinal = models.PositiveBigIntegerField(null=True)
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    reason = models.TextField(blank=True, help_text="Of its turn_end.")
    abandoned_from = models.PositiveBigIntegerField(
        null=True, help_text="Rows from this ordinal on were abandoned by a rewind."
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["session", "epoch", "number"], name="turn_number_unique"
            ),
        ]
        indexes = [
            # what a rewind abandons
            models.Index(fields=["session", "last_ordinal"], name="turn_last_ordinal"),
        ]

    def __str__(self) -> str:
        return f"turn {self.number}"


class Step(Counters):
    """One step of a turn: the unit of the timeline. Step 0 holds the rows of its turn that
    lie outside any step, the turn's lead-in included."""

    session = models.ForeignKey(Session, models.PROTECT, db_index=False)
    turn = models.ForeignKey(Turn, models.PROTECT, db_index=False)
    number = models.PositiveBigIntegerField()
    runner_number = models.TextField(null=True, help_text="As JSON, when it is another one.")
    outer = models.ForeignKey("self", models.PROTECT, null=True, related_name="+", db_index=False)
    first_ordinal = models.PositiveBigIntegerField()
    last_ordinal = models.PositiveBigIntegerField()
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    outcome = models.TextField(blank=True, help_text="Of its step_end.")
    abandoned_from = models.PositiveBigIntegerField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["turn", "number"], name="step_number_unique"),
        ]
        indexes = [
            # the timeline: steps of a session in order, a page at a time
            models.Index(fields=["session", "first_ordinal"], name="step_timeline"),
            # what a rewind abandons; the steps that changed since a poll's cursor
            models.Index(fields=["session", "last_ordinal"], name="step_last_ordinal"),
            # the filter "only lost": steps that hold lost events
            models.Index(
                fields=["session", "first_ordinal"],
                condition=Q(dropped__gt=0) | Q(refused__gt=0) | Q(invalid__gt=0),
                name="step_timeline_lost",
            ),
        ]

    def __str__(self) -> str:
        return f"step {self.number}"


class Epoch(models.Model):
    """A rewind: the runner went back to when its log had `to_seq` events.

    Rows with an ordinal from `cut` up to, but without, `first_ordinal` are abandoned by it.
    Epoch 0 has no row.
    """

    session = models.ForeignKey(Session, models.PROTECT, db_index=False, related_name="epochs")
    number = models.PositiveIntegerField()
    to_seq = models.PositiveBigIntegerField()
    cut = models.PositiveBigIntegerField()
    first_ordinal = models.PositiveBigIntegerField()
    version = models.PositiveBigIntegerField(help_text="Of the session when it was rewound.")
    deps_version = models.PositiveBigIntegerField(help_text="The version it went back to.")
    abandoned = models.PositiveBigIntegerField(help_text="Rows abandoned in all, by then.")
    by_event = models.BooleanField(help_text="Asked for by `rewind: true` on an event.")
    reason = models.TextField(blank=True)
    at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["session", "number"], name="epoch_number_unique"),
        ]
        indexes = [
            # rewinds inside a page of the timeline; the newest one before a cut
            models.Index(fields=["session", "first_ordinal"], name="epoch_first_ordinal"),
        ]

    def __str__(self) -> str:
        return f"epoch {self.number}"


class AppendOnly(models.Model):
    """Fields that updates and events share."""

    session = models.ForeignKey(Session, models.PROTECT, db_index=False)
    ordinal = models.PositiveBigIntegerField(help_text="Order in the session: ours, no clock's.")
    epoch = models.PositiveIntegerField()
    step = models.ForeignKey(Step, models.PROTECT, db_index=False)
    turn_number = models.PositiveBigIntegerField()
    step_number = models.PositiveBigIntegerField()
    received_at = models.DateTimeField()
    client_id = models.CharField(max_length=200, null=True, help_text="The runner's `id`.")
    client_digest = models.BinaryField(max_length=32, null=True)
    answer = models.TextField(null=True, help_text="The first answer, for a retry by `id`.")
    digest = models.BinaryField(max_length=32, help_text="Link of the session's hash chain.")

    class Meta:
        abstract = True


class Update(AppendOnly):
    """One context update, as received."""

    version = models.PositiveBigIntegerField()
    path = models.CharField(max_length=12, choices=[(path.value, path.value) for path in Path])
    operations = models.TextField(help_text="The JSON array as received, byte for byte.")
    keys = models.TextField(help_text="JSON array of the deps keys touched.")
    differs = models.TextField(
        default="[]", help_text="JSON array: where `runner` left another value than `context`."
    )
    context_refusal = models.TextField(
        blank=True, help_text="Why the `context` path would have refused it."
    )
    tool_call_id = models.CharField(max_length=200, null=True)
    tool_name = models.CharField(max_length=200, null=True)
    occurred_at = models.CharField(max_length=64, null=True, help_text="The runner's clock.")
    first_seq = models.PositiveBigIntegerField(null=True, help_text="Of its first logged event.")
    last_seq = models.PositiveBigIntegerField(null=True, help_text="Of its last logged event.")
    log_events = models.TextField(
        default="[]", help_text="JSON array: per log_event, what the answer said of it."
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["session", "version"], name="update_version_unique"),
            models.UniqueConstraint(fields=["session", "ordinal"], name="update_ordinal_unique"),
            models.UniqueConstraint(
                fields=["session", "client_id"], condition=Q(client_id__isnull=False),
                name="update_client_id_unique",
            ),
        ]  # fmt: skip
        indexes = [
            # the entries of a step, in order
            models.Index(fields=["step", "ordinal"], name="update_step"),
            # a rewind: the update that holds the last event kept
            models.Index(
                fields=["session", "last_seq"], condition=Q(last_seq__isnull=False),
                name="update_last_seq",
            ),
        ]  # fmt: skip

    def __str__(self) -> str:
        return f"update {self.version}"


class EventQuerySet(models.QuerySet["Event"]):
    def lost(self) -> EventQuerySet:
        """Events that reached us and no log."""
        return self.exclude(disposition=Disposition.LOGGED)


class Event(AppendOnly):
    """One session event: logged, with a seq, or lost, with a reason."""

    seq = models.PositiveBigIntegerField(null=True)
    type = models.TextField(help_text="As received; at most 200 characters.")
    data = models.TextField(help_text="The JSON object as received, byte for byte.")
    time = models.CharField(max_length=64, null=True, help_text="The runner's clock, as received.")
    disposition = models.CharField(
        max_length=8, choices=[(value.value, value.value) for value in Disposition]
    )
    reason = models.CharField(
        max_length=40, blank=True, choices=[(value.value, value.value) for value in Reason]
    )
    update = models.ForeignKey(Update, models.PROTECT, null=True, db_index=False)
    operation_index = models.PositiveIntegerField(null=True)
    # The place in the log after this event, for rewinds and forks: ids of Turn and Step.
    turns_after = models.PositiveBigIntegerField(default=0)
    open_turn_after = models.PositiveBigIntegerField(null=True)
    open_step_after = models.PositiveBigIntegerField(null=True)

    objects = EventQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["session", "ordinal"], name="event_ordinal_unique"),
            models.UniqueConstraint(
                fields=["session", "seq", "epoch"], condition=Q(seq__isnull=False),
                name="event_seq_unique",
            ),
            models.UniqueConstraint(
                fields=["session", "client_id"], condition=Q(client_id__isnull=False),
                name="event_client_id_unique",
            ),
            models.CheckConstraint(
                condition=Q(disposition="logged", seq__isnull=False)
                | (~Q(disposition="logged") & Q(seq__isnull=True)),
                name="event_seq_when_logged",
            ),
        ]  # fmt: skip
        indexes = [
            # the entries of a step, in order
            models.Index(fields=["step", "ordinal"], name="event_step"),
            # the lost events of a session, in order
            models.Index(
                fields=["session", "ordinal"], condition=~Q(disposition="logged"),
                name="event_lost_in_session",
            ),
            # admin: lost events, the newest first, by disposition
            models.Index(
                fields=["disposition", "id"], condition=~Q(disposition="logged"),
                name="event_lost",
            ),
        ]  # fmt: skip

    def __str__(self) -> str:
        return f"{self.type} {self.seq}" if self.seq is not None else f"{self.type} (lost)"

    @property
    def is_lost(self) -> bool:
        return self.disposition in LOST


class Checkpoint(models.Model):
    """The deps at a version, so that a fold need not start at the first update. One written
    by a rewind belongs to the epoch that it opened."""

    session = models.ForeignKey(Session, models.PROTECT, db_index=False)
    version = models.PositiveBigIntegerField()
    epoch = models.PositiveIntegerField()
    deps = models.TextField()

    class Meta:
        constraints = [
            # the nearest checkpoint at or before a version
            models.UniqueConstraint(
                fields=["session", "version", "epoch"], name="checkpoint_unique"
            ),
        ]

    def __str__(self) -> str:
        return f"checkpoint at {self.version}"


class Claim(models.Model):
    """An `Idempotency-Key` that was answered, in the transaction that stored the rows."""

    session = models.ForeignKey(Session, models.PROTECT, db_index=False)
    key = models.CharField(max_length=200)
    digest = models.BinaryField(max_length=32)
    answer = models.TextField()
    at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["session", "key"], name="claim_key_unique"),
        ]

    def __str__(self) -> str:
        return self.key


class Refusal(models.Model):
    """An update that the reducer refused, kept for staff to read: nothing of it was applied."""

    workspace = models.ForeignKey(Workspace, models.PROTECT)
    session_key = models.CharField(max_length=200)
    token = models.ForeignKey("Token", models.PROTECT, null=True, db_index=False)
    problem = models.TextField(help_text="The problem document that was answered.")
    body = models.TextField(help_text="The update as received.")
    at = models.DateTimeField()

    class Meta:
        indexes = [
            # the refusals of a session, the newest first
            models.Index(fields=["workspace", "session_key", "-id"], name="refusal_session"),
        ]

    def __str__(self) -> str:
        return f"refused for {self.session_key}"


class Token(models.Model):
    """A runner's API key. Only a prefix and the SHA-256 of it are stored."""

    workspace = models.ForeignKey(Workspace, models.PROTECT)
    label = models.CharField(max_length=NAME_LENGTH)
    prefix = models.CharField(max_length=16)
    digest = models.BinaryField(max_length=32, unique=True)
    can_ingest = models.BooleanField(default=False)
    can_read = models.BooleanField(default=False)
    created_at = models.DateTimeField()
    last_used_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"{self.label} ({self.prefix}…)"


class AuditRecord(models.Model):
    """Who did what to the dashboard itself. Outlives the account that did it."""

    workspace = models.ForeignKey(Workspace, models.PROTECT, null=True)
    at = models.DateTimeField()
    actor = models.CharField(max_length=NAME_LENGTH, help_text="A user's name or a token's label.")
    action = models.CharField(max_length=40)
    target = models.CharField(max_length=NAME_LENGTH, blank=True)
    detail = models.TextField(default="{}", help_text="A JSON object.")

    class Meta:
        indexes = [models.Index(fields=["action", "-id"], name="audit_action")]

    def __str__(self) -> str:
        return f"{self.actor}: {self.action} {self.target}"
