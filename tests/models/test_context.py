"""A model whose text is spread over processes: its loss and gradients, and what it refuses."""

import copy
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, OPTConfig, Qwen2Config

from cca_lab.mechanisms import CCA
from cca_lab.models import local_inputs, restore_attention, swap_attention
from cca_lab.models.context import CONTEXT, Context, context_groups, context_of
from cca_lab.models.finetune import Finetuner
from cca_lab.models.run_folder import read_log
from tests.models.test_finetune import (
    TOLERANCE,
    far_apart,
    gap,
    in_float32,
    mixture,
    swapped,
    weights,
)
from tests.processes import run_alone, run_in_processes
from tests.studies import small

TINY = dict(vocab_size=97, max_position_embeddings=128)
CONFIGS = [GPT2Config(n_embd=24, n_layer=2, n_head=4, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
                      **TINY),
           OPTConfig(hidden_size=24, ffn_dim=32, num_hidden_layers=2, num_attention_heads=4,
                     word_embed_proj_dim=24, dropout=0, attention_dropout=0, **TINY),
           LlamaConfig(hidden_size=24, intermediate_size=32, num_hidden_layers=2,
                       num_attention_heads=4, num_key_value_heads=2, **TINY),
           Qwen2Config(hidden_size=24, intermediate_size=32, num_hidden_layers=2,
                       num_attention_heads=4, num_key_value_heads=1, **TINY)]
LENGTHS = (61, 3)


def model_of(config):
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(copy.deepcopy(config)).double()


def gradients(model):
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def losses(model, given):
    """Return the (share of the) mean loss in float64, and transformers' own."""
    output, targets = model(**given), given["shift_labels"].flatten()
    count = given.get("num_items_in_batch", (targets != -100).sum())
    summed = F.cross_entropy(output.logits.flatten(0, 1), targets, reduction="sum")
    return summed / count, output.loss


def spread(group):
    """Return the gaps of loss and gradients to those of one process, for each family and length."""
    found = []
    for config in CONFIGS:
        for length in LENGTHS:
            ids = torch.randint(97, (2, length), generator=torch.Generator().manual_seed(length))
            labels = ids.masked_fill(torch.arange(length) % 5 == 2, -100)
            alone = swap_attention(model_of(config), CCA(group=4, window=6))
            given = {"input_ids": ids, "use_cache": False,
                     "shift_labels": F.pad(labels[:, 1:], (0, 1), value=-100)}
            loss, rounded = losses(alone, given | {"labels": labels})
            loss.backward()
            model = swap_attention(model_of(config), CCA(group=4, window=6), context_parallel=group)
            part, part_rounded = losses(model, local_inputs(model, ids, labels))
            part.backward()
            total, total_rounded = part.detach().clone(), part_rounded.detach().clone()
            dist.all_reduce(total, group=group)
            dist.all_reduce(total_rounded, group=group)
            assert abs(total_rounded - rounded) < 1e-6  # transformers' own loss is float32
            gaps = [float((total - loss.detach()).abs())]
            for name, gradient in gradients(model).items():
                dist.all_reduce(gradient, group=group)
                gaps.append(float((gradient - gradients(alone)[name]).abs().max()))
            found.append(max(gaps))
    return found


def test_loss_and_gradients_are_those_of_one_process():
    for found in run_in_processes(2, spread):
        assert max(found) < 1e-12, found


def refusals(group):
    """Return the errors of calls that cannot work."""
    model = swap_attention(model_of(CONFIGS[0]), CCA(group=4, window=6), context_parallel=group)
    ids = torch.arange(8)[None]
    whole = model_of(CONFIGS[0])
    twin = copy.deepcopy(model)
    padded = {"attention_mask": torch.tensor([[0, 1, 1, 1, 1, 1, 1, 1]])}
    shorter = {"input_ids": ids[:, :5], "position_ids": ids[:, :5],
               "attention_mask": torch.ones(1, 5)}
    calls = {"no text was announced": lambda: model(input_ids=ids, use_cache=False),
             "wanted 'cca'": lambda: swap_attention(whole, "streaming_llm", context_parallel=group),
             "sinks: got 4, wanted 0 over several processes":
             lambda: swap_attention(whole, "cca", sinks=4, context_parallel=group),
             "model: reads whole texts": lambda: local_inputs(whole, ids),
             "attention_mask: got padding": lambda: model(**local_inputs(model, ids) | padded),
             "q: got 5 tokens in process 0, wanted 8":
             lambda: model(**local_inputs(model, ids) | shorter),
             "wanted neither": lambda: model(**local_inputs(model, ids), output_attentions=True),
             "context_parallel: got 3 for 1": lambda: context_groups(3)}
    errors = {}
    for words, call in calls.items():
        try:
            call()
            errors[words] = "no error"
        except ValueError as error:
            errors[words] = str(error)
    assert isinstance(context_of(twin), Context) and context_of(twin) is context_of(model)
    restore_attention(model)
    assert context_of(model) is None
    assert not any(hasattr(module, CONTEXT) for module in model.modules())
    return errors


def test_what_cannot_work_is_named():
    for words, error in run_alone(refusals).items():
        assert words in error, (words, error)


def train(folder: Path) -> None:
    """The program that torchrun starts four times: two groups of two processes."""
    base, read = torch.load(folder / "given.pt", weights_only=False)
    trainer = Finetuner(swap_attention(base, "cca", group=4, window=8), read, in_float32(steps=3),
                        folder / "run", context_parallel=2)
    trainer.run()
    rank = trainer.accelerator.process_index
    torch.save(weights(trainer.accelerator.unwrap_model(trainer.model)), folder / f"{rank}.pt")


@pytest.mark.nightly
def test_groups_of_processes_train_as_one(tmp_path):
    """Five rows between two groups, each row between the two processes of a group."""
    read = mixture(rows=5)
    torch.save((small.model(), read), tmp_path / "given.pt")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node",
               "4", __file__, str(tmp_path)]
    root = Path(__file__).parents[2]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(root)}
    done = subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True,
                          timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    alone = swapped()
    expected = Finetuner(alone, read, in_float32(steps=3)).run()
    got = list(read_log(tmp_path / "run"))
    assert far_apart(got, expected) < 1e-5
    for rank in range(4):
        assert gap(weights(alone), torch.load(tmp_path / f"{rank}.pt")) < TOLERANCE


if __name__ == "__main__":
    train(Path(sys.argv[1]))
