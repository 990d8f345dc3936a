"""Wrong readings of what cores keep; each is killed by the test named in its docstring."""

from unittest import mock

from cca_lab.models import cores


def undivided(*args, **options) -> cores.CoreReading:
    """core_reading that takes all cores to weigh 1: killed by
    test_phi_and_the_core_s_weight_are_those_of_the_queries_and_keys.
    """
    # a core's weight is clamped to it, and is never more than 1
    with mock.patch.object(cores, "TINY", 1.0):
        return cores.core_reading(*args, **options)
