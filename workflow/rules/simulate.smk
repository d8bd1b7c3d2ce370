# One job per experiment. It has no input files: what decides a result is its configuration's
# content hash, so that touching a file or editing a comment simulates nothing again.
for experiment in PLAN.experiments:

    rule:
        name:
            f"simulate_{experiment.name}"
        output:
            [update(path) for path in PLAN.results[experiment.name]],
        log:
            f"logs/simulate_{experiment.name}.log",
        conda:
            "../../environment.yml"
        params:
            digest=experiment.digest,
            overrides=shlex.join(experiment.overrides),
        shell:
            "python -m ppas.cli simulate --digest {params.digest} {params.overrides} 2>&1 | tee {log}"
