# Committed figures and tables exist in a fresh clone. What makes them all be made again there is
# that this file, which they depend on, is not committed.
rule start_results:
    output:
        touch("results/.started"),
    localrule: True


# One job per experiment. It has no input files: what decides a result is its configuration's
# content hash, so that touching a file or editing a comment simulates nothing again.
for experiment in PLAN.simulated:

    rule:
        name:
            f"simulate_{experiment.name}"
        output:
            [update(path) for path in PLAN.results[experiment.name]],
        log:
            f"logs/simulate_{experiment.name}.log",
        localrule: True
        conda:
            "../../environment.yml"
        params:
            digest=experiment.digest,
            overrides=shlex.join(experiment.overrides),
        shell:
            "python -m ppas.cli simulate --digest {params.digest} {params.overrides} 2>&1 | tee {log}"
