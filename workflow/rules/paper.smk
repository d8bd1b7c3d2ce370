# One rule per figure and table, named after its module in src/ppas/paper.
for product in PLAN.outputs:

    rule:
        name:
            f"{product.verb}_{product.name}"
        input:
            "results/.started",
            [PLAN.results[name] for name in product.experiments],
            product.inputs,
        output:
            product.files,
        log:
            f"logs/{product.verb}_{product.name}.log",
        localrule: True
        conda:
            "../../environment.yml"
        params:
            code=product.code,
            command=f"ppas.cli {product.command}",
        shell:
            "python -m {params.command} 2>&1 | tee {log}"
