"""The pods of the chart as processes: what templates say is done as a kubelet does it, without a container engine.

A pod has a network, a mount, a process namespace and a host name of its own, addresses that change with each start, a
root file system of the machine's libraries, Python and the package alone, all read-only, and the user, the environment,
the mounted configuration and secrets, the probes, the grace and the signals of its specification. What is left out:
cgroups (no limit of memory or CPU holds), seccomp, and a container image.
"""
