# Profiles of one prefill on this host's GPU, behind Tables 5 and 6 and Figure 5. Never part of a
# plain run, for they need a GPU and vLLM.
#
#   snakemake --cores 1 profile             on the paper's GPU, an RTX 5090
#   snakemake --cores 1 profile_h100_sxm    on another one of conf/hardware
#
# Kernel times come from Nsight Systems, or else from PyTorch's profiler; counters only from Nsight
# Compute, so that they are left out where `ncu` is not on the path of this command.
import shutil

from ppas.config import CONF

PROFILED_MODELS = ("qwen2_5_0_5b", "qwen2_5_3b", "qwen2_5_7b")  # of Tables 5 and 6
PROFILED_BUDGETS = ("mbt_2k", "mbt_16k")
PROFILES = collect(
    "results/measured/{{hardware}}/profiles/{model}_{budget}_{what}.csv",
    model=PROFILED_MODELS,
    budget=PROFILED_BUDGETS,
    what=("times", "counters") if shutil.which("ncu") else ("times",),
)


rule profile:
    input:
        collect(PROFILES, hardware="rtx5090"),


for path in sorted((CONF / "hardware").glob("*.yaml")):

    rule:
        name:
            f"profile_{path.stem}"
        input:
            collect(PROFILES, hardware=path.stem),


# A scheduler of fixed budget; models and schedulers both have underscores in their names.
rule profile_prefill:
    output:
        "results/measured/{hardware}/profiles/{model}_{budget}_{what}.csv",
    log:
        "logs/profile_{hardware}_{model}_{budget}_{what}.log",
    wildcard_constraints:
        budget=r"mbt_\w+",
        what="times|counters",
    conda:
        "../../environment.yml"
    resources:
        gpu=1,
    params:
        options=PLAN.measuring_options,
    shell:
        "python -m ppas.cli profile {wildcards.what} {params.options} --model {wildcards.model}"
        " --hardware {wildcards.hardware} --scheduler {wildcards.budget} --out {output}"
        " 2>&1 | tee {log}"
