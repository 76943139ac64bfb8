#!/bin/sh
# What gecli does, end to end, on a real trained model and a training graph. Run it with `make demo`.
set -eu
cd "$(dirname "$0")/.."
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT INT TERM
mkdir "$out/cache"

bold= plain=
if [ -t 1 ]; then bold=$(printf '\033[1m') plain=$(printf '\033[0m'); fi
say() { printf '\n%s%s%s\n' "$bold" "$*" "$plain"; }
show() { printf '$ %s\n' "$*"; "$@"; }

say "1. Compile a trained digit classifier: ONNX in, OM out"
show gecli compile samples/digits/digits.onnx -o "$out/digits.om" --input-shape image:360,1,8,8 --cache-dir "$out/cache"

say "2. What is in the file"
show gecli inspect-om "$out/digits.om"

say "3. Compile again: the cache answers"
show gecli compile samples/digits/digits.onnx -o "$out/digits.om" --input-shape image:360,1,8,8 --cache-dir "$out/cache"
show gecli cache ls --cache-dir "$out/cache"

say "4. Run it on 360 images it has never seen, and compare with the source model's own outputs"
show gecli run "$out/digits.om" -i samples/digits/test_images.npz -o "$out/probabilities.npz" \
    --compare samples/digits/expected.npz --rtol 1e-4 --atol 1e-6
show python samples/digits/accuracy.py "$out/probabilities.npz" samples/digits/test_labels.npy

say "5. Compile initialisation, training and evaluation in one session: they share the variables"
show gecli compile samples/train/conv_init.json samples/train/conv_train.json samples/train/conv_eval.json \
    -o "$out/train/" --train
show gecli inspect-om --vars "$out/train/conv_train.om"

say "6. Initialise, loss before training, 60 steps, loss after training"
show gecli run "$out/train/conv_init.om" --save-vars "$out/before.npz" -o "$out/start.npz" --quiet
show gecli run "$out/train/conv_eval.om" -i samples/train/held_out.npz --load-vars "$out/before.npz" -o "$out/eval0.npz"
show gecli run "$out/train/conv_train.om" -i samples/train/batches.npz --load-vars "$out/before.npz" \
    --save-vars "$out/after.npz" -o "$out/losses.npz" --quiet
show gecli run "$out/train/conv_eval.om" -i samples/train/held_out.npz --load-vars "$out/after.npz" -o "$out/eval1.npz"
show python samples/train/progress.py "$out/eval0.npz" "$out/losses.npz" "$out/eval1.npz" "$out/before.npz" "$out/after.npz"
