"""Every rule that can decide a claim, by the name that ``claims.yaml`` calls it."""

from ppas.paper import rules_order, rules_run, rules_table
from ppas.paper.finding import Rule

RULES: dict[str, Rule] = rules_order.RULES | rules_table.RULES | rules_run.RULES
# How a reader sees a rule; fields are the rule's own parameters.
DESCRIPTIONS = rules_order.DESCRIPTIONS | rules_table.DESCRIPTIONS | rules_run.DESCRIPTIONS
