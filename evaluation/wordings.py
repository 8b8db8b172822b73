"""Ways to say what is to be done: the product's own, and others that were tried beside them."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.prompts import QUESTION, SUMMARY, SUMMARY_FOR_QUERY


@dataclass(frozen=True, slots=True)
class Wording:
    """Templates: `question` has {question}, `summary_for_query` has {query}."""

    question: str
    summary: str
    summary_for_query: str


WORDINGS = {
    "product": Wording(QUESTION, SUMMARY, SUMMARY_FOR_QUERY),
    "above": Wording(
        "Answer the question from the document above, in one or two sentences.\nQuestion: {question}",
        "Summarize the document above in one paragraph. Write only the summary.",
        "Summarize what the document above says about the following, in one paragraph: {query}\n"
        "Write only the summary.",
    ),
    "ended": Wording(
        "That was the document. {question}",
        "That was the document. What is it about? Summarize its main points in one paragraph.",
        "That was the document. Summarize in one paragraph what it says about the following: {query}",
    ),
}
