"""What each reason code means, and what to do about it; the codes themselves are the code's, and a test compares."""

from __future__ import annotations

from dataclasses import dataclass

from thothy_ai.jobs import RejectionReason

AT_ONCE = "yes, at once, with another seed; a failure is counted"
LATER = "yes, after a delay; a failure is counted"
FREE = "yes; nothing is counted"
NO = "no: the job is dead"


@dataclass(frozen=True, slots=True)
class Reason:
    """A reason code in words: what happened, whether the job is retried, what to do."""

    meaning: str
    retried: str
    advice: str


REJECTIONS: dict[RejectionReason, tuple[str, str]] = {
    RejectionReason.OFF_SCHEMA: (
        "The output does not parse as the artifact, or breaks a rule of its form.",
        "If most outputs do, check the kind's checks and its schema.",
    ),
    RejectionReason.TRUNCATED: (
        "The output reached its token budget, or stops in the middle of a sentence.",
        "Raise the kind's `max_tokens`, or ask for less.",
    ),
    RejectionReason.TOO_LONG: ("A text has more words or characters than allowed.", "Use a larger model."),
    RejectionReason.TOO_MANY_SENTENCES: ("A text has more sentences than its channel is for.", "Nothing."),
    RejectionReason.TOO_SHORT: ("A text has fewer words or characters than required.", "Use a longer source."),
    RejectionReason.EMPTY: ("The output, or a text of it, is empty.", "Check the model and its chat template."),
    RejectionReason.REPETITION: ("A text repeats itself.", "Use a larger model, or a higher `repetition_penalty`."),
    RejectionReason.WRONG_LANGUAGE: (
        "The text is not in the language of the request.",
        "Use a model that writes this language: the bundled one writes English only.",
    ),
    RejectionReason.COPIED_FROM_SOURCE: (
        "A long run of words is copied from the source.",
        "Use a longer source, or a higher temperature.",
    ),
    RejectionReason.PROMPT_ECHO: ("The text repeats the prompt's instruction.", "Use an instruction-tuned model."),
    RejectionReason.OFF_TOPIC: ("The text shares too few words with the source.", "Check that the source has content."),
    RejectionReason.NUMBER_NOT_IN_SOURCE: (
        "The text has a number that the source does not have.",
        "Use a larger model; a number that was not in the source must not be published.",
    ),
    RejectionReason.NAME_NOT_IN_SOURCE: (
        "The text names a person, place, organisation or brand that the source does not have.",
        "Use a larger model; name your own brands in `brand_terms`.",
    ),
    RejectionReason.QUOTE_NOT_IN_SOURCE: (
        "A passage given as evidence is not in the source.",
        "Use a larger model: a small one copies letters badly.",
    ),
    RejectionReason.MISQUOTED: (
        "The text has words in quotation marks that the source lacks, or gives a quotation to another speaker.",
        "Use a larger model.",
    ),
    RejectionReason.FOREIGN_TAG: (
        "A tag is in another language than the summary.",
        "Change the tag.",
    ),
    RejectionReason.FORMALITY: (
        "The text addresses its reader formally where informally was asked for, or the reverse.",
        "Use a larger model.",
    ),
    RejectionReason.READING_LEVEL: (
        "The text is harder to read than the brief's reading level.",
        "Shorten its sentences, or ask for another level.",
    ),
    RejectionReason.REPEATS_TITLE: (
        "The title is the source's own, or the standfirst repeats the title.",
        "Use a larger model.",
    ),
    RejectionReason.TYPOGRAPHY: (
        "The text has a word twice, a space before a comma, or is in capitals.",
        "Mend it; a larger model makes fewer slips.",
    ),
    RejectionReason.UNKNOWN_WORDS: (
        "A quarter of the text's longer words are in no dictionary.",
        "Use a model that writes this language: the bundled one writes English only.",
    ),
    RejectionReason.CONTRADICTS_SOURCE: (
        "The text denies what the source says, reverses a change, or gives a number another unit.",
        "Use a larger model.",
    ),
    RejectionReason.UNSUPPORTED: (
        "The verifying model found no support for a statement in the source, or a tag has a name that it lacks.",
        "Use a larger model, or a source that says more about what is asked.",
    ),
    RejectionReason.REFUSAL: ("The model refused.", "Check that the source is one that the model may write about."),
    RejectionReason.META_TALK: (
        "The text talks about the source or the task instead of the subject.",
        "Use an instruction-tuned model.",
    ),
    RejectionReason.OBEYS_SOURCE: (
        "The text does what an instruction hidden in the source demands.",
        "Read the source: it may have been planted there.",
    ),
    RejectionReason.UNTRANSLATED: (
        "A sentence of the original is left in its translation.",
        "Use a model that writes the language; name terms that stay in `keep`.",
    ),
    RejectionReason.PLACEHOLDER_LOST: (
        "The translation lost or added a link, a placeholder, a tag, a line or a block of Markdown.",
        "Use a larger model.",
    ),
    RejectionReason.GLOSSARY: (
        "A term is not translated as the glossary says, or one of `keep` was translated.",
        "Check that the glossary's translation fits the sentence.",
    ),
    RejectionReason.BANNED_PHRASE: ("The text has a banned phrase.", "Nothing, unless it recurs."),
    RejectionReason.MUST_MENTION: (
        "The text lacks a phrase that its brief wants.",
        "Check that the source has something to say about it, or use a larger model.",
    ),
    RejectionReason.UNSAFE_MARKUP: (
        "The text has HTML or a link that runs something.",
        "Read the source: it may have been planted there.",
    ),
    RejectionReason.SENT_BACK: (
        "An editor sent it back with a note; another attempt was made, whose prompt has the note.",
        "Nothing. `thothy review show ID` has the note.",
    ),
    RejectionReason.NEAR_DUPLICATE: (
        "The text is nearly the same as another one of the job, or as a recent artifact.",
        "Ask for something else, or use a higher temperature.",
    ),
    RejectionReason.PROMPT_TOO_LONG: (
        "The prompt does not fit the model's context.",
        "Shorten the source, or give the engine a longer context.",
    ),
    RejectionReason.VALIDATOR_ERROR: (
        "The kind's code raised an error, or did not end in time.",
        "Fix the kind; the worker's log has the trace.",
    ),
}

