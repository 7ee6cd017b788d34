#!/bin/bash
# Trains a small GPT with Megatron-LM's pretrain_gpt.py, unchanged, on the nodes that golaunch
# finds.
#
#   examples/megatron/run.sh [FLAG OF golaunch ...] [-- ARGUMENT OF pretrain_gpt.py ...]
#
# These variables change it:
#
#   MEGATRON   the directory of Megatron-LM (default ./Megatron-LM)
#   TP, PP     the tensor and pipeline parallel sizes (default 1); the data parallel size is the
#              number of ranks divided by both
#   DATA       the prefix of preprocessed data; without DATA, mock data
#   TOKENIZER  with DATA: a directory, or a name on Hugging Face
#   SAVE       the directory of the checkpoints, which all nodes share and from which every run
#              continues (default ./checkpoints)
flags=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
	flags+=("$1")
	shift
done
[ $# -eq 0 ] || shift

data=(--mock-data --tokenizer-type NullTokenizer --vocab-size 32000)
[ -z "$DATA" ] || data=(--data-path "$DATA" --split 99,1,0 --tokenizer-type HuggingFaceTokenizer --tokenizer-model "$TOKENIZER")
save=${SAVE:-$PWD/checkpoints}

exec golaunch --env CUDA_DEVICE_MAX_CONNECTIONS=1 "${flags[@]}" -- python3 "${MEGATRON:-$PWD/Megatron-LM}/pretrain_gpt.py" \
	--tensor-model-parallel-size "${TP:-1}" --pipeline-model-parallel-size "${PP:-1}" \
	--num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048 \
	--micro-batch-size 1 --global-batch-size 128 --train-iters 10000 --bf16 \
	--lr 3e-4 --min-lr 3e-5 --lr-decay-style cosine --lr-warmup-fraction .01 --weight-decay .1 --clip-grad 1 \
	--save "$save" --load "$save" --save-interval 500 --log-interval 10 --eval-interval 1000 --eval-iters 10 \
	--exit-signal-handler "${data[@]}" "$@"
