# Refits cost models in conf/cost_model. Never part of a plain run: they are committed inputs.
#
#   snakemake --cores 1 calibrate                                       to the published rows
#   snakemake --cores 1 calibrate --config backend=vllm hardware=h200   to a server's steps
if config["backend"] == "vllm":

    rule calibrate:
        input:
            collect("logs/probe_{pair}.done", pair=PLAN.probed),

else:

    # Once all are fitted, what they say of a pair without a fit is written.
    rule calibrate:
        input:
            collect("logs/calibrate_{pair}.done", pair=PLAN.cost_models),
        log:
            "logs/calibrate_zero_shot.log",
        localrule: True
        conda:
            "../../environment.yml"
        shell:
            "python -m ppas.cli calibrate zero_shot 2>&1 | tee {log}"


rule calibrate_pair:
    output:
        temp(touch("logs/calibrate_{pair}.done")),
    log:
        "logs/calibrate_{pair}.log",
    localrule: True
    conda:
        "../../environment.yml"
    shell:
        "python -m ppas.cli calibrate {wildcards.pair} 2>&1 | tee {log}"


for pair, session in PLAN.probed.items():

    rule:
        name:
            f"probe_{pair}"
        output:
            temp(touch(f"logs/probe_{pair}.done")),
        log:
            f"logs/probe_{pair}.log",
        conda:
            "../../environment.yml"
        threads: 1 if session.device else os.cpu_count()
        resources:
            gpu=1 if session.device else 0,
        params:
            options=PLAN.measuring_options,
            overrides=shlex.join(session.overrides),
        shell:
            "python -m ppas.cli calibrate --probes {params.options} {params.overrides}"
            " 2>&1 | tee {log}"
