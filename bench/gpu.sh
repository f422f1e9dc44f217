#!/usr/bin/env bash
# What only a GPU can show, one part after the other; a part that fails stops none.
#
#   bench/gpu.sh OUT TEXT [PART ...]     PART: prepare tests speed processes serve make (all by default)
#
# TEXT is plain text of some million words, which OUT/data is prepared from. `serve` asks for MODEL, a folder that
# sentence-transformers opens, and `make` for DATA with glue/ and blimp/. Each part writes OUT/PART.log and its figures as
# OUT/*.json; OUT/parts.txt says how each ended. What is written there already is not made again.
set -u
out=$(realpath -m "$1") text=$(realpath "$2")
shift 2
cd "$(dirname "$0")/.." || exit
export PYTHONPATH=src:tests${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1 TOKENIZERS_PARALLELISM=false HF_HUB_OFFLINE=1
python=${PYTHON:-python3}
mkdir -p "$out"

part() { # NAME SECONDS COMMAND...: with its log, up to a time limit
    local name=$1 seconds=$2 began=$SECONDS
    shift 2
    timeout "$seconds" "$@" >>"$out/$name.log" 2>&1
    echo "$name: exit $? after $((SECONDS - began)) s" | tee -a "$out/parts.txt"
}

has() { [ -e "$out/$1" ]; }

prepare() {
    has tokenizer/tokenizer.json || part prepare 120 "$python" -m bertsmith tokenizer "$text" --out "$out/tokenizer"
    part prepare 180 "$python" -m bertsmith prepare "$text" --tokenizer "$out/tokenizer" --out "$out/data"
}
tests() {
    part tests 420 "$python" -m pytest -m gpu -v -p no:cacheprovider ${PYTEST_OPTIONS:-}
}
speed() {
    has pretrain.json || part speed 200 "$python" bench/pretrain.py "$out/data" --sizes ${SIZE:-bert-base} --lengths 128 \
        --rows ragged --alone --out "$out/pretrain.json"
}
processes() {
    has torchrun.json || part processes 300 "$python" bench/torchrun.py "$out/data" --recipe ${SIZE:-bert-base} \
        --losses ${SMALL:-bert-small} --out "$out/torchrun.json"
    has overlap.json || part processes 90 "$python" bench/overlap.py --device ${DEVICE:-cuda} --rows 64 --length 128 \
        --out "$out/overlap.json"
}
serve() {
    has serve.json || part serve 240 "$python" bench/serve.py "${MODEL:?a folder}" --device ${DEVICE:-cuda} --seconds 3 \
        --rounds 2 --clients 16 64 --shapes 512x1 512x16 16x1 --out "$out/serve.json"
}
make() {
    has make.json || part make 1200 "$python" bench/make.py "$text" "${DATA:?a folder}" --budget ${BUDGET:-10m} \
        --work "$out/make" --out "$out/make.json"
}

for name in ${*:-prepare tests speed processes serve make}; do
    "$name"
done
