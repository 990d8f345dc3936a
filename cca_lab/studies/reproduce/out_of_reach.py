"""Artefacts that need models, data or lengths that a laptop does not have."""

from cca_lab.studies.reproduce.artefact import OutOfReach

OUT_OF_REACH = (
    OutOfReach("cca-longbench", "CCA", "Tables 1, 2 and 5", "LongBench-E: CCA scores above other efficient methods",
               "Needs a 7B model and 32K tokens a question; `cca-lab evaluate --task FILE` reads LongBench's files."),
    OutOfReach("cca-table4", "CCA", "Table 4", "RULER at 8K to 64K: CCA scores above MInference",
               "Needs a model that solves all of RULER at 8K and more, and 64K tokens a prompt. The tasks that need no "
               "foreign text are in `cca_lab.tasks`; `cca-lab experiments needles` draws them by depth and length."),
    OutOfReach("cca-table6", "CCA", "Table 6", "MMLU: CCA scores above full attention",
               "Needs a model that answers multiple-choice questions. Full attention's printed 27 for LLaMA2-13B is "
               "close to chance, 25."),
    OutOfReach("dga-table1", "DGA", "Table 1", "LongBench-E: DGA scores close to full attention",
               "As for CCA's Table 1."),
    OutOfReach("lococo-tables1-3", "LoCoCo", "Tables 1, 3 and 4", "SCROLLS and LongBench: LoCoCo scores above H2O",
               "Needs a model that summarises long documents."),
    OutOfReach("lococo-table2", "LoCoCo", "Table 2", "finetuned, LoCoCo reads beyond the base's context",
               "The minis have learned positions and cannot read past 512 tokens; finetuning the 135M model beyond its "
               "8192 tokens takes days on a CPU."),
)
