# One rule per figure and table, named after its module in src/ppas/paper.
for output in PLAN.outputs:

    rule:
        name:
            f"{output.verb}_{output.name}"
        input:
            [PLAN.results[name] for name in output.experiments],
            output.inputs,
        output:
            output.files,
        params:
            code=output.code,
        log:
            f"logs/{output.verb}_{output.name}.log",
        shell:
            f"ppas {output.command} 2>&1 | tee {{log}}"
