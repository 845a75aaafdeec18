"""The chart on a real Kubernetes: API server, controllers and scheduler, with the product's processes as pods.

`python -m tests.kubernetes.run` is the whole of it. `tools/fetch-kubernetes` builds the programs; what a node does is
done here (`kubelet`), for there is no container engine: pods are processes in namespaces, as in `tests/pods`.
"""
