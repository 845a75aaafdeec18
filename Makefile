# Every target does its own set-up; nothing needs to be installed by hand but python3 (3.11 or newer).
VENV := .venv
BIN := $(VENV)/bin

# With it each of the thousand processes that tests start compiles all of its modules anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup demo audit run test audit-faults deployments check dashboards chart fix sim histories soak chaos chaos-faults pods kubernetes migration seaweedfs azurite crash cuts explore spec traces fuzz mutants methods bench peers witnesses copies chains lock clean

define jars
@if command -v mvn >/dev/null && command -v java >/dev/null && [ ! -d .tools/$(1) ]; then \
	    tools/fetch-jars $(1) || echo "$(2) cannot be had: what needs it is skipped" >&2; fi
endef

define chaos_tools
@if command -v go >/dev/null && ! command -v toxiproxy-server >/dev/null && [ ! -x .tools/bin/toxiproxy-server ]; then \
	    tools/fetch-toxiproxy || echo "Toxiproxy could not be built: links go through our own proxy" >&2; fi
@if command -v apt-get >/dev/null && [ ! -d .tools/faketime ]; then \
	    tools/fetch-faketime || echo "libfaketime cannot be had: no clock jumps" >&2; fi
@if command -v apt-get >/dev/null && ! command -v nft >/dev/null && [ ! -d .tools/nft ]; then \
	    tools/fetch-nft || echo "nft cannot be had: no packet is lost" >&2; fi
endef

setup: $(VENV)/.dev  ## everything that developing needs

$(VENV)/bin/python:
	tools/make-venv $(VENV)

$(VENV)/.demo: requirements/demo.txt pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/demo.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.audit: requirements/audit.txt pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/audit.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@ $(VENV)/.demo

$(VENV)/.dev: requirements/dev.txt pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@ $(VENV)/.audit $(VENV)/.demo

demo: $(VENV)/.demo  ## real Kafka clients get IDs while leaders are killed; prints the proof
	$(BIN)/pidkeeper demo

