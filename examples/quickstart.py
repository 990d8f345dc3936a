"""Ask a small GPT-2 who drew each of fifteen maps: with full attention, with CCA, after finetuning.

Run `python examples/quickstart.py` in the clone. It needs no network and takes a few seconds.
"""

from cca_lab import CCA, CCACache, load_pretrained, swap_attention

FIRST = "Ada Bruno Clara Dora Emil Felix Greta Hugo Iris Jonas Klaus Lena Milan Nora Olga".split()
LAST = ("Baker Costa Keller Moss Reed Stark Vogel Lamb Page Holt Fuchs Adler Shaw Quist "
        "Zeller").split()
TEXT = "".join(f"A map drawn by {first} {last}.\n" for first, last in zip(FIRST, LAST, strict=True))


def ask(title, model, tokenizer, **options):
    """Print the surname that the model gives Clara, and how many of the fifteen it gets right."""
    prompts = [f"{TEXT}A map drawn by {first}" for first in FIRST]
    written = model.generate(**tokenizer(prompts, return_tensors="pt"), max_new_tokens=1, **options)
    words = [tokenizer.decode(tokens[-1]).strip() for tokens in written]
    right = sum(word == last for word, last in zip(words, LAST, strict=True))
    print(f"{title:<18}Clara {words[2]:<10}{right} of {len(LAST)} right")


model, tokenizer = load_pretrained("data/models/gpt2-mini")
ask("full attention", model, tokenizer)
swap_attention(model, CCA(group=8, window=64))
ask("CCA, swapped in", model, tokenizer, past_key_values=CCACache(model))
model, tokenizer = load_pretrained("data/models/gpt2-mini-cca")
ask("CCA, finetuned", model, tokenizer, past_key_values=CCACache(model))
