#!/bin/bash
# Megatron-LM's pretrain_gpt.py under golaunch: a small GPT, as it stands, wherever golaunch finds
# nodes.
#
#   examples/megatron/run.sh [FLAG OF golaunch ...] [-- ARGUMENT OF pretrain_gpt.py ...]
#
# MEGATRON   Megatron-LM's directory (./Megatron-LM) TP, PP     tensor and pipeline parallel sizes
# (1); data parallel is what is left of the ranks DATA       prefix of the preprocessed data, with
# TOKENIZER, a directory or name of Hugging Face's; mock data without SAVE       directory of the
# checkpoints, shared by the nodes, where every run begins (./checkpoints)
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
