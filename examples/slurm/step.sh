#!/bin/bash
# Does the same as plain.sh with an srun of your own, to which you can add the options that your
# cluster needs. golaunch is the only task on each node, and starts a rank on each GPU of the node.
# --cpu-bind=none lets the ranks use all CPUs of the node.
#
#   sbatch examples/slurm/step.sh [ARGUMENT OF train.py ...]
#
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
exec srun --ntasks-per-node=1 --cpu-bind=none golaunch -- python3 train.py "$@"
