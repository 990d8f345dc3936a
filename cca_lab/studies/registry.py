"""The studies by name: the class of the settings, and one sentence; importable without torch."""

STUDIES: dict[str, tuple[str, str]] = {
    "recover": ("cca_lab.studies.recover:Recover",
                "Measure a model before the swap to CCA, after it, and after finetuning, at every "
                "offset of the text."),
    "sweep": ("cca_lab.studies.sweep:Sweep",
              "Try recipes for finetuning on CCA, and on full attention as the control."),
    "compare": ("cca_lab.studies.compare:Compare",
                "Measure every mechanism on one model, untrained, at an equal memory budget."),
    "lengths": ("cca_lab.studies.lengths:Lengths",
                "Measure a model's perplexity by the length of the context, with every mechanism."),
    "needles": ("cca_lab.studies.needles:Needles",
                "Measure what a model finds, by its depth in the prompt and the length (RULER, "
                "Lost in the Middle)."),
    "retrieval": ("cca_lab.studies.retrieval:Retrieval",
                  "Find the KV heads that fetch what stands far back, by four scores, and "
                  "compare these."),
    "reproduce": ("cca_lab.studies.reproduce.run:Reproduce",
                  "Re-enact the papers' tables and figures at a small scale, and say what agrees."),
    "heads": ("cca_lab.studies.heads:Heads",
              "Measure how sparse every head is: k90, effective tokens, the weight of the first "
              "and of far tokens."),
    "attention": ("cca_lab.studies.benchmarks.attention:AttentionBench",
                  "Measure CCA against PyTorch's full attention on the CPU: time, pairs, the "
                  "matrix peak, memory."),
    "decode": ("cca_lab.studies.benchmarks.decode:Decode",
               "Measure one token's attention with each cache against a full cache: time, bytes, "
               "entries."),
    "steps": ("cca_lab.studies.benchmarks.steps:Steps",
              "Measure what each cache costs beside attention, in small models."),
    "model": ("cca_lab.studies.benchmarks.model:ModelBench",
              "Measure a model, random or real: first token, next tokens, memory, training."),
    "gpu": ("cca_lab.studies.benchmarks.gpu:GpuBench",
            "Time the kernels on one GPU, beside PyTorch's attention."),
}

# Commands of their own, whose options are settings too.
COMMANDS: dict[str, tuple[str, str]] = {
    "pretrain": ("cca_lab.studies.pretrain:Pretrain",
                 "Train a tokenizer and a small base model that reads and retrieves."),
    "finetune": ("cca_lab.studies.finetune:Finetune",
                 "Swap a model's attention and finetune it on text and questions; Ctrl-C saves the "
                 "run."),
    "evaluate": ("cca_lab.studies.evaluate:Evaluate",
                 "Measure perplexity and exact match of a model under any attention, and the "
                 "answers to prompts."),
}
