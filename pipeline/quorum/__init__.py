"""What the files of a quorum's members show: kernels over archives, logs and snapshots, and what follows from them."""
