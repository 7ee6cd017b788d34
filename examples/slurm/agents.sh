#!/bin/bash
# Runs a cluster of golaunch (docs/cluster.md) on the nodes of a Slurm job, until the Slurm job
# ends. You submit jobs to the cluster from another machine, and they start without waiting for
# Slurm. All these machines share ~/.golaunch/token.
#
#   sbatch examples/slurm/agents.sh
#   golaunch --coordinator FIRST_NODE:29400 --nodes 2 -- python3 train.py
#
#SBATCH --job-name=agents
#SBATCH --nodes=2
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
golaunch coordinator --listen "$SLURMD_NODENAME:29400" &
exec srun --ntasks-per-node=1 --cpu-bind=none golaunch agent --coordinator "$SLURMD_NODENAME:29400"