AUDITED := build/audited-cluster
WRITTEN := build/audited-kafka
# The demo takes thousands of blocks a minute on purpose: that is no storm here.
audit: $(VENV)/.audit  ## the same, clients that write partition logs, and an audit of it all; with Java by Spark, with Maven too of Kafka's segments
	rm -rf $(AUDITED) $(WRITTEN) build/audit
	$(BIN)/pidkeeper demo --keep $(AUDITED)
	$(call jars,kafka,Kafka's broker)
	$(BIN)/python -m tests.pipeline.quorum_segments $(AUDITED) $(WRITTEN)
	@if $(BIN)/python -c 'import sys; from pidkeeper.pipeline.session import why_no_spark; sys.exit(why_no_spark())'; \
	    then engine=spark; else engine=local; echo "so the audit runs in one process, without Spark" >&2; fi; \
	if [ -d $(WRITTEN)/logs ]; then segments="--segments $(WRITTEN)/logs"; fi; set -x; \
	$(BIN)/pidkeeper audit run --cluster $(AUDITED) $$segments --out build/audit --storm-blocks 100000 --engine $$engine

run: $(VENV)/.demo  ## a local cluster in ./build/cluster until Ctrl-C
	$(BIN)/pidkeeper dev --dir build/cluster

# More than there are cores: many tests wait for processes.
WORKERS ?= 3
test: $(VENV)/.dev  ## the tests; with Go at hand the chart is rendered too, with Maven and a JDK a Kafka broker and the Java client run too, with apt Prometheus
	@if command -v go >/dev/null && ! command -v helm >/dev/null && [ ! -x .tools/bin/helm ]; then \
	    deploy/install-helm.sh || echo "helm could not be built: the chart tests that need it are skipped" >&2; fi
	@if command -v mvn >/dev/null && command -v javac >/dev/null && [ ! -d .tools/java ]; then \
	    tools/fetch-java-client || echo "the Java client cannot be had: the tests that need it are skipped" >&2; fi
	@if command -v apt-get >/dev/null && ! command -v prometheus >/dev/null && [ ! -x .tools/prometheus/promtool ]; then \
	    tools/fetch-prometheus || echo "Prometheus cannot be had: the tests that need it are skipped" >&2; fi
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && ! command -v chromium >/dev/null && ! command -v google-chrome >/dev/null; then \
	    { apt-get install -qq -y chromium || { apt-get update -qq && apt-get install -qq -y chromium; }; } >/dev/null 2>&1 || echo "Chromium cannot be had: the tests that need it are skipped" >&2; fi
	$(call jars,kafka,Kafka's broker)
	$(call jars,kafka-3.9,Kafka's broker for ZooKeeper)
	$(call jars,spec,TLC)
	$(chaos_tools)
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder

audit-faults: $(VENV)/.dev  ## audits of files that a foreign or broken writer left, or that are not there; needs Java 17
	$(call jars,kafka,Kafka's broker)
	$(BIN)/python -m pytest -q tests/pipeline/faults

deployments: $(VENV)/.dev  ## whole audits on a Spark cluster, on HDFS and on S3; needs Java 17, HDFS Maven as well
	$(call jars,hadoop,HDFS)
	$(BIN)/python -m pytest -q tests/pipeline/deployments

check: $(VENV)/.dev  ## ruff, mypy --strict, import contracts; changes nothing
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

dashboards: $(VENV)/.dev  ## write deploy/grafana/dashboards again from the code beside them
	$(BIN)/python -m deploy.grafana.build

chart: $(VENV)/.dev  ## write again what is made from the chart: schema, table, golden renders, bases; needs helm
	$(BIN)/python -m deploy.chart_schema
	$(BIN)/python -m deploy.chart_readme
	$(BIN)/python -m tests.chart.goldens
	$(BIN)/python -m tests.chart.kustomize

fix: $(VENV)/.dev  ## what can be mended by itself
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

SEEDS ?= 4200
TRACE ?= build/simulation-seed-$(SEED).txt
sim: $(VENV)/.dev  ## fresh seeds of the simulator; SEED=n writes down one again, SEED=n STEP=1 goes through it
	$(BIN)/python -m tests.simulation.run \
	    $(if $(SEED),--seed $(SEED) $(if $(STEP),--step,--trace $(TRACE)),--seeds $(SEEDS) --jobs 2)

HISTORY ?= build/history-$(SEED).txt
histories: $(VENV)/.dev  ## short histories of the data plane, COUNT of them, as fast as all cores go; SEED=n writes one down again
	$(BIN)/python -m tests.histories.run \
	    $(if $(SEED),--seed $(SEED) --trace $(HISTORY),--count $(or $(COUNT),10000) --jobs $$(nproc))

RUNS ?= 200
migration: $(VENV)/.dev  ## the migration from a real ZooKeeper, again and again, while leaders are killed; needs Java 17
	$(BIN)/python -m tests.migration.soak --runs $(RUNS)

MINUTES ?= 15
soak: $(VENV)/.dev  ## fat transactions for a quarter of an hour, and all that a member may keep: memory, log, restart
	$(BIN)/python -m tests.soak.fat_transactions --minutes $(MINUTES)
	$(BIN)/python -m tests.soak.at_the_limits

CHAOS_MINUTES := $(if $(filter command line environment,$(origin MINUTES)),$(MINUTES),10)
chaos: $(VENV)/.dev  ## faults of all kinds in real processes under load, and a check of it all; MINUTES=n, SEED=n, AGAINST=cluster.json
	$(chaos_tools)
	$(BIN)/python -m tests.chaos.run --minutes $(CHAOS_MINUTES) $(if $(SEED),--seed $(SEED)) $(if $(AGAINST),--against $(AGAINST))

CASE ?= production
ROLLS ?= 10
pods: $(VENV)/.dev  ## the chart's pods as processes, rolled ROLLS times under load, and an earlier release upgraded; CASE=default or production; needs root and helm
	$(BIN)/python -m tests.pods.run $(CASE) --rolls $(ROLLS)
	$(BIN)/python -m tests.pods.upgraded

kubernetes: $(VENV)/.dev  ## the chart on a real Kubernetes, rolled ROLLS times, drained, scaled, hurt; needs root, helm, and Go for the first time
	@if command -v go >/dev/null && [ ! -x .tools/kubernetes/etcd ]; then \
	    tools/fetch-kubernetes || echo "Kubernetes could not be built" >&2; fi
	@if command -v go >/dev/null && ! command -v helm >/dev/null && [ ! -x .tools/bin/helm ]; then deploy/install-helm.sh; fi
	$(BIN)/python -m tests.kubernetes.run --rolls $(ROLLS)

chaos-faults: $(VENV)/.dev  ## each kind of fault alone on a small cluster, and that it bites
	$(chaos_tools)
	$(BIN)/python -m pytest -q tests/chaos/faults

seaweedfs: $(VENV)/.dev  ## a real distributed S3 on loopback: the port's contract, and producers while it and agents are hurt
	@if ! command -v weed >/dev/null && [ ! -x .tools/seaweedfs/bin/weed ]; then \
	    tools/fetch-seaweedfs $(BIN)/python || echo "SeaweedFS cannot be had: nothing is run" >&2; fi
	$(BIN)/python -m tests.stores.run seaweedfs

azurite: $(VENV)/.dev  ## Azure's emulator of its Blob storage on loopback, likewise; needs Node
	@tools/fetch-azurite || echo "Azurite cannot be had: nothing is run" >&2
	$(BIN)/python -m tests.stores.run azurite

crash: $(VENV)/.dev  ## every crash state of the disk formats, and power cuts where the machine allows them
	$(BIN)/python -m tests.crash.run

cuts: $(VENV)/.dev  ## real processes killed between two steps of a commit, a roll or a collection, power cuts, and backups over a store that went on; COUNT=n, SEED=n
	$(BIN)/python -m tests.cuts.run --count $(or $(COUNT),200) $(if $(SEED),--seed $(SEED))

explore: $(VENV)/.dev  ## the core, and decisions about a partition log and a consumer group, through every state of small scopes; goes on where it was interrupted
	$(BIN)/python -m tests.explore.run_logs
	$(BIN)/python -m tests.explore.run_groups
	$(BIN)/python -m tests.explore.run

spec: $(VENV)/.dev  ## the specification through TLC; needs Java and Maven
	@if command -v mvn >/dev/null && command -v java >/dev/null && [ ! -d .tools/spec ]; then \
	    tools/fetch-jars spec || echo "TLC cannot be had: the specification is not checked" >&2; fi
	$(BIN)/python -m spec.run

COURSES ?= 200
traces: $(VENV)/.dev  ## what simulated members do, step by step in the specification; needs Java and Maven
	@if command -v mvn >/dev/null && command -v java >/dev/null && [ ! -d .tools/spec ]; then \
	    tools/fetch-jars spec || echo "TLC cannot be had: no course is followed" >&2; fi
	$(BIN)/python -m tests.traces.run_logs --seeds $$(($(COURSES) / 10))
	$(BIN)/python -m tests.traces.run_groups --seeds $$(($(COURSES) / 10))
	$(BIN)/python -m tests.traces.run --seeds $(COURSES)

fuzz: $(VENV)/.dev  ## malformed input for every decoder
	$(BIN)/python -m tests.fuzz.run

mutants: $(VENV)/.dev  ## planted bugs and mutations of the core: what catches each
	$(BIN)/python -m tests.mutants.run

methods: $(VENV)/.dev  ## bugs of the protocol: which method notices which, and in what time; Java and Maven for two of the six
	@if command -v mvn >/dev/null && command -v java >/dev/null && [ ! -d .tools/spec ]; then \
	    tools/fetch-jars spec || echo "TLC cannot be had: specification and courses are not asked" >&2; fi
	$(BIN)/python -m tests.mutants.methods

bench: $(VENV)/.dev  ## floors and figures of this machine, in one run, and what its peers reach beside
	$(call jars,kafka,Kafka)
	@if [ ! -x .tools/kubernetes/etcd ] && [ ! -x .tools/etcd/etcd ] && { command -v go || command -v apt-get; } >/dev/null; then \
	    tools/fetch-etcd || echo "etcd cannot be had: it is not measured" >&2; fi
	@bench/peers/prepare.sh || echo "the peers in Python cannot be had: they are not measured" >&2
	$(BIN)/python -m bench.run

peers:  ## see raftos hand out an acknowledged id again, and PySyncObj never sync
	bench/peers/run.sh raftos_repeat
	bench/peers/run.sh pysyncobj_nosync

witnesses: $(VENV)/.dev  ## other projects' tests and tools against Kafka and then against agents; needs Java 17, Maven, cargo, a C++ compiler, apt and Go; ONLY=name for one
	$(call jars,kafka,Kafka's broker)
	$(call jars,streams,Kafka Streams)
	@tools/fetch-witnesses || echo "the tests of other projects cannot be had: they are not run" >&2
	@tools/fetch-franz-go || echo "franz-go's tests cannot be had: they are not run" >&2
	$(BIN)/python -m tests.witnesses.run $(if $(ONLY),--only $(ONLY))

copies: $(VENV)/.dev  ## Kafka's system test of KIP-447, COUNT courses at a Kafka broker and then at agents; needs Java 17 and Maven; SEED=n, AT=kafka or pidkeeper for one of them
	$(call jars,kafka,Kafka's broker)
	$(BIN)/python -m tests.copying.run --count $(or $(COUNT),10) $(if $(SEED),--seed $(SEED)) $(if $(AT),--at $(AT))

chains: $(VENV)/.dev  ## franz-go's tests of groups, COUNT times while agents and the leader are killed; needs Go; SEED=n, AT=kafka for a Kafka broker, which needs Java 17 and Maven
	$(if $(filter kafka,$(AT)),$(call jars,kafka,Kafka's broker))
	@tools/fetch-franz-go
	$(BIN)/python -m tests.witnesses.chains $(if $(COUNT),--count $(COUNT)) $(if $(SEED),--seed $(SEED)) $(if $(AT),--at $(AT))

lock: $(VENV)/bin/python  ## write the locks again from pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	PATH="$(CURDIR)/$(BIN):$$PATH" requirements/lock.sh

clean:  ## remove what the targets made
	rm -rf $(VENV) build .mypy_cache .ruff_cache .pytest_cache .hypothesis
