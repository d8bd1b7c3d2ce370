# The configuration of all experiments, checked before any job is planned.
import os
import shlex
import sys

# This checkout's package, for the plan and for every job, whether or not it is installed.
SOURCE = os.path.join(workflow.basedir, "src")
sys.path.insert(0, SOURCE)
shell.prefix(f"set -euo pipefail; export PYTHONPATH={shlex.quote(SOURCE)}; ")

from ppas import planning

PLAN = planning.plan_or_exit(config)
planning.guard_checkout(workflow)
planning.announce_choices(PLAN, workflow)
