"""What the model is told to do with the document. Plain text: the worker adds the chat template."""

from __future__ import annotations

from orchestrator.jobs import Job

SUMMARY = "Summarize the document above in one paragraph. Write only the summary."
SUMMARY_FOR_QUERY = (
    "Summarize what the document above says about the following, in one paragraph: {query}\n"
    "Write only the summary."
)
QUESTION = "Answer the question from the document above, in one or two sentences.\nQuestion: {question}"


def instruction(job: Job) -> str:
    """The instruction of a job; a query or question stands in it as the user wrote it."""
    if job.kind == "complete":
        return job.question or ""
    if job.kind == "ask":
        return QUESTION.format(question=(job.question or "").strip())
    if job.options.query:
        return SUMMARY_FOR_QUERY.format(query=job.options.query.strip())
    return SUMMARY
