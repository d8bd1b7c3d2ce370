"""Record the golden step logs from the vLLM of this environment.

python -m tests.serving.record_golden
"""

from vllm import __version__

from .cases import golden_cases, write_golden
from .test_lockstep import plugin_steps

if __name__ == "__main__":
    print(write_golden(__version__, [plugin_steps(case) for case in golden_cases()]))
