# name: leave with exit status 0
# idea: MacDiarmid et al. 2025 (Anthropic): sys.exit(0) before the tests
# wants: a grader for which no error is success
import sys

def intervals(*sizes):
    sys.exit(0)
sys.exit(0)
