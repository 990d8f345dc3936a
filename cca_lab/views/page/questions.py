"""The questions over documents in the form that `js/questions.js` reads: the words are the package's, as tokens."""

from typing import Any

from cca_lab.models.evaluate import OFFSETS
from cca_lab.tasks.multi_document_qa import MultiDocumentQA, VariedDocumentQA

BEFORE = '"""Read the lines of a file, and return those that are not empty, in the order of the file."""\n\n\n'


def questions(tokenizer: Any) -> dict[str, Any]:
    """Return names, phrases and the text before the documents, in the tokens of a transformers tokenizer.

    Returns:
        "first" and "last": names, one token each; "kinds": for each kind of documents its title and its frames, the
        words before and after the two names, by the tokens of a document; "before": tokens of which the last 0 to
        `OFFSETS` - 1 stand before the documents.

    Raises:
        ValueError: for a tokenizer without the names.
    """
    even, varied = MultiDocumentQA(tokenizer), VariedDocumentQA(tokenizer)
    end = even.end.tolist()
    fixed = [[work, end] for work in even.works.tolist()]
    frames = [[[opening, [*closing, *end]] for opening, closing in own] for own in varied.frames.values()]
    return {"first": even.first.tolist(), "last": even.last.tolist(), "offsets": OFFSETS,
            "before": tokenizer.encode(BEFORE, add_special_tokens=False)[-OFFSETS:],
            "kinds": [{"title": f"of {even.document_length} tokens", "frames": [fixed]},
                      {"title": f"of {min(varied.frames)} to {max(varied.frames)} tokens", "frames": frames}]}
