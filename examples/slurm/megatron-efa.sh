#!/bin/bash
# Trains with Megatron-LM on nodes with EFA. --env-preset efa sets FI_EFA_USE_HUGE_PAGE=0, and the
# interface for the sockets of NCCL and gloo. With libfabric before 1.18, or aws-ofi-nccl before
# 1.7, use efa-classic (docs/nccl.md). `golaunch plan --explain --rank 0` shows all variables.
#
#   MEGATRON=~/Megatron-LM TP=8 PP=2 DATA=~/data/my_text_document sbatch examples/slurm/megatron-efa.sh [ARGUMENT OF pretrain_gpt.py ...]
#
# Submit it from the directory above examples/, because it runs examples/megatron/run.sh.
#
#SBATCH --job-name=megatron
#SBATCH --nodes=2
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
#SBATCH --signal=TERM@180
export TP=${TP:-8} PP=${PP:-2}
exec srun --ntasks-per-node=1 --cpu-bind=none examples/megatron/run.sh --env-preset efa --grace 150s -- "$@"
