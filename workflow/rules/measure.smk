# One job per server session: all runs of one scheduler that are not measured yet. What is measured
# already has no rule: its files are inputs like any other. A session keeps each run as it goes, so
# that the same command goes on after a kill.
for session in PLAN.sessions:

    rule:
        name:
            f"measure_{session.experiment}_{session.slug}"
        output:
            [update(path) for path in session.results],
        log:
            f"logs/measure_{session.experiment}_{session.slug}.log",
        conda:
            "../../environment.yml"
        # A session on the CPU shares it with nothing; one on a GPU takes one GPU.
        threads: 1 if session.device else os.cpu_count()
        resources:
            gpu=1 if session.device else 0,
        params:
            scheduler=session.slug,
            digest=session.digest,
            options=PLAN.measuring_options,
            overrides=shlex.join(session.overrides),
        shell:
            "python -m ppas.cli measure {params.options} --scheduler {params.scheduler}"
            " --digest {params.digest} {params.overrides} 2>&1 | tee {log}"
