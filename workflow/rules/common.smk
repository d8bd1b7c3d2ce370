# The configuration of all experiments, checked before any job is planned.
import shlex

from ppas import planning

PLAN = planning.plan_or_exit(config)
planning.guard_checkout(workflow)