FAILURES: dict[str, Reason] = {
    "machine_lost": Reason(
        "Its engine and its worker fell silent together.",
        "yes, at once, on another engine; nothing is counted the first three times, then an engine death",
        "See why the machine, or its network, failed.",
    ),
    "worker_lost": Reason(
        "Its worker was killed or crashed, and `thothy up`, which had started it, saw that.",
        "yes, at once; nothing is counted the first three times, then an engine death",
        "Read the worker's log; look for the kernel's out-of-memory messages.",
    ),
    "lease_lost": Reason(
        "The worker sent no heartbeat for `THOTHY_LEASE_SECONDS`: it was killed, or lost Postgres.",
        LATER,
        "Read the worker's log; look for the kernel's out-of-memory messages.",
    ),
    "engine_lost": Reason(
        "The engine died while it worked on the job, or may have.",
        "yes, in a smaller group of jobs that saw it die each time; an engine death is counted",
        "Read the engine's log.",
    ),
    "engine_killer": Reason(
        "The engine died for the fourth time with this job in flight, the last time with nothing beside it.",
        NO,
        "Read the engine's log; `thothy dead redrive` runs the job again, alone.",
    ),
    "engine_away": Reason("The engine could not be reached.", FREE, "Run `thothy doctor`."),
    "adapter_changed": Reason("The adapter was loaded again, with other weights, while the job ran.", FREE, "Nothing."),
    "engine_aborted": Reason("The engine ended the request early.", FREE, "Nothing, unless it recurs."),
    "connection_lost": Reason(
        "The connection to an engine that is alive broke.",
        "yes; nothing is counted for the first 20 attempts",
        "Look for the cause in the logs of engine and worker.",
    ),
    "answer_lost": Reason(
        "The worker claimed the job, but did not receive Postgres's answer; it claimed the job again.",
        FREE,
        "Nothing, unless it recurs: then see why workers lose their connections to Postgres.",
    ),
    "not_alone": Reason(
        "A job that must run alone waited in vain for other jobs to end.", FREE, "Nothing: the other jobs go first."
    ),
    "shutdown": Reason("Its worker was stopped before it had finished.", FREE, "Nothing."),
    "superseded": Reason(
        "It is a follow-up of a text that is another now: another version was approved, or it was rejected.",
        "no: it is cancelled or, if it has run, out of exports",
        "Nothing: the version that stands has follow-ups of its own. `thothy review reopen ID` brings a piece back.",
    ),
    "deadline": Reason(
        "The deadline passed before the job finished.",
        "no: the job is expired",
        "`thothy jobs retry ID` runs it without a deadline.",
    ),
    "unknown_kind": Reason(
        "The worker does not know the kind.", NO, "Set `THOTHY_KINDS` for workers as for producers, then redrive."
    ),
    "invalid_job": Reason(
        "The request does not match the kind's request class.", NO, "Deploy the same version to workers and producers."
    ),
    "kind_error": Reason(
        "The kind's own code raised an error.", LATER, "Fix the kind; the worker's log has the trace."
    ),
    "budget_spent": Reason(
        "The job's attempts have used its `max_compute_seconds`. A draft of an earlier attempt is kept for an edit.",
        NO,
        "Redrive it, which grants the budget again, or enqueue it with a larger one.",
    ),
    "worker_error": Reason("The worker raised an error.", LATER, "Report it with the trace in the worker's log."),
    "unstorable": Reason("Postgres refuses the outcome.", NO, "Report it with the worker's log."),
}

# What to do about the engine's errors; their meanings are the docstrings of their classes.
ENGINE_ADVICE: dict[str, str] = {
    "engine_error": "Read the engine's log.",
    "invalid_request": "Correct the request, or the kind's sampling parameters.",
    "budget_too_small": "Raise the kind's `max_tokens`, or shorten what its schema requires.",
    "prompt_too_long": "Shorten the source, or give the engine a longer context or a larger KV pool.",
    "invalid_grammar": "Correct the artifact's schema.",
    "no_finite_score": "Check the model's files; try another data type.",
    "model_load": "Check the path; `thothy doctor --only model`.",
    "unsupported_model": "Use a model of a supported family and tensor type (README).",
    "adapter_load": "Check the adapter's folder, and that it was trained on the engine's model.",
    "unsupported_adapter": "Train the adapter without that feature of PEFT, or merge it into the model.",
    "unknown_adapter": "Load the adapter into an engine, or name another.",
    "out_of_memory": "Use a smaller model, fp8 weights, or less `--kv-tokens`.",
    "engine_lost": "Run `thothy doctor --only engine`.",
    "engine_lost_uninvolved": "Nothing for this job; the engine's log says what the engine died of.",
    "engine_connection_lost": "Run `thothy doctor --only engine`.",
    "engine_authentication": "Set the same `THOTHY_ENGINE_TOKEN` for engine and workers.",
    "engine_stopped": "Start the engine again.",
    "engine_draining": "Wait for the engine that replaces it.",
    "protocol": "Run engine and workers of the same version.",
}
