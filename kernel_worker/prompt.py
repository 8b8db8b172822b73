"""The chat template, cut in two: what goes before a document, and what goes after an instruction.

Control tokens are special in the template alone; document and instruction are plain text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jinja2

from kernel_worker.errors import ModelUnsupported
from kernel_worker.tokenizer import TextTokenizer

DOCUMENT_OPENING = "Here is a document.\n\n"
_PLACE = "@@document@@"
# Some templates print today's date. The ids of a document must not depend on the day it is read.
_FIXED_DATE = "{%- macro strftime_now(format) -%}01 Jan 2024{%- endmacro -%}"


@dataclass(frozen=True)
class PromptTemplate:
    """Token ids around a document and an instruction.

    prefix_ids  system text, opening of the user's turn, and a line that introduces the document
    suffix_ids  end of the user's turn and opening of the answer
    stop_ids    every id that ends an answer
    """

    tokenizer: TextTokenizer
    prefix_ids: tuple[int, ...]
    suffix_ids: tuple[int, ...]
    stop_ids: frozenset[int]

    def instruction_ids(self, instruction: str) -> list[int]:
        """Ids that follow on the document: a blank line, the instruction, the template's end."""
        return [*self.tokenizer.encode("\n\n" + instruction), *self.suffix_ids]


def prompt_template(tokenizer: Any, text: TextTokenizer, stop_ids: frozenset[int]) -> PromptTemplate:
    """The template of a tokenizer of transformers; a plain form where it has none.

    stop_ids are the end tokens that the model's own configuration names; the token that ends a turn joins
    them. Raises ModelUnsupported for a template that does not show a user's text once and unchanged.
    """
    opening = _before_text(text, DOCUMENT_OPENING)
    if tokenizer.chat_template is None:
        start = () if tokenizer.bos_token_id is None else (tokenizer.bos_token_id,)
        return PromptTemplate(text, (*start, *opening), tuple(text.encode("\n\nAnswer:")), stop_ids)
    rendered = _render(tokenizer)
    if rendered.count(_PLACE) != 1:
        raise ModelUnsupported("The model's chat template does not show the user's text exactly once.")
    before, after = rendered.split(_PLACE)
    prefix = text.encode_template(before, opening=True)
    suffix = text.encode_template(after)
    turn_end = frozenset(suffix[:1]) & text.control_ids
    return PromptTemplate(text, (*prefix, *opening), tuple(suffix), stop_ids | turn_end)


def _before_text(text: TextTokenizer, opening: str) -> list[int]:
    """Ids of an opening that ends with line breaks, as they are when a word follows."""
    word = "The"
    return text.encode(opening + word)[: -len(text.encode(word))]


def _render(tokenizer: Any) -> str:
    """The template around one user's turn. Its own system text stays: another makes small models worse."""
    template = tokenizer.get_chat_template()
    if "strftime_now" in template:
        template = _FIXED_DATE + template
    try:
        rendered: str = tokenizer.apply_chat_template(
            [{"role": "user", "content": _PLACE}],
            chat_template=template,
            tokenize=False,
            add_generation_prompt=True,
            enable_thinking=False,
            date_string="01 Jan 2024",
        )
    except jinja2.TemplateError as error:
        raise ModelUnsupported(f"The model's chat template cannot be rendered: {error}.") from error
    return rendered
