"""The table of mechanisms, read by the tests, the plug-in, the command line, the figures and the notebooks."""

from cca_lab.mechanisms import cca, full
from cca_lab.mechanisms.mechanism import Mechanism

MECHANISMS: dict[str, Mechanism] = {module.MECHANISM.name: module.MECHANISM for module in (
    full,
    cca,
)}
