# The artifact of P-PAS: from conf/ to every figure, table and claim of the paper.
#
#   snakemake --cores 1                                          everything
#   snakemake --cores 1 figures/fig04_latency_vs_burst.pdf       one figure
#   snakemake -n                                                 what would run, and why
#   snakemake --cores 1 calibrate                                refit the cost models
from snakemake.utils import min_version

min_version("9.0")


configfile: "workflow/config.yaml"


include: "workflow/rules/common.smk"
include: "workflow/rules/simulate.smk"
include: "workflow/rules/measure.smk"
include: "workflow/rules/paper.smk"
include: "workflow/rules/calibrate.smk"
include: "workflow/rules/profile.smk"


rule all:
    default_target: True
    input:
        PLAN.files,
