"""The page's tokenizer is the shipped one, on words, programs and any characters."""

import random
import unicodedata
from pathlib import Path

import pytest

from cca_lab import load_pretrained
from cca_lab.models import mini as training
from tests.views.page.conftest import SHIPPED
from tests.views.page.node import needs_node, run

pytestmark = needs_node
WRITTEN = ["", " ", "  ", "\n", "\n\n \n", "\t", " \t x", "a", " a", "a b", "a  b", "a   b   ",
           "In Marta Keller.\nA map drawn by", "def f(x):\n    return x**2  # squares\n",
           "don't we'll I'm it's they've you're he'd 'tis 'S", "x='s'", "1234 5.6e-7 ½ ² Ⅷ",
           "naïve café Ångström", "日本語のテキスト", "Привет, мир!", "שלום עולם", "مرحبا بالعالم",
           "हिन्दी", "e\u0301 n\u0303", "🙂👩‍👩‍👧 🏳️‍🌈", "a\u00a0b\u2003c\u3000d", "a\u0085b\u2028c",
           "\ufeffx \ufeff", "\u200bx\u200d", "\x00\x01\x7f", "<|endoftext|>",
           "a<|endoftext|>b<|endoftext|><|endoftext|> c", "<|endoftext|", "\r\n\r\n", "....!!!???",
           "__init__", "a_b-c/d\\e", "\U00010348\U0001d11e \U000e0001", "\u1680\u180e\u205f",
           "𝒳𝓎 ＡＢ", "ﬁ ﬂ", "\x1c\x1d\x1e\x1f", "\x0b\x0c",]
# Wrong tokenizers: characters that JavaScript calls space but Unicode does not; merges from left to
# right; no special.
MUTANTS = {"JavaScript's spaces": ("text.js", " ?[^\\\\p{White_Space}", " ?[^\\\\s"),
           "the first pair, not the first learnt": ("text.js", "ranks.indexOf(Math.min(...ranks))",
                                                    "ranks.findIndex((rank) => rank < Infinity)"),
           "spaces not left to the next word": ("text.js",
                                                "\\\\p{White_Space}+(?!\\\\P{White_Space})|", ""),}


@pytest.fixture(scope="module")
def tokenizer():
    """The tokenizer of both shipped models."""
    return load_pretrained(SHIPPED[0])[1]


@pytest.fixture(scope="module")
def texts() -> list[str]:
    """Texts by hand, programs, and random characters that every version of Unicode knows."""
    draw = random.Random(0)
    kind = unicodedata.ucd_3_2_0.category
    known = [one for one in map(chr, range(0x20000)) if kind(one) not in ("Cn", "Cs", "Co")]
    common = [chr(code) for code in range(0x180)] + [" ", "\n", "'", "e", "s"] * 20
    mixed = ["".join(draw.choices(alphabet, k=draw.randrange(1, 60)))
             for alphabet in (known, common) for _ in range(400)]
    programs = [Path(path).read_text(encoding="utf-8")
                for path in (training.__file__, __file__, random.__file__)]
    return [*WRITTEN, *mixed, *programs]


def test_tokens_and_texts_are_equal(data, tokenizer, texts):
    answers = run("tokens", {"vocabulary": data["vocabulary"], "texts": texts})
    for text, ours in zip(texts, answers, strict=True):
        assert ours["ids"] == tokenizer.encode(text, add_special_tokens=False), repr(text)
        assert ours["text"] == text == tokenizer.decode(ours["ids"],
                                                        clean_up_tokenization_spaces=False), repr(
            text)


@pytest.mark.parametrize("change", MUTANTS.values(), ids=MUTANTS)
def test_wrong_tokenizers_are_found(data, tokenizer, texts, change):
    answers = run("tokens", {"vocabulary": data["vocabulary"], "texts": texts}, change)
    assert any(ours["ids"] != tokenizer.encode(text, add_special_tokens=False)
               for text, ours in zip(texts, answers, strict=True))
