# Refits cost models in conf/cost_model. Never part of a plain run: they are committed inputs.
# Once all are fitted, what they say of a pair without a fit is written.
rule calibrate:
    input:
        collect("logs/calibrate_{pair}.done", pair=PLAN.cost_models),
    log:
        "logs/calibrate_zero_shot.log",
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
